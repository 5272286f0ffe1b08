"""What code generators of others register: patterns of the operators that they take."""

from __future__ import annotations

from tilewright.relax.backend.pattern_registry import (
    get_pattern,
    get_patterns_with_prefix,
    register_patterns,
)

__all__ = ["get_pattern", "get_patterns_with_prefix", "register_patterns"]
