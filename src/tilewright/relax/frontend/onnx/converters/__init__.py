"""Converters of ONNX operators by family; importing this package fills the table."""

from __future__ import annotations

from tilewright.relax.frontend.onnx.converters.base import (
    CONVERTERS,
    Context,
    Converter,
    converts,
)
from tilewright.support.folder import modules_in

__all__ = ["CONVERTERS", "Context", "Converter", "converts"]

modules_in(__name__)
