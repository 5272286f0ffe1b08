"""Forms of sums that are shorter to read and to compute, but not what proofs ask for.

The simplifier brings a polynomial into them last, when it is to be an expression. Read again, they
are the same polynomial as before.
"""

from __future__ import annotations

from tilewright.arith.polynomial import (
    DIV,
    MAX,
    MIN,
    Poly,
    constant_of,
    poly_add,
    poly_scale,
    poly_sub,
)
from tilewright.arith.term_pairs import Canonical, operands_of


def written(canonical: Canonical, a: Poly) -> Poly:
    """Return a sum in its shortest form."""
    a = with_differences(canonical, with_remainders(canonical, with_halves(canonical, a)))
    return with_choices_turned(canonical, with_offsets_inside(canonical, a))


def with_halves(canonical: Canonical, a: Poly) -> Poly:
    """Write ``n - n // 2`` as ``(n + 1) // 2``."""
    table = canonical.context.table
    for mono, value in a.items():
        if len(mono) != 1 or table.kinds[mono[0]] != DIV:
            continue
        numerator, divisor = operands_of(canonical, mono[0])
        if divisor != {(): 2} or table.has_data(numerator):
            continue
        if all(a.get(term) == -value * amount for term, amount in numerator.items() if term):
            rest = {term: amount for term, amount in a.items() if term != mono}
            upper = canonical.floordiv(poly_add(numerator, {(): 1}), divisor, table.dtypes[mono[0]])
            made = poly_add(poly_add(rest, poly_scale(numerator, value)), poly_scale(upper, -value))
            return with_halves(canonical, made)
    return a


def with_choices_turned(canonical: Canonical, a: Poly) -> Poly:
    """Write ``-min(3 - x, y)``, where all goes down, as ``max(x - 3, -y)``."""
    table = canonical.context.table
    for mono, value in a.items():
        if value > 0 or len(mono) != 1 or table.kinds[mono[0]] not in (MIN, MAX):
            continue
        sides = operands_of(canonical, mono[0])
        if table.has_data(*sides) or any(k > 0 for side in sides for m, k in side.items() if m):
            continue
        kind, dtype = MIN + MAX - table.kinds[mono[0]], table.dtypes[mono[0]]
        first, second = (poly_scale(side, -1) for side in sides)
        made: Poly = {(table.compound(kind, first, second, dtype),): -value}
        return {**made, **{term: k for term, k in a.items() if term != mono}}
    return a


def with_remainders(canonical: Canonical, a: Poly) -> Poly:
    """Write ``n - c * (n // c)`` as ``n % c``, and ``x - c * ((x + 1) // c)`` with it."""
    table = canonical.context.table
    kinds = table.kinds
    for mono, value in a.items():
        if len(mono) != 1 or kinds[mono[0]] != DIV:
            continue
        numerator, divisor = operands_of(canonical, mono[0])
        by = divisor.get(()) if len(divisor) == 1 else None
        if by is None or by < 0 or value % by:
            continue
        factor = -value // by
        if all(a.get(term) == factor * amount for term, amount in numerator.items() if term):
            rest = {term: amount for term, amount in a.items() if term != mono}
            whole = poly_scale(numerator, factor)
            made = canonical.floormod(numerator, divisor, table.dtypes[mono[0]])
            made = poly_add(poly_sub(rest, whole), poly_scale(made, factor))
            return with_remainders(canonical, made)
    return a


def with_differences(canonical: Canonical, a: Poly) -> Poly:
    """Write ``(x + 3) // c - x // c`` as ``(x % c + 3) // c``."""
    table = canonical.context.table
    quotients = [mono for mono in a if len(mono) == 1 and table.kinds[mono[0]] == DIV]
    for index, mono in enumerate(quotients):
        first, divisor = operands_of(canonical, mono[0])
        by = constant_of(divisor)
        if by is None or by <= 0:
            continue
        for other in quotients[:index]:
            second, same = operands_of(canonical, other[0])
            if same != divisor or a[mono] != -a[other] or table.has_data(first, second):
                continue
            value, dtype = a[mono], table.dtypes[mono[0]]
            if second.get((), 0) and not first.get((), 0):
                first, second, value = second, first, -value
            shift = constant_of(poly_sub(first, second))
            if shift is None:
                continue
            lower = canonical.floormod(second, divisor, dtype)
            gap = canonical.floordiv(poly_add(lower, {(): shift}), divisor, dtype)
            rest = {term: amount for term, amount in a.items() if term not in (mono, other)}
            return with_differences(canonical, poly_add(rest, poly_scale(gap, value)))
    return a


def with_offsets_inside(canonical: Canonical, a: Poly) -> Poly:
    """``(n + 7) // 8 - 1`` reads ``(n - 1) // 8``, unless that makes its numerator negative."""
    constant, table = a.get((), 0), canonical.context.table
    for mono, value in a.items() if constant else ():
        if len(mono) != 1 or constant % value or table.kinds[mono[0]] != DIV:
            continue
        numerator, divisor = operands_of(canonical, mono[0])
        by = constant_of(divisor)
        if by is None or by <= 0 or () not in numerator or table.has_data(numerator):
            continue
        moved = poly_add(numerator, {(): constant // value * by})
        # Shifts round down by themselves; other divisions need no correction above zero.
        low = canonical.bounds.poly
        if by & (by - 1) and low(moved)[0] < 0 <= low(numerator)[0]:
            continue
        number = table.compound(DIV, moved, divisor, table.dtypes[mono[0]])
        made = {other: k for other, k in a.items() if other and other != mono}
        return poly_add({(number,): value}, made)
    return a
