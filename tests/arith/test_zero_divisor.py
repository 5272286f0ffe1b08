"""Division by what turns out to be zero: unreachable code may hold it, and nothing may trip."""

from __future__ import annotations

from tilewright.arith import Analyzer
from tilewright.ir import FloorDiv, FloorMod, IntImm, Var, expr_equal


def test_divisions_by_zero_stay() -> None:
    x, zero = Var("x"), IntImm(0)
    for expr in (
        FloorMod(x, zero),
        FloorDiv(x, zero),
        FloorMod(FloorMod(x, IntImm(6)) * 2 + 1, zero),
        FloorDiv(FloorMod(x, IntImm(6)) + x, FloorMod(x * 0, IntImm(3)) * 0),
    ):
        made = Analyzer().simplify(expr)
        Analyzer().const_int_bound(expr)
        assert type(made) is type(expr)
    assert expr_equal(Analyzer().simplify(FloorMod(x, zero)), FloorMod(x, zero))
