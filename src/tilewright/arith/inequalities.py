"""Systems of linear inequalities over the integers, solved by Fourier-Motzkin elimination.

Eliminating a variable joins each of its lower bounds with each of its upper bounds. Coefficients of
the variables are numbers; everything else (sizes, tile factors, other variables) is symbolic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.conditions import comparison_goals, conjuncts
from tilewright.arith.polynomial import (
    Poly,
    linear_in,
    none_if_too_large,
    poly_add,
    poly_key,
    poly_scale,
)
from tilewright.ir import GE, Expr, IntImm, Var, and_, const, uses_var

_MOST_GOALS = 256


@dataclass(frozen=True)
class LinearSolution:
    """What a system says of its variables.

    ``lower[v]`` and ``upper[v]`` are inclusive bounds of ``v`` in terms of symbols and of the
    variables that come after it. ``rest`` is what must hold of the symbols alone. Wherever the
    system holds, all bounds and ``rest`` do; if ``exact``, each point that keeps ``rest`` has
    values of the variables within these bounds, and they solve the system.
    """

    lower: Mapping[Var, tuple[Expr, ...]]
    upper: Mapping[Var, tuple[Expr, ...]]
    rest: Expr
    exact: bool


@none_if_too_large
def solve_linear_inequalities(
    condition: Expr, variables: Sequence[Var], *, analyzer: Analyzer | None = None
) -> LinearSolution | None:
    """Solve a conjunction of comparisons for ``variables``, the first one eliminated first.

    ``None`` if a comparison is not linear in them with numbers as coefficients, or if the system
    grows beyond 256 inequalities on the way.

    >>> solve_linear_inequalities(and_(i >= j, i + j < n), [i, j])
    lower {i: (j,)}, upper {i: (n - j - 1,), j: ((n + 1) // 2 - 1,)}, rest True
    """
    known = analyzer if analyzer is not None else Analyzer()
    goals: dict[object, Poly] = {}
    found: list[Poly] | None
    for part in conjuncts(condition):
        # False is a goal that nothing meets.
        found = [{(): -1}] if isinstance(part, IntImm) else comparison_goals(known, part)
        if found is None:
            return None
        goals.update((poly_key(goal), goal) for goal in found)
    lower: dict[Var, tuple[Expr, ...]] = {}
    upper: dict[Var, tuple[Expr, ...]] = {}
    exact = True
    for var in variables:
        split = _split(known, list(goals.values()), var)
        if split is None:
            return None
        above, below, others = split
        lower[var] = tuple(_end(known, rest, value, True) for value, rest in above)
        upper[var] = tuple(_end(known, rest, value, False) for value, rest in below)
        goals = {poly_key(goal): goal for goal in others}
        for value, rest in above:
            for factor, limit in below:
                joined = poly_add(poly_scale(rest, factor), poly_scale(limit, value))
                exact = exact and 1 in (value, factor)
                if not known._nonneg(joined):
                    goals[poly_key(joined)] = joined
        if len(goals) > _MOST_GOALS:
            return None
    conditions = [
        known.simplify(GE(known.from_poly(goal), const(0))) for goal in goals.values()
    ]  # fmt: skip
    return LinearSolution(lower, upper, and_(*conditions), exact)


_Side = list[tuple[int, Poly]]


def _split(
    known: Analyzer, goals: Sequence[Poly], var: Var
) -> tuple[_Side, _Side, list[Poly]] | None:
    """Sort ``value * var + rest >= 0`` by the sign of ``value``, which comes back positive."""
    (mono,) = known.poly(var) if len(known.poly(var)) == 1 else ((),)
    if len(mono) != 1:
        return None
    above: _Side = []
    below: _Side = []
    others: list[Poly] = []
    for goal in goals:
        parts = linear_in(goal, mono[0])
        if parts is None or not set(parts[0]) <= {()}:
            return None
        factor, rest = parts
        if uses_var(known.from_poly(rest), {var}):
            return None
        value = factor.get((), 0)
        if value > 0:
            above.append((value, rest))
        elif value < 0:
            below.append((-value, rest))
        else:
            others.append(goal)
    return above, below, others


def _end(known: Analyzer, rest: Poly, value: int, is_lower: bool) -> Expr:
    """``var >= ceil(-rest / value)``, or ``var <= floor(rest / value)``."""
    end = known._canonical.floordiv(rest, {(): value})
    return known.from_poly(poly_scale(end, -1) if is_lower else end)
