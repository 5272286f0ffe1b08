"""Gradients of operators: rules by name, and reverse accumulation over bindings.

``relax.transform.Gradient`` differentiates a graph function by them. A rule for another operator is
added with :func:`register_gradient`.
"""

from __future__ import annotations

from tilewright.relax.gradients.registry import (
    DECOMPOSITIONS,
    GRADIENTS,
    GradientRule,
    differentiate_as,
    register_gradient,
    without_gradient,
)
from tilewright.relax.gradients.reverse import Reverse, filled, has_gradient, renewed
from tilewright.support.folder import modules_in

modules_in(__name__)

__all__ = [
    "DECOMPOSITIONS", "GRADIENTS", "GradientRule", "Reverse", "differentiate_as", "filled",
    "has_gradient", "register_gradient", "renewed", "without_gradient",
]  # fmt: skip
