"""What a condition teaches: limits of variables and sums, facts, equalities, residues.

``assume`` takes a condition apart and enters what it says into the context, from where bounds,
proofs and polynomials read it.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from tilewright.arith.bounds import EVERYTHING
from tilewright.arith.canonical import ARITHMETIC_DTYPES, Canonical, OpaqueOperand
from tilewright.arith.comparisons import NEGATED, Comparisons
from tilewright.arith.polynomial import (
    MOD,
    Poly,
    constant_of,
    mono_divide,
    poly_add,
    poly_atoms,
    poly_exact,
    poly_scale,
    poly_sub,
)
from tilewright.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Select,
    StringImm,
    Sub,
    Var,
)

_PURE = frozenset((
    Var, IntImm, FloatImm, StringImm, Add, Sub, Mul, FloorDiv, FloorMod, Min, Max, *NEGATED,
    And, Or, Not, Select, Cast, Broadcast,
))  # fmt: skip


def reads_memory(expr: Any) -> bool:
    """Whether the value may change when memory is written."""
    stack = [expr]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind not in _PURE and not (kind is Call and item.op.effect == "pure"):
            return True
        stack.extend(item.child_nodes())
    return False


class Assumptions:
    """Enters conditions into the context."""

    def __init__(self, canonical: Canonical, comparisons: Comparisons) -> None:
        self.context = canonical.context
        self.canonical = canonical
        self.comparisons = comparisons

    def assume(self, condition: Any, holds: bool = True) -> None:
        """Add a condition (or its negation) to the context. What reads memory is left out."""
        kind = type(condition)
        if kind is Not:
            self.assume(condition.a, not holds)
        elif kind is Call and condition.op.name in ("likely", "ignore_loop_partition"):
            self.assume(condition.args[0], holds)
        elif kind is (And if holds else Or) and condition.dtype == "bool":
            self.assume(condition.a, holds)
            self.assume(condition.b, holds)
        elif condition.dtype != "bool" or reads_memory(condition):
            return
        elif kind in NEGATED and condition.a.dtype in ARITHMETIC_DTYPES:
            self._assume_comparison(kind if holds else NEGATED[kind], condition.a, condition.b)
        else:
            try:
                self.context.conditions[self.canonical.key(condition)] = holds
            except OpaqueOperand:
                return
            self.context.changed()

    def _assume_comparison(self, kind: object, left: Expr, right: Expr) -> None:
        a, b = self.canonical.poly(left), self.canonical.poly(right)
        if kind in (GT, GE):
            a, b, kind = b, a, (LT if kind is GT else LE)
        difference = self.canonical.merged(poly_sub(b, a))
        if kind is LT:
            self.assume_nonneg(poly_sub(difference, {(): 1}))
        elif kind is LE:
            self.assume_nonneg(difference)
        elif kind is EQ:
            self._assume_equal(difference)
        else:
            low, high = self.canonical.bounds.poly(difference)
            if low == 0:
                self.assume_nonneg(poly_sub(difference, {(): 1}))
            elif high == 0:
                self.assume_nonneg(poly_sub({(): -1}, difference))
            made: Any = self.comparisons.equality(NE, difference, left.dtype)
            if type(made) is NE:
                self.context.conditions[self.canonical.key(made)] = True
                self.context.conditions[self.canonical.key(EQ(made.a, made.b))] = False
        self.context.changed()

    def assume_nonneg(self, goal: Poly) -> None:
        """Learn that ``goal >= 0``."""
        self._learn(goal)
        reduced = self.comparisons.reduced_goal(goal)
        if reduced != goal:
            self._learn(reduced)
        self._learn_factors(poly_add(goal, {(): 1}))

    def _learn(self, goal: Poly) -> None:
        context = self.context
        form = {mono: value for mono, value in goal.items() if mono}
        if not form:
            return
        least = -goal.get((), 0)
        if len(form) == 1:
            ((mono, value),) = form.items()
            if len(mono) == 1:
                old = context.limits.get(mono[0], EVERYTHING)
                if value > 0:
                    context.limits[mono[0]] = (max(old[0], -(-least // value)), old[1])
                else:
                    context.limits[mono[0]] = (old[0], min(old[1], least // value))
                context.changed()
                return
            if value > 0 and least > 0:
                self._learn_parts(mono)
        key = frozenset(form.items())
        old = context.poly_limits.get(key, EVERYTHING)
        low, high = max(old[0], least), old[1]
        context.poly_limits[key] = (low, high)
        context.poly_limits[frozenset(poly_scale(form, -1).items())] = (-high, -low)
        if goal not in context.facts:
            context.facts.append(goal)
        context.changed()

    def _learn_factors(self, product: Poly) -> None:
        """From a positive product of sums: factors known not to be negative are positive.

        What is left of it without them is positive, too.
        """
        if len(product) < 2 or all(len(mono) < 2 for mono in product):
            return
        known: list[Poly] = []
        for atom in sorted(poly_atoms(product)):
            least = self.canonical.bounds.atom(atom)[0]
            if least >= 0:
                known.append({(atom,): 1})
            if least != 0 and isfinite(least):
                known.append({(atom,): 1, (): -int(least)})
        for factor in (*known, *self.context.facts):
            rest = poly_exact(product, factor) if any(factor) else None
            if rest is not None and any(rest):
                self._learn(poly_sub(factor, {(): 1}))
                self._learn(poly_sub(rest, {(): 1}))
                product = rest

    def _learn_parts(self, mono: tuple[int, ...]) -> None:
        """From a positive product: a part known not to be negative is positive, if the rest is."""
        for fact in list(self.context.facts):
            if len(fact) != 1:
                continue
            ((part, value),) = fact.items()
            rest = mono_divide(mono, part) if part and value > 0 else None
            if rest and self.canonical.bounds.poly({rest: 1})[0] >= 0:
                self._learn({part: 1, (): -1})
                self._learn({rest: 1, (): -1})

    def _assume_equal(self, difference: Poly) -> None:
        terms = [(mono, value) for mono, value in difference.items() if mono]
        constant = difference.get((), 0)
        context = self.context
        if len(terms) == 1 and constant % terms[0][1] == 0:
            mono, value = terms[0]
            context.rules[mono] = {(): -constant // value} if constant else {}
            self._learn_residue(mono, -constant // value)
        self.assume_nonneg(difference)
        self.assume_nonneg(poly_scale(difference, -1))

    def _learn_residue(self, mono: tuple[int, ...], value: int) -> None:
        """From ``x % c == r``: x leaves r modulo c."""
        table = self.context.table
        operands = table.operands[mono[0]] if len(mono) == 1 else None
        if operands is None or table.kinds[mono[0]] != MOD:
            return
        by = constant_of(operands[1])
        if by and len(operands[0]) == 1:
            ((inner, coefficient),) = operands[0].items()
            if coefficient == 1 and len(inner) == 1 and 0 <= value < by:
                self.context.residues[inner[0]] = (by, value)
