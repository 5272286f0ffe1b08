"""tensorize with loops in any order, tiling for an intrinsic, the registry of intrinsics."""

from __future__ import annotations

import random

import intrin_cases
import numpy as np
import pytest
from schedule_cases import chain, check, compiled_agrees, conv2d, matmul, refuses

from tilewright import te
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.testing.fuzz.intrinsics import copy_intrinsic
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import (
    Schedule,
    get_tensorize_loop_mapping,
    tile_with_tensor_intrin,
)
from tilewright.tir.tensor_intrin import TensorIntrin


def tiles(sch: Schedule, *factors: int) -> tuple[list, list]:
    outer, inner = [], []
    for loop, factor in zip(sch.get_loops("C"), factors):
        x, y = sch.split(loop, [None, factor])
        outer.append(x)
        inner.append(y)
    return outer, inner


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_loops_in_any_order(order: tuple[int, ...]) -> None:
    before = matmul(12, 16, 9)
    sch = Schedule(before, check=True)
    outer, inner = tiles(sch, 4, 8, 3)
    inner = [inner[n] for n in order]
    sch.reorder(*outer, *inner)
    block = sch.tensorize(inner[0], "test_mma_4x8x3")
    assert [m.buffer.name for m in sch.get(block).match_buffers] == ["A", "B", "C"]
    check(sch, before)
    compiled_agrees(sch, before)


def test_loops_split_further() -> None:
    before = matmul(12, 16, 9)
    sch = Schedule(before, check=True)
    outer, (i, j, k) = tiles(sch, 4, 8, 3)
    j0, j1 = sch.split(j, [2, 4])
    sch.reorder(*outer, j0, k, i, j1)
    sch.tensorize(j0, "test_mma_4x8x3")
    check(sch, before)


def test_equal_extents_are_told_apart_by_what_they_index() -> None:
    """All extents are 4, and the program computes the transpose."""
    a, b = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    r = te.reduce_axis((0, 8), "r")
    c = te.compute((8, 8), lambda i, j: te.sum(b[i, r] * a[r, j], axis=r), name="C")
    before = te.create_prim_func([a, b, c])
    for names in ((0, 1, 2), (1, 0, 2)):
        sch = Schedule(before, check=True)
        outer, inner = tiles(sch, 4, 4, 4)
        sch.reorder(*outer, *(inner[n] for n in names))
        sch.tensorize(inner[names[0]], "test_mma_4x4x4")
        check(sch, before)


def test_a_transposed_result_is_something_else() -> None:
    a, b = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    r = te.reduce_axis((0, 8), "r")
    c = te.compute((8, 8), lambda i, j: te.sum(a[j, r] * b[i, r], axis=r), name="C")
    sch = Schedule(te.create_prim_func([a, b, c]))
    outer, inner = tiles(sch, 4, 4, 4)
    sch.reorder(*outer, *inner)
    refuses(sch, lambda: sch.tensorize(inner[0], "test_mma_4x4x4"), "does not run along")


def test_symbolic_rows() -> None:
    n = te.var("n")
    a, b = te.placeholder((n * 4, 9), name="A"), te.placeholder((9, 8), name="B")
    r = te.reduce_axis((0, 9), "r")
    c = te.compute((n * 4, 8), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    before = te.create_prim_func([a, b, c, te.placeholder((n,), name="rows")])
    sch = Schedule(before, check=True)
    loop = tile_with_tensor_intrin(sch, sch.get_block("C"), "test_mma_4x8x3")
    assert loop is not None
    sch.tensorize(loop, "test_mma_4x8x3")
    rng = np.random.default_rng(0)
    for rows in (1, 3):
        x = rng.integers(-4, 5, (rows * 4, 9)).astype("float32")
        y = rng.integers(-4, 5, (9, 8)).astype("float32")
        out = np.zeros((rows * 4, 8), "float32")
        run(sch.mod["main"], x, y, out, np.zeros(rows, "float32"))
        np.testing.assert_array_equal(out, x @ y)


IN_PLACE = """
from tilewright.script import tir as T

@T.prim_func
def main(C: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i0, j0, k0 in T.grid(2, 2, 2):
        with T.block("outer"):
            vi, vj, vk = T.axis.remap("SSR", [i0, j0, k0])
            T.reads(C[0:8, 0:8], B[0:8, 0:8])
            T.writes(C[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4])
            for i, j, k in T.grid(4, 4, 4):
                with T.block("C"):
                    ui, uj, uk = T.axis.remap("SSR", [i, j, k])
                    C[vi * 4 + ui, vj * 4 + uj] = (
                        C[vi * 4 + ui, vj * 4 + uj]
                        + C[vi * 4 + ui, vk * 4 + uk] * B[vk * 4 + uk, vj * 4 + uj]
                    )
"""


def test_operand_and_result_in_one_buffer() -> None:
    sch = Schedule(parse(IN_PLACE))
    block = sch.get_block("outer")
    refuses(sch, lambda: sch.tensorize(block, "test_mma_4x4x4"), "does not do what")


def test_order_of_an_opaque_nest_stays() -> None:
    """A running sum of 16 numbers: reversed loops or not, only the description's order will do."""
    text = """
    for i in range(16):
        with T.block("scan"):
            vi = T.axis.opaque(16, i)
            Y[vi] = X[vi] + X[0]
"""
    func = intrin_cases.elementwise(text)
    TensorIntrin.register("test_opaque", func, func, override=True)
    before = parse(
        """
from tilewright.script import tir as T

@T.prim_func
def main(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
    for i0 in range(2):
        with T.block("B_o"):
            vo = T.axis.spatial(2, i0)
            T.reads(A[vo * 16 : vo * 16 + 16])
            T.writes(B[vo * 16 : vo * 16 + 16])
            for i1 in range(16):
                with T.block("B"):
                    vi = T.axis.opaque(16, i1)
                    B[vo * 16 + vi] = A[vo * 16 + vi] + A[vo * 16]
"""
    )
    sch = Schedule(before, check=True)
    sch.tensorize("B_o", "test_opaque")
    check(sch, before)


@pytest.mark.parametrize("seed", range(12))
def test_random_tilings(seed: int) -> None:
    rng = random.Random(seed)
    name, factors = rng.choice([("test_mma_4x8x3", (4, 8, 3)), ("test_mma_4x4x4", (4, 4, 4))])
    sizes = [factor * rng.randint(1, 3) for factor in factors]
    before = matmul(*sizes)
    sch = Schedule(before, check=True)
    outer, inner = tiles(sch, *factors)
    rng.shuffle(outer)
    if rng.random() < 0.5:
        n = rng.randrange(3)
        factor = rng.choice([f for f in (1, 2, 4) if factors[inner.index(inner[n])] % f == 0])
        inner[n : n + 1] = sch.split(inner[n], [None, factor])
    rng.shuffle(inner)
    sch.reorder(*outer, *inner)
    block = sch.tensorize(inner[0], name, preserve_unit_iters=rng.random() < 0.5)
    check(sch, before)
    if rng.random() < 0.5 and sch.get_loops(block):
        sch.decompose_reduction(block, sch.get_loops(block)[0])
        check(sch, before)
    again = Schedule(before)
    sch.trace.apply_to_schedule(again)
    check(again, before)


# ---- tiling for an intrinsic --------------------------------------------------------------------


def batched(batch: int = 2, n: int = 8, m: int = 16, k: int = 9) -> PrimFunc:
    a, b = te.placeholder((batch, n, k), name="A"), te.placeholder((batch, k, m), name="B")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((batch, n, m), lambda x, i, j: te.sum(a[x, i, r] * b[x, r, j], axis=r), name="C")
    return te.create_prim_func([a, b, c])


def test_mapping_of_a_batched_product() -> None:
    sch = Schedule(batched())
    block = sch.get_block("C")
    desc = TensorIntrin.get("test_mma_4x8x3").desc
    info = get_tensorize_loop_mapping(sch, block, desc)
    assert info is not None
    found = {loop.var.name: theirs.loop_var.name for loop, theirs in info.loop_map.items()}
    assert found == {"i": "m", "j": "n", "r": "k"}
    assert [info.desc_loop_indexer[x] for x in info.loop_map.values()] == [0, 1, 2]
    assert {a.var.name: b.name for a, b in info.iter_map.items()} == {
        "v_i": "vm",
        "v_j": "vn",
        "v_r": "vk",
    }
    assert info.block_iter_paddings is None


def test_mapping_follows_what_is_accessed() -> None:
    """``C[j, i]`` of a transposed product: rows of the intrinsic are columns of the loops."""
    a, b = te.placeholder((8, 9), name="A"), te.placeholder((9, 16), name="B")
    r = te.reduce_axis((0, 9), "r")
    c = te.compute((8, 16), lambda i, j: te.sum(b[r, j] * a[i, r], axis=r), name="C")
    sch = Schedule(te.create_prim_func([a, b, c]))
    sch.reorder(*reversed(sch.get_loops("C")))
    sch.transform_block_layout("C", lambda i, j, r: (j, i, r))
    desc = TensorIntrin.get("test_mma_4x8x3").desc
    info = get_tensorize_loop_mapping(sch, sch.get_block("C"), desc)
    assert info is not None
    extents = {sch.get(loop).extent.value: x.loop_var.name for loop, x in info.loop_map.items()}
    assert extents == {8: "m", 16: "n", 9: "k"}


@pytest.mark.parametrize(
    "func", [batched(n=6), batched(m=12), chain(8, 8)], ids=["rows", "columns", "chain"]
)
def test_no_mapping(func: PrimFunc) -> None:
    sch = Schedule(func)
    block = sch.get_block("C")
    mod = sch.mod
    desc = TensorIntrin.get("test_mma_4x8x3").desc
    assert get_tensorize_loop_mapping(sch, block, desc) is None
    assert tile_with_tensor_intrin(sch, block, "test_mma_4x8x3") is None
    assert sch.mod is mod


def test_tile_and_tensorize() -> None:
    before = batched()
    sch = Schedule(before, check=True)
    loop = tile_with_tensor_intrin(sch, sch.get_block("C"), "test_mma_4x8x3")
    assert [x.var.name for x in sch.get_loops("C")][:4] == ["x", "i_0", "j_0", "r_0"]
    sch.tensorize(loop, "test_mma_4x8x3")
    check(sch, before)
    compiled_agrees(sch, before)
    again = Schedule(before)
    sch.trace.apply_to_schedule(again)
    check(again, before)


def test_tile_what_is_tiled_already() -> None:
    before = batched(n=16)
    sch = Schedule(before, check=True)
    _, i, *_ = sch.get_loops("C")
    sch.split(i, [2, 8])
    loop = tile_with_tensor_intrin(sch, sch.get_block("C"), "test_mma_4x8x3")
    assert loop is not None
    sch.tensorize(loop, "test_mma_4x8x3")
    check(sch, before)


@pytest.mark.parametrize("sizes", [(5, 7, 4), (3, 16, 3), (1, 1, 1), (8, 8, 10)])
def test_tile_with_padding(sizes: tuple[int, int, int]) -> None:
    before = matmul(*sizes)
    sch = Schedule(before, check=True)
    block = sch.get_block("C")
    if any(size % factor for size, factor in zip(sizes, (4, 8, 3))):
        assert tile_with_tensor_intrin(sch, block, "test_mma_4x8x3") is None
    loop = tile_with_tensor_intrin(sch, block, "test_mma_4x8x3", allow_padding=True)
    assert loop is not None
    sch.tensorize(loop, "test_mma_4x8x3")
    check(sch, before)
    compiled_agrees(sch, before)


# ---- the registry -------------------------------------------------------------------------------


def test_registry() -> None:
    one = TensorIntrin.register("test_registry", intrin_cases.ADD_ONE, intrin_cases.ADD_ONE_VECTOR)
    try:
        assert "test_registry" in TensorIntrin.names()
        assert TensorIntrin.get("test_registry") is one
        with pytest.raises(ScheduleError, match="registered twice"):
            TensorIntrin.register("test_registry", one.desc, one.impl)
        two = TensorIntrin.register("test_registry", one.desc, one.desc, override=True)
        assert TensorIntrin.get("test_registry") is two is not one
        with pytest.raises(ScheduleError, match="did you mean 'test_registry'"):
            TensorIntrin.get("test_registy")
        assert TensorIntrin.get("test_registy", allow_missing=True) is None
    finally:
        TensorIntrin._registry._entries.pop("test_registry")


def test_rows_of_a_convolution() -> None:
    """The product of channels at one place of the window is a product of matrices."""
    before = conv2d(size=8, channels=6, filters=8)
    sch = Schedule(before, check=True)
    loop = tile_with_tensor_intrin(sch, sch.get_block("conv"), "test_mma_4x8x3")
    assert loop is not None
    block = sch.tensorize(loop, "test_mma_4x8x3")
    check(sch, before)
    sch.decompose_reduction(block, sch.get_loops(block)[3])
    sch.parallel(sch.get_loops(block)[0])
    check(sch, before)
    compiled_agrees(sch, before)


def test_a_stride_is_in_the_way() -> None:
    sch = Schedule(conv2d(size=16, channels=6, filters=8, stride=2))
    assert tile_with_tensor_intrin(sch, sch.get_block("conv"), "test_mma_4x8x3") is None


def test_random_products_are_taken_only_if_they_are_the_intrinsic() -> None:
    rng = random.Random(5)
    taken = 0
    for _ in range(60):
        x, y = te.placeholder((8, 8), name="X"), te.placeholder((8, 8), name="Y")
        if rng.random() < 0.1:
            y = x
        r = te.reduce_axis((0, 8), "r")
        first, second = (rng.sample("ijr", 2) for _ in range(2))

        def term(i: object, j: object) -> object:
            axes = {"i": i, "j": j, "r": r.var}  # noqa: B023
            left = x[tuple(axes[name] for name in first)]  # noqa: B023
            right = y[tuple(axes[name] for name in second)]  # noqa: B023
            return te.sum(left * right, axis=r)  # noqa: B023

        c = te.compute((8, 8), term, name="C")
        before = te.create_prim_func([x, y, c] if y is not x else [x, c])
        sch = Schedule(before, check=True)
        if rng.random() < 0.3:
            order = rng.sample(range(3), 3)
            sch.reorder(*(sch.get_loops("C")[n] for n in order))
        loop = tile_with_tensor_intrin(sch, sch.get_block("C"), "test_mma_4x4x4")
        if loop is None:
            outer, inner = tiles(sch, 4, 4, 4)
            sch.reorder(*outer, *rng.sample(inner, 3))
            loop = sch.get_loops("C")[3]
            with pytest.raises(ScheduleError, match="does not do what"):
                sch.tensorize(loop, "test_mma_4x4x4")
            continue
        sch.tensorize(loop, "test_mma_4x4x4")
        check(sch, before)
        taken += 1
    assert 0 < taken < 30


def test_regions_of_indices_from_memory_must_hold_what_the_intrinsic_accesses() -> None:
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((2, 12), "float32"), Z: T.Buffer((2, 12), "float32")):
    for i, j in T.grid(2, 12):
        with T.block("Z"):
            v, w = T.axis.remap("SS", [i, j])
            Z[v, w] = A[v, w]
""")
    )
    sch.blockize(sch.get_loops("Z")[0])
    sch.cache_index("Z_o", "global")
    before = sch.mod
    with pytest.raises(ScheduleError, match="not surely in the regions of block 'Z_o_1'"):
        sch.tensorize(sch.get_loops("Z")[1], copy_intrinsic("float32", 12))
    assert sch.mod is before


def test_an_index_from_memory_that_no_loop_changes_is_where_the_intrinsic_begins() -> None:
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((3, 1), "float32"), F: T.Buffer((1,), "int32"), Z: T.Buffer((3,), "float32")):
    for k, j in T.grid(1, 1):
        with T.block("Z"):
            vk = T.axis.opaque(1, k)
            Z[T.Cast("int64", F[vk])] = A[T.Cast("int64", F[vk]), vk]
""")
    )
    sch.tensorize(sch.get_loops("Z")[1], copy_intrinsic("float32", 1))
    verify(sch.mod)
