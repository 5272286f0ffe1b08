"""Targets: what code is generated for."""

from __future__ import annotations

from tilewright.target.target import TARGET_KINDS, Target

__all__ = ["TARGET_KINDS", "Target"]
