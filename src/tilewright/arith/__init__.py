"""Integer arithmetic on expressions: simplification, bounds, proofs, sets, iteration maps."""

from __future__ import annotations

from tilewright.arith.analyzer import Analyzer, simplify
from tilewright.arith.bounds import NEG_INF, POS_INF, ConstIntBound
from tilewright.arith.modular import ModularSet
from tilewright.arith.polynomial import Polynomial

__all__ = [
    "Analyzer",
    "ConstIntBound",
    "ModularSet",
    "NEG_INF",
    "POS_INF",
    "Polynomial",
    "simplify",
]
