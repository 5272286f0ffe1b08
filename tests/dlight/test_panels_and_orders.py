"""Contractions written row by row, with panels that are gathered, or that are parts of operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import dlight, driver, te, topi
from tilewright.dlight.cpu import rules
from tilewright.ir import IRModule, Var, as_int, collect
from tilewright.target import Target
from tilewright.tir import Block, BufferStore, For, PrimFunc
from tilewright.tir.attrs import LAYOUT_FREE, LAYOUT_REWRITE
from tilewright.tir.layout_rewrite import split_layout_rewrite

torch = pytest.importorskip("torch")
F = torch.nn.functional

NATIVE = Target("native").with_options(num_cores=1)
SMALL = NATIVE.with_options(l1=4096, l2=16384)


def scheduled(func: PrimFunc, target: Target) -> PrimFunc:
    made: PrimFunc = dlight.ApplyDefaultSchedule(*rules(), target=target)(IRModule({"main": func}))[
        "main"
    ]
    return made


def computed(func: PrimFunc, target: Target) -> tuple[list[Any], Any]:
    """Run on random operands, with what is constant packed; return the operands and the result."""
    rng = np.random.default_rng(0)
    main, packers = split_layout_rewrite(scheduled(func, target))
    shapes = [[as_int(e) or 0 for e in buffer.shape] for buffer in func.buffers]
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes[:-1]]
    operands = list(arrays)
    for position, packer in packers.items():
        packed = np.full([as_int(e) for e in packer.buffers[1].shape], np.nan, "float32")
        driver.compile(packer, target)(operands[position], packed)
        operands[position] = packed
    out = np.full(shapes[-1], np.nan, "float32")
    driver.compile(main, target)(*operands, out)
    return arrays, out


def product(m: int, n: int, k: int, *, across: bool = False) -> PrimFunc:
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((n, k) if across else (k, n), name="B")
    return te.create_prim_func([a, b, topi.matmul(a, b, transp_b=across)])


def first_rows(func: PrimFunc) -> bool:
    """Whether of the loops over tiles that over rows is the outer one."""
    (update,) = [b for b in collect(func.body, Block) if b.name.endswith("_update")]
    loops = [loop for loop in collect(func.body, For) if update in collect(loop.body, Block)]
    names = [loop.loop_var.name for loop in loops]
    return names.index("i0_0") < names.index("i1_0")


# ---- rows of the result one after the other


def test_results_of_short_reductions_are_written_row_by_row() -> None:
    assert first_rows(scheduled(product(128, 256, 3), SMALL))
    assert not first_rows(scheduled(product(128, 256, 300), SMALL))
    assert not first_rows(scheduled(product(128, 256, 3), SMALL.with_options(l2=1 << 20)))


def test_threads_share_rows_where_a_few_columns_are_cut_off() -> None:
    wide = Target("llvm -mcpu=znver4 -num-cores=2")
    assert first_rows(scheduled(product(197, 197, 64), wide))
    assert not first_rows(scheduled(product(197, 197, 64), wide.with_options(num_cores=1)))
    assert not first_rows(scheduled(product(512, 1000, 512), wide))


@pytest.mark.parametrize(("m", "blocks"), [(1100, 17), (1003, 16), (150, None)])
def test_rows_that_pass_by_each_panel_come_in_blocks(m: int, blocks: int | None) -> None:
    func, caches = product(m, 192, 300).with_attr(LAYOUT_FREE, [1]), "-l1=32768 -l2=262144"
    target = Target(f"llvm -mcpu=x86-64-v3 -num-cores=1 {caches}")
    loops = collect(scheduled(func, target).body, For)
    outer = next(loop for loop in loops if "_update" in str(loop.body))
    # The rows of a block, at least 64, stay in the cache; else panels of 16 columns are outside.
    assert as_int(outer.extent) == (blocks or 192 // 16)
    (a, b), out = computed(func, NATIVE.with_options(l1=32768, l2=262144))
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize("across", [False, True], ids=["side-by-side", "across"])
@pytest.mark.parametrize("constant", [False, True], ids=["dynamic", "constant"])
@few("shape", [(97, 61, 5), (33, 197, 9), (64, 128, 1), (130, 96, 8)], every=3, ids=str)
def test_products_by_rows(
    shape: tuple[int, int, int], constant: bool, across: bool, cores: int
) -> None:
    func = product(*shape, across=across)
    func = func.with_attr(LAYOUT_FREE, [1]) if constant else func
    (a, b), out = computed(func, SMALL.with_options(num_cores=cores))
    expected = a.astype("float64") @ (b.T if across else b).astype("float64")
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cores", [1, 2])
def test_batches_by_rows(cores: int) -> None:
    a, b = te.placeholder((3, 2, 37, 8), name="A"), te.placeholder((3, 2, 8, 53), name="B")
    func = te.create_prim_func([a, b, topi.matmul(a, b)])
    (x, y), out = computed(func, SMALL.with_options(num_cores=cores))
    np.testing.assert_allclose(out, x.astype("float64") @ y, rtol=1e-4, atol=1e-4)


# ---- gathered panels


def strided(channels: int, width: int, filters: int, kernel: int, stride: int) -> PrimFunc:
    x = te.placeholder((1, channels, width), name="X")
    w = te.placeholder((filters, channels, kernel), name="W")
    return te.create_prim_func([x, w, topi.nn.conv1d(x, w, strides=stride)])


def gathers(func: PrimFunc) -> bool:
    return any("reindex" in block.name for block in collect(func.body, Block))


def test_what_many_filters_read_apart_is_gathered() -> None:
    assert gathers(scheduled(strided(1, 1600, 512, 10, 5), NATIVE))
    assert not gathers(scheduled(strided(1, 1600, 16, 10, 5), NATIVE))
    assert not gathers(scheduled(strided(1, 1600, 512, 10, 1), NATIVE))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("small", [False, True], ids=["by-columns", "by-rows"])
@pytest.mark.parametrize(
    ("channels", "width", "kernel", "stride"), [(1, 499, 10, 5), (3, 131, 3, 2), (2, 90, 4, 7)]
)
def test_gathered_panels(
    channels: int, width: int, kernel: int, stride: int, small: bool, cores: int
) -> None:
    func = strided(channels, width, 256, kernel, stride)
    target = (SMALL.with_options(l2=1 << 15) if small else NATIVE).with_options(num_cores=cores)
    assert gathers(scheduled(func, target))
    (x, w), out = computed(func, target)
    expected = F.conv1d(torch.from_numpy(x).double(), torch.from_numpy(w).double(), stride=stride)
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-4, atol=1e-4)


# ---- parts of an operand


def grouped(groups: int, each: int, filters: int, size: int) -> PrimFunc:
    x = te.placeholder((1, groups * each, size, size), name="X")
    w = te.placeholder((groups * filters, each, 3, 3), name="W")
    func = te.create_prim_func([x, w, topi.nn.conv2d(x, w, padding=1, groups=groups)])
    return func.with_attr(LAYOUT_FREE, [1])


def test_filters_of_a_group_are_packed_together() -> None:
    made = scheduled(grouped(4, 32, 32, 7), NATIVE)
    (panels,) = [b for b in collect(made.body, Block) if b.annotations.get(LAYOUT_REWRITE)]
    (store,) = collect(panels.body, BufferStore)
    number, width = as_int(store.buffer.shape[0]), as_int(store.buffer.shape[-1])
    assert number is not None
    assert width is not None
    assert number * width == 128
    assert 32 % width == 0
    assert not any(isinstance(index, Var) for index in (store.indices[0], store.indices[-1]))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("groups", "each", "filters", "size"), [(4, 32, 32, 7), (3, 5, 16, 14), (2, 8, 24, 5)]
)
def test_groups(groups: int, each: int, filters: int, size: int, cores: int) -> None:
    func = grouped(groups, each, filters, size)
    (x, w), out = computed(func, NATIVE.with_options(num_cores=cores))
    x64, w64 = torch.from_numpy(x).double(), torch.from_numpy(w).double()
    expected = F.conv2d(x64, w64, padding=1, groups=groups)
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-4, atol=1e-4)


# ---- filters that come with each call


@pytest.mark.parametrize(
    ("channels", "size", "filters", "kernel"), [(256, 14, 64, 1), (48, 7, 32, 3), (7, 9, 32, 3)]
)
def test_filters_of_a_call_are_transposed_in_registers(
    channels: int, size: int, filters: int, kernel: int
) -> None:
    x = te.placeholder((1, channels, size, size), name="X")
    w = te.placeholder((filters, channels, kernel, kernel), name="W")
    func = te.create_prim_func([x, w, topi.nn.conv2d(x, w, padding=kernel // 2)])
    target = NATIVE.with_options(num_cores=1)
    wide = Target("llvm -mcpu=icelake-server -num-cores=1 -l1=49152 -l2=1310720")
    made = scheduled(func, wide)
    (a, b), out = computed(func, target)
    expected = F.conv2d(
        torch.from_numpy(a).double(), torch.from_numpy(b).double(), padding=kernel // 2
    )
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-4, atol=1e-4)
    if channels * kernel * kernel % 4 == 0:
        packs = [b for b in collect(made.body, Block) if b.annotations.get(LAYOUT_REWRITE)]
        assert len(packs) == 1
        vectors = {item for item in collect(made.body, For) if item.kind == "vectorized"}
        (nest,) = [loop for loop in vectors if packs[0] in collect(loop.body, Block)]
        assert as_int(nest.extent) == wide.vector_lanes(32)


def test_few_rows_are_not_worth_panels_that_are_padded_one_by_one() -> None:
    a, b = te.placeholder((8, 49, 32), name="A"), te.placeholder((8, 49, 32), name="B")
    func = te.create_prim_func([a, b, topi.matmul(a, b, False, True)])
    assert gathers(scheduled(func, NATIVE)) or not NATIVE.has("avx512f")
