"""Arithmetic of polynomials with what a context knows: quotients, remainders, minima, maxima.

``polynomial`` is pure algebra; here bounds, residues, proofs and known equalities decide how far
``n // d`` and ``n % d`` come apart, by constants and by symbolic (products of) variables, and which
side of a minimum is the lesser. What stays becomes an atom. ``canonical`` adds expressions.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from tilewright.arith.bounds import NEG_INF, POS_INF, BoundAnalyzer
from tilewright.arith.context import Context
from tilewright.arith.modular import ModularAnalyzer
from tilewright.arith.polynomial import (
    DIV,
    MAX,
    MIN,
    MOD,
    Monomial,
    Poly,
    constant_of,
    linear_in,
    mono_divide,
    mono_gcd,
    poly_add,
    poly_const,
    poly_divide,
    poly_exact,
    poly_mul,
    poly_scale,
    poly_sub,
    shared_factors,
)
from tilewright.arith.prove import Prover
from tilewright.arith.term_pairs import PAIRS, Terms
from tilewright.ir.dtype import integer_limits


class PolyArithmetic:
    """Sums, division and choice of polynomials, in a context."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.bounds = BoundAnalyzer(context)
        self.prover = Prover(context, self.bounds)
        self.modular = ModularAnalyzer(context, self.may_vanish)

    # ---- data -------------------------------------------------------------------------------

    def fits(self, a: Poly, dtype: str) -> bool:
        """Whether all values of a polynomial are numbers of a dtype."""
        low, high = self.bounds.poly(a)
        least, most = integer_limits(dtype)
        return bool(least <= low and high <= most)

    def _sound(self, a: Poly, seen: set[int]) -> bool:
        """Whether what quotients and minima of data are taken of fits their dtypes.

        Rules may move terms in and out of these, which is right for whole numbers only.
        """
        table = self.context.table
        for number in {number for mono in a for number in mono} & table.data - seen:
            seen.add(number)
            operands, dtype = table.operands[number], table.dtypes[number]
            if operands is not None and not all(
                not table.has_data(operand)
                or (self.fits(operand, dtype) and self._sound(operand, seen))
                for operand in operands
            ):
                return False
        return True

    def may_vanish(self, divisor: Poly) -> bool:
        """Whether a divisor may be zero, and so quotient and remainder, whatever is divided."""
        low, high = self.bounds.poly(divisor)
        if low > 0 or high < 0:
            return False
        prover = self.prover
        if prover.positive(divisor) or prover.positive(poly_scale(divisor, -1)):
            return False
        return not (len(divisor) == 1 and self._in_nonzero_product(*divisor))

    def _in_nonzero_product(self, mono: Monomial) -> bool:
        """Whether a product with these factors is known not to be zero, and so none of them is."""
        for form, (low, high) in self.context.poly_limits.items():
            if len(form) == 1 and (low > 0 or high < 0):
                ((product, _),) = form
                if mono_divide(product, mono) is not None:
                    return True
        return False

    # ---- known equalities -------------------------------------------------------------------

    def reduced(self, a: Poly) -> Poly:
        """Apply the known equalities of monomials."""
        rules = self.context.rules
        if not rules:
            return a
        for _ in range(16):
            for mono, value in a.items():
                found = None
                for pattern, result in rules.items():
                    rest = mono_divide(mono, pattern)
                    if rest is not None:
                        found = poly_mul({rest: value}, result)
                        break
                if found is not None:
                    a = poly_add({m: v for m, v in a.items() if m != mono}, found)
                    break
            else:
                return a
        return a

    # ---- sums -------------------------------------------------------------------------------

    def merged(self, a: Poly) -> Poly:
        """Put terms such as ``d * (n // d) + n % d`` together, and apply known equalities."""
        if self.context.rules:
            a = self.reduced(a)
        if self.context.residues:
            a = self._known_residues(a)
        table, terms = self.context.table, Terms(self, a)
        changed = True
        while changed and len(terms.poly) > 1:
            changed = False
            for mono, value in terms.poly.items():
                for number in mono:
                    if number in table.pairing:
                        made = PAIRS[table.kinds[number]](self, terms, mono, value, number)
                        if made is not None:
                            terms.become(made)
                            changed = True
                            break
                if changed:
                    break
        return terms.poly

    def _known_residues(self, a: Poly) -> Poly:
        """Write ``c * (n // c)`` as ``n - r`` where n is known to leave r modulo c."""
        table = self.context.table
        for mono, value in a.items():
            for number in mono:
                operands = table.operands[number]
                if table.kinds[number] != DIV or operands is None:
                    continue
                by = constant_of(operands[1])
                if not by or by < 0 or value % by:
                    continue
                coeff, base = self.modular.poly(operands[0])
                if coeff % by == 0:
                    rest = mono_divide(mono, (number,))
                    assert rest is not None
                    exact = poly_sub(operands[0], poly_const(base % by))
                    made = poly_sub(a, {mono: value})
                    made = poly_add(made, poly_mul({rest: value // by}, exact))
                    return self._known_residues(made)
        return a

    def expanded(self, a: Poly) -> Poly:
        """Write every ``n % d`` as ``n - d * (n // d)`` with n's coefficients in [0, d).

        This is the strongest normal form for deciding equality; it is not nice to read.
        """
        table = self.context.table
        for _ in range(32):
            target = self._expandable(a)
            split = None if target is None else linear_in(a, target)
            if target is None or split is None:
                return a
            operands = table.operands[target]
            assert operands is not None
            numerator, divisor = operands
            dtype = table.dtypes[target]
            quotient = self._strict_div(numerator, divisor, dtype)
            value = quotient
            if table.kinds[target] == MOD:
                value = poly_sub(numerator, poly_mul(divisor, quotient))
            a = poly_add(poly_mul(split[0], value), split[1])
        return a

    def _expandable(self, a: Poly) -> int | None:
        """The first atom of a polynomial that ``expanded`` writes in another way."""
        kinds = self.context.table.kinds
        for mono in a:
            for number in mono:
                if kinds[number] == MOD or (kinds[number] == DIV and self._loose(number)):
                    operands = self.context.table.operands[number]
                    assert operands is not None
                    if not self.may_vanish(operands[1]):
                        return number
        return None

    def _loose(self, number: int) -> bool:
        """Whether a division by a constant still has whole parts in its numerator."""
        operands = self.context.table.operands[number]
        assert operands is not None
        by = constant_of(operands[1])
        return by is not None and by > 0 and any(not 0 <= v < by for v in operands[0].values())

    def _strict_div(self, numerator: Poly, divisor: Poly, dtype: str) -> Poly:
        by = constant_of(divisor)
        if by is None or by <= 0:
            return self.floordiv(numerator, divisor, dtype)
        whole = {mono: value // by for mono, value in numerator.items() if value // by}
        left = {mono: value % by for mono, value in numerator.items() if value % by}
        return poly_add(whole, self.floordiv(left, divisor, dtype))

    # ---- division ---------------------------------------------------------------------------

    def floordiv(self, a: Poly, b: Poly, dtype: str = "int64") -> Poly:
        """``a // b``."""
        if not a or not b:
            return {}  # a division by zero is zero
        if not self.may_vanish(b):
            made = self._floordiv(a, b, dtype)
            if not self.context.table.has_data(a, b) or self._sound(made, set()):
                return made
        return {(self.context.table.compound(DIV, a, b, dtype),): 1}

    def _floordiv(self, a: Poly, b: Poly, dtype: str) -> Poly:
        quotient, remainder, inner = self._divide(a, b, dtype)
        if inner is not None:
            return poly_add(quotient, inner[0]) if quotient else inner[0]
        return poly_add(quotient, self._div_atom(remainder, b, dtype))

    def floormod(self, a: Poly, b: Poly, dtype: str = "int64") -> Poly:
        """``a % b``."""
        if not a or not b:
            return {}
        data = self.context.table.has_data(a, b)
        if not self.may_vanish(b):
            made = self._floormod(a, b, dtype)
            if not data or self._sound(made, set()):
                return made
        elif not data:
            return self._mod_of_any(a, b, dtype)
        return {(self.context.table.compound(MOD, a, b, dtype),): 1}

    def _floormod(self, a: Poly, b: Poly, dtype: str) -> Poly:
        _, remainder, inner = self._divide(a, b, dtype)
        if inner is not None:
            return inner[1]
        reduced = self._reduced_coefficients(remainder, b)
        if reduced is not remainder:
            return self.floormod(reduced, b, dtype)
        return self._mod_atom(remainder, b, dtype)

    def _mod_of_any(self, a: Poly, b: Poly, dtype: str) -> Poly:
        """``a % b`` where b may be zero, and then so is the remainder."""
        rest = poly_divide(a, b)[1]
        if not rest:
            return {}
        if len(b) == 1:  # (x * n) % (2 * n) is n * (x % 2)
            ((whole, by),) = b.items()
            common = whole
            for mono in rest:
                common = mono_gcd(common, mono)
            if common:
                over = {mono_divide(mono, common) or (): value for mono, value in rest.items()}
                divisor: Poly = {mono_divide(whole, common) or (): by}
                return poly_mul({common: 1}, self.floormod(over, divisor, dtype))
        return self._mod_atom(rest, b, dtype)

    @staticmethod
    def _reduced_coefficients(a: Poly, b: Poly) -> Poly:
        """``(5*x + 1) % 4`` and ``(1 - 3*x) % 4`` are ``(x + 1) % 4``.

        Only where all terms have one coefficient: other sums may be fused loops.
        """
        by = constant_of(b)
        if by is None or len({v for mono, v in a.items() if mono}) > 1:
            return a
        if all(-by < v < by and (v == 1 or v % by != 1) for v in a.values()):
            return a
        reduced = {mono: v if -by < v < by and v % by != 1 else v % by for mono, v in a.items()}
        return {mono: value for mono, value in reduced.items() if value}

    def _divide(self, a: Poly, b: Poly, dtype: str) -> tuple[Poly, Poly, tuple[Poly, Poly] | None]:
        """Return ``(q, r, inner)``: ``a = q*b + r``; ``inner`` is ``(r // b, r % b)`` if known."""
        if self._has_mod(a):
            a = self.merged(a)
        if len(b) > 1:
            return self._divide_by_sum(a, b)
        ((mono, by),) = b.items()
        if by < 0:
            # n // -c is -n // c, and n % -c is -(-n % c).
            minus_a, minus_b = poly_scale(a, -1), poly_scale(b, -1)
            value = self.floordiv(minus_a, minus_b, dtype)
            rest = poly_scale(self.floormod(minus_a, minus_b, dtype), -1)
            return {}, a, (value, rest)
        quotient: Poly = {}
        remainder: Poly = {}
        for term, amount in a.items():
            over = mono_divide(term, mono) if mono else term
            if over is None and self.context.rules:
                known = self._unreduced(term, amount, mono, by)
                if known is not None:
                    quotient[known[0]] = quotient.get(known[0], 0) + known[1]
                    continue
            if over is not None and (amount % by == 0 or (not term and not 0 <= amount < by)):
                quotient[over] = quotient.get(over, 0) + amount // by
                if amount % by:
                    remainder[term] = amount % by
            else:
                remainder[term] = amount
        quotient = {term: value for term, value in quotient.items() if value}
        if not remainder:
            return quotient, remainder, ({}, {})
        return quotient, remainder, self._divide_small(remainder, mono, by, b, dtype)

    def _unreduced(
        self, term: Monomial, amount: int, mono: Monomial, by: int
    ) -> tuple[Monomial, int] | None:
        """Divide with a known product read backwards: ``512 // (f1*f2)`` is ``f0``."""
        for pattern, result in self.context.rules.items():
            value = constant_of(result)
            rest = mono_divide(pattern, mono)
            if rest is not None and value and amount % value == 0 and amount // value % by == 0:
                return tuple(sorted(term + rest)), amount // value // by
        return None

    def _has_mod(self, a: Poly) -> bool:
        kinds = self.context.table.kinds
        return any(kinds[number] == MOD for mono in a for number in mono)

    def _divide_small(
        self, a: Poly, mono: Monomial, by: int, b: Poly, dtype: str
    ) -> tuple[Poly, Poly] | None:
        """Divide by one positive term ``by * mono`` what has no whole part left."""
        low, high = self.bounds.poly(a)
        if not mono:
            if low >= 0 and high < by:
                return {}, a
            first = low // by if low not in (NEG_INF, POS_INF) else None
            if first is not None and high < (first + 1) * by:
                return poly_const(first), poly_sub(a, poly_const(first * by))
            if first is not None and high == low + 1 and self._has_mod(a):
                # Two numbers, on both sides of a multiple: (x % 2 + 1) // 2 is x % 2. Not of loop
                # variables, whose remainders say to others which iterations are alike.
                quotient = poly_sub(a, poly_const(low - first))
                return quotient, poly_sub(a, poly_scale(quotient, by))
        elif self._within(a, low, b):
            return {}, a
        else:
            below = poly_add(a, b)
            if high < 0 and self._within(below, self.bounds.poly(below)[0], b):
                return {(): -1}, below
        return self._divide_grouped(a, mono, by, b, dtype)

    def _within(self, a: Poly, low: Any, b: Poly) -> bool:
        """Whether ``0 <= a < b``."""
        if low < 0 and not self.prover.nonneg(a):
            return False
        return self.prover.less(a, b)

    def _divide_grouped(
        self, a: Poly, mono: Monomial, by: int, b: Poly, dtype: str
    ) -> tuple[Poly, Poly] | None:
        """Split ``a`` into ``g*high + low`` with ``g`` a divisor of ``b`` and ``0 <= low < g``.

        Then ``a // b == high // (b/g)`` and ``a % b == g * (high % (b/g)) + low``.
        """
        for factor, group in shared_factors(a, by, mono):
            split = self._split_multiples(a, factor, group)
            if split is None:
                continue
            high, low = split
            rest_mono = mono_divide(mono, group)
            assert rest_mono is not None
            divisor: Poly = {rest_mono: by // factor}
            if not self.positive(divisor):
                continue  # low may be above zero, where remainders are not
            quotient = self.floordiv(high, divisor, dtype)
            modulus = self.floormod(high, divisor, dtype)
            return quotient, poly_add(poly_mul({group: factor}, modulus), low)
        return None

    def _split_multiples(self, a: Poly, factor: int, group: Monomial) -> tuple[Poly, Poly] | None:
        """Return ``(high, low)`` with ``a = g*high + low``, ``0 <= low < g = factor * group``."""
        high: Poly = {}
        low: Poly = {}
        for term, value in a.items():
            rest = mono_divide(term, group)
            if rest is not None and value % factor == 0:
                high[rest] = value // factor
            elif not term and not group:  # a constant: its whole part goes up
                if value // factor:
                    high[()] = value // factor
                if value % factor:
                    low[()] = value % factor
            else:
                low[term] = value
        unit: Poly = {group: factor}
        if not low:
            return high, low
        bottom, top = self.bounds.poly(low)
        if group:
            return (high, low) if self._within(low, bottom, unit) else None
        if bottom >= 0 and top < factor:
            return high, low
        if bottom in (NEG_INF, POS_INF):
            return None
        shift = bottom // factor
        if top >= (shift + 1) * factor:
            return None
        return poly_add(high, poly_const(shift)), poly_sub(low, poly_const(shift * factor))

    def _nonzero(self, a: Poly) -> bool:
        low, high = self.bounds.poly(a)
        return bool(low > 0 or high < 0)

    def _divide_by_sum(self, a: Poly, b: Poly) -> tuple[Poly, Poly, tuple[Poly, Poly] | None]:
        """Long division by a divisor of several terms, accepted if the rest is in range."""
        quotient, rest = poly_divide(a, b)
        if not rest:
            return quotient, rest, ({}, {})
        for whole, remainder in ((quotient, rest), ({}, a)):
            if self._within(remainder, self.bounds.poly(remainder)[0], b):
                return whole, remainder, ({}, remainder)
        # Keep the quotient only where it makes the remainder simpler.
        if quotient and len(rest) < len(a):
            return quotient, rest, None
        return {}, a, None

    def _div_atom(self, a: Poly, b: Poly, dtype: str) -> Poly:
        """``a // b`` where nothing splits off: nested divisions, else an atom."""
        constant = a.get((), 0)
        terms = [(mono, value) for mono, value in a.items() if mono]
        if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1:
            made = self._div_of_atom(terms[0][0][0], constant, b, dtype)
            if made is not None:
                return made
        if self.context.residues:
            by = constant_of(b)
            coeff, base = self.modular.poly(a)
            if by and by > 0 and coeff % by == 0 and base % by:
                return self._div_atom(poly_sub(a, poly_const(base % by)), b, dtype)
        return self.reduced({(self.context.table.compound(DIV, a, b, dtype),): 1})

    def _div_of_atom(self, number: int, constant: int, b: Poly, dtype: str) -> Poly | None:
        """``(atom + constant) // b`` by the atom's operands; ``None`` where that is no simpler."""
        kind, operands = self.context.table.kinds[number], self.context.table.operands[number]
        if operands is None or not self.positive(b):
            return None
        first, second = operands
        if kind == DIV and self.positive(second):
            # (x // p + k) // b  ==  (x + k*p) // (p*b)
            top = poly_add(first, poly_scale(second, constant))
            return self.floordiv(top, poly_mul(second, b), dtype)
        if kind == MOD and not constant:
            # (x % (b*m)) // b  ==  (x // b) % m
            over = poly_exact(second, b)
            if over is not None and self.positive(over):
                return self.floormod(self.floordiv(first, b, dtype), over, dtype)
        if kind in (MIN, MAX):
            # max(x*b, y) // b  ==  max(x, y // b)
            sides = [poly_add(side, poly_const(constant)) for side in operands]
            if any(constant_of(s) is None and poly_exact(s, b) is not None for s in sides):
                first, second = (self.floordiv(side, b, dtype) for side in sides)
                return self.minmax(kind, first, second, dtype)
        return None

    def _mod_atom(self, a: Poly, b: Poly, dtype: str) -> Poly:
        """``a % b`` where nothing splits off: inner remainders of multiples of b go away."""
        table = self.context.table
        for mono, value in a.items():
            for number in mono:
                if table.kinds[number] == MOD:
                    operands = table.operands[number]
                    assert operands is not None
                    rest = mono_divide(mono, (number,))
                    assert rest is not None
                    over = poly_exact(poly_mul({rest: value}, operands[1]), b)
                    if over is not None and not (
                        self.may_vanish(over) and self.may_vanish(operands[1])  # 0 % b is no x % b
                    ):
                        made = poly_sub(a, {mono: value})
                        made = poly_add(made, poly_mul({rest: value}, operands[0]))
                        return self.floormod(made, b, dtype)
        if self.context.residues:
            by = constant_of(b)
            coeff, base = self.modular.poly(a)
            if by and by > 0 and coeff % by == 0:
                return poly_const(base % by)
        return self.reduced({(table.compound(MOD, a, b, dtype),): 1})

    def positive(self, a: Poly) -> bool:
        """Whether a polynomial is surely above zero."""
        return self.bounds.poly(a)[0] > 0 or self.prover.positive(a)

    # ---- minimum and maximum ----------------------------------------------------------------

    def minmax(self, kind: int, a: Poly, b: Poly, dtype: str = "int64") -> Poly:
        """``min(a, b)`` or ``max(a, b)``."""
        made = self._minmax(kind, a, b, dtype)
        if self.context.table.has_data(made) and not self._sound(made, set()):
            return {(self.context.table.compound(kind, a, b, dtype),): 1}
        return made

    def _minmax(self, kind: int, a: Poly, b: Poly, dtype: str) -> Poly:
        difference = self.merged(poly_sub(b, a))
        if not difference:
            return a
        low, high = self.bounds.poly(difference)
        if low >= 0 or self.prover.nonneg(difference):
            return a if kind == MIN else b
        if high <= 0 or self.prover.nonneg(poly_scale(difference, -1)):
            return b if kind == MIN else a
        for side, other in ((a, b), (b, a)):
            kept = self._without_dominated(kind, side, other)
            if kept is not None:
                a, b = (kept, b) if side is a else (a, kept)
                return self._minmax(kind, a, b, dtype)
        if len(a) == 1 == len(b):
            shared = self._shared_side(kind, a, b)
            if shared is not None:
                side, (first, second) = shared
                inner = self.minmax(kind, first, second, dtype)
                return self.minmax(MIN + MAX - kind, side, inner, dtype)
            divided = self._same_divisor(a, b)
            if divided is not None:
                first, second, divisor = divided
                return self.floordiv(self.minmax(kind, first, second, dtype), divisor, dtype)
        # Terms in common go outside: min(x + y, x + z) is x + min(y, z).
        common = {mono: value for mono, value in a.items() if b.get(mono) == value}
        if common:
            rest = self.minmax(kind, poly_sub(a, common), poly_sub(b, common), dtype)
            return poly_add(common, rest)
        if _is_downward(a) and _is_downward(b):
            flipped = self.minmax(MIN + MAX - kind, poly_scale(a, -1), poly_scale(b, -1), dtype)
            return poly_scale(flipped, -1)
        factor = 0
        if () not in a and () not in b:
            for value in (*a.values(), *b.values()):
                factor = gcd(factor, value)
        if factor > 1:
            small_a = {mono: value // factor for mono, value in a.items()}
            small_b = {mono: value // factor for mono, value in b.items()}
            return {(self.context.table.compound(kind, small_a, small_b, dtype),): factor}
        return {(self.context.table.compound(kind, a, b, dtype),): 1}

    def _same_divisor(self, a: Poly, b: Poly) -> tuple[Poly, Poly, Poly] | None:
        """The numerators and the divisor of two quotients: ``min(x//d, y//d)`` is one of them."""
        table, found = self.context.table, []
        for poly in (a, b):
            ((mono, value),) = poly.items()
            if value != 1 or len(mono) != 1 or table.kinds[mono[0]] != DIV:
                return None
            operands = table.operands[mono[0]]
            assert operands is not None
            found.append(operands)
        (first, divisor), (second, other) = found
        return (first, second, divisor) if divisor == other and self.positive(divisor) else None

    def _shared_side(self, kind: int, a: Poly, b: Poly) -> tuple[Poly, tuple[Poly, Poly]] | None:
        """``min(max(x, y), max(x, z))`` is ``max(x, min(y, z))`` (and mirrored)."""
        table = self.context.table
        sides = []
        for poly in (a, b):
            ((mono, value),) = poly.items()
            if value != 1 or len(mono) != 1 or table.kinds[mono[0]] != MIN + MAX - kind:
                return None
            operands = table.operands[mono[0]]
            assert operands is not None
            sides.append(operands)
        for i in (0, 1):
            for j in (0, 1):
                if sides[0][i] == sides[1][j]:
                    return sides[0][i], (sides[0][1 - i], sides[1][1 - j])
        return None

    def _without_dominated(self, kind: int, a: Poly, b: Poly) -> Poly | None:
        """Drop ``x`` from the minimum ``a``, however deep, where ``b <= x`` (and mirrored)."""
        operands, dtype = self.sides(kind, a)
        for index, operand in enumerate(operands):
            gap = poly_sub(operand, b)
            if self.prover.nonneg(gap if kind == MIN else poly_scale(gap, -1)):
                return operands[1 - index]
        for index, operand in enumerate(operands):
            kept = self._without_dominated(kind, operand, b)
            if kept is not None:
                sides = (kept, operands[1]) if index == 0 else (operands[0], kept)
                return self.minmax(kind, *sides, dtype)
        return None

    def sides(self, kind: int, a: Poly) -> tuple[tuple[Poly, ...], str]:
        """The sides of a polynomial that is a minimum and nothing else (a maximum), its dtype."""
        table = self.context.table
        if len(a) == 1:
            ((mono, value),) = a.items()
            if value == 1 and len(mono) == 1 and table.kinds[mono[0]] == kind:
                return table.operands[mono[0]] or (), table.dtypes[mono[0]]
        return (), ""


def _is_downward(a: Poly) -> bool:
    """Whether a polynomial is a number, or the sum of negative terms alone."""
    return constant_of(a) is not None or (() not in a and max(a.values()) < 0)
