"""Index expressions as sums of loops, and conditions as bounds of them.

What the counts of instances and elements stand on: a domain is a set of loop variables with their
ranges, a form is ``base + sum(factor * (0 … extent-1))`` over it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.arith import Analyzer, linear_coefficients
from tilewright.ir import (
    GE,
    GT,
    LE,
    LT,
    Expr,
    Range,
    Var,
    add,
    as_int,
    const,
    is_const,
    minimum,
    mul,
    pre_order,
    sub,
    substitute,
    uses_var,
)
from tilewright.tir.buffer import BufferLoad

Domain = Mapping[Var, Range]


class Form:
    """``base + sum(factor * (0 … extent-1))``; variables that don't move are in the base."""

    def __init__(self, terms: list[tuple[Expr, Expr]], base: Expr) -> None:
        self.terms = terms
        self.base = base

    def least(self) -> Expr:
        """The least value, where no factor is symbolic and negative."""
        low = self.base
        for factor, extent in self.terms:
            known = as_int(factor)
            if known is not None and known < 0:
                low = add(low, mul(factor, sub(extent, 1)))
        return low


def wide(domain: Domain) -> list[Var]:
    """The variables that take more than one value."""
    return [var for var, item in domain.items() if not is_const(item.extent, 1)]


def linear_form(index: Expr, domain: Domain, known: Analyzer) -> Form | None:
    """Read an index as a sum of the variables of a domain; ``None`` if it is none."""
    variables = [var for var in domain if uses_var(index, {var})]
    if any(type(item) is BufferLoad for item in pre_order(index)):
        return None
    found = linear_coefficients(index, variables, analyzer=_unbound(known, variables))
    if found is None:
        return None
    base = found[-1]
    terms = []
    for var, factor in zip(variables, found):
        item = domain[var]
        base = add(base, mul(factor, item.min))
        if not is_const(item.extent, 1) and not is_const(factor, 0):
            terms.append((factor, item.extent))
    return Form(terms, known.simplify(base))


def _unbound(known: Analyzer, variables: Iterable[Var]) -> Analyzer:
    """An analyzer that doesn't replace the variables by values it knows."""
    if any(var in known._context.substitutions for var in variables):
        return Analyzer()
    return known


def gap_of(condition: Any) -> Expr | None:
    """Read an inequality as ``gap >= 0``."""
    kind = type(condition)
    if kind not in (LT, LE, GT, GE):
        return None
    a, b = condition.a, condition.b
    gap: Expr = sub(b, a) if kind in (LT, LE) else sub(a, b)
    return sub(gap, 1) if kind in (LT, GT) else gap


def depends(item: Range, domain: Domain) -> bool:
    """Whether a range depends on variables of a domain."""
    return uses_var(item.min, domain) or uses_var(item.extent, domain)


def narrowed(
    domain: Domain, conditions: Iterable[Expr], known: Analyzer
) -> tuple[dict[Var, Range], list[Expr], dict[Var, Expr]]:
    """Let conditions on single variables shorten their ranges, and drop these conditions.

    Returns the domain of the variables that still take several values, the conditions that are
    left, and the values of the other variables; the conditions have them put in.
    """
    ranges = dict(domain)
    fixed: dict[Var, Expr] = {}
    left = list(conditions)
    changed = True
    while changed:
        changed = False
        for var, item in list(ranges.items()):
            if is_const(item.extent, 1) and not depends(item, ranges):
                del ranges[var]
                fixed[var] = item.min
                left = [substitute(part, {var: item.min}) for part in left]
                ranges = {v: substitute(r, {var: item.min}) for v, r in ranges.items()}
                changed = True
        for part in left:
            found = _shortened(part, ranges, known)
            if found is not None:
                var, item = found
                ranges[var] = item
                left = [other for other in left if other is not part]
                changed = True
                break
    return ranges, left, fixed


def _shortened(
    condition: Expr, domain: dict[Var, Range], known: Analyzer
) -> tuple[Var, Range] | None:
    """Read a condition as an end of the range of one variable, which no other range needs."""
    bound = gap_of(condition)
    used = [var for var in domain if uses_var(condition, {var})]
    if bound is None or len(used) != 1:
        return None
    (var,) = used
    item = domain[var]
    if depends(item, domain) or any(
        uses_var(other.min, {var}) or uses_var(other.extent, {var}) for other in domain.values()
    ):
        return None
    form = linear_form(bound, {var: item}, known)
    factor = None if form is None or len(form.terms) != 1 else as_int(form.terms[0][0])
    if form is None or not factor:
        return None
    # base + factor * v >= 0 for v counted from the start of the range.
    base, number = form.base, as_int(form.base)
    if factor < 0:
        most = base if factor == -1 else None if number is None else const(number // -factor)
        if most is None:
            return None
        extent = known.simplify(minimum(item.extent, add(most, 1)))
        return (
            (var, Range.from_min_extent(item.min, extent))
            if known.can_prove_ge(extent, 0)
            else None
        )
    least = sub(0, base) if factor == 1 else None if number is None else const(-(number // factor))
    if least is None:
        return None
    if known.can_prove_ge(0, least):
        return var, item
    extent = known.simplify(sub(item.extent, least))
    if not (known.can_prove_ge(least, 0) and known.can_prove_ge(extent, 0)):
        return None
    return var, Range.from_min_extent(known.simplify(add(item.min, least)), extent)
