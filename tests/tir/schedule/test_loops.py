"""split, fuse, reorder, add_unit_loop: text before and after, equal results, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_cases import matmul, matmul_relu

from tilewright.ir import structural_equal
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

ADD_ONE = """
@T.prim_func
def main(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
    for i in range(128):
        with T.block("B"):
            vi = T.axis.spatial(128, i)
            B[vi] = A[vi] + T.float32(1)
"""


def agree(before, after, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [[int(e.value) for e in buffer.shape] for buffer in before.buffers]
    args = [rng.integers(-4, 5, shape).astype("float32") for shape in shapes]
    first, second = [a.copy() for a in args], [a.copy() for a in args]
    run(before, *first)
    run(after, *second)
    for a, b in zip(first, second):
        np.testing.assert_array_equal(a, b)


def block_text(nest: str) -> str:
    head = ADD_ONE[: ADD_ONE.index("    for")]
    return head + nest


def test_split_that_divides_leaves_no_predicate():
    sch = Schedule(parse(ADD_ONE), check=True)
    (i,) = sch.get_loops(sch.get_block("B"))
    outer, inner = sch.split(i, [None, 16])
    expected = block_text(
        """
    for i_0, i_1 in T.grid(8, 16):
        with T.block("B"):
            vi = T.axis.spatial(128, i_0 * 16 + i_1)
            B[vi] = A[vi] + T.float32(1)
"""
    )
    assert structural_equal(sch.mod["main"], parse(expected))
    assert sch.get(outer).extent.value == 8
    assert sch.get(inner).extent.value == 16


def test_split_that_does_not_divide_guards_the_block():
    before = parse(ADD_ONE)
    sch = Schedule(before, check=True)
    (i,) = sch.get_loops(sch.get_block("B"))
    sch.split(i, [3, 5, None])
    expected = block_text(
        """
    for i_0, i_1, i_2 in T.grid(3, 5, 9):
        with T.block("B"):
            vi = T.axis.spatial(128, i_0 * 45 + i_1 * 9 + i_2)
            T.where(i_0 * 45 + i_1 * 9 + i_2 < 128)
            B[vi] = A[vi] + T.float32(1)
"""
    )
    assert structural_equal(sch.mod["main"], parse(expected))
    agree(before, sch.mod["main"])


def test_repeated_splits_stay_sums_of_products():
    sch = Schedule(parse(ADD_ONE))
    (i,) = sch.get_loops(sch.get_block("B"))
    outer, _ = sch.split(i, [None, 16])
    sch.split(outer, [2, 4])
    assert "i_0_0 * 64 + i_0_1 * 16 + i_1" in sch.mod.script()


def test_split_without_unit_iters():
    sch = Schedule(parse(ADD_ONE))
    (i,) = sch.get_loops(sch.get_block("B"))
    sch.split(i, [1, 128], preserve_unit_iters=False)
    assert "T.axis.spatial(128, i_1)" in sch.mod.script()


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([None, None], "at most one factor may be None"),
        ([4, 16], "multiply to 64, which does not cover the extent 128"),
        ([0, 128], "must be positive"),
        ([], "at least one factor"),
        (["x"], "expected an integer"),
    ],
)
def test_split_refuses_bad_factors(factors, message):
    sch = Schedule(parse(ADD_ONE))
    (i,) = sch.get_loops(sch.get_block("B"))
    mod, recorded = sch.mod, len(sch.trace)
    with pytest.raises(ScheduleError, match=message):
        sch.split(i, factors)
    assert sch.mod is mod
    assert len(sch.trace) == recorded


def test_split_refuses_marked_loops():
    sch = Schedule(parse(ADD_ONE))
    (i,) = sch.get_loops(sch.get_block("B"))
    sch.annotate(i, "pragma", 1)
    with pytest.raises(ScheduleError, match=r"has annotations \['pragma'\]"):
        sch.split(i, [2, 64])
    sch.unannotate(i, "pragma")
    sch.parallel(i)
    with pytest.raises(ScheduleError, match=r"is parallel, and would lose that"):
        sch.split(i, [2, 64])


def test_split_with_symbolic_extent():
    func = parse(
        """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] + T.float32(1)
"""
    )
    sch = Schedule(func, check=True)
    (i,) = sch.get_loops(sch.get_block("B"))
    sch.split(i, [None, 8])
    for n in (5, 8, 19):
        a = np.arange(n, dtype="float32")
        b = np.zeros(n, "float32")
        run(sch.mod["main"], a, b)
        np.testing.assert_array_equal(b, a + 1)
    assert "T.where(" in sch.mod.script()


def test_split_by_symbolic_tile_has_no_predicate():
    sch = Schedule(matmul(64, 32, 16), symbolic=True)
    i, j, k = sch.get_loops(sch.get_block("C"))
    tile = sch.sample_perfect_tile(i, 4, 16)
    loops = sch.split(i, tile)
    assert [sch.get(loop).extent for loop in loops] == [v.value for v in tile]
    assert "T.where" not in sch.mod.script()
    ((variables, extent, limit, exact),) = sch.state.symbolic
    assert len(variables) == 4
    assert extent.value == 64
    assert limit == 16
    assert exact
    j0, j1 = sch.split(j, sch.sample_perfect_tile(j, 2, 16))
    sch.reorder(loops[0], j0, loops[1], loops[2], k, loops[3], j1)
    sch.parallel(sch.fuse(loops[0], j0))
    sch.vectorize(j1)


def test_fuse_and_split_back_simplifies_bindings():
    before = matmul(12, 8, 10)
    sch = Schedule(before, check=True)
    i, j, _ = sch.get_loops(sch.get_block("C"))
    fused = sch.fuse(i, j)
    assert sch.get(fused).extent.value == 96
    agree(before, sch.mod["main"])
    sch.split(fused, [12, 8])
    agree(before, sch.mod["main"])


def test_fuse_of_a_split_pair_gives_the_loop_back():
    sch = Schedule(parse(ADD_ONE))
    (i,) = sch.get_loops(sch.get_block("B"))
    sch.fuse(*sch.split(i, [8, 16]))
    (loop,) = sch.get_loops(sch.get_block("B"))
    realize = sch.state.get_block(sch.get_block("B"))
    assert realize.iter_values[0] is sch.get(loop).loop_var


def test_fuse_refuses_gaps_and_order():
    sch = Schedule(matmul())
    i, j, k = sch.get_loops(sch.get_block("C"))
    with pytest.raises(ScheduleError, match=r"not the only statement directly inside"):
        sch.fuse(i, k)
    with pytest.raises(ScheduleError, match=r"not the only statement directly inside"):
        sch.fuse(j, i)


def test_fuse_refuses_triangular_nests():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i in range(8):
        for j in range(i + 1):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
"""
    )
    sch = Schedule(func)
    i, j = sch.get_loops(sch.get_block("B"))
    with pytest.raises(ScheduleError, match=r"depends on a loop to be fused"):
        sch.fuse(i, j)
    with pytest.raises(ScheduleError, match=r"bounds of loop 'j' depend"):
        sch.reorder(j, i)


def test_reorder_keeps_unnamed_loops_in_place():
    before = matmul(4, 5, 6)
    sch = Schedule(before, check=True)
    i, _, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(k, i)
    order = [sch.get(loop).extent.value for loop in sch.get_loops(sch.get_block("C"))]
    assert order == [6, 5, 4]
    agree(before, sch.mod["main"])


def test_reorder_refuses_loops_of_different_nests():
    sch = Schedule(matmul_relu())
    i = sch.get_loops(sch.get_block("C"))[0]
    other = sch.get_loops(sch.get_block("D"))[0]
    with pytest.raises(ScheduleError, match=r"not in one nest"):
        sch.reorder(other, i)
    with pytest.raises(ScheduleError, match=r"named twice"):
        sch.reorder(i, i)


def test_reorder_refuses_a_scan():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((8, 9), "float32")):
    for i, j in T.grid(8, 8):
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            vj = T.axis.opaque(8, j)
            A[vi, vj + 1] = A[vi, vj] + A[vi, vj + 1]
"""
    )
    sch = Schedule(func)
    i, j = sch.get_loops(sch.get_block("A"))
    with pytest.raises(ScheduleError, match=r"opaque iteration variable"):
        sch.reorder(j, i)


def test_reorder_refuses_reduction_with_consumer_below():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for i, k in T.grid(8, 8):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
        with T.block("C"):
            vi, vk = T.axis.remap("SS", [i, k])
            C[vi, vk] = B[vi]
"""
    )
    sch = Schedule(func)
    i, k = sch.get_loops(sch.get_block("B"))
    with pytest.raises(ScheduleError, match=r"shares a buffer with reduction block"):
        sch.reorder(k, i)


def test_reorder_allows_producer_and_consumer_of_one_iteration():
    text = """
@T.prim_func
def main(A: T.Buffer((8, 6), "float32"), C: T.Buffer((8, 6), "float32")):
    B = T.alloc_buffer((8, 6), "float32")
    for i, j in T.grid(8, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, INDEX] + T.float32(1)
"""
    before = parse(text.replace("INDEX", "vj"))
    sch = Schedule(before)
    i, j = sch.get_loops(sch.get_block("B"))
    sch.reorder(j, i)
    agree(before, sch.mod["main"])
    sch = Schedule(parse(text.replace("INDEX", "0")))
    i, j = sch.get_loops(sch.get_block("B"))
    with pytest.raises(ScheduleError, match=r"makes in another iteration"):
        sch.reorder(j, i)


def test_add_unit_loop():
    before = parse(ADD_ONE)
    sch = Schedule(before, check=True)
    block = sch.get_block("B")
    loop = sch.add_unit_loop(block)
    assert sch.get(loop).extent.value == 1
    assert len(sch.get_loops(block)) == 2
    sch.add_unit_loop(sch.get_loops(block)[0])
    assert len(sch.get_loops(block)) == 3
    agree(before, sch.mod["main"])
    with pytest.raises(ScheduleError, match=r"root block"):
        sch.add_unit_loop(sch.get_block("root"))


def test_reorder_keeps_init_first_when_loops_are_fused_across_kinds():
    before = matmul(12, 8, 10)
    sch = Schedule(before)
    _, j, k = sch.get_loops(sch.get_block("C"))
    outer, inner = sch.split(sch.fuse(j, k), [None, 3])
    with pytest.raises(ScheduleError, match=r"init would not come first"):
        sch.reorder(inner, outer)


def test_symbolic_multi_level_tiling():
    sch = Schedule(matmul(64, 32, 16), symbolic=True)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1, i2, i3 = sch.split(i, sch.sample_perfect_tile(i, 4, 16))
    j0, j1, j2, j3 = sch.split(j, sch.sample_perfect_tile(j, 4, 16))
    k0, k1 = sch.split(k, sch.sample_perfect_tile(k, 2, 16))
    sch.reorder(i0, j0, i1, j1, k0, i2, j2, k1, i3, j3)
    cached = sch.cache_write(block, 0, "global")
    sch.reverse_compute_at(cached, j1)
    sch.parallel(sch.fuse(i0, j0))
    sch.vectorize(j3)
    assert "T.where" not in sch.mod.script()
    assert [len(tile.variables) for tile in sch.state.symbolic] == [4, 4, 2]


def test_domains_that_follow_a_loop_are_split_with_it():
    before = parse(
        """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i in range(8):
        for j in range(i + 1):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)
"""
    )
    sch = Schedule(before, check=True)
    i, _ = sch.get_loops("B")
    outer, inner = sch.split(i, [None, 3])
    sch.fuse(outer, inner)
    agree(before, sch.mod["main"])
