"""Builds programs in Python, without script text: ``with`` frames for what script indents.

``from tilewright.script.ir_builder import IRBuilder, ir as I, tir as T, relax as R``. The frames of
a dialect live with its script: ``tir.script.ir_builder``, ``relax.script.ir_builder``.
"""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.script.ir_builder.base import Frame, IRBuilder, Raised, enclosing
from tilewright.script.scope import DIALECTS, NAMES


def __getattr__(name: str) -> Any:
    dialect = NAMES.get(name, name)
    if dialect == "ir":
        return importlib.import_module("tilewright.script.ir_builder.ir")
    if dialect in DIALECTS:
        return importlib.import_module(f"{DIALECTS[dialect][1]}.ir_builder")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Frame", "IRBuilder", "Raised", "enclosing"]
