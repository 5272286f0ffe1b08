"""Division by what turns out to be zero gives zero, and nothing may trip."""

from __future__ import annotations

from tilewright.arith import Analyzer
from tilewright.ir import FloorDiv, FloorMod, IntImm, Var, is_const


def test_divisions_by_zero_are_zero() -> None:
    x, zero = Var("x"), IntImm("int64", 0)
    for expr in (
        FloorMod(x, zero),
        FloorDiv(x, zero),
        FloorMod(FloorMod(x, IntImm("int64", 6)) * 2 + 1, zero),
        FloorDiv(FloorMod(x, IntImm("int64", 6)) + x, FloorMod(x * 0, IntImm("int64", 3)) * 0),
    ):
        made = Analyzer().simplify(expr)
        bound = Analyzer().const_int_bound(expr)
        assert is_const(made, 0) and (bound.min, bound.max) == (0, 0)
