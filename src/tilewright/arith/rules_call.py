"""Rules for intrinsic calls on integers and for casts.

Shifts and masks of index values become multiplications, divisions and remainders, which the
polynomial simplifier understands; the code generator turns powers of two back.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.rewrite import Match, Rule, Table, wild, wild_const
from tilewright.ir import (
    Broadcast,
    Cast,
    Expr,
    FloatImm,
    call,
    cast,
    const,
    dtypes,
    value_in_memory,
)
from tilewright.ir.integers import whole_number

x = wild("x")
c1 = wild_const("c1")

_WHOLE = ("int32", "int64")


def _shift(m: Match, _: object) -> bool:
    return m.x.dtype in _WHOLE and 0 <= m.c1 < dtypes.bits_of(m.x.dtype) - 1


def _mask(m: Match, _: object) -> bool:
    if m.x.dtype not in _WHOLE or m.c1 < 0 or m.c1 & (m.c1 + 1):
        return False
    # The greatest number of the type leaves no modulus that fits it.
    return bool(m.c1 < dtypes.integer_limits(m.x.dtype)[1])


def _nonneg(m: Match, analyzer: Any) -> bool:
    return m.x.dtype in _WHOLE and analyzer.can_prove_ge(m.x, 0)


def _unsigned(m: Match, _: object) -> bool:
    return bool(m.x.dtype.startswith("uint"))


def _negative(m: Match, analyzer: Any) -> bool:
    return m.x.dtype in _WHOLE and analyzer.can_prove_ge(-m.x, 0)


RULES = (
    Rule(call("shift_left", x, c1), lambda m: m.x * 2**m.c1, _shift),
    Rule(call("shift_right", x, c1), lambda m: m.x // 2**m.c1, _shift),
    Rule(call("bitwise_and", x, c1), lambda m: m.x % (m.c1 + 1), _mask),
    Rule(call("bitwise_and", c1, x), lambda m: m.x % (m.c1 + 1), _mask),
    Rule(call("abs", x), x, _unsigned),
    Rule(call("abs", x), x, _nonneg),
    Rule(call("abs", x), lambda m: -m.x, _negative),
)
TABLE = Table(RULES)


def fold_cast(expr: Cast, analyzer: object) -> Expr | None:
    """Fold a cast of a constant or to the same type, and a cast between that loses nothing."""
    value = expr.value
    if type(value) is Broadcast:
        lanes = dtypes.lanes_of(expr.dtype)
        return Broadcast(cast(value.value, dtypes.element_of(expr.dtype)), lanes)
    made = cast(value, expr.dtype)
    if made is value or type(made) is not Cast:
        return made
    if type(value) is Cast:
        source, middle = value.value.dtype, value.dtype
        if _widens(source, middle) and (_widens(middle, expr.dtype) or expr.dtype == source):
            return cast(value.value, expr.dtype)
        if _fits(value.value, middle, analyzer):
            return cast(value.value, expr.dtype)
        if expr.dtype == source and (source, middle) in _EXACT_FLOATS:
            return value.value
    if isinstance(value, FloatImm) and dtypes.is_integer(expr.dtype):
        known = value_in_memory(value)
        return None if known is None else const(whole_number(known, expr.dtype), expr.dtype)
    return None


_EXACT_FLOATS = frozenset((
    ("float32", "float64"), ("float16", "float64"), ("bfloat16", "float64"),
    ("float16", "float32"), ("bfloat16", "float32"),
))  # fmt: skip


def _fits(value: Expr, middle: str, analyzer: Any) -> bool:
    """Whether an integer is known to be a number of the integer dtype ``middle``."""
    if dtypes.lanes_of(middle) > 1 or not dtypes.is_integer(middle):
        return False
    if not dtypes.is_integer(value.dtype):
        return False
    bound = analyzer.const_int_bound(value)
    low, high = dtypes.integer_limits(middle)
    return bool(low <= bound.min and bound.max <= high)


def _widens(source: str, target: str) -> bool:
    """Whether every value of ``source`` is a value of ``target`` (integers and bool only)."""
    if dtypes.lanes_of(source) > 1 or not (dtypes.is_integer(source) or dtypes.is_bool(source)):
        return False
    if not dtypes.is_integer(target):
        return False
    low, high = dtypes.integer_limits(source)
    least, most = dtypes.integer_limits(target)
    return least <= low and high <= most
