"""Sources of graphs: ``nn`` modules and models of frameworks (``torch``, ``onnx``)."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilewright.relax.frontend import nn
from tilewright.relax.frontend.params import detach_params

if TYPE_CHECKING:
    from tilewright.relax.frontend import onnx, torch

_LAZY = {
    "onnx": "tilewright.relax.frontend.onnx",
    "torch": "tilewright.relax.frontend.torch",
}


def __getattr__(name: str) -> ModuleType:
    """Load the importer of a framework when it is first used."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(_LAZY[name])


__all__ = ["detach_params", "nn", "onnx", "torch"]
