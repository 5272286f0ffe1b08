"""Blocks whose inputs change from one iteration to the next stay where they are."""

from __future__ import annotations

import numpy as np
from schedule_cases import arrays, check, refuses

import tilewright
from tilewright.script import parse
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

ROLLED = """
@T.prim_func
def main(A: T.Buffer((10,)), C: T.Buffer((8,)), D: T.Buffer((8,))):
    B = T.alloc_buffer((10,))
    for i in range(10):
        with T.block("B"):
            vi = T.axis.spatial(10, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] + B[vi + 2]
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = C[vi] + T.float32(1)
"""


def test_a_copy_of_a_rolling_buffer_is_not_final() -> None:
    func = parse(ROLLED)
    sch = Schedule(func)
    result = sch.cache_write("C", 0, "global")
    sch.compute_at("B", sch.get_loops("C")[0])
    sch.rolling_buffer("B", 0)
    # The copy of a slot is complete by itself, but the slot gets other values.
    sch.cache_read("C", 0, "local")
    check(sch, func)
    refuses(
        sch,
        lambda: sch.compute_at("C", sch.get_loops(result)[0]),
        "in later iterations of loop i",
    )


def test_write_at_copies_only_what_an_iteration_has_made() -> None:
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((1, 4)), C: T.Buffer((1, 4))):
    for i, t in T.grid(1, 3):
        for j in range(4):
            with T.block("C"):
                vi = T.axis.spatial(1, i * 3 + t)
                vj = T.axis.spatial(4, j)
                T.where(i * 3 + t < 1)
                C[vi, vj] = A[vi, vj] + T.float32(1)
"""
    )
    sch = Schedule(func)
    sch.write_at(sch.get_loops("C")[1], "C", 0, "shared")
    check(sch, func)
    expected, actual = arrays(func), arrays(func)
    run(func, *expected)
    tilewright.compile(sch.mod, target="llvm")["main"](*actual)
    np.testing.assert_array_equal(actual[1], expected[1])


def test_loops_that_depend_on_others_are_bounded() -> None:
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((8, 8))):
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(8):
        for j in range(i + 1):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(8, j)
                C[vi, vj] = B[vj] + A[vi]
"""
    )
    for step in (
        lambda s: s.cache_read("C", 0, "global"),
        lambda s: s.read_at(s.get_loops("C")[0], "C", 0, "global"),
        lambda s: s.read_at(s.get_loops("C")[1], "C", 0, "global"),
        lambda s: s.compute_at("B", s.get_loops("C")[0]),
        lambda s: s.compute_at("B", s.get_loops("C")[1]),
    ):
        sch = Schedule(func)
        step(sch)
        check(sch, func)
    uneven = parse(func.script().replace("T.axis.spatial(8, j)", "T.axis.spatial(i + 1, j)"))
    sch = Schedule(uneven)
    refuses(sch, lambda: sch.cache_write("C", 0, "global"), "depends on the loops around it")
    sch = Schedule(func)
    # The triangle is not a box: a copy of the box would overwrite what is above it.
    refuses(sch, lambda: sch.cache_write("C", 0, "global"), "only some elements")
