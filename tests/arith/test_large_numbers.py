"""Indices whose coefficients leave their dtype: no bound, no map and no solution, but an answer."""

from __future__ import annotations

import pytest

from tilewright.arith import (
    Analyzer,
    IntervalSet,
    detect_clip_bound,
    detect_iter_map,
    detect_linear_equation,
    region_bound,
    solve_linear_inequalities,
    subspace_divide,
)
from tilewright.ir import Expr, Range, Var, and_, const
from tilewright.script import parse
from tilewright.tir.analysis import verify
from tilewright.tir.schedule import Schedule

i, j, n = Var("i"), Var("j"), Var("n")
HALF = const(2**62)
LOOPS = {i: Range.from_min_extent(const(0), const(8)), j: Range.from_min_extent(const(0), const(3))}
INDICES = {
    "loops": i * HALF + j * HALF,
    "one loop": i * HALF + i * HALF + i * HALF,
    "a symbol": n * HALF + n * HALF + i,
    "start": i - const(-(2**63)),
    "quotient": (i + const(2**63 - 1)) // 2,
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_every_question_has_an_answer(index: Expr) -> None:
    (box,) = region_bound([Range.from_min_extent(index, const(2**62))], LOOPS)
    assert isinstance(box, (Range, IntervalSet))
    Analyzer().int_set(index, LOOPS)
    assert detect_iter_map([index], LOOPS).errors or Analyzer().simplify(index) is not None
    subspace_divide([index], LOOPS, [j])
    detect_linear_equation(index, [i, j])
    detect_clip_bound(index >= HALF, [i, j])
    solve_linear_inequalities(and_(index >= 0, index < n * HALF + n * HALF), [i, j])


def test_a_region_of_any_number_can_be_moved() -> None:
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((2,), "float32"), G: T.Buffer((2,), "int64"), Z: T.Buffer((2,), "float32")):
    B = T.alloc_buffer((2,), "float32")
    for i in range(2):
        with T.block("B"):
            vi = T.axis.spatial(2, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(2):
        with T.block("Z"):
            vi = T.axis.spatial(2, i)
            Z[vi] = B[T.Cast("int64", G[vi])]
""")
    )
    sch.blockize(sch.get_loops("Z")[0])
    sch.transform_layout("Z_o", "B", lambda x: (x // 2, x % 2), pad_value=0)
    verify(sch.mod)
    assert "B[0, 0:2]" in sch.mod.script()
