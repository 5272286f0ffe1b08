"""Proofs by cases: which operand a minimum or maximum is."""

from __future__ import annotations

from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.ir import Expr, Max, Min, expr_equal, pre_order

_MOST_SPLITS = 3


def can_prove_by_cases(analyzer: Analyzer, claim: Expr, splits: int = _MOST_SPLITS) -> bool:
    """Whether a claim is known to be true, whichever operands its minima and maxima are.

    For what needs to know of two at once, as ``max(x - 1, 0) + min(1, x) <= x``: at most three are
    told apart. It takes as long as several proofs; ask when ``Analyzer.can_prove`` has failed.
    """
    if analyzer.can_prove(claim):
        return True
    choice = next((item for item in pre_order(claim) if isinstance(item, (Min, Max))), None)
    if choice is None or not splits:
        return False
    less, greater = choice.a <= choice.b, choice.b <= choice.a
    tests = (less, greater) if isinstance(choice, Min) else (greater, less)
    for value, known in zip((choice.a, choice.b), tests):
        with analyzer.constraint(known):
            if not can_prove_by_cases(analyzer, _chosen(claim, choice, value), splits - 1):
                return False
    return True


def _chosen(node: Expr, choice: Expr, value: Expr) -> Any:
    if isinstance(node, Expr) and expr_equal(node, choice):
        return value
    return node.map_children(lambda item: _chosen(item, choice, value))
