"""The tails of split: equal results, refusals, what can be done after."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_cases import (
    chain,
    check,
    compiled_agrees,
    guarded_chain,
    loop_extents,
    matmul,
    matmul_relu,
    refuses,
    symbolic_sum,
)

from tilewright.script import parse
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule


@pytest.mark.parametrize("tail", ["predicate", "peel", "overlap"])
@pytest.mark.parametrize("factors", [[None, 4], [2, None, 2], [3, 4], [2, 3, None]])
def test_tails_of_matmul(tail: str, factors: list[int | None]) -> None:
    before = matmul(11, 7, 9)
    sch = Schedule(before, check=True)
    i, j, k = sch.get_loops("C")
    made = sch.split(i, factors, tail=tail)
    assert len(made) == len(factors)
    sch.split(j, [None, 3], tail=tail)
    if tail != "overlap":
        sch.split(k, [None, 4], tail=tail)
    check(sch, before)


def test_peeled_tiles_have_no_predicate() -> None:
    before = matmul(11, 8, 9)
    sch = Schedule(before, check=True)
    i, *_ = sch.get_loops("C")
    outer, inner = sch.split(i, [None, 4], tail="peel")
    assert (sch.get(outer).extent.value, sch.get(inner).extent.value) == (2, 4)
    assert loop_extents(sch, "C_tail") == [3, 8, 9]
    assert "T.where" not in sch.mod.script()
    check(sch, before)


def test_peel_twice_and_schedule_on() -> None:
    before = matmul(11, 7, 9)
    sch = Schedule(before, check=True)
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 4], tail="peel")
    j0, j1 = sch.split(j, [None, 4], tail="peel")
    k0, k1 = sch.split(k, [None, 4], tail="peel")
    check(sch, before)
    sch.unroll(k1)
    sch.vectorize(sch.get_loops("C_tail")[-2])
    sch.parallel(i0)
    check(sch, before)
    assert {"C", "C_tail", "C_tail_1", "C_tail_2"} <= set(sch.state.index("main").blocks)
    assert sch.get(k0).extent.value == 2
    assert sch.get(j0).extent.value == 1
    del i1, j1


def test_the_rest_of_a_reduction_has_no_init() -> None:
    before = matmul(4, 4, 9)
    sch = Schedule(before, check=True)
    sch.split(sch.get_loops("C")[-1], [None, 4], tail="peel")
    assert sch.get(sch.get_block("C")).init is not None
    assert sch.get(sch.get_block("C_tail")).init is None
    check(sch, before)


def test_peel_of_symbolic_extents() -> None:
    before = symbolic_sum()
    sch = Schedule(before, check=True)
    for name in ("B", "C", "D"):
        sch.split(sch.get_loops(name)[0], [None, 4], tail="peel")
    assert "T.where" not in sch.mod.script()
    for n in (1, 3, 4, 9):
        check(sch, before, n=n)


def test_peel_refuses_what_has_no_full_tile() -> None:
    sch = Schedule(matmul(11, 7, 9))
    i, *_ = sch.get_loops("C")
    refuses(sch, lambda: sch.split(i, [None, 16], tail="peel"), "no full tile of 16 iterations")


def test_overlapping_tiles_of_a_producer_and_its_consumer() -> None:
    before = matmul_relu(10, 6, 5)
    sch = Schedule(before, check=True)
    i, _ = sch.get_loops("D")
    sch.compute_at("C", i)
    outer, _ = sch.split(i, [None, 4], tail="overlap")
    assert "T.where" not in sch.mod.script()
    check(sch, before)
    assert sch.get(outer).extent.value == 3


def test_overlapping_tiles_may_be_parallel() -> None:
    before = chain(10, 7)
    sch = Schedule(before, check=True)
    i, j = sch.get_loops("D")
    outer, _ = sch.split(i, [None, 4], tail="overlap")
    _, lanes = sch.split(j, [None, 4], tail="overlap")
    sch.parallel(outer)
    sch.vectorize(lanes)
    check(sch, before)


def test_overlap_of_a_symbolic_extent_that_is_long_enough() -> None:
    before = parse(
        """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n * 2 + 3,), "float32")
    for i in range(n * 2 + 3):
        with T.block("B"):
            vi = T.axis.spatial(n * 2 + 3, i)
            B[vi] = A[vi % n] * T.float32(2)
"""
    )
    sch = Schedule(before, check=True)
    (i,) = sch.get_loops("B")
    # There are 3 iterations where n is 0.
    refuses(sch, lambda: sch.split(i, [None, 5], tail="overlap"), "may be shorter than one tile")
    sch.split(i, [None, 3], tail="overlap")
    for n in (1, 2, 6):
        a = np.arange(n, dtype="float32")
        expected, actual = (np.zeros(n * 2 + 3, "float32") for _ in range(2))
        run(before, a, expected)
        run(sch.mod["main"], a, actual)
        np.testing.assert_array_equal(actual, expected)


IN_PLACE = """
@T.prim_func
def main(A: T.Buffer((10,), "float32"), B: T.Buffer((10,), "float32")):
    for i in range(10):
        with T.block("B"):
            vi = T.axis.spatial(10, i)
            STORE
"""


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("B[vi] = B[vi] * T.float32(2)", "updates what was there before"),
        ("B[vi] = B[9 - vi]", "reads what it writes"),
    ],
)
def test_overlap_refuses_updates_in_place(store: str, message: str) -> None:
    sch = Schedule(parse(IN_PLACE.replace("STORE", store)))
    (i,) = sch.get_loops("B")
    refuses(sch, lambda: sch.split(i, [None, 4], tail="overlap"), message)


def test_overlap_refuses_reductions_over_the_loop() -> None:
    sch = Schedule(matmul(10, 6, 9))
    i, j, k = sch.get_loops("C")
    refuses(sch, lambda: sch.split(k, [None, 4], tail="overlap"), "add to it more than once")
    sch.reorder(k, i, j)
    refuses(sch, lambda: sch.split(i, [None, 4], tail="overlap"), "add to it more than once")


def test_overlap_refuses_what_a_second_run_would_find_overwritten() -> None:
    func = parse(
        """
@T.prim_func
def main(X: T.Buffer((10,), "float32"), C: T.Buffer((10,), "float32")):
    for i in range(10):
        with T.block("S"):
            vi = T.axis.spatial(10, i)
            C[vi] = X[vi]
        with T.block("U"):
            vi = T.axis.spatial(10, i)
            X[vi] = T.float32(7)
"""
    )
    sch = Schedule(func)
    i, *_ = sch.get_loops("S")
    refuses(sch, lambda: sch.split(i, [None, 4], tail="overlap"), "overwrites 'X'")
    sch.split(i, [None, 4], tail="peel")
    check(sch, func)


def test_pad_enlarges_what_blocks_write() -> None:
    before = guarded_chain()
    sch = Schedule(before, check=True)
    refuses(
        sch,
        lambda: sch.split(sch.get_loops("C")[0], [None, 4], tail="pad"),
        "it would read 'B' at vi, which may be outside of it",
    )
    sch.split(sch.get_loops("B")[0], [None, 4], tail="pad")
    outer, _ = sch.split(sch.get_loops("C")[0], [None, 4], tail="pad")
    sch.parallel(outer)
    shapes = {
        buffer.name: [extent.value for extent in buffer.shape]
        for buffer in sch.get(sch.get_block("root")).alloc_buffers
    }
    assert shapes == {"B": [12, 6], "C": [12, 6]}
    assert "T.where" not in sch.mod.script()
    check(sch, before)


def test_pad_of_a_reduction_and_a_consumer_of_the_same_loop() -> None:
    before = parse(
        """
@T.prim_func
def main(A: T.Buffer((3, 8), "float32"), D: T.Buffer((10,), "float32")):
    B = T.alloc_buffer((10,), "float32")
    C = T.alloc_buffer((10,), "float32")
    for i in range(10):
        for k in range(8):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi // 4, vk]
        with T.block("C"):
            vi = T.axis.spatial(10, i)
            C[vi] = B[vi] * T.float32(3)
    for i in range(10):
        with T.block("D"):
            vi = T.axis.spatial(10, i)
            D[vi] = C[vi] + T.float32(1)
"""
    )
    sch = Schedule(before, check=True)
    sch.split(sch.get_loops("C")[0], [None, 4], tail="pad")
    check(sch, before)
    i, *_ = sch.get_loops("D")
    refuses(sch, lambda: sch.split(i, [None, 4], tail="pad"), "visible outside of this scope")


def test_pad_of_symbolic_extents() -> None:
    before = parse(
        """
@T.prim_func
def main(a: T.handle, d: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    D = T.match_buffer(d, (n,), "float32")
    B = T.alloc_buffer((n,), "float32")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = T.if_then_else(vi < n, A[vi], T.float32(0))
    for i in range(n):
        with T.block("D"):
            vi = T.axis.spatial(n, i)
            D[vi] = B[vi] + T.float32(1)
"""
    )
    sch = Schedule(before, check=True)
    sch.split(sch.get_loops("B")[0], [None, 8], tail="pad")
    assert "T.where" not in sch.mod.script()
    for n in (3, 8, 13):
        check(sch, before, n=n)


def test_pad_refuses_loops_that_follow_the_loop() -> None:
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((10,), "float32"), D: T.Buffer((10,), "float32")):
    B = T.alloc_buffer((10, 10), "float32")
    for i in range(10):
        for j in range(i + 1):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj]
    for i in range(10):
        with T.block("D"):
            vi = T.axis.spatial(10, i)
            D[vi] = B[vi, vi // 2]
"""
    )
    sch = Schedule(func)
    i, _ = sch.get_loops("B")
    refuses(sch, lambda: sch.split(i, [None, 4], tail="pad"), "more than bindings of blocks")
    sch.split(i, [None, 4], tail="peel")
    check(sch, func)


def test_merge_refuses_to_decide_too_early() -> None:
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), X: T.Buffer((8,), "float32"), Y: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            X[vi] = A[vi]
    for i in range(8):
        if X[7 - i] > T.float32(0):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                Y[vi] = A[vi]
"""
    )
    sch = Schedule(func)
    refuses(
        sch,
        lambda: sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0]),
        "'X' decides what runs below the loop",
    )


def test_pad_refuses_integer_division_by_the_padding() -> None:
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((10,), "int32"), D: T.Buffer((10,), "int32")):
    B = T.alloc_buffer((10,), "int32")
    C = T.alloc_buffer((10,), "int32")
    for i in range(10):
        with T.block("B"):
            vi = T.axis.spatial(10, i)
            B[vi] = T.if_then_else(vi < 10, A[vi], 1) + 1
    for i in range(10):
        with T.block("C"):
            vi = T.axis.spatial(10, i)
            C[vi] = 100 // B[vi]
    for i in range(10):
        with T.block("D"):
            vi = T.axis.spatial(10, i)
            D[vi] = C[vi]
"""
    )
    sch = Schedule(func)
    sch.split(sch.get_loops("B")[0], [None, 4], tail="pad")
    check(sch, func)
    i, *_ = sch.get_loops("C")
    refuses(sch, lambda: sch.split(i, [None, 4], tail="pad"), "divide integers by values of")


def test_disable_predication() -> None:
    before = chain(30, 12)
    sch = Schedule(before, check=True)
    i, j = sch.get_loops("D")
    sch.split(j, [None, 4], disable_predication=True)  # divides
    refuses(
        sch,
        lambda: sch.split(i, [None, 8], disable_predication=True),
        "without a predicate block 'D' would run outside of the loop",
        "tail='predicate'",
    )
    outer, _ = sch.split(i, [None, 8])
    # What is in the predicate already keeps blocks inside of the new tiles.
    sch.split(outer, [None, 3], disable_predication=True)
    assert sch.mod.script().count("T.where") == 1
    check(sch, before)
    (rows, _) = sch.get_loops("C")
    refuses(sch, lambda: sch.split(rows, [None, 5], tail="round"), "unknown tail")


def test_tails_compile() -> None:
    before = matmul(11, 7, 9)
    for tail in ("peel", "overlap"):
        sch = Schedule(before, check=True)
        i, j, _ = sch.get_loops("C")
        outer, _ = sch.split(i, [None, 4], tail=tail)
        sch.split(j, [None, 4], tail=tail)
        if tail == "peel":
            sch.parallel(outer)
        compiled_agrees(sch, before)


def test_loops_inside_overlapping_tiles_can_be_reordered() -> None:
    before = matmul(10, 6, 9)
    sch = Schedule(before, check=True)
    i, j, k = sch.get_loops("C")
    _, i1 = sch.split(i, [None, 4], tail="overlap")
    sch.reorder(k, j, i1)
    check(sch, before)


@pytest.mark.parametrize(("low", "index"), [(1, "k"), (0, "7 - k"), (0, "k + 1")])
def test_overlap_refuses_reductions_that_go_on(low: int, index: str) -> None:
    func = parse(
        f"""
@T.prim_func
def main(A: T.Buffer((10, 9), "float32"), C: T.Buffer((10,), "float32")):
    for i in range(10):
        for k in range({low}, 8):
            with T.block("C"):
                vi = T.axis.spatial(10, i)
                vk = T.axis.reduce(9, {index})
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
"""
    )
    sch = Schedule(func)
    i, _ = sch.get_loops("C")
    refuses(sch, lambda: sch.split(i, [None, 4], tail="overlap"), "not shown that each iteration")


@pytest.mark.parametrize("factors", [[4, None], [2, 8, None], [2, None, 8]])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_tile_of_a_tail_is_seen_to_hold_what_is_copied(
    factors: list[int | None], depth: int
) -> None:
    # The tile has as many rows as a loop inside of the block, which is one where it has any.
    func = parse("""
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, n), "float32")
    B = T.match_buffer(b, (n, n), "float32")
    for i, j in T.grid(n, n):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
""")
    sch = Schedule(func)
    sch.split(sch.get_loops("B")[0], [3, None], tail="peel")
    sch.split(sch.get_loops("B_tail")[0], factors)
    sch.read_at(sch.get_loops("B_tail")[depth], "B_tail", 0, "global")
    sch.verify()
    check(sch, func, n=5)
