"""Sources of graphs: ``nn`` modules and models of frameworks (``torch``, ``onnx``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.relax.frontend import nn
from tilewright.relax.frontend.params import detach_params
from tilewright.support.later import imported_later

if TYPE_CHECKING:
    from tilewright.relax.frontend import onnx, torch

_LAZY = {
    "onnx": "tilewright.relax.frontend.onnx",
    "torch": "tilewright.relax.frontend.torch",
}

__getattr__ = imported_later(__name__, _LAZY)  # the importer of a framework

__all__ = ["detach_params", "nn", "onnx", "torch"]
