"""Targets of code generation."""

from __future__ import annotations

from tilewright.target.costs import Costs
from tilewright.target.target import TARGET_KINDS, Target

__all__ = ["Costs", "TARGET_KINDS", "Target"]
