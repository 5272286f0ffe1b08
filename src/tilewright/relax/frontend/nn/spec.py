"""Specifications of a module's method arguments, for export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import dtypes


@dataclass(frozen=True)
class Tensor:
    """A tensor argument; extents are numbers or names of symbolic extents (``"batch"``)."""

    shape: tuple[int | str, ...]
    dtype: str = "float32"

    def __init__(self, shape: Sequence[int | str], dtype: str = "float32") -> None:
        dtypes.split_dtype(dtype)
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "dtype", dtype)


@dataclass(frozen=True)
class Int:
    """An integer argument that defines a symbolic extent of the same name."""


MethodSpec = dict[str, Any]
ModuleSpec = dict[str, MethodSpec]
