"""Targets of code generation."""

from __future__ import annotations

from tilewright.target.costs import Costs
from tilewright.target.tags import list_tags, register_tag
from tilewright.target.target import TARGET_KINDS, Target, TargetKind
from tilewright.target.vdevice import VDevice

__all__ = ["Costs", "TARGET_KINDS", "Target", "TargetKind", "VDevice", "list_tags", "register_tag"]
