"""Values that iterations hand on through a buffer: what is written only in some iterations, between
others, or by a loop that may be empty doesn't make an iteration depend on no other."""

from __future__ import annotations

import pytest

from tests.tir.schedule.schedule_cases import refuses
from tilewright.script import parse
from tilewright.tir.schedule import Schedule

BACKWARDS = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"),
         Z: T.Buffer((4, 8), "float32")):
    for i, j in T.grid(4, 8):
        with T.block("keep"):
            vj = T.axis.spatial(8, j)
            B[vj] = A[vj]
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[7 - vj]
"""
LATER_ONLY = """
@T.prim_func
def main(A: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32"),
         Z: T.Buffer((2, 2), "float32")):
    for i in range(2):
        for r, j in T.grid(i, 2):
            with T.block("keep"):
                vj = T.axis.spatial(2, j)
                B[vj] = A[vj]
        for j in range(2):
            with T.block("Z"):
                vi, vj = T.axis.remap("SS", [i, j])
                Z[vi, vj] = B[vj]
"""
LATER_BY_ROWS = """
@T.prim_func
def main(A: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32"),
         Z: T.Buffer((2, 2), "float32")):
    for i in range(2):
        for j in range(2):
            for r in range(i):
                with T.block("keep"):
                    vj = T.axis.spatial(2, j)
                    B[vj] = A[vj]
        for j in range(2):
            with T.block("Z"):
                vi, vj = T.axis.remap("SS", [i, j])
                Z[vi, vj] = B[vj]
"""
ONCE = """
@T.prim_func
def main(B: T.Buffer((1,), "float32"), Z: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("keep"):
            v = T.axis.spatial(1, i)
            T.where(i < 1)
            B[0] = T.float32(3)
        with T.block("Z"):
            w = T.axis.spatial(4, i)
            Z[w] = B[0]
"""
IN_TURNS = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"),
         Z: T.Buffer((8,), "float32")):
    A_local = T.alloc_buffer((8,), "float32")
    for j in range(8):
        with T.block("A_local"):
            v = T.axis.spatial(8, j)
            A_local[v] = A[v]
    for j in range(8):
        with T.block("keep"):
            vj = T.axis.spatial(8, j)
            B[PLACE] = A_local[vj]
        with T.block("Z"):
            vj = T.axis.spatial(8, j)
            Z[vj] = B[(vj + 1) % 8]
"""

HALVES = """
@T.prim_func
def main(a: T.handle, b: T.handle, z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    Z = T.match_buffer(z, (n,), "float32")
    for j in range(n):
        with T.block("keep"):
            vj = T.axis.spatial(n, j)
            B[vj // 2] = A[vj]
        with T.block("Z"):
            vj = T.axis.spatial(n, j)
            Z[vj] = B[vj]
"""


@pytest.mark.parametrize("primitive", ["parallel", "vectorize"])
@pytest.mark.parametrize("text", [BACKWARDS, LATER_ONLY])
def test_iterations_that_find_older_values_do_not_run_at_once(text: str, primitive: str) -> None:
    """The first iteration of ``i`` reads what was in ``B`` before, at least in part."""
    sch = Schedule(parse(text))
    i = sch.get_loops("Z")[0]
    refuses(sch, lambda: getattr(sch, primitive)(i), "makes in another iteration of loop 'i'")


@pytest.mark.parametrize("primitive", ["parallel", "vectorize"])
def test_a_block_that_runs_once_makes_nothing_in_other_iterations(primitive: str) -> None:
    sch = Schedule(parse(ONCE))
    i = sch.get_loops("Z")[0]
    refuses(sch, lambda: getattr(sch, primitive)(i), "in another iteration of loop 'i'")


def test_a_loop_that_may_be_empty_gets_no_consumer() -> None:
    sch = Schedule(parse(LATER_ONLY))
    r = sch.get_loops("keep")[1]
    refuses(sch, lambda: sch.reverse_compute_at("Z", r), "may have no iterations")


def test_a_fused_loop_that_may_be_empty_gets_no_consumer() -> None:
    sch = Schedule(parse(LATER_ONLY))
    sch.fuse(*sch.get_loops("keep")[1:])
    fused = sch.get_loops("keep")[1]
    refuses(sch, lambda: sch.reverse_compute_at("Z", fused), "may have no iterations")


def test_a_producer_in_a_loop_that_may_be_empty_makes_nothing_for_sure() -> None:
    """``Z`` would run all of its rows for each ``i``; the first has nothing but the old values."""
    sch = Schedule(parse(LATER_BY_ROWS))
    j = sch.get_loops("keep")[1]
    refuses(sch, lambda: sch.reverse_compute_at("Z", j), "may have no iterations")


def test_copies_of_values_that_change_stay_where_they_are() -> None:
    sch = Schedule(parse(LATER_ONLY))
    sch.cache_read("Z", 0, "local")
    sch.cache_write("Z", 0, "global")
    refuses(sch, lambda: sch.compute_inline("Z"), "its value depends on when it runs")


@pytest.mark.parametrize(
    ("place", "why"),
    [("vj", "in an iteration of loop j before block"), ("vj // 2", "is not complete")],
)
def test_a_consumer_in_turns_with_a_reader_is_not_pulled_out(place: str, why: str) -> None:
    sch = Schedule(parse(IN_TURNS.replace("PLACE", place)))
    refuses(sch, lambda: sch.reverse_compute_inline("keep"), why)


def test_a_copy_ends_where_the_predicate_ends_what_is_written() -> None:
    """``B`` has more elements than are written; an iteration beyond the last would copy one."""
    sch = Schedule(parse(HALVES))
    sch.split(sch.get_loops("keep")[0], [4, None])
    refuses(sch, lambda: sch.cache_write("keep", 0, "global"), "may write only some elements")
