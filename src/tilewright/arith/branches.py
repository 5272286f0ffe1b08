"""Conditional values: those that are minima, and comparisons decided on both branches."""

from __future__ import annotations

from typing import Any

from tilewright.arith.assumptions import Assumptions, reads_memory
from tilewright.arith.canonical import ARITHMETIC_DTYPES, OpaqueOperand, has_effects
from tilewright.arith.comparisons import Comparisons
from tilewright.arith.polynomial import (
    OTHER,
    Poly,
    poly_atoms,
    poly_scale,
    poly_sub,
    substitute_atom,
)
from tilewright.ir import (
    EQ,
    LE,
    LT,
    NE,
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Select,
    pre_order,
)

_DEEPEST = 3
"""So many conditional values in one comparison are told apart."""


def as_choice(condition: Any, first: Expr, second: Expr, comparisons: Comparisons) -> Expr | None:
    """``Select(x < n, x, n)`` is ``min(x, n)``: where the condition compares what is chosen."""
    if type(condition) not in (LT, LE) or first.dtype not in ARITHMETIC_DTYPES:
        return None
    if condition.a.dtype != first.dtype or reads_memory(first) or reads_memory(second):
        return None
    canonical = comparisons.canonical
    try:
        sides = [canonical.poly(side) for side in (condition.a, condition.b, first, second)]
    except OpaqueOperand:
        return None
    if canonical.context.table.has_data(*sides):
        return None
    if any(mono and mono in sides[3] for mono in sides[2]):
        return None  # Select(x < 0, -x, x): more is known of it branch by branch
    goal = poly_sub(sides[1], sides[0])
    if type(condition) is LT:
        goal = poly_sub(goal, {(): 1})
    for gap, kind in ((poly_sub(sides[3], sides[2]), Min), (poly_sub(sides[2], sides[3]), Max)):
        # The condition is goal >= 0: gap = k * goal + r with r in [0, k] changes sign with it.
        mono = next((mono for mono in goal if mono), None)
        if mono is None or goal[mono] * gap.get(mono, 0) <= 0 or gap[mono] % goal[mono]:
            continue
        times = gap[mono] // goal[mono]
        rest = poly_sub(gap, poly_scale(goal, times))
        if not any(rest) and 0 <= rest.get((), 0) <= times:
            return kind(first, second)  # type: ignore[no-any-return]
    return None


def may_stand_alone(value: Expr) -> bool:
    """Whether a value may be computed where a condition doesn't guard it: no loads, no divisors."""
    if has_effects(value) or reads_memory(value):
        return False
    item: Any
    for item in pre_order(value):
        divides = type(item) in (FloorDiv, FloorMod) and not isinstance(item.b, IntImm)
        if divides or (type(item) is Call and item.op.name in ("truncdiv", "truncmod")):
            return False
    return True


def decided(
    kind: object, difference: Poly, comparisons: Comparisons, assumptions: Assumptions
) -> bool | None:
    """Whether ``difference >= 0`` (``== 0``, ``!= 0``), if all branches of its values agree."""
    return _decided(kind, difference, comparisons, assumptions, _DEEPEST)


def _decided(
    kind: object,
    difference: Poly,
    comparisons: Comparisons,
    assumptions: Assumptions,
    depth: int,
) -> bool | None:
    context = comparisons.canonical.context
    number = _conditional(difference, comparisons) if depth else None
    if number is None:
        return None
    condition, *values = _condition_and_values(context.table.exprs[number])
    answers = []
    for value, holds in zip(values, (True, False)):
        saved = context.snapshot()
        try:
            assumptions.assume(condition, holds)
            part = substitute_atom(difference, number, comparisons.canonical.poly(value))
            part = comparisons.canonical.merged(part)
            answer = _answer(kind, part, comparisons)
            if answer is None:
                answer = _decided(kind, part, comparisons, assumptions, depth - 1)
        except OpaqueOperand:
            return None
        finally:
            context.restore(saved)
        if answer is None:
            return None
        answers.append(answer)
    return answers[0] if answers[0] == answers[1] else None


def _answer(kind: object, difference: Poly, comparisons: Comparisons) -> bool | None:
    if kind in (EQ, NE):
        equal = comparisons.equal_zero(difference)
        return equal if equal is None or kind is EQ else not equal
    if comparisons.prover.nonneg(difference):
        return True
    return False if comparisons.prover.nonneg(poly_sub({(): -1}, difference)) else None


def _conditional(difference: Poly, comparisons: Comparisons) -> int | None:
    """The atom that is a conditional value without loads, if there is one."""
    table = comparisons.canonical.context.table
    for number in sorted(poly_atoms(difference)) if len(difference) <= 8 else ():
        if table.kinds[number] == OTHER and _condition_and_values(table.exprs[number]):
            expr = table.exprs[number]
            if expr is not None and not reads_memory(expr):
                return number
    return None


def _condition_and_values(expr: Any) -> tuple[Any, ...]:
    """Condition and values."""
    if type(expr) is Select:
        return expr.condition, expr.true_value, expr.false_value
    if type(expr) is Call and expr.op.name == "if_then_else":
        return tuple(expr.args)
    return ()
