"""Linear equations: coefficients of variables, and variable bounds from conditions.

Strided accesses, clipping of tiles and DMA-like copies ask for these.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.conditions import comparison_goals, conjuncts
from tilewright.arith.polynomial import MAX, MIN, Poly, linear_in, none_if_too_large, poly_scale
from tilewright.ir import Add, Expr, IntImm, Mul, Sub, Var, uses_var


def sum_terms(expr: Expr) -> list[tuple[Expr, int]]:
    """Return ``(term, factor)`` of a sum with constant factors, in order, as it is written.

    Nothing is simplified: a variable may come twice, and terms may be anything that isn't a sum.
    """
    found: list[tuple[Expr, int]] = []
    stack: list[tuple[Expr, int]] = [(expr, 1)]
    while stack:
        item, factor = stack.pop()
        if isinstance(item, (Add, Sub)):
            stack.append((item.b, factor if isinstance(item, Add) else -factor))
            stack.append((item.a, factor))
        elif isinstance(item, Mul) and isinstance(item.b, IntImm):
            stack.append((item.a, factor * item.b.value))
        elif isinstance(item, Mul) and isinstance(item.a, IntImm):
            stack.append((item.b, factor * item.a.value))
        else:
            found.append((item, factor))
    return found


@none_if_too_large
def linear_coefficients(
    expr: Expr, var_list: Sequence[Var], *, analyzer: Analyzer | None = None
) -> list[Expr] | None:
    """Return ``[c0, …, cn, constant]`` with ``expr == c0*v0 + … + cn*vn + constant``.

    The coefficients are free of the variables. ``None`` if the expression is not linear.
    """
    known = analyzer if analyzer is not None else Analyzer()
    rest = known.to_polynomial(expr).terms
    coefficients: list[Expr] = []
    unwanted = set(var_list)
    for var in var_list:
        (mono,) = known.poly(var).keys() if len(known.poly(var)) == 1 else ((),)
        if len(mono) != 1:
            return None
        split = linear_in(rest, mono[0])
        if split is None:
            return None
        factor, rest = split
        coefficients.append(known.from_poly(factor, expr.dtype))
    coefficients.append(known.from_poly(rest, expr.dtype))
    if any(uses_var(item, unwanted) for item in coefficients):
        return None
    return coefficients


def detect_linear_equation(
    expr: Expr, var_list: Sequence[Var], *, analyzer: Analyzer | None = None
) -> list[Expr]:
    """Return ``linear_coefficients``, or an empty list if the expression is not linear."""
    return linear_coefficients(expr, var_list, analyzer=analyzer) or []


def detect_clip_bound(
    expr: Expr, var_list: Sequence[Var], *, analyzer: Analyzer | None = None
) -> list[Expr | None]:
    """Return the lower and the upper end (inclusive, or ``None``) of each variable in turn.

    ``expr`` is a conjunction of comparisons, each bounding one variable with a coefficient of
    known value; an empty list if it is not.
    """
    return _clip_bounds(expr, var_list, analyzer) or []


@none_if_too_large
def _clip_bounds(
    expr: Expr, var_list: Sequence[Var], analyzer: Analyzer | None
) -> list[Expr | None] | None:
    known = analyzer if analyzer is not None else Analyzer()
    ends: list[list[Poly | None]] = [[None, None] for _ in var_list]
    numbers = [known._context.table.var(var) for var in var_list]
    for part in conjuncts(expr):
        goals = comparison_goals(known, part)
        if goals is None:
            return None
        for goal in goals:
            if not _clip(known, goal, numbers, var_list, ends):
                return None
    return [None if end is None else known.from_poly(end) for pair in ends for end in pair]


def _clip(
    known: Analyzer,
    goal: Poly,
    numbers: Sequence[int],
    variables: Sequence[Var],
    ends: list[list[Poly | None]],
) -> bool:
    """Read ``value * var + rest >= 0`` as a bound of the one variable in it."""
    inside = [index for index, number in enumerate(numbers) if any(number in m for m in goal)]
    if len(inside) != 1:
        return False
    index = inside[0]
    split = linear_in(goal, numbers[index])
    if split is None or set(split[0]) != {()}:
        return False
    value, rest = split[0][()], split[1]
    if uses_var(known.from_poly(rest), set(variables)):
        return False
    canonical = known._canonical
    low, high = ends[index]
    if value > 0:  # var >= ceil(-rest / value)
        bound = poly_scale(canonical.floordiv(rest, {(): value}), -1)
        ends[index][0] = bound if low is None else canonical.minmax(MAX, low, bound)
    else:  # var <= floor(rest / -value)
        bound = canonical.floordiv(rest, {(): -value})
        ends[index][1] = bound if high is None else canonical.minmax(MIN, high, bound)
    return True
