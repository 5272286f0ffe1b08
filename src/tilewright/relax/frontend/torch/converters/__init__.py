"""Converters of PyTorch operators by family; importing this package fills the table."""

from __future__ import annotations

from tilewright.relax.frontend.torch.converters import (
    create,
    elementwise,
    image,
    linear,
    networks,
    reductions,
    shapes,
    sort,
)
from tilewright.relax.frontend.torch.converters.base import (
    CONVERTERS,
    Context,
    Converter,
    converts,
    dtype_name,
)

__all__ = [
    "CONVERTERS", "Context", "Converter", "converts", "create", "dtype_name", "elementwise",
    "image", "linear", "networks", "reductions", "shapes", "sort",
]  # fmt: skip
