"""Patterns by name, for ``relax.transform.FuseOpsByPattern``.

    register_patterns([("mylib.matmul_relu", pattern, {"x": x, "w": w}, check)])
    FuseOpsByPattern(get_patterns_with_prefix("mylib"), annotate_codegen=True)(mod)

``RunCodegen`` then calls the global function ``relax.ext.mylib`` for what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.relax.transform import FusionPattern
from tilewright.support.errors import VerifyError

_PATTERNS: dict[str, FusionPattern] = {}
"""By name, those of lowest priority first."""


def register_patterns(patterns: Sequence[FusionPattern | tuple[Any, ...]]) -> None:
    """Register patterns, ``FusionPattern`` or tuples of its arguments; later ones come first.

    One whose name is there already takes its place.

    Raises ``VerifyError`` for anything else.
    """
    for item in patterns:
        if not isinstance(item, (FusionPattern, tuple)):
            raise VerifyError(f"expected a FusionPattern or a tuple of its arguments, got {item!r}")
        made = item if isinstance(item, FusionPattern) else FusionPattern(*item)
        _PATTERNS.pop(made.name, None)
        _PATTERNS[made.name] = made


def get_patterns_with_prefix(prefix: str) -> list[FusionPattern]:
    """Return the patterns whose names begin so, those of highest priority first."""
    return [made for name, made in reversed(_PATTERNS.items()) if name.startswith(prefix)]


def get_pattern(name: str) -> FusionPattern | None:
    """Return the pattern of a name, ``None`` if there is none."""
    return _PATTERNS.get(name)
