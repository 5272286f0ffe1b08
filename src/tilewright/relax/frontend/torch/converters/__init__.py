"""Converters of PyTorch operators by family; importing this package fills the table."""

from __future__ import annotations

from tilewright.relax.frontend.torch.converters.base import (
    CONVERTERS,
    Context,
    Converter,
    converts,
    converts_complex,
    dtype_name,
)
from tilewright.relax.frontend.torch.converters.complex_parts import find_converter, is_known
from tilewright.support.folder import modules_in

__all__ = [
    "CONVERTERS",
    "Context",
    "Converter",
    "converts",
    "converts_complex",
    "dtype_name",
    "find_converter",
    "is_known",
]

modules_in(__name__)
