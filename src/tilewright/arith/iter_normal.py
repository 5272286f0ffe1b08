"""Iteration maps written as expressions, and indices as sums of splits.

``iter_map`` detects; this is for those who want a shorter index, or its splits, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.cost import cost
from tilewright.arith.iter_expr import IterMark, IterSplitExpr, IterSumExpr
from tilewright.arith.iter_map import detect_iter_map, sums_of
from tilewright.arith.options import IterMapLevel
from tilewright.ir import TRUE, Expr, ExprLike, Range, Var, as_expr
from tilewright.support.errors import VerifyError


def normalize_iter_map_to_expr(expr: IterSumExpr | IterSplitExpr | IterMark) -> Expr:
    """Write a detected map as an ordinary expression."""
    return Analyzer().simplify(expr.to_expr())


def normalize_to_iter_sum(
    index: ExprLike, input_iters: Mapping[Var, Range], analyzer: Analyzer | None = None
) -> IterSumExpr:
    """Write an index as a sum of splits of ``input_iters`` and a base, greatest scale first.

    Splits aren't fused, and may be of the same input.

    Raises ``VerifyError`` if the index is no such sum.
    """
    found = sums_of([index], input_iters, analyzer)
    if found is None:
        raise VerifyError(f"normalize_to_iter_sum: `{index!r}` is no sum of splits of its loops")
    return found[0]


def iter_map_simplify(
    indices: Sequence[Expr],
    input_iters: Mapping[Var, Range],
    predicate: ExprLike = TRUE,
    check_level: IterMapLevel | int = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> list[Expr]:
    """Simplify indices knowing their loops, and how they split them where that is shorter."""
    known = analyzer.copy() if analyzer is not None else Analyzer()
    known.bind_ranges(input_iters)
    known.assume(as_expr(predicate))
    made = [known.simplify(as_expr(index)) for index in indices]
    found = detect_iter_map(
        made, input_iters, predicate, check_level, simplify_trivial_iterators, analyzer
    )
    if found.errors:
        return made
    result = []
    for index, total in zip(made, found.indices):
        other = known.simplify(total.to_expr())
        result.append(other if cost(other) < cost(index) else index)
    return result
