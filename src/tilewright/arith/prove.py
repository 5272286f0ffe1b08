"""Proving that a polynomial is never negative: ``a < b`` is ``b - a - 1 >= 0``.

Const bounds answer most questions. Otherwise atoms are eliminated one at a time, those that hold
others first: a floor division through ``n - d + 1 <= d * (n // d) <= n``, a minimum by cases, a
variable by its symbolic range where its coefficient has a known sign. Known facts are combined
with the goal by adding multiples. Every step keeps "goal >= 0 follows", so a proof is a proof; the
search has a budget, and giving up means "not proven".
"""

from __future__ import annotations

from math import gcd

from tilewright.arith.bounds import BoundAnalyzer
from tilewright.arith.context import Context
from tilewright.arith.polynomial import (
    DIV,
    MAX,
    MIN,
    MOD,
    VAR,
    Poly,
    constant_of,
    linear_in,
    poly_add,
    poly_atoms,
    poly_key,
    poly_mul,
    poly_scale,
    poly_sub,
)

_BUDGET = 48


class Prover:
    """Decides ``polynomial >= 0`` in a context; answers are cached there."""

    def __init__(self, context: Context, bounds: BoundAnalyzer) -> None:
        self.context = context
        self.bounds = bounds
        self._steps = 0
        self._visited: set[object] = set()
        self._active = False

    def nonneg(self, goal: Poly) -> bool:
        """Whether the goal is proven to be >= 0."""
        if not goal:
            return True
        low, high = self.bounds.poly(goal)
        if low >= 0:
            return True
        if high < 0 or self._hopeless(goal):
            return False
        cache = self.context.proof_cache
        key = poly_key(goal)
        found = cache.get(key)
        if found is None:
            if self._active:  # asked from within a proof: share its budget
                return self._search(goal)
            self._active = True
            self._steps = _BUDGET
            self._visited = set()
            try:
                found = self._search(goal)
            finally:
                self._active = False
            cache[key] = found
        return found

    def positive(self, goal: Poly) -> bool:
        """Whether the goal is proven to be >= 1."""
        return self.nonneg(poly_sub(goal, {(): 1}))

    def less(self, a: Poly, b: Poly) -> bool:
        """Whether ``a < b`` is proven."""
        return self.positive(poly_sub(b, a))

    def sign(self, a: Poly) -> int:
        """Return 1 if ``a >= 0`` is proven, -1 if ``a <= 0`` is, else 0."""
        low, high = self.bounds.poly(a)
        if low >= 0:
            return 1
        if high <= 0:
            return -1
        if self.nonneg(a):
            return 1
        return -1 if self.nonneg(poly_scale(a, -1)) else 0

    def _hopeless(self, goal: Poly) -> bool:
        """Whether const bounds are exact anyway: independent variables, linear, no facts."""
        context = self.context
        for fact in context.facts:
            for mono in fact:
                if mono and mono in goal:
                    return False
        kinds, ranges = context.table.kinds, context.ranges
        for mono in goal:
            if len(mono) > 1:
                return False
            if mono:
                number = mono[0]
                if kinds[number] != VAR:
                    return False
                ends = ranges.get(number)
                if ends is not None:
                    for end in ends:
                        if end is not None and constant_of(end) is None:
                            return False
        return True

    def _search(self, goal: Poly) -> bool:
        if not goal:
            return True
        low, high = self.bounds.poly(goal)
        if low >= 0:
            return True
        if high < 0:
            return False
        self._steps -= 1
        key = poly_key(goal)
        if self._steps < 0 or key in self._visited:
            return False
        self._visited.add(key)
        reduced = self._divided(goal)
        if reduced is not goal and self.bounds.poly(reduced)[0] >= 0:
            return True
        goal = reduced
        if self._eliminate(goal):
            return True
        return self._use_facts(goal)

    @staticmethod
    def _divided(goal: Poly) -> Poly:
        """Divide by the coefficients' common factor: 4x + 3 >= 0 is x >= 0."""
        common = 0
        for mono, value in goal.items():
            if mono:
                common = gcd(common, value)
                if common == 1:
                    return goal
        if common < 2:
            return goal
        out = {mono: value // common for mono, value in goal.items()}
        if () in out and not out[()]:
            del out[()]
        return out

    def _order(self, goal: Poly) -> list[int]:
        """Atoms worth eliminating, best first: compound ones, symbolic ranges, then products.

        A variable whose range ends at compound atoms of the goal comes before these, which may
        cancel: ``i < (n // 4) * (m // 4)``.
        """
        table, ranges = self.context.table, self.context.ranges
        first: list[int] = []
        symbolic: list[int] = []
        bounded: list[int] = []
        atoms = sorted(poly_atoms(goal), reverse=True)
        compound = [number for number in atoms if table.operands[number] is not None]
        for number in atoms:
            if table.operands[number] is not None:
                continue
            ends = ranges.get(number)
            if ends is not None and any(
                end is not None and constant_of(end) is None for end in ends
            ):
                inside = {a for end in ends if end is not None for a in poly_atoms(end)}
                (symbolic if inside.isdisjoint(compound) else first).append(number)
            elif any(number in mono and len(mono) > 1 for mono in goal):
                bounded.append(number)
        return first + compound + symbolic + bounded

    def _eliminate(self, goal: Poly) -> bool:
        table = self.context.table
        for number in self._order(goal):
            if self._steps < 0:
                return False
            split = linear_in(goal, number)
            if split is None:
                continue
            inner, outer = split
            kind = table.kinds[number]
            if kind == DIV:
                proven = self._by_division(inner, outer, number)
            elif kind == MOD:
                proven = self._by_remainder(inner, outer, number)
            elif kind in (MIN, MAX):
                proven = self._by_cases(inner, outer, number)
            else:
                proven = False
            # What is known of an operator's result may be more than its operands tell.
            if proven or self._by_range(inner, outer, number):
                return True
        return False

    def _by_range(self, inner: Poly, outer: Poly, number: int) -> bool:
        sign = self.sign(inner)
        if not sign:
            return False
        ends = self.context.ranges.get(number, (None, None))
        end = ends[0] if sign > 0 else ends[1]
        if end is not None and self._search(poly_add(poly_mul(inner, end), outer)):
            return True
        limit = self.bounds.atom(number)[0 if sign > 0 else 1]
        if limit in (float("inf"), float("-inf")):
            return False
        if end is not None and constant_of(end) == limit:
            return False
        return self._search(poly_add(poly_scale(inner, limit), outer))

    def _positive_division(self, number: int) -> tuple[Poly, Poly] | None:
        """Operands of a quotient or remainder, if the divisor is positive."""
        operands = self.context.table.operands[number]
        assert operands is not None
        divisor = operands[1]
        if self.bounds.poly(divisor)[0] < 1 and not self.positive(divisor):
            return None
        return operands

    def _by_division(self, inner: Poly, outer: Poly, number: int) -> bool:
        """Goal ``p*q + r`` with ``q = n // d``: multiply by ``d > 0`` and bound ``d*q``."""
        operands = self._positive_division(number)
        if operands is None:
            return False
        value, divisor = operands
        sign = self.sign(inner)
        if not sign:
            return False
        # d*q lies in [n - d + 1, n].
        bound = value if sign < 0 else poly_add(poly_sub(value, divisor), {(): 1})
        amount = constant_of(divisor)
        # p*q + r >= 0  <=>  d*(p*q + r) > -d, for whole numbers.
        slack: Poly = poly_sub(divisor, {(): 1})
        if amount is not None and all(item % amount == 0 for item in inner.values()):
            scaled = {mono: item // amount for mono, item in inner.items()}
            return self._search(poly_add(poly_mul(scaled, bound), outer))
        total = poly_add(poly_mul(inner, bound), poly_mul(divisor, outer))
        return self._search(poly_add(total, slack))

    def _by_remainder(self, inner: Poly, outer: Poly, number: int) -> bool:
        operands = self._positive_division(number)
        if operands is None:
            return False
        value, divisor = operands
        sign = self.sign(inner)
        if sign > 0:
            return self._search(outer)
        if sign < 0:
            most = poly_sub(divisor, {(): 1})
            if self._search(poly_add(poly_mul(inner, most), outer)):
                return True
            if self.nonneg(value):
                return self._search(poly_add(poly_mul(inner, value), outer))
        return False

    def _by_cases(self, inner: Poly, outer: Poly, number: int) -> bool:
        table = self.context.table
        operands = table.operands[number]
        assert operands is not None
        sign = self.sign(inner)
        goals = [poly_add(poly_mul(inner, operand), outer) for operand in operands]
        # p*min(a, b) with p <= 0 is at least p*a and at least p*b; likewise max with p >= 0.
        if sign and (sign < 0) == (table.kinds[number] == MIN):
            return self._search(goals[0]) or self._search(goals[1])
        return self._search(goals[0]) and self._search(goals[1])

    def _use_facts(self, goal: Poly) -> bool:
        """Subtract a multiple of a fact that cancels one of the goal's terms."""
        for fact in self.context.facts:
            if self._steps < 0:
                return False
            for mono, value in fact.items():
                mine = goal.get(mono)
                if mono and mine is not None and (mine > 0) == (value > 0):
                    common = gcd(mine, value)
                    left = poly_scale(goal, abs(value) // common)
                    if self._search(poly_sub(left, poly_scale(fact, abs(mine) // common))):
                        return True
                    break
        return False
