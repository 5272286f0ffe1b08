"""Integers narrower than an index, or unsigned: arithmetic modulo two to the power of the width.

They hold data, so their sums and products wrap. A sum of multiples is therefore kept as a linear
polynomial whose coefficients are taken modulo ``2**bits``; everything else (products, quotients,
minima) is decided by the limits of its operands or stays. ``Simplifier`` comes here for all integer
dtypes that are not ``canonical.ARITHMETIC_DTYPES``.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.bounds import Interval
from tilewright.arith.canonical import Canonical, OpaqueOperand, has_effects
from tilewright.arith.polynomial import ConstantTooLarge, Poly, constant_of, poly_add, poly_scale
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
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Sub,
    const,
    dtypes,
)
from tilewright.ir.integers import (
    INTEGER_CALLS,
    floor_quotient,
    floor_remainder,
    wrap_integer,
)

_FOLDED: dict[type, Any] = {
    Min: min,
    Max: max,
    FloorDiv: floor_quotient,
    FloorMod: floor_remainder,
}
_DECIDED: dict[type, Any] = {
    LT: lambda a, b: (a[1] < b[0], a[0] >= b[1]),
    LE: lambda a, b: (a[1] <= b[0], a[0] > b[1]),
    GT: lambda a, b: (a[0] > b[1], a[1] <= b[0]),
    GE: lambda a, b: (a[0] >= b[1], a[1] < b[0]),
    EQ: lambda a, b: (a[0] == a[1] == b[0] == b[1], a[1] < b[0] or a[0] > b[1]),
    NE: lambda a, b: (a[1] < b[0] or a[0] > b[1], a[0] == a[1] == b[0] == b[1]),
}
_REFLEXIVE = {LE: TRUE, GE: TRUE, EQ: TRUE, LT: FALSE, GT: FALSE, NE: FALSE}


def is_narrow(dtype: str) -> bool:
    """Whether a dtype is that of scalar integers that are no indices."""
    return dtypes.lanes_of(dtype) == 1 and dtypes.is_integer(dtype) and dtype not in _INDICES


_INDICES = frozenset(("int32", "int64"))


def simplified(expr: Any, canonical: Canonical) -> Expr | None:
    """Return a shorter equal of a sum, product, quotient or minimum, or ``None``."""
    kind, a, b = type(expr), expr.a, expr.b
    if kind in (Add, Sub, Mul):
        return _linear(expr, canonical)
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return const(wrap_integer(_FOLDED[kind](a.value, b.value), expr.dtype), expr.dtype)
    if has_effects(expr):
        return None
    bound = canonical.context.bound_of
    if kind in (Min, Max):
        if canonical.key(a) == canonical.key(b):
            return a  # type: ignore[no-any-return]
        low, high = bound(a), bound(b)
        if low[1] <= high[0]:
            return a if kind is Min else b  # type: ignore[no-any-return]
        if high[1] <= low[0]:
            return b if kind is Min else a  # type: ignore[no-any-return]
        return None
    return _divided(kind, expr, bound(a))


def call_folded(expr: Any) -> Expr | None:
    """Fold a call of two integer constants, and truncated division by one."""
    a, b = expr.args
    if isinstance(b, IntImm) and expr.dtype == b.dtype and expr.op.name in INTEGER_CALLS:
        if isinstance(a, IntImm):
            value = INTEGER_CALLS[expr.op.name](a.value, b.value, expr.dtype)
            return const(value, expr.dtype)
        if expr.op.name == "truncdiv" and b.value == 1:
            return a  # type: ignore[no-any-return]
        if expr.op.name == "truncmod" and b.value == 1 and not has_effects(a):
            return const(0, expr.dtype)
    return None


def _divided(kind: type, expr: Any, limits: Interval) -> Expr | None:
    """A quotient or remainder by a constant that its operand's limits decide."""
    a, b = expr.a, expr.b
    zero = const(0, expr.dtype)
    if isinstance(a, IntImm) and a.value == 0:
        return zero
    if not isinstance(b, IntImm):
        return None
    by = b.value
    if by == 0:
        return zero
    if by == 1:
        return a if kind is FloorDiv else zero
    if limits[0] >= 0 and limits[1] < by:
        return zero if kind is FloorDiv else a
    return None


# ---- sums of multiples ----------------------------------------------------------------------


def _linear(expr: Expr, canonical: Canonical) -> Expr | None:
    """Write a sum anew, its coefficients taken modulo ``2**bits``; ``None`` if that's no gain."""
    try:
        made = linear_form(expr, canonical)
        result = _written(made, expr.dtype, canonical)
    except (OpaqueOperand, ConstantTooLarge):
        return None
    return result if _nodes(result) < _nodes(expr) else None


def linear_form(expr: Expr, canonical: Canonical) -> Poly:
    """Return a sum of multiples as a polynomial, coefficients between minus and plus a half.

    Raises ``OpaqueOperand`` if an operand has side effects.
    """
    total: Poly = {}
    stack: list[tuple[Any, int]] = [(expr, 1)]
    while stack:
        item, factor = stack.pop()
        kind = type(item)
        if kind in (Add, Sub):
            stack += [(item.b, factor if kind is Add else -factor), (item.a, factor)]
        elif kind is Mul and isinstance(item.b, IntImm):
            stack.append((item.a, factor * item.b.value))
        elif kind is Mul and isinstance(item.a, IntImm):
            stack.append((item.b, factor * item.a.value))
        else:
            total = poly_add(total, poly_scale(_term(item, canonical), factor))
    bits = dtypes.bits_of(expr.dtype)
    half = 1 << (bits - 1)
    wrapped = {mono: (value + half) % (2 * half) - half for mono, value in total.items()}
    return {mono: value for mono, value in wrapped.items() if value}


def _term(item: Any, canonical: Canonical) -> Poly:
    if isinstance(item, IntImm):
        return {(): item.value} if item.value else {}
    if has_effects(item):
        raise OpaqueOperand
    return {(canonical.context.table.other(canonical.key(item), item),): 1}


def _written(made: Poly, dtype: str, canonical: Canonical) -> Expr:
    """The expression of a linear form: an unsigned one must not start with a negative number."""
    constant = constant_of(made)
    if constant is not None:
        return const(wrap_integer(constant, dtype), dtype)
    if not any(value > 0 for value in made.values()) and dtype.startswith("uint"):
        made = {mono: wrap_integer(value, dtype) for mono, value in made.items()}
    if any(abs(value) > dtypes.integer_limits(dtype)[1] for value in made.values()):
        raise ConstantTooLarge  # the least number of a signed dtype has no magnitude
    return canonical.context.table.to_expr(made, dtype)


def _nodes(expr: Any) -> int:
    """The number of nodes of a sum of multiples."""
    count, stack = 0, [expr]
    while stack:
        item = stack.pop()
        count += 1
        if type(item) in (Add, Sub, Mul):
            stack += [item.a, item.b]
    return count


# ---- comparisons ----------------------------------------------------------------------------


def compared(expr: Any, canonical: Canonical) -> Expr | None:
    """Decide a comparison by the limits of its sides, or make an equality shorter."""
    kind, a, b = type(expr), expr.a, expr.b
    if has_effects(expr):
        return None
    if canonical.key(a) == canonical.key(b):
        return _REFLEXIVE[kind]
    bound = canonical.context.bound_of
    holds, fails = _DECIDED[kind](bound(a), bound(b))
    if holds or fails:
        return TRUE if holds else FALSE
    return _equated(expr, canonical) if kind in (EQ, NE) else None


def _equated(expr: Any, canonical: Canonical) -> Expr | None:
    """``x + 1 == y + 1`` is ``x == y``: what is subtracted on both sides may wrap."""
    a, b, dtype = expr.a, expr.b, expr.a.dtype
    try:
        difference = linear_form(Sub(a, b), canonical)
        constant = constant_of(difference)
        if constant is not None:
            return TRUE if (constant == 0) == (type(expr) is EQ) else FALSE
        left = {mono: value for mono, value in difference.items() if mono and value > 0}
        right = {mono: -value for mono, value in difference.items() if mono and value < 0}
        if not left:
            left, right = right, {}
            offset = difference.get((), 0)
        else:
            offset = -difference.get((), 0)
        if offset:
            right = {**right, (): offset}
        made = type(expr)(_written(left, dtype, canonical), _written(right, dtype, canonical))
    except (OpaqueOperand, ConstantTooLarge):
        return None
    before = _nodes(a) + _nodes(b)
    return made if _nodes(made.a) + _nodes(made.b) < before else None
