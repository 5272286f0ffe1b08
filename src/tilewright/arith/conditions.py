"""Conditions taken apart: what each says as ``goal >= 0``, and about which one variable.

Iteration maps, linear equations and inequalities read predicates through these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.canonical import ARITHMETIC_DTYPES
from tilewright.arith.comparisons import NEGATED
from tilewright.arith.polynomial import AtomTable, Poly, poly_atoms, poly_sub
from tilewright.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    And,
    Call,
    Expr,
    IntImm,
    Not,
    Or,
    Range,
    Var,
    and_,
    not_,
    uses_var,
)


def conjuncts(condition: Expr) -> list[Expr]:
    """Split a condition at its ``and`` nodes, and see through ``likely``; true has no parts."""
    conjuncts_found: list[Expr] = []
    stack: list[Any] = [condition]
    while stack:
        item = stack.pop()
        if type(item) is And:
            stack += [item.b, item.a]
        elif type(item) is Call and item.op.name == "likely":
            stack.append(item.args[0])
        elif not (type(item) is IntImm and item.value):
            conjuncts_found.append(item)
    return conjuncts_found


def decided_conjuncts(condition: Expr) -> list[Expr]:
    """``conjuncts``, split at a denied ``or`` too, and with denied comparisons turned around."""
    conjuncts_found: list[Expr] = []
    stack: list[Any] = conjuncts(condition)[::-1]
    while stack:
        item = stack.pop()
        denied: Any = item.a if type(item) is Not else None
        if type(denied) is Or:
            stack += conjuncts(and_(not_(denied.a), not_(denied.b)))[::-1]
        elif type(denied) in NEGATED and denied.a.dtype in ARITHMETIC_DTYPES:
            conjuncts_found.append(NEGATED[type(denied)](denied.a, denied.b))
        else:
            conjuncts_found.append(item)
    return conjuncts_found


_COMPARISONS = frozenset((EQ, LT, LE, GT, GE))


def comparison_goals(
    analyzer: Analyzer, condition: Any, *, reduce: bool = True
) -> list[Poly] | None:
    """Return polynomials that are >= 0 exactly if the condition holds, or ``None``."""
    kind, sides = type(condition), condition
    if kind not in _COMPARISONS or sides.a.dtype not in ARITHMETIC_DTYPES:
        return None
    a, b = analyzer.poly(sides.a), analyzer.poly(sides.b)
    if kind is EQ:
        return [poly_sub(a, b), poly_sub(b, a)]
    goal = poly_sub(b, a) if kind in (LT, LE) else poly_sub(a, b)
    if kind in (LT, GT):
        goal = poly_sub(goal, {(): 1})
    goal = analyzer._canonical.merged(goal)
    return [analyzer._simplifier.comparisons.reduced_goal(goal) if reduce else goal]


def narrowed(
    analyzer: Analyzer, inputs: Mapping[Var, Range], predicate: Expr
) -> tuple[dict[Var, Range], list[Expr]]:
    """Use conditions on one variable to narrow its range; return the others."""
    ranges = dict(inputs)
    rest: list[Expr] = []
    for condition in conjuncts(predicate):
        inside = [var for var in ranges if uses_var(condition, {var})]
        if len(inside) != 1 or not _narrow_one(analyzer, ranges, inside[0], condition):
            rest.append(condition)
    return ranges, rest


def _narrow_one(analyzer: Analyzer, ranges: dict[Var, Range], var: Var, condition: Expr) -> bool:
    """Narrow the range of ``var`` if the condition says no more than where it starts or ends."""
    sides = comparison_goals(analyzer, condition)
    if sides is None:
        return False
    table = analyzer._context.table
    number = table.var(var)
    simplify = analyzer.simplify
    low, extent = ranges[var].min, ranges[var].extent
    for goal in sides:
        value = goal.get((number,))
        if value not in (1, -1) or any(number in mono and len(mono) > 1 for mono in goal):
            return False
    for goal in sides:
        value = goal[(number,)]
        bound = {mono: -value * k for mono, k in goal.items() if mono != (number,)}
        if any(_uses_number(table, bound, table.var(v)) for v in ranges):
            return False
        text = analyzer._simplifier.from_poly_or_none(bound, var.dtype)
        if text is None:
            return False
        if value == 1:  # var >= bound
            gap = simplify(text - low)
            if analyzer.can_prove_le(gap, 0):
                continue
            if not analyzer.can_prove_ge(gap, 0):
                return False
            low, extent = text, simplify(extent - gap)
        else:  # var <= bound
            most = simplify(text - low + 1)
            if analyzer.can_prove_ge(most, extent):
                continue
            if not analyzer.can_prove_le(most, extent):
                return False
            extent = most
    if extent is not ranges[var].extent and not analyzer.can_prove_ge(extent, 0):
        return False
    ranges[var] = Range.from_min_extent(low, extent)
    return True


def _uses_number(table: AtomTable, poly: Poly, number: int) -> bool:
    for atom in poly_atoms(poly):
        if atom == number:
            return True
        operands = table.operands[atom]
        if operands is not None and any(
            _uses_number(table, operand, number) for operand in operands
        ):
            return True
    return False
