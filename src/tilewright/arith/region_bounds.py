"""What a region touches while variables run: at least, exactly, at most.

``region_bound`` gives one box; these three say how much of a box is meant. Passes that ask whether
all of a buffer is written need the first two, those that allocate memory the third.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.conditions import comparison_goals, conjuncts
from tilewright.arith.evaluate import NotEvaluable, evaluate
from tilewright.arith.int_set import region_bound
from tilewright.arith.intervals import IntervalSet, IntSet, Relaxer, bind_domain
from tilewright.arith.iter_map import detect_iter_map
from tilewright.arith.polynomial import DIV, Poly, linear_in, poly_add, poly_scale, poly_sub
from tilewright.ir import (
    EQ,
    INDEX,
    TRUE,
    Expr,
    ExprLike,
    Range,
    Var,
    as_expr,
    as_int,
    const,
    uses_var,
)

_TRIED = 1 << 16
"""Over at most so many points a region's box is found by trying them."""


def estimate_region_strict_bound(
    region: Sequence[Range],
    var_dom: Mapping[Var, Range],
    predicate: ExprLike = TRUE,
    analyzer: Analyzer | None = None,
) -> list[IntSet] | None:
    """Return the box that a region covers completely, and no more; ``None`` if there is none known.

    Dimensions must not depend on each other: over a diagonal there is no box.
    """
    known = Analyzer() if analyzer is None else analyzer
    condition = as_expr(predicate)
    try:
        return _tried_box(region, var_dom, condition)
    except NotEvaluable:
        pass  # sizes that the call brings
    starts = [item.min for item in region]
    used = {var: dom for var, dom in var_dom.items() if any(uses_var(s, {var}) for s in starts)}
    if not _is_told(condition, region, var_dom):
        return None
    if used and detect_iter_map(starts, used, condition, analyzer=known).errors:
        return None
    found = region_bound(region, var_dom, condition, exact=True, analyzer=known)
    if not all(isinstance(item, Range) for item in found):
        return None
    return [IntervalSet.from_range(item) for item in found if isinstance(item, Range)]


def _tried_box(
    region: Sequence[Range], var_dom: Mapping[Var, Range], predicate: Expr
) -> list[IntSet] | None:
    """The box of a region over a domain of few known points, by trying them all.

    Raises ``NotEvaluable`` if they aren't few, or not known.
    """
    ends = [(as_int(dom.min), as_int(dom.extent)) for dom in var_dom.values()]
    sizes = [as_int(item.extent) for item in region]
    counts = [count for _, count in ends if count is not None and count >= 0]
    if len(counts) < len(ends) or None in sizes or math.prod(counts) > _TRIED:
        raise NotEvaluable
    grids = np.ogrid[tuple(slice(low, (low or 0) + (count or 0)) for low, count in ends)]
    values = dict(zip(var_dom, grids)) if all(low is not None for low, _ in ends) else {}
    arrays = [evaluate(item.min, values) for item in region]
    points = np.broadcast_arrays(evaluate(predicate, values), *arrays, *grids)[: len(region) + 1]
    starts = np.stack([item[points[0].astype(bool)] for item in points[1:]])
    places = [np.unique(row) for row in starts]
    if not starts.size or len(np.unique(starts, axis=1)[0]) < math.prod(map(len, places)):
        return None  # nothing is touched, or dimensions depend on one another
    if any(np.diff(row).max(initial=0) > (size or 0) for row, size in zip(places, sizes)):
        return None  # there are gaps
    return [
        IntervalSet(
            const(int(row[0]), item.min.dtype), const(int(row[-1] + size - 1), item.min.dtype)
        )
        for item, row, size in zip(region, places, sizes)
        if size is not None
    ]


def _is_told(condition: Expr, region: Sequence[Range], var_dom: Mapping[Var, Range]) -> bool:
    """Whether ``detect_iter_map`` sees all a condition says: how far sums of variables go."""
    known = Analyzer()
    known.bind_ranges(var_dom)
    starts = [_moving(known, known.poly(item.min), var_dom) for item in region]
    sums = [item for item in starts if item and len(item) > 1]
    for fact in conjuncts(condition):
        if known.can_prove(fact):
            continue
        goals = [_moving(known, goal, var_dom) for goal in comparison_goals(known, fact) or ()]
        if not goals or not all(
            goal is not None and (goal in sums or poly_scale(goal, -1) in sums) for goal in goals
        ):
            return False
    return True


def _moving(known: Analyzer, terms: Poly, var_dom: Mapping[Var, Range]) -> Poly | None:
    """The terms that are multiples of variables of a domain; ``None`` if others have any."""
    atoms = {mono for var in var_dom for mono in known.poly(var)}
    made = {mono: value for mono, value in terms.items() if mono in atoms}
    rest = known._simplifier.from_poly_or_none(poly_sub(terms, made), INDEX)
    return None if rest is None or uses_var(rest, set(var_dom)) else made


def estimate_region_lower_bound(
    region: Sequence[Range],
    var_dom: Mapping[Var, Range],
    predicate: ExprLike = TRUE,
    analyzer: Analyzer | None = None,
) -> list[IntSet] | None:
    """Return a box of which a region touches every element; ``None`` if none is known.

    The box found is exact, so this is ``estimate_region_strict_bound``.
    """
    return estimate_region_strict_bound(region, var_dom, predicate, analyzer)


def estimate_region_upper_bound(
    region: Sequence[Range],
    var_dom: Mapping[Var, Range],
    predicate: ExprLike = TRUE,
    analyzer: Analyzer | None = None,
) -> list[IntSet]:
    """Return a box that holds everything a region touches; ends may be infinite."""
    found = region_bound(region, var_dom, as_expr(predicate), analyzer=analyzer)
    return [
        IntervalSet.from_range(item) if isinstance(item, Range) else item for item in found
    ]  # fmt: skip


def deduce_bound(
    var: Var,
    cond: Expr,
    hint_map: Mapping[Var, Range | IntervalSet],
    relax_map: Mapping[Var, Range | IntervalSet],
) -> IntSet:
    """Return an interval of values of ``var`` for all of which a comparison holds.

    It holds whatever values the variables of ``relax_map`` have; those of ``hint_map`` are known to
    be in their sets, and stay in the result. The set is empty if nothing was found: the comparison
    isn't linear in ``var``, or a quotient of it by a number, with a number as coefficient, or what
    is left has no bound.
    """
    known = Analyzer()
    bind_domain(known._simplifier, {v: dom for v, dom in hint_map.items() if v not in relax_map})
    goals = comparison_goals(known, cond)
    if goals is None:
        return IntervalSet.nothing()
    relaxer = Relaxer(known._simplifier, bind_domain(known._simplifier, relax_map))
    lower: Expr | float = float("-inf")
    upper: Expr | float = float("inf")
    for goal in goals:
        split = linear_in(_undivided(known, relaxer, goal, var), known._context.table.var(var))
        if split is None or set(split[0]) != {()}:
            return IntervalSet.nothing()
        value, rest = split[0][()], split[1]
        end = _end(known, relaxer, rest, value, var)
        if end is None:
            return IntervalSet.nothing()
        if value > 0:
            lower = end
        else:
            upper = end
    found = IntervalSet(lower, upper)
    if type(cond) is EQ and not known.can_prove_equal(found.min, found.max):
        return IntervalSet.nothing()  # no one value is equal to all of a relaxed side
    return found


def _end(known: Analyzer, relaxer: Relaxer, rest: Poly, value: int, var: Var) -> Expr | None:
    """The bound that ``value * var + rest >= 0`` is for all that the relaxed variables are."""
    least = relaxer.end(rest, False)
    if least is None:
        return None
    canonical = known._canonical
    if value > 0:  # var >= ceil(-least / value)
        bound = poly_scale(canonical.floordiv(least, {(): value}), -1)
    else:
        bound = canonical.floordiv(least, {(): -value})
    made = known._simplifier.from_poly_or_none(bound, var.dtype)
    return None if made is None or uses_var(made, {var}) else made


def _undivided(known: Analyzer, relaxer: Relaxer, goal: Poly, var: Var) -> Poly:
    """What must be at least 0 for ``c * (n // d) + rest`` to be, where ``n`` has the variable."""
    table, canonical = known._context.table, known._canonical
    for mono, value in goal.items():
        operands = table.operands[mono[0]] if len(mono) == 1 else None
        if operands is None or table.kinds[mono[0]] != DIV or set(operands[1]) != {()}:
            continue
        (numerator, divisor), least = operands, relaxer.end(poly_sub(goal, {mono: value}), False)
        by = divisor[()]
        if by < 0 or least is None or not (linear_in(numerator, table.var(var)) or ({},))[0]:
            continue
        if value > 0:  # the quotient is at least ceil(-least / value)
            start = poly_scale(canonical.floordiv(least, {(): value}), by)
            return _undivided(known, relaxer, poly_add(numerator, start), var)
        last = poly_scale(canonical.floordiv(least, {(): -value}), by)
        return _undivided(known, relaxer, poly_sub(poly_add(last, {(): by - 1}), numerator), var)
    return goal
