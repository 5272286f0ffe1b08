"""Two comparisons of the same values as one: ``x < y or x == y`` is ``x <= y``.

A comparison of two values says which of *less*, *equal*, *greater* and *unordered* (a NaN) they
may be, so that ``and`` and ``or`` are intersections and unions of such sets. Comparisons of one
integer with different numbers are sets of integers, kept as intervals.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith.bounds import NEG_INF, POS_INF
from tilewright.arith.canonical import ARITHMETIC_DTYPES, Canonical, OpaqueOperand, has_effects
from tilewright.arith.comparisons import Comparisons
from tilewright.arith.polynomial import Poly, poly_key, poly_scale, poly_sub
from tilewright.ir import (
    EQ,
    FALSE,
    GE,
    GT,
    LE,
    LT,
    NE,
    TRUE,
    And,
    Broadcast,
    Expr,
    IntImm,
    Node,
    const,
    dtypes,
)

LESS, EQUAL, GREATER, UNORDERED = 1, 2, 4, 8
_ALLOWED = {
    LT: LESS,
    LE: LESS | EQUAL,
    GT: GREATER,
    GE: GREATER | EQUAL,
    EQ: EQUAL,
    NE: LESS | GREATER | UNORDERED,
}
_MIRRORED = {LT: GT, LE: GE, GT: LT, GE: LE, EQ: EQ, NE: NE}
_Intervals = tuple[tuple[Any, Any], ...]


@dataclass
class Comparison:
    """A comparison: what is compared, and what it allows."""

    subject: Hashable
    allowed: Any
    expr: Any
    form: Poly | None = None
    """The polynomial that ``allowed`` has the values of; ``None`` for relations of two sides."""
    turned: bool = False
    """Whether ``allowed`` is the relation of the second side to the first."""


def joined(
    kind: object, items: Sequence[Expr], canonical: Canonical, comparisons: Comparisons
) -> list[Expr]:
    """Return the operands of ``and`` or ``or`` with comparisons of the same values put together."""
    found: list[Expr] = []
    seen: dict[Hashable, tuple[int, Comparison]] = {}
    for item in items:
        for described in _descriptions(item, canonical):
            known = seen.get(described.subject)
            if known is None:
                seen[described.subject] = len(found), described
                continue
            place, other = known
            if other.expr is item:  # x < x is about the same sides twice
                continue
            made = _together(kind, other, described, comparisons)
            if made is not None:
                rest = [*found[:place], *found[place + 1 :], *items[len(found) + 1 :]]
                return joined(kind, [*rest[:place], made, *rest[place:]], canonical, comparisons)
        found.append(item)
    return found


def _descriptions(item: Any, canonical: Canonical) -> list[Comparison]:
    """What a comparison says, as a relation of its sides and as a set of numbers."""
    if type(item) not in _ALLOWED or has_effects(item):
        return []
    try:
        a, b = canonical.key(item.a), canonical.key(item.b)
        found = [
            Comparison(("sides", a, b), _ALLOWED[type(item)], item),
            Comparison(("sides", b, a), _ALLOWED[_MIRRORED[type(item)]], item, turned=True),
        ]
        dtype = item.a.dtype
        if dtype in ARITHMETIC_DTYPES:
            sides = canonical.poly(item.a), canonical.poly(item.b)
            if not canonical.context.table.has_data(*sides):
                found += _as_set(type(item), poly_sub(*sides), item)
        elif dtypes.is_integer(dtype) and isinstance(item.b, IntImm):
            allowed = _numbers(type(item), item.b.value)
            found.append(Comparison(("number", a), _within(allowed, dtype), item))
    except OpaqueOperand:
        return []
    return found


def _as_set(kind: Any, difference: Poly, item: Expr) -> list[Comparison]:
    form = {mono: value for mono, value in difference.items() if mono}
    if not form:
        return []
    number = -difference.get((), 0)
    if form[min(form)] < 0:
        form, number, kind = poly_scale(form, -1), -number, _MIRRORED[kind]
    return [Comparison(("form", poly_key(form)), _numbers(kind, number), item, form)]


def _numbers(kind: object, number: int) -> _Intervals:
    below, above = (NEG_INF, number - 1), (number + 1, POS_INF)
    if kind is NE:
        return below, above
    if kind in (LT, LE):
        return ((NEG_INF, number if kind is LE else number - 1),)
    if kind in (GT, GE):
        return ((number if kind is GE else number + 1, POS_INF),)
    return ((number, number),)


def _within(allowed: _Intervals, dtype: str) -> _Intervals:
    """The numbers of a dtype among some; its least and greatest are no ends."""
    low, high = dtypes.integer_limits(dtype)
    kept = [(max(a, low), min(b, high)) for a, b in allowed]
    ends = {low: NEG_INF, high: POS_INF}
    return tuple((ends.get(a, a), ends.get(b, b)) for a, b in kept if a <= b)


def _together(kind: object, a: Comparison, b: Comparison, comparisons: Comparisons) -> Expr | None:
    conjunction = kind is And
    if isinstance(a.allowed, int):
        return _relation(a.allowed & b.allowed if conjunction else a.allowed | b.allowed, a, b)
    allowed = _intersection(a.allowed, b.allowed) if conjunction else _union(a.allowed, b.allowed)
    if allowed in ((), ((NEG_INF, POS_INF),)):
        return TRUE if allowed else FALSE
    for same in (a, b):
        if allowed == same.allowed:
            return same.expr  # type: ignore[no-any-return]
    shape = _shape(allowed)
    if shape is None:
        return None
    made, number = shape
    if a.form is None:
        left = a.expr.a
        return made(left, const(number, left.dtype))  # type: ignore[no-any-return]
    dtype = a.expr.a.dtype
    difference = poly_sub(a.form, {(): number} if number else {})
    if made in (EQ, NE):
        return comparisons.equality(made, difference, dtype)
    return comparisons.ordering(LE, difference if made is GE else poly_scale(difference, -1), dtype)


def _relation(allowed: int, a: Comparison, b: Comparison) -> Expr | None:
    """The comparison of the sides of ``a`` that allows these relations."""
    expr, vector = a.expr, dtypes.lanes_of(a.expr.dtype)
    ordered = dtypes.is_integer(dtypes.element_of(expr.a.dtype))
    everything = LESS | EQUAL | GREATER | UNORDERED
    if ordered and allowed & 7 in (0, 7):
        allowed = everything if allowed & 7 else 0
    if allowed in (0, everything):
        known = TRUE if allowed else FALSE
        return Broadcast(known, vector) if vector > 1 else known
    for kind, wanted in _ALLOWED.items():
        if allowed == wanted or (ordered and allowed == wanted & 7):
            kind = _MIRRORED[kind] if a.turned else kind
            return kind(expr.a, expr.b)  # type: ignore[no-any-return]
    return None


def _intersection(a: _Intervals, b: _Intervals) -> _Intervals:
    found = [(max(p[0], q[0]), min(p[1], q[1])) for p in a for q in b]
    return tuple(sorted(item for item in found if item[0] <= item[1]))


def _union(a: _Intervals, b: _Intervals) -> _Intervals:
    found: list[tuple[Any, Any]] = []
    for low, high in sorted((*a, *b)):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return tuple(found)


def _shape(allowed: _Intervals) -> tuple[Any, int] | None:
    """The comparison with one number that some intervals are, if they are one."""
    if len(allowed) == 1:
        ((low, high),) = allowed
        if low == high:
            return EQ, low
        if low == NEG_INF:
            return LE, high
        return (GE, low) if high == POS_INF else None
    (first, second) = allowed[0], allowed[-1]
    if len(allowed) == 2 and (first[0], second[1]) == (NEG_INF, POS_INF):
        return (NE, first[1] + 1) if first[1] + 2 == second[0] else None
    return None


def operands_of(kind: object, expr: Any) -> list[Expr]:
    """What an expression joins by a kind of node, ``And`` or ``Or``: itself, if it isn't one."""
    found: list[Expr] = []
    stack: list[Any] = [expr]
    while stack:
        item = stack.pop()
        if type(item) is kind and item.dtype == "bool":
            stack += [item.b, item.a]
        else:
            found.append(item)
    return found


def leaves_of(expr: Node) -> set[Any]:
    """The variables, and buffers, of an expression."""
    found = set()
    stack = [expr]
    while stack:
        item = stack.pop()
        below = item.child_nodes()
        if below:
            stack.extend(below)
        elif type(item) is not IntImm:
            found.add(item)
    return found
