"""Integer arithmetic on expressions: simplification, bounds, proofs, sets, iteration maps."""

from __future__ import annotations

from tilewright.arith.analyzer import Analyzer, simplify
from tilewright.arith.bounds import NEG_INF, POS_INF, ConstIntBound
from tilewright.arith.cases import can_prove_by_cases
from tilewright.arith.conditions import conjuncts, decided_conjuncts
from tilewright.arith.data import holds_data
from tilewright.arith.evaluate import NotEvaluable, evaluate
from tilewright.arith.inequalities import LinearSolution, solve_linear_inequalities
from tilewright.arith.int_set import BoxBounds, IntervalSet, int_set, region_bound
from tilewright.arith.iter_expr import IterMark, IterSplitExpr, IterSumExpr
from tilewright.arith.iter_map import (
    IterMapResult,
    detect_iter_map,
    iter_map_simplify,
    normalize_iter_map_to_expr,
)
from tilewright.arith.linear import detect_clip_bound, detect_linear_equation, sum_terms
from tilewright.arith.modular import ModularSet
from tilewright.arith.polynomial import Polynomial
from tilewright.arith.requirements import (
    Condition,
    collect_conditions,
    collects_conditions,
    holds_or_stays,
    same_extent,
)
from tilewright.arith.subspace import (
    SubspaceDivision,
    inverse_affine_iter_map,
    subspace_divide,
)

__all__ = [
    "can_prove_by_cases",
    "Analyzer",
    "BoxBounds",
    "Condition",
    "ConstIntBound",
    "IntervalSet",
    "IterMapResult",
    "IterMark",
    "IterSplitExpr",
    "IterSumExpr",
    "LinearSolution",
    "ModularSet",
    "NEG_INF",
    "NotEvaluable",
    "POS_INF",
    "Polynomial",
    "SubspaceDivision",
    "collect_conditions",
    "collects_conditions",
    "conjuncts",
    "decided_conjuncts",
    "detect_clip_bound",
    "detect_iter_map",
    "detect_linear_equation",
    "evaluate",
    "holds_data",
    "holds_or_stays",
    "int_set",
    "inverse_affine_iter_map",
    "iter_map_simplify",
    "normalize_iter_map_to_expr",
    "region_bound",
    "same_extent",
    "simplify",
    "solve_linear_inequalities",
    "sum_terms",
    "subspace_divide",
]
