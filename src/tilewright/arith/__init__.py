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
from tilewright.arith.intervals import IntSet
from tilewright.arith.iter_expr import IterMapExpr, IterMark, IterSplitExpr, IterSumExpr
from tilewright.arith.iter_map import IterMapResult, detect_iter_map
from tilewright.arith.iter_normal import (
    iter_map_simplify,
    normalize_iter_map_to_expr,
    normalize_to_iter_sum,
)
from tilewright.arith.linear import (
    detect_clip_bound,
    detect_linear_equation,
    linear_coefficients,
    sum_terms,
)
from tilewright.arith.linear_equations import (
    IntConstraints,
    IntConstraintsTransform,
    solve_linear_equations,
)
from tilewright.arith.modular import ModularSet
from tilewright.arith.options import CompareResult, Extension, IterMapLevel, ProofStrength
from tilewright.arith.polynomial import Polynomial
from tilewright.arith.region_bounds import (
    deduce_bound,
    estimate_region_lower_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
)
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
    "CompareResult",
    "Condition",
    "ConstIntBound",
    "Extension",
    "IntConstraints",
    "IntConstraintsTransform",
    "IntSet",
    "IntervalSet",
    "IterMapExpr",
    "IterMapLevel",
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
    "ProofStrength",
    "SubspaceDivision",
    "collect_conditions",
    "collects_conditions",
    "conjuncts",
    "decided_conjuncts",
    "deduce_bound",
    "detect_clip_bound",
    "detect_iter_map",
    "detect_linear_equation",
    "estimate_region_lower_bound",
    "estimate_region_strict_bound",
    "estimate_region_upper_bound",
    "evaluate",
    "holds_data",
    "holds_or_stays",
    "int_set",
    "inverse_affine_iter_map",
    "iter_map_simplify",
    "linear_coefficients",
    "normalize_iter_map_to_expr",
    "normalize_to_iter_sum",
    "region_bound",
    "same_extent",
    "simplify",
    "solve_linear_equations",
    "solve_linear_inequalities",
    "sum_terms",
    "subspace_divide",
]
