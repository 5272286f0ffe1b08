"""Rules that keep integer index vectors in the form ``Ramp`` or ``Broadcast``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.rewrite import Match, Rule, Table, wild
from tilewright.ir import (
    Add,
    Broadcast,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Ramp,
    Sub,
    dtypes,
    floordiv,
    floormod,
    maximum,
    minimum,
)

x, y, s, t = wild("x"), wild("y"), wild("s"), wild("t")
_X, _Y = Broadcast(x, 2), Broadcast(y, 2)
_RX, _RY = Ramp(x, s, 2), Ramp(y, t, 2)


def _spread(operation: Callable[[Any, Any], Expr]) -> Callable[[Match], Expr]:
    """Do an operation on two scalars; ``Table.apply`` has no lanes, so the caller broadcasts."""
    return lambda m: operation(m.x, m.y)


SCALAR_RULES = Table(
    (
        Rule(Add(_X, _Y), _spread(lambda a, b: a + b)),
        Rule(Sub(_X, _Y), _spread(lambda a, b: a - b)),
        Rule(Mul(_X, _Y), _spread(lambda a, b: a * b)),
        Rule(FloorDiv(_X, _Y), _spread(floordiv)),
        Rule(FloorMod(_X, _Y), _spread(floormod)),
        Rule(Min(_X, _Y), _spread(minimum)),
        Rule(Max(_X, _Y), _spread(maximum)),
    )
)
"""Two broadcasts: the result is to be broadcast."""

RAMP_RULES: tuple[tuple[Any, Callable[[Match], tuple[Expr, Expr]]], ...] = (
    (Add(_RX, _Y), lambda m: (m.x + m.y, m.s)),
    (Add(_Y, _RX), lambda m: (m.y + m.x, m.s)),
    (Add(_RX, _RY), lambda m: (m.x + m.y, m.s + m.t)),
    (Sub(_RX, _Y), lambda m: (m.x - m.y, m.s)),
    (Sub(_Y, _RX), lambda m: (m.y - m.x, 0 - m.s)),
    (Sub(_RX, _RY), lambda m: (m.x - m.y, m.s - m.t)),
    (Mul(_RX, _Y), lambda m: (m.x * m.y, m.s * m.y)),
    (Mul(_Y, _RX), lambda m: (m.y * m.x, m.y * m.s)),
)
"""A ramp with a broadcast or a ramp: the result is base and stride of a ramp."""


def apply(expr: Expr, matcher: Callable[[Any, Any, Match], bool]) -> Expr | None:
    """Rewrite an integer vector operation, or return ``None``."""
    element, lanes = dtypes.split_dtype(expr.dtype)
    if lanes == 1 or element not in ("int32", "int64"):
        return None
    made = SCALAR_RULES.apply(expr, None)
    if made is not None:
        return Broadcast(made, lanes)
    for pattern, result in RAMP_RULES:
        found = Match()
        if matcher(pattern, expr, found):
            base, stride = result(found)
            return Ramp(base, stride, lanes)
    return None
