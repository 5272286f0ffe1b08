"""Terms of a sum that are shorter together, such as a quotient with its remainder.

``PAIRS`` has a function for each kind of atom that starts a pair. It is given a term of a sum and
the atom in it, looks for the other term, and returns the sum with both replaced. All that it
returns has fewer divisions or minima, so that putting pairs together comes to an end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tilewright.arith.context import Context
from tilewright.arith.polynomial import (
    DIV,
    MAX,
    MIN,
    MOD,
    OTHER,
    Monomial,
    Poly,
    constant_of,
    mono_divide,
    poly_add,
    poly_atoms,
    poly_key,
    poly_mul,
    poly_scale,
    poly_sub,
)
from tilewright.ir import Call, Expr


class Canonical(Protocol):
    """The arithmetic of polynomials that pairs are made with (``arith.canonical``)."""

    context: Context

    def poly(self, expr: Expr) -> Poly: ...
    def floordiv(self, a: Poly, b: Poly, dtype: str) -> Poly: ...
    def floormod(self, a: Poly, b: Poly, dtype: str) -> Poly: ...
    def exact(self, a: Poly, b: Poly) -> Poly | None: ...
    def positive(self, a: Poly) -> bool: ...
    def may_vanish(self, divisor: Poly) -> bool: ...


def remainder(
    canonical: Canonical, a: Poly, mono: Monomial, value: int, number: int
) -> Poly | None:
    """``d * (n // d) + n % d`` is ``n``."""
    numerator, divisor = _operands(canonical, number)
    if canonical.may_vanish(divisor):
        return None
    factor = _factor(mono, value, number)
    whole_part = canonical.floordiv(numerator, divisor, canonical.context.table.dtypes[number])
    whole = poly_mul(factor, poly_mul(divisor, whole_part))
    if not all(mono in a for mono in whole if mono):
        made = _congruent(canonical, a, mono, value, number)
        if made is None:
            made = _remainders(canonical, a, mono, value, number, whole_part)
        return made
    made = poly_sub(poly_sub(a, whole), {mono: value})
    return poly_add(made, poly_mul(factor, numerator))


def _congruent(
    canonical: Canonical, a: Poly, mono: Monomial, value: int, number: int
) -> Poly | None:
    """``d * (m // d) + n % d`` is ``m`` where ``m % d`` was written as ``n % d``."""
    dtype, (_, divisor) = canonical.context.table.dtypes[number], _operands(canonical, number)
    factor = _factor(mono, value, number)
    for other, (numerator, by) in _compound(canonical, a, DIV):
        if by != divisor:
            continue
        whole = poly_mul(factor, poly_mul(by, {(other,): 1}))
        if _holds(a, whole) and canonical.floormod(numerator, by, dtype) == {(number,): 1}:
            made = poly_sub(poly_sub(a, whole), {mono: value})
            return poly_add(made, poly_mul(factor, numerator))
    return None


def _remainders(
    canonical: Canonical, a: Poly, mono: Monomial, value: int, number: int, whole_part: Poly
) -> Poly | None:
    """``n // d % e * d + n % d`` is ``n % (d*e)``."""
    dtype, operands = canonical.context.table.dtypes[number], _operands(canonical, number)
    factor = _factor(mono, value, number)
    for other, (numerator, divisor) in _compound(canonical, a, MOD):
        if other == number or numerator != whole_part:
            continue
        upper = poly_mul(factor, poly_mul(operands[1], {(other,): 1}))
        if _holds(a, upper) and canonical.positive(divisor):
            made = poly_sub(poly_sub(a, upper), {mono: value})
            whole = canonical.floormod(operands[0], poly_mul(operands[1], divisor), dtype)
            return poly_add(made, poly_mul(factor, whole))
    return None


def quotient(canonical: Canonical, a: Poly, mono: Monomial, value: int, number: int) -> Poly | None:
    """``(k * (m % e) + r) // d + k*e/d * (m // e)`` is ``(k*m + r) // d``."""
    table = canonical.context.table
    numerator, divisor = _operands(canonical, number)
    for inner, k in numerator.items():
        if len(inner) != 1 or table.kinds[inner[0]] != MOD or table.has_data(numerator):
            continue
        m, e = _operands(canonical, inner[0])
        ratio = canonical.exact(poly_scale(e, k), divisor)
        if ratio is None:
            continue
        dtype, factor = table.dtypes[number], _factor(mono, value, number)
        lower = poly_mul(poly_mul(factor, ratio), canonical.floordiv(m, e, dtype))
        if not lower.keys() <= {()} and _holds(a, lower):
            upper = poly_add(poly_sub(numerator, {inner: k}), poly_scale(m, k))
            made = poly_sub(poly_sub(a, lower), {mono: value})
            return poly_add(made, poly_mul(factor, canonical.floordiv(upper, divisor, dtype)))
    return None


def extremes(canonical: Canonical, a: Poly, mono: Monomial, value: int, number: int) -> Poly | None:
    """``max(x, y) + min(x, y)`` is ``x + y``."""
    table = canonical.context.table
    x, y = _operands(canonical, number)
    kind = MIN + MAX - table.kinds[number]
    other = table.numbers.get((kind, frozenset((poly_key(x), poly_key(y)))))
    if other is None:
        return None
    factor = _factor(mono, value, number)
    both = poly_mul(factor, {(number,): 1, (other,): 1})
    return (
        poly_add(poly_sub(a, both), poly_mul(factor, poly_add(x, y))) if _holds(a, both) else None
    )


def truncated(
    canonical: Canonical, a: Poly, mono: Monomial, value: int, number: int
) -> Poly | None:
    """``d * truncdiv(n, d) + truncmod(n, d)`` is ``n``."""
    table = canonical.context.table
    expr: Any = table.exprs[number]
    if type(expr) is not Call or expr.op.name != "truncmod":
        return None
    numerator, divisor = (canonical.poly(arg) for arg in expr.args)
    if canonical.may_vanish(divisor) or (
        table.has_data(numerator) and constant_of(divisor) is None
    ):
        return None
    factor = _factor(mono, value, number)
    for other in poly_atoms(a):
        found: Any = table.exprs[other] if table.kinds[other] == OTHER else None
        if type(found) is not Call or found.op.name != "truncdiv":
            continue
        both = poly_add(poly_mul(factor, poly_mul(divisor, {(other,): 1})), {mono: value})
        if not _holds(a, both):
            continue
        # Common factors may have been taken out of the quotient.
        above, below = (canonical.poly(arg) for arg in found.args)
        if poly_mul(above, divisor) == poly_mul(numerator, below):
            return poly_add(poly_sub(a, both), poly_mul(factor, numerator))
    return None


def written(canonical: Canonical, a: Poly) -> Poly:
    """Write ``n - c * (n // c)`` as ``n % c``: shorter to read, but not what proofs ask for."""
    table = canonical.context.table
    kinds = table.kinds
    for mono, value in a.items():
        if len(mono) != 1 or kinds[mono[0]] != DIV:
            continue
        numerator, divisor = _operands(canonical, mono[0])
        by = divisor.get(()) if len(divisor) == 1 else None
        if by is None or by < 0 or value % by:
            continue
        factor = -value // by
        if all(a.get(term) == factor * amount for term, amount in numerator.items()):
            rest = {term: amount for term, amount in a.items() if term != mono}
            whole = poly_scale(numerator, factor)
            made = canonical.floormod(numerator, divisor, table.dtypes[mono[0]])
            return written(canonical, poly_add(poly_sub(rest, whole), poly_scale(made, factor)))
    return a


PAIRS: dict[int, Callable[[Any, Poly, Monomial, int, int], Poly | None]] = {
    DIV: quotient,
    MOD: remainder,
    MIN: extremes,
    MAX: extremes,
    OTHER: truncated,
}
"""By the kind of an atom: the sum ``a`` with the term ``value * mono`` that holds it paired off."""


def _operands(canonical: Canonical, number: int) -> tuple[Poly, Poly]:
    operands = canonical.context.table.operands[number]
    assert operands is not None
    return operands


def _factor(mono: Monomial, value: int, number: int) -> Poly:
    """What an atom is multiplied by in a term."""
    rest = mono_divide(mono, (number,))
    assert rest is not None
    return {rest: value}


def _compound(canonical: Canonical, a: Poly, kind: int) -> Iterator[tuple[int, tuple[Poly, Poly]]]:
    """The atoms of a kind in ``a``, with their operands."""
    table = canonical.context.table
    for number in poly_atoms(a):
        operands = table.operands[number]
        if table.kinds[number] == kind and operands is not None:
            yield number, operands


def _holds(a: Poly, terms: Poly) -> bool:
    """Whether ``a`` has these terms as they are."""
    return all(a.get(term) == value for term, value in terms.items() if term)
