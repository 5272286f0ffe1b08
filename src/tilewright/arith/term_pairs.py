"""Terms of a sum that are shorter together, such as a quotient with its remainder.

``PAIRS`` has a function for each kind of atom that starts a pair. It is given a term of a sum and
the atom in it, looks for the other term, and returns the sum with both replaced. All that it
returns has fewer divisions or minima, so that putting pairs together comes to an end.

``Terms`` finds the other term without going through the sum, so that the time for a sum of terms
that don't pair is proportional to their number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from math import gcd
from typing import Any, Protocol

from tilewright.arith.bounds import BoundAnalyzer
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
    poly_exact,
    poly_key,
    poly_mul,
    poly_scale,
    poly_sub,
)
from tilewright.ir import Call, Expr, call


class Canonical(Protocol):
    """The arithmetic of polynomials that pairs are made with (``arith.canonical``)."""

    context: Context
    bounds: BoundAnalyzer

    def poly(self, expr: Expr) -> Poly: ...
    def floordiv(self, a: Poly, b: Poly, dtype: str) -> Poly: ...
    def floormod(self, a: Poly, b: Poly, dtype: str) -> Poly: ...
    def positive(self, a: Poly) -> bool: ...
    def may_vanish(self, divisor: Poly) -> bool: ...


class Terms:
    """A sum, and its atoms by what they may be paired with."""

    __slots__ = (
        "_canonical", "_congruent", "_known", "_new", "_odd", "_quotients", "_remainders",
        "_truncated", "_wrapped", "poly",
    )  # fmt: skip

    def __init__(self, canonical: Any, poly: Poly) -> None:  # a part of a Canonical calls it
        self.poly = poly
        self._canonical: Canonical = canonical
        self._new: dict[int, None] | None = None
        """Atoms that may not be in the tables yet; ``None`` is all of the sum."""
        self._known: set[int] = set()
        self._quotients: dict[Hashable, list[int]] = {}
        self._congruent: dict[tuple[Hashable, str], dict[Hashable, list[int]]] = {}
        self._remainders: dict[Hashable, list[int]] = {}
        self._truncated: dict[Hashable, list[int]] = {}
        self._wrapped: dict[Hashable, list[int]] = {}
        self._odd: list[int] = []

    def become(self, made: Poly) -> None:
        """Note what the sum has become; atoms that are gone stay in the tables."""
        if self._new is not None:
            self._new.update((n, None) for mono in made if mono not in self.poly for n in mono)
        self.poly = made

    def congruent(self, number: int, divisor: Poly) -> Iterable[int]:
        """The quotients by ``divisor`` whose remainder is the atom ``number``."""
        self._enter()
        table, by = self._canonical.context.table, poly_key(divisor)
        dtype = table.dtypes[number]
        found = self._congruent.get((by, dtype))
        if found is None:
            found = self._congruent[by, dtype] = {}
            for other in self._quotients.get(by, ()):
                numerator = operands_of(self._canonical, other)[0]
                rest = self._canonical.floormod(numerator, divisor, dtype)
                found.setdefault(poly_key(rest), []).append(other)
        return found.get(poly_key({(number,): 1}), ())

    def remainders(self, numerator: Poly) -> Iterable[int]:
        """The remainders of ``numerator``, or of it and other terms if it is a quotient."""
        self._enter()
        return self._remainders.get(poly_key(numerator), ())

    def truncated(self, numerator: Poly, divisor: Poly) -> Iterable[int]:
        """Quotients towards zero that may be ``numerator / divisor``."""
        self._enter()
        ratio = _ratio(numerator, divisor)
        if ratio is None:
            return [*self._odd, *(n for same in self._truncated.values() for n in same)]
        return [*self._truncated.get(ratio, ()), *self._odd]

    def remainders_of_quotient(self, numerator: Poly, divisor: int) -> Iterable[int]:
        """The remainders towards zero of ``truncdiv(numerator, divisor)`` by something."""
        self._enter()
        return self._wrapped.get((poly_key(numerator), divisor), ())

    def _enter(self) -> None:
        """Put new atoms into the tables."""
        new = dict.fromkeys(poly_atoms(self.poly)) if self._new is None else self._new
        self._new = {}
        table = self._canonical.context.table
        for number in new:
            if number in self._known:
                continue
            self._known.add(number)
            kind, operands = table.kinds[number], table.operands[number]
            if operands is not None and kind == MOD:
                self._remainders.setdefault(poly_key(operands[0]), []).append(number)
                for mono, value in operands[0].items() if len(operands[0]) > 1 else ():
                    if value == 1 and len(mono) == 1 and table.kinds[mono[0]] == DIV:
                        self._remainders.setdefault(poly_key({mono: 1}), []).append(number)
            elif operands is not None and kind == DIV:
                self._quotients.setdefault(poly_key(operands[1]), []).append(number)
                self._congruent.clear()
            elif kind == OTHER and (parts := _truncdiv(self._canonical, number)) is not None:
                ratio = _ratio(*parts)
                same = self._odd if ratio is None else self._truncated.setdefault(ratio, [])
                same.append(number)
            elif kind == OTHER and (inner := _quotient_within(self._canonical, number)):
                self._wrapped.setdefault((poly_key(inner[0]), inner[1]), []).append(number)


def _truncdiv(canonical: Canonical, number: int) -> tuple[Poly, Poly] | None:
    """Numerator and divisor of a quotient towards zero."""
    expr: Any = canonical.context.table.exprs[number]
    if type(expr) is not Call or expr.op.name != "truncdiv":
        return None
    return canonical.poly(expr.args[0]), canonical.poly(expr.args[1])


def _ratio(a: Poly, b: Poly) -> Hashable | None:
    """A key that is the same for ``a / b`` in any terms; ``None`` unless b is a constant."""
    by = constant_of(b)
    if not by:
        return None
    common = gcd(by, *a.values()) * (1 if by > 0 else -1)
    return by // common, frozenset((mono, value // common) for mono, value in a.items())


def remainder(
    canonical: Canonical, terms: Terms, mono: Monomial, value: int, number: int
) -> Poly | None:
    """``d * (n // d) + n % d`` is ``n``."""
    a = terms.poly
    numerator, divisor = operands_of(canonical, number)
    if canonical.may_vanish(divisor):
        return None
    factor = _factor(mono, value, number)
    if len(mono) == 1 and all(a.get(term) == -value * k for term, k in numerator.items()):
        return _whole(canonical, a, value, number)
    whole_part = canonical.floordiv(numerator, divisor, canonical.context.table.dtypes[number])
    whole = poly_mul(factor, poly_mul(divisor, whole_part))
    if not all(mono in a for mono in whole if mono):
        made = _congruent(canonical, terms, mono, value, number)
        if made is None:
            made = _remainders(canonical, terms, mono, value, number, whole_part)
        return made
    made = poly_sub(poly_sub(a, whole), {mono: value})
    return poly_add(made, poly_mul(factor, numerator))


def _whole(canonical: Canonical, a: Poly, value: int, number: int) -> Poly:
    """``n - n % d`` is ``n // d * d``."""
    numerator, divisor = operands_of(canonical, number)
    whole = canonical.floordiv(numerator, divisor, canonical.context.table.dtypes[number])
    rest = poly_sub(poly_add(a, poly_scale(numerator, value)), {(number,): value})
    return poly_sub(rest, poly_scale(poly_mul(divisor, whole), value))


def _congruent(
    canonical: Canonical, terms: Terms, mono: Monomial, value: int, number: int
) -> Poly | None:
    """``d * (m // d) + n % d`` is ``m`` where ``m % d`` was written as ``n % d``."""
    a, divisor = terms.poly, operands_of(canonical, number)[1]
    factor = _factor(mono, value, number)
    for other in terms.congruent(number, divisor):
        whole = poly_mul(factor, poly_mul(divisor, {(other,): 1}))
        if _holds(a, whole):
            made = poly_sub(poly_sub(a, whole), {mono: value})
            return poly_add(made, poly_mul(factor, operands_of(canonical, other)[0]))
    return None


def _remainders(
    canonical: Canonical, terms: Terms, mono: Monomial, value: int, number: int, whole_part: Poly
) -> Poly | None:
    """``(w + n // d) % e * d + n % d`` is ``(w*d + n) % (d*e)``."""
    table, operands = canonical.context.table, operands_of(canonical, number)
    a, factor = terms.poly, _factor(mono, value, number)
    for other in terms.remainders(whole_part):
        if other == number:
            continue
        numerator, divisor = operands_of(canonical, other)
        upper = poly_mul(factor, poly_mul(operands[1], {(other,): 1}))
        more = poly_sub(numerator, whole_part)
        if more and table.has_data(numerator):
            continue  # w*d may wrap
        if _holds(a, upper) and canonical.positive(divisor):
            made = poly_sub(poly_sub(a, upper), {mono: value})
            joined = poly_add(poly_mul(operands[1], more), operands[0])
            by = poly_mul(operands[1], divisor)
            whole = canonical.floormod(joined, by, table.dtypes[number])
            return poly_add(made, poly_mul(factor, whole))
    return None


def quotient(
    canonical: Canonical, terms: Terms, mono: Monomial, value: int, number: int
) -> Poly | None:
    """``(k * (m % e) + r) // d + k*e/d * (m // e)`` is ``(k*m + r) // d``."""
    a, table = terms.poly, canonical.context.table
    numerator, divisor = operands_of(canonical, number)
    for inner, k in numerator.items():
        if len(inner) != 1 or table.kinds[inner[0]] != MOD or table.has_data(numerator):
            continue
        m, e = operands_of(canonical, inner[0])
        ratio = poly_exact(poly_scale(e, k), divisor)
        if ratio is None or (canonical.may_vanish(ratio) and canonical.may_vanish(e)):
            continue  # where e is zero, m % e is
        dtype, factor = table.dtypes[number], _factor(mono, value, number)
        lower = poly_mul(poly_mul(factor, ratio), canonical.floordiv(m, e, dtype))
        if not lower.keys() <= {()} and _holds(a, lower):
            upper = poly_add(poly_sub(numerator, {inner: k}), poly_scale(m, k))
            made = poly_sub(poly_sub(a, lower), {mono: value})
            return poly_add(made, poly_mul(factor, canonical.floordiv(upper, divisor, dtype)))
    return None


def extremes(
    canonical: Canonical, terms: Terms, mono: Monomial, value: int, number: int
) -> Poly | None:
    """``max(x, y) + min(x, y)`` is ``x + y``, and ``min(x + 1, y + 1)`` is ``min(x, y) + 1``."""
    a, table = terms.poly, canonical.context.table
    x, y = operands_of(canonical, number)
    for other in table.shifted[number]:
        if other == number:
            continue
        first, second = operands_of(canonical, other)
        shift = poly_sub(first, x)
        if shift != poly_sub(second, y):
            shift = poly_sub(first, y)
        alike = table.kinds[other] == table.kinds[number]
        if other in mono:
            rest = mono_divide(mono, (number, other))
            if rest is None or alike or shift:
                continue
            product = poly_mul({rest: value}, poly_mul(x, y))
            return poly_add(poly_sub(a, {mono: value}), product)
        rest = mono_divide(mono, (number,))
        assert rest is not None
        twin = tuple(sorted((*rest, other)))
        amount = a.get(twin, 0)
        if not amount or not (alike or amount == value):
            continue
        made = poly_add(poly_sub(a, {twin: amount}), poly_mul({rest: amount}, shift))
        if alike:
            return poly_add(made, {mono: amount})
        return poly_add(poly_sub(made, {mono: value}), poly_mul({rest: value}, poly_add(x, y)))
    return None


def truncated(
    canonical: Canonical, terms: Terms, mono: Monomial, value: int, number: int
) -> Poly | None:
    """A quotient or a remainder of a division towards zero, with the other."""
    expr: Any = canonical.context.table.exprs[number]
    if type(expr) is not Call:
        return None
    found: Poly | None = None
    if expr.op.name == "truncmod":
        found = _truncated_remainder(canonical, terms, mono, value, number)
    elif expr.op.name == "truncdiv":
        found = _truncated_quotient(canonical, terms, mono, value, number)
    return found


def _truncated_remainder(
    canonical: Canonical, terms: Terms, mono: Monomial, value: int, number: int
) -> Poly | None:
    """``d * truncdiv(n, d) + truncmod(n, d)`` is ``n``.

    ``d * truncmod(truncdiv(n, d), e) + truncmod(n, d)`` is ``truncmod(n, d * e)``.
    """
    a, table = terms.poly, canonical.context.table
    expr: Any = table.exprs[number]
    numerator, divisor = (canonical.poly(arg) for arg in expr.args)
    if canonical.may_vanish(divisor) or (
        table.has_data(numerator) and constant_of(divisor) is None
    ):
        return None
    factor = _factor(mono, value, number)
    for other in terms.truncated(numerator, divisor):
        both = poly_add(poly_mul(factor, poly_mul(divisor, {(other,): 1})), {mono: value})
        if not _holds(a, both):
            continue
        # Common factors may have been taken out of the quotient.
        parts = _truncdiv(canonical, other)
        assert parts is not None
        if poly_mul(parts[0], divisor) == poly_mul(numerator, parts[1]):
            return poly_add(poly_sub(a, both), poly_mul(factor, numerator))
    by = constant_of(divisor)
    if not by or len(mono) > 1:
        return None
    for other in terms.remainders_of_quotient(numerator, by):
        if a.get((other,)) == value * by:
            times = constant_of(canonical.poly(_call(canonical, other).args[1]))
            assert times is not None
            dtype = table.dtypes[number]
            whole = _truncated_poly(canonical, "truncmod", numerator, by * times, dtype)
            made = poly_sub(poly_sub(a, {(other,): a[other,]}), {mono: value})
            return poly_add(made, poly_scale(whole, value))
    return None


def _quotient_within(canonical: Canonical, number: int) -> tuple[Poly, int] | None:
    """Numerator and divisor of the quotient that an atom is a remainder of, towards zero."""
    outer = _truncated(canonical, number, "truncmod")
    if outer is None or len(outer[0]) != 1:
        return None
    ((mono, value),) = outer[0].items()
    return _truncated(canonical, mono[0], "truncdiv") if len(mono) == 1 == value else None


def _truncated_quotient(
    canonical: Canonical, terms: Terms, mono: Monomial, value: int, number: int
) -> Poly | None:
    """``n - d * truncdiv(n, d)`` is ``truncmod(n, d)``, for ``n`` up to a number.

    ``truncdiv(truncmod(n, d * e), d) + e * truncdiv(n, d * e)`` is ``truncdiv(n, d)``.
    """
    a, table = terms.poly, canonical.context.table
    found = _truncated(canonical, number, "truncdiv")
    if found is None or len(mono) > 1:
        return None
    (numerator, by), dtype = found, table.dtypes[number]
    if value % by == 0:
        factor = -value // by
        if all(a.get(term) == factor * amount for term, amount in numerator.items() if term):
            rest = _truncated_poly(canonical, "truncmod", numerator, by, dtype)
            made = poly_sub(poly_sub(a, {mono: value}), poly_scale(numerator, factor))
            return poly_add(made, poly_scale(rest, factor))
    if len(numerator) != 1:
        return None
    ((inner, one),) = numerator.items()
    lower = _truncated(canonical, inner[0], "truncmod") if len(inner) == 1 == one else None
    if lower is None or lower[1] % by:
        return None
    for other in terms.truncated(lower[0], {(): lower[1]}):
        if a.get((other,)) == value * (lower[1] // by) and (
            _truncated(canonical, other, "truncdiv") == lower
        ):
            made = poly_sub(poly_sub(a, {mono: value}), {(other,): a[other,]})
            whole = _truncated_poly(canonical, "truncdiv", lower[0], by, dtype)
            return poly_add(made, poly_scale(whole, value))
    return None


def _call(canonical: Canonical, number: int) -> Any:
    """The expression of an atom that is a call, if it is one."""
    return canonical.context.table.exprs[number]


def _truncated(canonical: Canonical, number: int, name: str) -> tuple[Poly, int] | None:
    """Numerator and divisor of an atom that is such a division by a positive number."""
    expr = _call(canonical, number)
    if type(expr) is not Call or expr.op.name != name:
        return None
    by = constant_of(canonical.poly(expr.args[1]))
    return None if by is None or by <= 0 else (canonical.poly(expr.args[0]), by)


def _truncated_poly(canonical: Canonical, name: str, a: Poly, by: int, dtype: str) -> Poly:
    table = canonical.context.table
    return canonical.poly(call(name, table.to_expr(a, dtype), table.to_expr({(): by}, dtype)))


PAIRS: dict[int, Callable[[Any, Terms, Monomial, int, int], Poly | None]] = {
    DIV: quotient,
    MOD: remainder,
    MIN: extremes,
    MAX: extremes,
    OTHER: truncated,
}
"""By the kind of an atom: the sum with the term ``value * mono`` that holds the atom paired off."""


def operands_of(canonical: Canonical, number: int) -> tuple[Poly, Poly]:
    """Numerator and divisor of an atom, or both sides of a minimum."""
    operands = canonical.context.table.operands[number]
    assert operands is not None
    return operands


def _factor(mono: Monomial, value: int, number: int) -> Poly:
    """What an atom is multiplied by in a term."""
    rest = mono_divide(mono, (number,))
    assert rest is not None
    return {rest: value}


def _holds(a: Poly, terms: Poly) -> bool:
    """Whether ``a`` has these terms as they are."""
    return all(a.get(term) == value for term, value in terms.items() if term)
