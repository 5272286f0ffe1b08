"""Converters of PyTorch operators by family; importing this package fills the table."""

from __future__ import annotations

from tilewright.relax.frontend.torch.converters.base import (
    CONVERTERS,
    Context,
    Converter,
    converts,
    dtype_name,
)
from tilewright.support.folder import modules_in

__all__ = ["CONVERTERS", "Context", "Converter", "converts", "dtype_name"]

modules_in(__name__)
