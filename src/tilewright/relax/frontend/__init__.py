"""Sources of graphs: ``nn`` modules and models of frameworks (``torch``)."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilewright.relax.frontend import nn

if TYPE_CHECKING:
    from tilewright.relax.frontend import torch


def __getattr__(name: str) -> ModuleType:
    """Load the importer of a framework when it is first used."""
    if name != "torch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("tilewright.relax.frontend.torch")


__all__ = ["nn", "torch"]
