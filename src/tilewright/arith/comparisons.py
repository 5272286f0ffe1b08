"""Comparisons as polynomials: ``goal >= 0`` and ``difference == 0``, decided or made short.

The simplifier brings comparisons into these forms, the assumptions learn them, and iteration maps
read them. It stands on the arithmetic of ``canonical``, and writes expressions only at its end.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from tilewright.arith import truncation
from tilewright.arith.bounds import NEG_INF, POS_INF
from tilewright.arith.canonical import Canonical
from tilewright.arith.polynomial import (
    DIV,
    MAX,
    MIN,
    MOD,
    OTHER,
    Poly,
    constant_of,
    poly_add,
    poly_scale,
    poly_sub,
)
from tilewright.arith.text_forms import with_remainders
from tilewright.ir import EQ, FALSE, GE, GT, LE, LT, NE, TRUE, Expr

NEGATED = {LT: GE, LE: GT, GT: LE, GE: LT, EQ: NE, NE: EQ}


class Comparisons:
    """Decides and shortens comparisons of polynomials, in a context."""

    def __init__(self, canonical: Canonical) -> None:
        self.canonical = canonical
        self.bounds = canonical.bounds
        self.prover = canonical.prover

    # ---- orderings --------------------------------------------------------------------------

    def ordering(self, kind: Any, goal: Poly, dtype: str) -> Expr:
        """Write ``goal >= 0`` as a comparison, ``LT`` or ``LE`` as ``kind`` would have it."""
        if self.prover.nonneg(goal):
            return TRUE
        if self.prover.nonneg(poly_sub({(): -1}, goal)):
            return FALSE
        goal = self.reduced_goal(goal)
        sided = self.one_sided(goal)
        goal = goal if sided is goal else self.reduced_goal(sided)
        if len(goal) > 1:
            short = with_remainders(self.canonical, goal)
            goal = goal if short is goal else self.reduced_goal(short)
        constant = goal.get((), 0)
        above = {m: v for m, v in goal.items() if m and v > 0}
        below = {m: -v for m, v in goal.items() if m and v < 0}
        build = self.canonical.context.table.to_expr
        if not above and constant in (0, -1) and len(below) == 2 and max(below.values()) > 1:
            left, right = sorted(below, key=lambda mono: below[mono])
            kind = LT if constant else LE
            minus = build({right: -below[right]}, dtype)
            return kind(build({left: below[left]}, dtype), minus)  # type: ignore[no-any-return]
        if not below:
            return LE(build({(): -constant}, dtype), build(above, dtype))  # type: ignore[no-any-return]
        if not above:
            return LT(build(below, dtype), build({(): constant + 1}, dtype))  # type: ignore[no-any-return]
        if (kind is LT and constant) or constant == -1:
            kind, constant = LT, constant + 1
        else:
            kind = LE
        if constant > 0:
            above = _with_constant(above, constant)
        elif constant < 0:
            below = _with_constant(below, -constant)
        return kind(build(below, dtype), build(above, dtype))  # type: ignore[no-any-return]

    def one_sided(self, goal: Poly) -> Poly:
        """Drop the side of a minimum or maximum that doesn't matter to ``goal >= 0``.

        ``min(a, b) >= c`` is ``b >= c`` where ``a >= c`` is known, and ``max(a, b) >= c`` is that
        where ``a < c`` is.
        """
        table = self.canonical.context.table
        for mono, value in goal.items():
            if len(mono) != 1 or table.kinds[mono[0]] not in (MIN, MAX):
                continue
            if any(mono[0] in other and other != mono for other in goal) or table.has_data(goal):
                continue
            operands = table.operands[mono[0]]
            assert operands is not None
            rest = {other: k for other, k in goal.items() if other != mono}
            sides = [
                self.canonical.merged(poly_add(rest, poly_scale(operand, value)))
                for operand in operands
            ]
            both = (table.kinds[mono[0]] == MIN) == (value > 0)
            for side, other in (sides, sides[::-1]):
                known = side if both else poly_sub({(): -1}, side)
                if self.prover.nonneg(known):
                    return self.one_sided(other)
        return goal

    def reduced_goal(self, goal: Poly) -> Poly:
        """Return an equivalent ``goal >= 0`` with fewer terms or smaller coefficients."""
        for _ in range(8):
            smaller = self._reduce_once(goal)
            if smaller is None:
                return goal
            goal = smaller
        return goal

    def _reduce_once(self, goal: Poly) -> Poly | None:
        constant = goal.get((), 0)
        terms = [(mono, value) for mono, value in goal.items() if mono]
        common = 0
        for _, value in terms:
            common = gcd(common, value)
        if common > 1:
            return _with_constant({m: v // common for m, v in terms}, constant // common)
        if len(terms) == 1:
            return self._undivided(terms[0][0], terms[0][1], constant)
        # g*high + low >= 0 with low in [m*g, (m+1)*g) is high + m >= 0.
        for factor in sorted({abs(v) for _, v in terms if abs(v) > 1}, reverse=True):
            high = {m: v // factor for m, v in terms if v % factor == 0}
            low = {m: v for m, v in terms if v % factor}
            if not low or not high:
                continue
            low = _with_constant(low, constant % factor)
            bottom, top = self.bounds.poly(low)
            if bottom == NEG_INF or top == POS_INF:
                continue
            if bottom // factor == top // factor:
                return _with_constant(high, constant // factor + bottom // factor)
        return None

    def _undivided(self, mono: tuple[int, ...], value: int, constant: int) -> Poly | None:
        """``k - x//c >= 0`` is ``(k+1)*c - 1 - x >= 0``; ``x//c + k >= 0`` is ``x + k*c >= 0``."""
        table = self.canonical.context.table
        if len(mono) == 1 and table.kinds[mono[0]] == OTHER and abs(value) == 1:
            return truncation.undivided(mono[0], value, constant, self.canonical)
        if len(mono) == 1 and table.kinds[mono[0]] == MOD and abs(value) == 1:
            return self._remainder_of_whole(mono[0], value, constant)
        if len(mono) != 1 or table.kinds[mono[0]] != DIV:
            return None
        operands = table.operands[mono[0]]
        assert operands is not None
        by = constant_of(operands[1])
        if by is None or by <= 0:
            return None
        if value > 0:
            return poly_add(operands[0], {(): constant * by} if constant else {})
        return poly_sub({(): (constant + 1) * by - 1}, operands[0])

    def _remainder_of_whole(self, number: int, value: int, constant: int) -> Poly | None:
        """``k - x//p%m >= 0`` is ``(k+1)*p - 1 - x%(p*m) >= 0``."""
        table = self.canonical.context.table
        operands = table.operands[number]
        assert operands is not None
        numerator, times = operands[0], constant_of(operands[1])
        if times is None or times <= 0 or len(numerator) != 1 or table.has_data(numerator):
            return None
        ((mono, one),) = numerator.items()
        inner = table.operands[mono[0]] if len(mono) == 1 == one else None
        if inner is None or table.kinds[mono[0]] != DIV:
            return None
        by = constant_of(inner[1])
        if by is None or by <= 0:
            return None
        whole = self.canonical.floormod(inner[0], {(): by * times}, table.dtypes[number])
        if value > 0:
            return poly_add(whole, {(): constant * by} if constant else {})
        return poly_sub({(): (constant + 1) * by - 1}, whole)

    # ---- equalities -------------------------------------------------------------------------

    def equality(self, kind: Any, difference: Poly, dtype: str) -> Expr:
        """Write ``difference == 0`` (``!= 0`` if ``kind`` is ``NE``), with positive terms only."""
        difference = self.canonical.merged(difference)
        known = self.equal_zero(difference)
        if known is not None:
            return TRUE if known == (kind is EQ) else FALSE
        difference = self._one_side_equal(difference)
        chosen = self._chosen(difference)
        if chosen is not None:
            if kind is NE:
                chosen = poly_sub({(): -1}, chosen)
            return self.ordering(LE, chosen, dtype)
        bounded = self._bounded_quotient(kind, difference, dtype)
        if bounded is not None:
            return bounded
        if len(difference) > 1:
            difference = with_remainders(self.canonical, difference)
        build = self.canonical.context.table.to_expr
        constant = difference.get((), 0)
        terms = {m: v for m, v in difference.items() if m}
        common = 0
        for value in terms.values():
            common = gcd(common, value)
        if constant % common:
            return FALSE if kind is EQ else TRUE
        sign = 1 if next(iter(terms.values())) > 0 else -1
        constant = sign * constant // common
        left = {m: sign * v // common for m, v in terms.items() if sign * v > 0}
        right = {m: -sign * v // common for m, v in terms.items() if sign * v < 0}
        if not right and not constant and len(left) == 2 and max(left.values()) > 1:
            mono = max(left, key=lambda mono: left[mono])
            right = {mono: -left.pop(mono)}
        if constant > 0 and right:
            left = _with_constant(left, constant)
        elif constant:
            right = _with_constant(right, -constant)
        return kind(build(left, dtype), build(right, dtype))  # type: ignore[no-any-return]

    def _chosen(self, difference: Poly) -> Poly | None:
        """``min(a, b) == a`` as the goal ``b - a >= 0``, and likewise for a maximum."""
        table = self.canonical.context.table
        for mono, value in difference.items():
            if len(mono) != 1 or table.kinds[mono[0]] not in (MIN, MAX) or abs(value) != 1:
                continue
            operands = table.operands[mono[0]]
            assert operands is not None
            rest = {other: -value * k for other, k in difference.items() if other != mono}
            if rest in operands and not table.has_data(difference):
                other = operands[0] if rest == operands[1] else operands[1]
                gap = poly_sub(other, rest)
                return gap if table.kinds[mono[0]] == MIN else poly_scale(gap, -1)
        return None

    def _one_side_equal(self, difference: Poly) -> Poly:
        """``min(a, b) == c`` is ``b == c`` where ``a > c`` is known."""
        table = self.canonical.context.table
        for mono, value in difference.items():
            if (
                len(mono) != 1
                or table.kinds[mono[0]] not in (MIN, MAX)
                or table.has_data(difference)
            ):
                continue
            if any(mono[0] in other and other != mono for other in difference):
                continue
            operands = table.operands[mono[0]]
            assert operands is not None
            rest = {other: k for other, k in difference.items() if other != mono}
            left, right = (poly_add(rest, poly_scale(operand, value)) for operand in operands)
            sign = 1 if (table.kinds[mono[0]] == MIN) == (value > 0) else -1
            for side, other in ((left, right), (right, left)):
                if self.prover.positive(poly_scale(side, sign)):
                    return self._one_side_equal(self.canonical.merged(other))
        return difference

    def _bounded_quotient(self, kind: object, difference: Poly, dtype: str) -> Expr | None:
        """``x // 4 == 0`` is ``x < 4`` where ``x // 4`` can't be less than zero."""
        terms = [mono for mono in difference if mono]
        if len(terms) != 1 or len(terms[0]) != 1 or not self._is_quotient(terms[0][0]):
            return None
        low, high = self.bounds.poly(difference)
        if 0 not in (low, high):
            return None
        goal = difference if high == 0 else poly_scale(difference, -1)
        if kind is NE:
            goal = poly_sub({(): -1}, goal)
        return self.ordering(LE, goal, dtype)

    def _is_quotient(self, number: int) -> bool:
        """Whether an atom is ``x // p``, or ``x // p % m``."""
        table = self.canonical.context.table
        operands = table.operands[number]
        if operands is not None and table.kinds[number] == MOD and len(operands[0]) == 1:
            ((mono, value),) = operands[0].items()
            number = mono[0] if len(mono) == 1 == value else number
        return table.kinds[number] == DIV

    def equal_zero(self, difference: Poly) -> bool | None:
        """Whether a polynomial is zero: ``True``, ``False`` or unknown."""
        difference = self.canonical.merged(difference)
        if not difference:
            return True
        low, high = self.bounds.poly(difference)
        if low > 0 or high < 0:
            return False
        if low == high == 0:
            return True
        coeff, base = self.canonical.modular.poly(difference)
        if base % coeff if coeff else base:
            return False
        expanded = self.canonical.expanded(difference)
        if not expanded:
            return True
        if constant_of(expanded) is not None:
            return False
        minus = poly_scale(difference, -1)
        if self.prover.positive(difference) or self.prover.positive(minus):
            return False
        if self.prover.nonneg(difference) and self.prover.nonneg(minus):
            return True
        return None


def _with_constant(terms: Poly, constant: int) -> Poly:
    return {**terms, (): constant} if constant else terms
