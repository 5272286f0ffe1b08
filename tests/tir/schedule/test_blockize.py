"""blockize and tensorize."""

from __future__ import annotations

import random

import pytest
from schedule_cases import chain, check, compiled_agrees, matmul, refuses

from tilewright import te
from tilewright.script import parse
from tilewright.support.errors import ScheduleError, VerifyError
from tilewright.tir.analysis import REDUCTION, block_facts
from tilewright.tir.schedule import Schedule, Trace
from tilewright.tir.tensor_intrin import TensorIntrin

DESC = """
@T.prim_func
def main(
    A: T.Buffer((4, 5), "float32"),
    B: T.Buffer((5, 8), "float32"),
    C: T.Buffer((4, 8), "float32"),
):
    with T.block("root"):
        T.reads(A[0:4, 0:5], B[0:5, 0:8], C[0:4, 0:8])
        T.writes(C[0:4, 0:8])
        for i, j, k in T.grid(4, 8, 5):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

IMPL = """
@T.prim_func
def main(
    A: T.Buffer((4, 5), "float32"),
    B: T.Buffer((5, 8), "float32"),
    C: T.Buffer((4, 8), "float32"),
):
    with T.block("root"):
        T.reads(A[0:4, 0:5], B[0:5, 0:8], C[0:4, 0:8])
        T.writes(C[0:4, 0:8])
        for k, i, j in T.grid(5, 4, 8):
            with T.block("update"):
                vk, vi, vj = T.axis.remap("RSS", [k, i, j])
                C[vi, vj] = B[vk, vj] * A[vi, vk] + C[vi, vj]
"""

TensorIntrin.register("test_mma_4x8x5", parse(DESC), parse(IMPL))
TensorIntrin.register("test_wrong", parse(DESC), parse(IMPL.replace("+ C", "- C")))


def tiled(check_each: bool = True):
    before = matmul(12, 16, 10)
    sch = Schedule(before, check=check_each)
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 8])
    k0, k1 = sch.split(k, [None, 5])
    sch.reorder(i0, j0, k0, i1, j1, k1)
    return before, sch, i1, j1


def test_blockize_elementwise():
    before = chain(16, 12)
    sch = Schedule(before, check=True)
    i, _ = sch.get_loops("D")
    _, i1 = sch.split(i, [4, 4])
    block = sch.blockize(i1)
    assert block.name == "D_o"
    made = sch.get(block)
    assert [item.dom.extent.value for item in made.iter_vars] == [4, 1]
    assert [r.extent.value for r in made.writes[0].region] == [4, 12]
    assert len(sch.get_loops("D")) == 2
    assert len(sch.get_loops(block)) == 1
    assert [item.name for item in sch.get_child_blocks(block)] == ["D"]
    check(sch, before)


def test_blockize_without_unit_iters():
    sch = Schedule(chain(16, 12), check=True)
    i, _ = sch.get_loops("D")
    block = sch.blockize(i, preserve_unit_iters=False)
    assert sch.get(block).iter_vars == ()


def test_blockize_reduction_moves_init_outside():
    before, sch, i1, _ = tiled()
    block = sch.blockize(i1)
    made = sch.get(block)
    assert [item.kind for item in made.iter_vars] == ["spatial", "spatial", "reduce"]
    assert made.init is not None
    assert sch.get(sch.get_block("C")).init is None
    check(sch, before)
    loops = sch.get_loops(block)
    sch.reorder(loops[2], loops[0])
    sch.parallel(loops[1])
    check(sch, before)


def test_blockize_with_a_remainder():
    """What the last piece lacks stays a condition, and is no part of the regions."""
    before = matmul(12, 16, 10)
    sch = Schedule(before, check=True)
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 5])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(i0, k0, i1, j, k1)
    block = sch.blockize(i1)
    made = sch.get(block)
    assert [item.dom.extent.value for item in made.iter_vars] == [3, 1, 3]
    assert "T.min(5, 12 - v_i_o * 5)" in sch.mod["main"].script()
    check(sch, before)
    assert block_facts(made).kind == REDUCTION
    i0, k0 = sch.get_loops(block)
    sch.reorder(k0, i0)
    sch.parallel(i0)
    check(sch, before)
    compiled_agrees(sch, before)


def test_blockize_refusals():
    before = matmul(12, 16, 10)
    sch = Schedule(before)
    i, _, _ = sch.get_loops("C")
    i0, i1 = sch.split(i, [3, 4])
    sch.reorder(i1, i0)
    with pytest.raises(ScheduleError, match=r"is not outer"):
        sch.blockize(i0)


def test_triangles_are_no_boxes():
    before = parse(
        """
from tilewright.script import tir as T

@T.prim_func
def main(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    for i in range(4):
        for k in range(i + 1):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vk]
"""
    )
    sch = Schedule(before, check=True)
    i, k = sch.get_loops("C")
    for loop in (i, k):
        with pytest.raises(ScheduleError, match="depends on another loop"):
            sch.blockize(loop)


def tiled_chain(factor: int):
    before = chain(16, 12)
    sch = Schedule(before, check=True)
    i, _ = sch.get_loops("D")
    i0, _ = sch.split(i, [None, factor])
    sch.compute_at("C", i0)
    sch.compute_at("B", i0)
    return before, sch, i0


@pytest.mark.parametrize("factor", [4, 5])
def test_blockize_several_blocks(factor):
    before, sch, i0 = tiled_chain(factor)
    block = sch.blockize([sch.get_block(name) for name in "CD"])
    made = sch.get(block)
    assert [item.name for item in sch.get_child_blocks(block)] == ["C", "D"]
    # C is made inside: the new block reads B only.
    assert [region.buffer.name for region in made.reads] == ["B"]
    assert [region.buffer.name for region in made.writes] == ["C", "D"]
    assert len(made.iter_vars) == 2
    sch.parallel(i0)
    check(sch, before)
    compiled_agrees(sch, before)


def test_blockize_a_loop_with_several_blocks():
    before, sch, i0 = tiled_chain(4)
    block = sch.blockize(i0, preserve_unit_iters=False)
    assert sch.get(block).iter_vars == ()
    assert [item.name for item in sch.get_child_blocks(block)] == ["B", "C", "D"]
    check(sch, before)


def test_blockize_one_block_of_no_loops():
    before = chain(16, 12)
    sch = Schedule(before, check=True)
    block = sch.blockize([sch.get_block("C")])
    assert [item.dom.extent.value for item in sch.get(block).iter_vars] == [16, 12]
    assert sch.get(sch.get_block("C")).iter_vars == ()
    check(sch, before)


@pytest.mark.parametrize("seed", range(10))
def test_random_blockize(seed):
    rng = random.Random(seed)
    n, m, k = te.var("n"), rng.randint(1, 9), te.var("k")
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), "r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    before = te.create_prim_func([a, b, c])
    sch = Schedule(before, check=True)
    outer, inner = [], []
    for loop in sch.get_loops("C"):
        how = rng.randrange(3)
        if how == 0:
            x, y = sch.split(loop, [None, rng.randint(2, 5)])
            outer.append(x)
            inner.append(y)
        else:
            (outer if how == 1 else inner).append(loop)
    inner = inner or [outer.pop()]
    rng.shuffle(outer)
    rng.shuffle(inner)
    sch.reorder(*outer, *inner)
    block = sch.blockize(inner[0], preserve_unit_iters=rng.random() < 0.5)
    for sizes in ({"n": 1, "k": 1}, {"n": 7, "k": 5}, {"n": 6, "k": 8}):
        check(sch, before, **sizes)
    loops = sch.get_loops(block)
    rng.shuffle(loops)
    if len(loops) > 1:
        sch.reorder(*loops)
    for sizes in ({"n": 2, "k": 3}, {"n": 7, "k": 5}):
        check(sch, before, **sizes)
    compiled_agrees(sch, before, n=7, k=5)


def test_tensorize():
    before, sch, i1, _ = tiled()
    block = sch.tensorize(i1, "test_mma_4x8x5")
    made = sch.get(block)
    assert made.annotations["tensor_intrin"] == "test_mma_4x8x5"
    assert [match.buffer.name for match in made.match_buffers] == ["A", "B", "C"]
    check(sch, before)
    other = Schedule(before)
    sch.trace.apply_to_schedule(other)
    check(other, before)


def test_a_tensorized_block_keeps_its_name_in_traces():
    """Its handle is returned again; handles made after have names of their own."""
    before, sch, i1, _ = tiled()
    block = sch.blockize(i1)
    sch.tensorize(block, "test_mma_4x8x5")
    loops = sch.get_loops(block)
    sch.annotate(loops[0], "pragma_auto_unroll_max_step", 1)
    sch.annotate(block, "pragma_keep_whole", 1)
    data = sch.trace.as_json()
    names = [name for _, arguments, outputs, *_ in data for name in outputs]
    assert len(names) == len(set(names)) + 1
    other = Schedule(before)
    Trace.from_json(data).apply_to_schedule(other)
    assert other.mod.script() == sch.mod.script()
    assert other.trace.as_json() == data
    number = next(n for n, entry in enumerate(data) if entry[0] == "get_loops")
    data[-3][2][-1] = data[number][2][0]
    with pytest.raises(ScheduleError, match="is no name for a new handle"):
        Trace.from_json(data)


def test_tensorize_refuses_other_computations():
    _, sch, _, j1 = tiled()
    with pytest.raises(ScheduleError, match=r"does not do what .* describes: its iterators are"):
        sch.tensorize(j1, "test_mma_4x8x5")
    sch = Schedule(chain(4, 8))
    mod = sch.mod
    with pytest.raises(ScheduleError, match=r"does not do what"):
        sch.tensorize(sch.get_loops("D")[0], "test_mma_4x8x5")
    assert sch.mod is mod


def test_wrong_intrinsics_are_found_out():
    _, sch, i1, _ = tiled()
    with pytest.raises(ScheduleError, match=r"description and implementation differ in 'C'"):
        sch.tensorize(i1, "test_wrong")
    with pytest.raises(ScheduleError, match=r"unknown tensor intrinsic 'test_mma'; did you mean"):
        sch.tensorize(i1, "test_mma")


def test_register_checks_signatures():
    with pytest.raises(VerifyError, match=r"same dtype and the same constant shape"):
        TensorIntrin.register("bad", parse(DESC), parse(IMPL.replace("(5, 8)", "(5, 9)")))


def test_cache_after_blockize():
    before = matmul(12, 8, 10)
    sch = Schedule(before, check=True)
    _, j, _ = sch.get_loops("C")
    sch.blockize(j)
    inner = sch.get(sch.get_block("C"))
    assert [region.buffer.name for region in inner.reads] == ["C", "A", "B"]
    with pytest.raises(ScheduleError, match=r"updates C"):
        sch.cache_write("C", 0, "local")
    check(sch, before)


def test_unit_axes_of_different_kinds() -> None:
    x = te.placeholder((1, 8), name="x")
    k, r = te.reduce_axis((0, 1), "k"), te.reduce_axis((0, 2), "r")
    made = te.compute(
        (1, 4), lambda i, j: te.sum(x[i + k.var, j * 2 + r.var], axis=[k, r]), name="C"
    )
    before = te.create_prim_func([x, made])
    sch = Schedule(before)
    unit = sch.get_loops("C")[2]
    sch.decompose_reduction(sch.get_block("C"), unit)
    sch.blockize(sch.get_loops("C_update")[-1])
    check(sch, before)


TWO_IN_A_NEST = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), Z: T.Buffer((8,), "float32"), F: T.Buffer((8,), "int32")):
    B = T.alloc_buffer((8,), "float32")
    for i in T.serial(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] + T.float32(1)
        with T.block("Z"):
            vi = T.axis.spatial(8, i)
            Z[vi] = B[INDEX] * T.float32(2)
"""


def test_what_is_made_inside_of_two_levels_is_read_by_none() -> None:
    before = parse(TWO_IN_A_NEST.replace("INDEX", "vi"))
    sch = Schedule(before, check=True)
    outer, inner = sch.split(sch.get_loops("B")[0], [2, 4])
    made = [sch.blockize(outer), sch.blockize(inner)]
    for block in made:
        assert [region.buffer.name for region in sch.get(block).reads] == ["A"]
    check(sch, before)


def test_what_data_chooses_of_what_is_made_inside_is_read() -> None:
    before = parse(TWO_IN_A_NEST.replace("INDEX", "T.int64(F[vi] % T.Cast('int32', 1))"))
    sch = Schedule(before, check=True)
    block = sch.blockize(sch.get_loops("B")[0])
    assert {region.buffer.name for region in sch.get(block).reads} == {"A", "B", "F"}


def test_an_init_of_several_instances_names_what_it_reads() -> None:
    before = parse("""
@T.prim_func
def main(
    A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32"), Z: T.Buffer((4,), "float32")
):
    for i, k in T.grid(4, 8):
        with T.block("Z"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Z[vi] = B[vi]
            Z[vi] = Z[vi] + A[vi, vk]
""")
    sch = Schedule(before, check=True)
    sch.blockize(sch.get_loops("Z")[0])
    assert [region.buffer.name for region in sch.get(sch.get_block("Z_init")).reads] == ["B"]
    check(sch, before)


# ---- nests over nothing -------------------------------------------------------------------------


TWO_SUMS = """
@T.prim_func
def main(a: T.handle, Z: T.Buffer((2,))):
    n = T.int64()
    A = T.match_buffer(a, (2, n, n))
    for i, k, l in T.grid(2, EXTENT, EXTENT):
        with T.block("Z"):
            vi, vk, vl = T.axis.remap("SRR", [i, k, l])
            with T.init():
                Z[vi] = T.float32(3)
            Z[vi] = Z[vi] + A[vi, vk, vl]
"""


@pytest.mark.parametrize("extent", ["0", "T.min(n, 1)"])
@pytest.mark.parametrize("keep", [True, False])
def test_axes_that_are_over_nothing_are_not_one(extent: str, keep: bool) -> None:
    """Of a loop without iterations anything can be proven, so that its value is another's too."""
    func = parse(TWO_SUMS.replace("EXTENT", extent))
    sch = Schedule(func)
    sch.blockize(sch.add_unit_loop("Z"), preserve_unit_iters=keep)
    reduced = [item for item in sch.get(sch.get_block("Z_o")).iter_vars if item.kind == "reduce"]
    assert len(reduced) == 2
    check(sch, func, n=0)
    check(sch, func, n=1)


def test_what_a_nest_over_nothing_reads_is_nothing() -> None:
    func = parse(TWO_SUMS.replace("EXTENT", "T.min(n, 1)"))
    sch = Schedule(func)
    block = sch.blockize(sch.get_loops("Z")[1])
    sch.cache_read(block, 0, "global")
    check(sch, func, n=0)
    check(sch, func, n=2)


@pytest.mark.parametrize("factors", [[4, 2, None], [None, 3]])
def test_a_nest_over_nothing_begins_its_reduction(factors: list[int | None]) -> None:
    """That a part of it runs isn't asked of the init: 20 elements may be too few for one step."""
    func = parse(TWO_SUMS.replace("EXTENT", "n // 20"))
    sch = Schedule(func)
    for loop in sch.get_loops("Z")[1:]:
        sch.split(loop, factors)
    sch.blockize(sch.get_loops("Z")[1])
    check(sch, func, n=1)
    check(sch, func, n=20)
    check(sch, func, n=65)


def test_a_nest_inside_of_loops_over_nothing_begins_its_reduction() -> None:
    """Inside of the loops around the nest there is one tile; if these don't run there is none."""
    func = parse("""
@T.prim_func
def main(a: T.handle, Z: T.Buffer((1, 1))):
    n = T.int64()
    A = T.match_buffer(a, (1, n))
    for k, i, j in T.grid(T.min(n, 1), 1, 1):
        with T.block("Z"):
            vk, vi, vj = T.axis.remap("RSS", [k, i, j])
            with T.init():
                Z[vi, vj] = T.Cast("float32", vi + 5)
            Z[vi, vj] = Z[vi, vj] + A[vi, vk]
""")
    sch = Schedule(func)
    sch.blockize(sch.get_loops("Z")[1], preserve_unit_iters=False)
    sch.split(sch.get_loops("Z_o")[0], [None, 2], preserve_unit_iters=False)
    sch.split(sch.get_loops("Z_o")[1], [1, 2, 1], tail="overlap")
    sch.blockize(sch.get_loops("Z_o")[3])
    check(sch, func, n=0)
    check(sch, func, n=2)


def test_a_block_need_not_write_all_that_it_declares() -> None:
    """Every other element is left as another iteration made it: these keep their order."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,)), B: T.Buffer((15,)), Y: T.Buffer((2, 2, 15))):
    for k, l in T.grid(2, 2):
        for i in range(8):
            with T.block("X"):
                v = T.axis.spatial(8, i)
                B[v * 2] = A[v]
        for j in range(15):
            with T.block("Y"):
                vk, vl, vj = T.axis.remap("SSS", [k, l, j])
                Y[vk, vl, vj] = B[vj]
        with T.block("W"):
            u = T.axis.spatial(1, 0)
            T.reads(B[0:15])
            T.writes(B[0:15])
            for i in range(7):
                B[i * 2 + 1] = B[i * 2 + 1] + T.float32(1)
""")
    sch = Schedule(func)
    sch.blockize(sch.get_loops("X")[-1])
    k, loop = sch.get_loops("X_o")
    refuses(sch, lambda: sch.reorder(loop, k), "makes in another iteration")


def test_a_block_that_writes_all_that_it_declares_does_so_in_parts() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((10,)), Y: T.Buffer((2, 2, 10))):
    B = T.alloc_buffer((10,))
    for k, l in T.grid(2, 2):
        for i in range(10):
            with T.block("X"):
                v = T.axis.spatial(10, i)
                B[v] = A[v]
        for j in range(10):
            with T.block("Y"):
                vk, vl, vj = T.axis.remap("SSS", [k, l, j])
                Y[vk, vl, vj] = B[vj]
""")
    sch = Schedule(func)
    sch.blockize(sch.get_loops("X")[-1])
    sch.split(sch.get_loops("X")[-1], [None, 4], tail="peel")
    k, loop = sch.get_loops("X_o")
    sch.reorder(loop, k)
    check(sch, func)


def test_a_predicate_that_leaves_one_tile_leaves_one_instance() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 5)), Z: T.Buffer((2, 5))):
    B = T.alloc_buffer((2, 5))
    for i, j in T.grid(4, 5):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            T.where(i < 2)
            B[v, w] = A[v, w] + 1.0
    for i, j in T.grid(2, 5):
        with T.block("Z"):
            v, w = T.axis.remap("SS", [i, j])
            Z[v, w] = B[v, w]
""")
    sch = Schedule(func)
    outer = sch.blockize(sch.get_loops("B")[0])
    assert all(item.dom.extent.value == 1 for item in sch.get(outer).iter_vars)
    sch.compute_at(outer, sch.get_loops("Z")[0])
    check(sch, func)
