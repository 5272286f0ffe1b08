"""Names in sight while script is evaluated, and whether the text that names them is trusted."""

from __future__ import annotations

import builtins
import copy
import importlib
import types
from collections.abc import Mapping
from typing import Any

from tilewright.script.allowance import Budget, register_vocabulary
from tilewright.script.bounded import BoundedBuiltins

DIALECTS = {
    "ir": ("I", "tilewright.script.ir"),
    "tir": ("T", "tilewright.tir.script"),
    "relax": ("R", "tilewright.relax.script"),
}
"""Dialects by name: the usual alias, and the module that holds the vocabulary."""

NAMES = {"tirx": "tir", "s_tir": "tir"}
"""Other names of dialects, under which newer programs of TVM import them."""

_BY_ALIAS = {alias: name for name, (alias, _) in DIALECTS.items()}


def load_dialect(name: str) -> types.ModuleType:
    """Import the vocabulary of a dialect."""
    module = importlib.import_module(DIALECTS[NAMES.get(name, name)][1])
    register_vocabulary(module)
    return module


class Scope:
    """Names in sight: a stack of frames over captured variables over builtins.

    ``budget`` is ``None`` for decorated Python functions, which are trusted. Text is not: it sees
    bounded builtins only, and ``allowance`` says what it may use.
    """

    def __init__(self, captured: Mapping[str, object], budget: Budget | None = None) -> None:
        self.frames: list[dict[str, object]] = [{}]
        self.captured = captured
        self.budget = budget
        self.builtins = BoundedBuiltins(budget).by_name if budget is not None else vars(builtins)

    def inner(self, captured: Mapping[str, object] | None = None) -> Scope:
        """Make a scope of its own for a part of the same text."""
        made = copy.copy(self)
        made.frames = [{}]
        made.captured = self.captured if captured is None else captured
        return made

    def push(self) -> None:
        """Open a frame."""
        self.frames.append({})

    def pop(self) -> None:
        """Close the innermost frame; its names go out of sight."""
        self.frames.pop()

    def define(self, name: str, value: object) -> None:
        """Bind a name in the innermost frame."""
        self.frames[-1][name] = value

    def lookup(self, name: str) -> Any:
        """Return the value of a name; raise ``KeyError`` if there is none."""
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        if name in self.captured:
            return self.captured[name]
        if name in _BY_ALIAS:
            return load_dialect(_BY_ALIAS[name])
        return self.builtins[name]

    def names(self) -> list[str]:
        """All names that the program itself and its captures bind."""
        found = set(self.captured)
        for frame in self.frames:
            found.update(frame)
        return sorted(name for name in found if not name.startswith("__"))

    def flatten(self) -> dict[str, Any]:
        """Return everything that the program binds or captures as one dict."""
        merged: dict[str, object] = dict(self.captured)
        for frame in self.frames:
            merged.update(frame)
        if self.budget is not None:
            self.budget.spend(len(merged) >> 3)
        return merged
