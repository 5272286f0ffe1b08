"""Builds graphs in Python: ``from tilewright.script.ir_builder import IRBuilder, relax as R``.

Statements are the frames of ``builder_frames``; operators and struct info are those of the dialect
``R``.
"""

from __future__ import annotations

from typing import Any

from tilewright.relax import script as _vocabulary
from tilewright.relax.script import builder_frames as _frames

_TEXT_ONLY = ("match_cast", "metadata_of")


def __getattr__(name: str) -> Any:
    """Return a frame, or what the dialect ``R`` has under a name."""
    if name in _frames.__all__:
        return getattr(_frames, name)
    if name in _TEXT_ONLY:
        raise AttributeError(f"R.{name} belongs to script text; the builder has no such frame")
    return getattr(_vocabulary, name)


def __dir__() -> list[str]:
    return sorted({*_frames.__all__, *dir(_vocabulary)} - {*_TEXT_ONLY})
