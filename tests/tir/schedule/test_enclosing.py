"""Blocks around others declare all that is accessed inside, whatever primitives do there."""

from __future__ import annotations

import pytest
from schedule_cases import check

from tilewright.script import parse
from tilewright.tir.analysis import verify
from tilewright.tir.schedule import Schedule

STAGES = """
@T.prim_func
def main(A: T.Buffer((24,)), Z: T.Buffer((24,))):
    B = T.alloc_buffer((24,))
    for i in range(24):
        with T.block("B"):
            v = T.axis.spatial(24, i)
            B[v] = A[v] + 1.0
    for i in range(24):
        with T.block("Z"):
            v = T.axis.spatial(24, i)
            Z[v] = B[v] * 2.0
"""

SIZES = """
@T.prim_func
def main(a: T.handle, b: T.handle, z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "int32")
    B = T.match_buffer(b, (n,), "int32")
    Z = T.match_buffer(z, (n,), "int32")
    for i in range(n):
        with T.block("Z"):
            v = T.axis.spatial(n, i)
            Z[v] = A[v] * B[v]
"""

SUM = """
@T.prim_func
def main(A: T.Buffer((4,)), Z: T.Buffer((1,))):
    for i, k in T.grid(1, 4):
        with T.block("Z"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Z[vi] = 0.0
            Z[vi] = Z[vi] + A[vk]
"""


def tiled(text: str, name: str, factors: list[int | None]) -> Schedule:
    """The nest of a block in tiles, each a block of its own."""
    sch = Schedule(parse(text))
    loops = sch.split(sch.get_loops(name)[-1], factors)
    sch.blockize(loops[1])
    return sch


def declared(sch: Schedule, name: str) -> list[str]:
    block = sch.get(sch.get_block(name))
    return [repr(item) for item in (*block.reads, *block.writes)]


def test_a_predicate_keeps_axes_in_their_domains_not_the_loops() -> None:
    """A split that overshoots accesses no more than before: nothing becomes wider."""
    sch = tiled(STAGES, "Z", [4, 6])
    before = declared(sch, "Z_o")
    sch.split(sch.get_loops("Z")[-1], [None, 4])
    assert declared(sch, "Z_o") == before
    check(sch, parse(STAGES))


@pytest.mark.parametrize("tail", ["peel", "predicate"])
def test_split_of_a_loop_inside_of_unknown_extent(tail: str) -> None:
    sch = tiled(SIZES, "Z", [5, None])
    before = declared(sch, "Z_o")
    sch.split(sch.get_loops("Z")[-1], [None, 4], tail=tail)
    assert declared(sch, "Z_o") == before
    check(sch, parse(SIZES), n=23)


def test_a_copy_inside_that_reads_a_little_more() -> None:
    sch = tiled(SIZES, "Z", [5, None])
    sch.split(sch.get_loops("Z")[-1], [4, None])
    sch.cache_read("Z", 1, "local")
    check(sch, parse(SIZES), n=23)


def test_a_region_declared_inside_makes_those_around_wider() -> None:
    sch = tiled(SUM, "Z", [None, 3])
    sch.annotate_buffer_access("Z", 1, "read", "lambda k: (0, 12)")
    assert "A[0:0+4]" in declared(sch, "Z_o")[0]
    check(sch, parse(SUM))


def test_several_levels_become_wider() -> None:
    sch = tiled(STAGES, "Z", [4, 6])
    sch.blockize(sch.split(sch.get_loops("Z")[-1], [3, 2])[1])
    sch.annotate_buffer_access("Z", 0, "read", "lambda v: (0, 24)")
    for name in ("Z_o", "Z_o_1"):
        assert "B[0:0+24]" in declared(sch, name)[0]
    check(sch, parse(STAGES))


def test_what_a_user_declared_stays() -> None:
    sch = tiled(STAGES, "Z", [4, 6])
    sch.annotate_buffer_access("Z_o", 0, "read", "lambda v: (0, 24)")
    sch.split(sch.get_loops("Z")[-1], [2, 3])
    sch.annotate_buffer_access("Z", 0, "read", "lambda v: (0, 24)")
    assert "B[0:0+24]" in declared(sch, "Z_o")[0]


def test_what_was_left_unsaid_on_purpose_stays_so() -> None:
    sch = tiled(STAGES, "Z", [4, 6])
    sch.unsafe_hide_buffer_access("Z_o", "read", [0])
    sch.split(sch.get_loops("Z")[-1], [2, 3])
    assert len(declared(sch, "Z_o")) == 1
    sch.set_scope("B", 0, "local")
    assert len(declared(sch, "Z_o")) == 1


def test_a_producer_moves_to_all_that_is_declared() -> None:
    """With the region that was declared before, ``compute_at`` made too little."""
    sch = tiled(STAGES, "Z", [4, 6])
    sch.annotate_buffer_access("Z", 0, "read", "lambda v: (0, 24)")
    sch.compute_at("B", sch.get_loops("Z_o")[0])
    assert sch.get(sch.get_loops("B")[-1]).extent.value == 24
    check(sch, parse(STAGES))


def test_copies_of_indices_that_are_computed_again() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4, 2), "int32"), Z: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 1):
        with T.block("Z"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Z[vi] = 3
            Z[vi] = Z[vi] + A[vi, vk]
"""
    sch = Schedule(parse(text))
    sch.blockize(sch.get_loops("Z")[0])
    sch.blockize(sch.get_loops("Z")[1])
    table, *_ = sch.cache_index("Z_o_1", "global")
    verify(sch.mod)
    sch.compute_inline(table)
    check(sch, parse(text))


def test_regions_simplified_by_a_domain_that_grows() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((2,)), Z: T.Buffer((2,))):
    B = T.alloc_buffer((2,))
    for i, k in T.grid(2, 3):
        with T.block("B"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                B[v] = 0.0
            B[v] = B[v] + (T.if_then_else(v + r - 1 >= 0 and v + r - 1 < 2, A[v + r - 1], 0.0)
                + A[v % 2])
    for i in range(2):
        with T.block("Z"):
            v = T.axis.spatial(2, i)
            Z[v] = B[v]
"""
    sch = Schedule(parse(text))
    sch.split(sch.get_loops("B")[0], [2, 3, None], tail="pad")
    verify(sch.mod)
    check(sch, parse(text))
