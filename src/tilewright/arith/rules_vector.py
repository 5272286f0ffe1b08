"""Rules that keep integer vectors in the form ``Ramp`` or ``Broadcast``.

What is the same in all lanes is computed once: an operation of two broadcasts is the broadcast of
the operation. Ramps of index values stay ramps where sums, products and exact divisions allow it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

from tilewright.arith.canonical import has_effects
from tilewright.arith.polynomial import same_expr
from tilewright.arith.rewrite import Match, match, wild, wild_const
from tilewright.ir import (
    EQ,
    FALSE,
    GE,
    GT,
    LE,
    LT,
    NE,
    TRUE,
    Add,
    And,
    BinaryExpr,
    Broadcast,
    Call,
    Div,
    Expr,
    ExprLike,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Ramp,
    Select,
    Sub,
    call,
    compare,
    const,
    dtypes,
    lane_count,
    most_lanes,
)
from tilewright.ir.dtype import integer_limits

x, y, s, t = wild("x"), wild("y"), wild("s"), wild("t")
c1 = wild_const("c1")
_X, _Y, _C = Broadcast(x, 4), Broadcast(y, 4), Broadcast(c1, 4)
_RX, _RY = Ramp(x, s, 4), Ramp(y, t, 4)

_CALLS = (
    "truncdiv",
    "truncmod",
    "shift_left",
    "shift_right",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
)
_SPREAD = frozenset((Add, Sub, Mul, Div, FloorDiv, FloorMod, Min, Max, EQ, NE, LT, LE, GT, GE))

BROADCAST_RULES: tuple[tuple[Any, Any], ...] = (
    *((kind(_X, _Y), kind(x, y)) for kind in sorted(_SPREAD, key=lambda kind: kind.__name__)),
    *((call(name, _X, _Y), call(name, x, y)) for name in _CALLS),
)
"""Two broadcasts: the operation on what they repeat, to be broadcast."""

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

DIVISION_RULES: tuple[tuple[Any, Callable[[Match, Any, int], Expr | None]], ...] = (
    (FloorDiv(_RX, _C), lambda m, analyzer, lanes: _quotient(m, analyzer, lanes)),
    (FloorMod(_RX, _C), lambda m, analyzer, lanes: _remainder(m, analyzer, lanes)),
    (call("truncdiv", _RX, _C), lambda m, a, lanes: _towards_zero(_quotient, m, a, lanes)),
    (call("truncmod", _RX, _C), lambda m, a, lanes: _towards_zero(_remainder, m, a, lanes)),
)
"""A ramp divided by a constant: strides that it divides, or no multiple of it between the lanes."""

_UNCHANGED = {Add: 0, Sub: 0, Mul: 1, FloorDiv: 1, "truncdiv": 1, "shift_left": 0, "shift_right": 0}
_NOTHING = {Mul: 0, FloorMod: 1, "truncmod": 1}
"""What leaves the first operand as it is, and what makes zero of it. All integers may wrap here."""

_REFLEXIVE = {LE: TRUE, GE: TRUE, EQ: TRUE, LT: FALSE, GT: FALSE, NE: FALSE}


def apply(expr: Any, analyzer: Any) -> Expr | None:
    """Rewrite an integer vector operation, or return ``None``."""
    operands = expr.args if type(expr) is Call else expr.child_nodes()
    if len(operands) != 2:
        return None
    a, b = operands
    element, lanes = dtypes.split_dtype(a.dtype)
    if lanes == 1 or b.dtype != a.dtype:
        return None
    if type(a) is Broadcast and type(b) is Broadcast:
        return _spread(expr, a.value, b.value, lanes)
    if not dtypes.is_integer(element):
        return None
    made = None if has_effects(expr) else _trivial(expr, a, b, lanes)
    if made is not None or Ramp not in (type(a), type(b)):
        return made
    # Sums and products of lanes wrap as those of their bases and strides do.
    for pattern, result in RAMP_RULES:
        found = Match()
        if match(pattern, expr, found):
            base, stride = result(found)
            return Ramp(base, stride, lanes)
    if element not in ("int32", "int64") or not all(
        _is_whole(vector, lanes, analyzer) for vector in (a, b)
    ):
        return None
    for pattern, divided in DIVISION_RULES:
        found = Match()
        if match(pattern, expr, found):
            return divided(found, analyzer, lanes)
    return _decided(expr, a, b, lanes, analyzer)


def _spread(expr: Expr, a: Expr, b: Expr, lanes: int) -> Expr | None:
    if type(expr) is Call:
        if expr.op.name not in _CALLS:
            return None
        return Broadcast(call(expr.op.name, a, b), lanes)
    if type(expr) not in _SPREAD:
        return None
    assert isinstance(expr, BinaryExpr)
    return Broadcast(type(expr)(a, b), lanes)


def _trivial(expr: Any, a: Any, b: Any, lanes: int) -> Expr | None:
    """An operation with zero or one, of something with itself, or of two constants in a chain."""
    kind = expr.op.name if type(expr) is Call else type(expr)
    if same_expr(a, b):
        if kind in (Min, Max):
            return a  # type: ignore[no-any-return]
        if kind is Sub:
            return Broadcast(const(0, dtypes.element_of(a.dtype)), lanes)
        return Broadcast(_REFLEXIVE[kind], lanes) if kind in _REFLEXIVE else None
    if kind in (Add, Mul) and type(a) is Broadcast:
        a, b = b, a
    if type(b) is not Broadcast:
        return None
    if kind in (Min, Max) and type(a) is kind and type(a.b) is Broadcast:
        return kind(a.a, Broadcast(kind(a.b.value, b.value), lanes))  # type: ignore[no-any-return]
    value = b.value.value if type(b.value) is IntImm else None
    if value is None:
        return None
    if _UNCHANGED.get(kind) == value:
        return a  # type: ignore[no-any-return]
    return Broadcast(const(0, b.value.dtype), lanes) if _NOTHING.get(kind) == value else None


def joined(expr: Any) -> Expr | None:
    """``and`` and ``or`` of masks: of two that are alike in all lanes, or with a known one."""
    a, b = expr.a, expr.b
    if same_expr(a, b):
        return a  # type: ignore[no-any-return]
    if type(a) is Broadcast and type(b) is Broadcast:
        return Broadcast(type(expr)(a.value, b.value), dtypes.lanes_of(expr.dtype))
    for mask, other in ((a, b), (b, a)):
        if type(mask) is Broadcast and isinstance(mask.value, IntImm):
            return other if bool(mask.value.value) == (type(expr) is And) else mask
    return None


def chosen(expr: Any) -> Expr | None:
    """A vector chosen by a mask: one of two that are the same, or by a known mask."""
    if type(expr) is not Select:
        return None
    if same_expr(expr.true_value, expr.false_value):
        return expr.true_value
    mask = expr.condition
    if type(mask) is Broadcast and isinstance(mask.value, IntImm):
        return expr.true_value if mask.value.value else expr.false_value
    return None


def constant_ramp(expr: Ramp) -> Expr | None:
    """A ramp that doesn't rise is a broadcast."""
    flat = type(expr.stride) is IntImm and expr.stride.value == 0
    return Broadcast(expr.base, dtypes.lanes_of(expr.dtype)) if flat else None


def _is_whole(vector: Expr, lanes: int, analyzer: Any) -> bool:
    """Whether no lane of a ramp wraps: of indices none does, of data if their bounds say so."""
    if type(vector) is not Ramp or not analyzer.is_data(vector):
        return True
    base, stride = (analyzer.const_int_bound(part) for part in (vector.base, vector.stride))
    steps = most_lanes(lanes) - 1
    rise = steps * stride.min, steps * stride.max
    low, high = integer_limits(vector.base.dtype)
    return bool(low <= base.min + min(0, rise[0]) and base.max + max(0, rise[1]) <= high)


# ---- division -------------------------------------------------------------------------------


def _quotient(m: Match, analyzer: object, lanes: int) -> Expr | None:
    stride = _divisor_and_stride(m)
    if stride is None:
        return None
    if stride % m.c1 == 0:
        return Ramp(m.x // m.c1, _like(m, stride // m.c1), lanes)
    return Broadcast(m.x // m.c1, lanes) if _within(m, stride, lanes, analyzer) else None


def _remainder(m: Match, analyzer: Any, lanes: int) -> Expr | None:
    stride = _divisor_and_stride(m)
    if stride is None:
        return None
    if stride % m.c1 == 0:
        return Broadcast(m.x % m.c1, lanes)
    if _within(m, stride, lanes, analyzer):
        return Ramp(m.x % m.c1, m.s, lanes)
    base = analyzer.simplify(m.x % m.c1)
    if isinstance(base, IntImm) and not isinstance(m.x, IntImm):
        return FloorMod(Ramp(base, m.s, lanes), Broadcast(const(m.c1, base.dtype), lanes))  # type: ignore[no-any-return]
    return None


def _towards_zero(
    divide: Callable[[Match, Any, int], Expr | None], m: Match, analyzer: Any, lanes: int
) -> Expr | None:
    """Truncated division of what divides, or is nowhere negative, is floor division."""
    stride = _divisor_and_stride(m)
    if stride is None:
        return None
    known = analyzer.modular_set(m.x)
    if stride % m.c1 == known.coeff % m.c1 == known.base % m.c1 == 0:
        return divide(m, analyzer, lanes)
    if not analyzer.can_prove_ge(m.x + min(0, stride * (most_lanes(lanes) - 1)), 0):
        return None
    return divide(m, analyzer, lanes)


def _divisor_and_stride(m: Match) -> int | None:
    """The stride, if it is constant and the divisor is positive."""
    stride = getattr(m.s, "value", None)
    return stride if isinstance(stride, int) and m.c1 > 0 else None


def _like(m: Match, value: int) -> Expr:
    return type(m.s)(m.s.dtype, value)  # type: ignore[no-any-return]


def _within(m: Match, stride: int, lanes: int, analyzer: Any) -> bool:
    """Whether all lanes lie between the same two multiples of the divisor.

    They do if they lie between two multiples of a part of it: ``4*x + j`` for j below 4.
    """
    known = analyzer.modular_set(m.x)
    part = gcd(known.coeff, m.c1)
    last = known.base % part + stride * (most_lanes(lanes) - 1)
    return bool(0 <= last < part)


# ---- comparisons and choice by bounds -------------------------------------------------------

_ORDERS: dict[type, tuple[bool, int]] = {
    LT: (False, 1),
    LE: (False, 0),
    GT: (True, 1),
    GE: (True, 0),
}


def _decided(expr: Any, a: Any, b: Any, lanes: int, analyzer: Any) -> Expr | None:
    """A minimum or an ordering that comes out alike in all lanes."""
    kind = type(expr)
    alike = _side_by_side(expr, a, b, lanes)
    if alike is not None:
        return alike
    if kind in (Min, Max):
        if _at_most(a, b, 0, lanes, analyzer):
            return a if kind is Min else b  # type: ignore[no-any-return]
        if _at_most(b, a, 0, lanes, analyzer):
            return b if kind is Min else a  # type: ignore[no-any-return]
    elif kind in _ORDERS:
        turned, gap = _ORDERS[kind]
        low, high = (b, a) if turned else (a, b)
        if _at_most(low, high, gap, lanes, analyzer):
            return Broadcast(TRUE, lanes)
        if _at_most(high, low, 1 - gap, lanes, analyzer):
            return Broadcast(FALSE, lanes)
    elif kind in (EQ, NE) and (
        _at_most(a, b, 1, lanes, analyzer) or _at_most(b, a, 1, lanes, analyzer)
    ):
        return Broadcast(FALSE if kind is EQ else TRUE, lanes)
    return None


def _side_by_side(expr: Any, a: Any, b: Any, lanes: int) -> Expr | None:
    """Two ramps that rise alike compare as their bases do."""
    if type(expr) in _REFLEXIVE and type(a) is type(b) is Ramp and same_expr(a.stride, b.stride):
        return Broadcast(type(expr)(a.base, b.base), lanes)
    return None


def _at_most(a: Expr, b: Expr, gap: int, lanes: int, analyzer: Any) -> bool:
    """Whether ``a + gap <= b``, for 0 or 1, in the first and in the last lane, and so in all."""
    final = lane_count(lanes, dtypes.element_of(a.dtype)) - 1
    ends = (_lane(a, 0), _lane(b, 0)), (_lane(a, final), _lane(b, final))
    order = GT if gap else GE  # of data a difference may wrap
    return all(
        low is not None and high is not None and analyzer.can_prove(compare(order, high, low))
        for low, high in ends
    )


def _lane(vector: object, lane: ExprLike) -> Expr | None:
    if type(vector) is Broadcast:
        return vector.value
    if type(vector) is Ramp:
        return vector.base + vector.stride * lane
    return None
