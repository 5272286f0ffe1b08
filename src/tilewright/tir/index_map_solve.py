"""Index arithmetic of ``index_map.py``: solved for its variables, and padded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tilewright.arith import Analyzer, detect_iter_map, inverse_affine_iter_map
from tilewright.ir import (
    TRUE,
    Expr,
    FloorDiv,
    FloorMod,
    Range,
    Var,
    as_int,
    ceildiv,
    const,
    post_order,
    substitute,
    uses_var,
)


def solve_indices(
    indices: Sequence[Expr],
    domain: Mapping[Var, Range],
    outputs: Sequence[Expr],
    predicate: Expr = TRUE,
    *,
    analyzer: Analyzer | None = None,
) -> dict[Var, Expr] | None:
    """Solve ``indices == outputs`` for the variables of ``domain``; ``None`` if that can't be done.

    The indices must be a bijection of the domain onto a box. Variables whose extent is one need not
    appear. Plain permutations take a short way round the analysis.
    """
    solved: dict[Var, Expr] = {}
    rest: list[Expr] = []
    rest_outputs: list[Expr] = []
    for index, output in zip(indices, outputs):
        if type(index) is Var and index in domain and index not in solved:
            solved[index] = output
        elif as_int(index) is None:
            rest.append(index)
            rest_outputs.append(output)
    for var, dom in domain.items():
        if var not in solved and as_int(dom.extent) == 1:
            solved[var] = dom.min
    if rest and any(uses_var(index, set(solved)) for index in rest):
        # An index seen both by itself and inside another one: leave all of it to the analysis.
        solved = {var: dom.min for var, dom in domain.items() if as_int(dom.extent) == 1}
        rest, rest_outputs = list(indices), list(outputs)
    if rest:
        inner = {var: dom for var, dom in domain.items() if var not in solved}
        fixed = [substitute(index, solved) for index in rest]
        result = detect_iter_map(fixed, inner, predicate, require_bijective=True, analyzer=analyzer)
        if result.errors or not result.indices:
            return None
        solved.update(inverse_affine_iter_map(result.indices, rest_outputs))
    return solved if all(var in solved for var in domain) else None


def padded_extent(var: Var, extent: Expr, indices: Sequence[Expr], known: Analyzer) -> Expr:
    """Round ``extent`` up so that the factors by which ``indices`` split ``var`` divide it."""
    factor = 1
    for index in indices:
        for item in post_order(index):
            if isinstance(item, (FloorDiv, FloorMod)):
                divisor = as_int(item.b)
                if divisor is not None and divisor > 0 and item.a is var:
                    factor = math.lcm(factor, divisor)
                elif item.a is var and not known.can_prove_equal(extent % item.b, 0):
                    rounded: Expr = ceildiv(extent, item.b) * item.b
                    return rounded  # the one symbolic factor
    # (i // 4) % 8 splits i by 4 and by 32: walk the chains of divisions of var.
    for index in indices:
        for item in post_order(index):
            if (
                isinstance(item, (FloorDiv, FloorMod))
                and isinstance(item.a, FloorDiv)
                and item.a.a is var
            ):
                inner, outer = as_int(item.a.b), as_int(item.b)
                if inner is not None and outer is not None:
                    factor = math.lcm(factor, inner * outer)
    if factor == 1:
        return extent
    size = as_int(extent)
    if size is not None:
        return extent if size % factor == 0 else const(-(-size // factor) * factor)
    if known.can_prove_equal(extent % factor, 0):
        return extent
    return ceildiv(extent, factor) * factor
