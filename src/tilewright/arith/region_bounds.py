"""What a region touches while variables run: at least, exactly, at most.

``region_bound`` gives one box; these three say how much of a box is meant. Passes that ask whether
all of a buffer is written need the first two, those that allocate memory the third.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.conditions import comparison_goals
from tilewright.arith.int_set import region_bound
from tilewright.arith.intervals import IntervalSet, IntSet, Relaxer, bind_domain
from tilewright.arith.iter_map import detect_iter_map
from tilewright.arith.polynomial import Poly, linear_in, poly_scale
from tilewright.ir import EQ, TRUE, Expr, ExprLike, Range, Var, as_expr, uses_var


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
    starts = [item.min for item in region]
    used = {var: dom for var, dom in var_dom.items() if any(uses_var(s, {var}) for s in starts)}
    if used and detect_iter_map(starts, used, condition, analyzer=known).errors:
        return None
    found = region_bound(region, var_dom, condition, exact=True, analyzer=known)
    if not all(isinstance(item, Range) for item in found):
        return None
    return [IntervalSet.from_range(item) for item in found if isinstance(item, Range)]


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
    isn't linear in ``var`` with a number as coefficient, or what is left has no bound.
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
        split = linear_in(goal, known._context.table.var(var))
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
