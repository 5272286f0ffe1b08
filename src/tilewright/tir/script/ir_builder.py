"""Builds TensorIR in Python: ``from tilewright.script.ir_builder import IRBuilder, tir as T``.

Statements are the frames of ``builder_frames``; values (``T.float32``, ``T.exp``, ``T.Buffer``) are
those of the dialect ``T``.
"""

from __future__ import annotations

from typing import Any

from tilewright.tir import script as _vocabulary
from tilewright.tir.script import builder_buffers as _buffers
from tilewright.tir.script import builder_frames as _frames
from tilewright.tir.script import builder_scopes as _scopes

_TEXT_ONLY = ("LetStmt", "macro", "inline", "seq", "alloc_scalar")


def __getattr__(name: str) -> Any:
    """Return a frame, or what the dialect ``T`` has under a name."""
    for module in (_frames, _buffers, _scopes):
        if name in module.__all__:
            return getattr(module, name)
    if name in _TEXT_ONLY:
        raise AttributeError(f"T.{name} belongs to script text; the builder has no such frame")
    return getattr(_vocabulary, name)


def __dir__() -> list[str]:
    return sorted(
        {*_frames.__all__, *_buffers.__all__, *_scopes.__all__, *dir(_vocabulary)} - {*_TEXT_ONLY}
    )
