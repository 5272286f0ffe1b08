"""Operators that make tensors from nothing: full, zeros, ones, arange."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.arith import simplify
from tilewright.ir import ceildiv, dtypes
from tilewright.relax.expr import RelaxExpr, numpy_dtype
from tilewright.relax.registry import InferenceError, Prim, Shape, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo


@operator(
    "full",
    legalize=lambda shape, fill_value, dtype: topi.full(shape, dtype, fill_value),
    numpy=lambda shape, fill_value, dtype: np.full(
        tuple(map(int, shape)), fill_value, numpy_dtype(dtype)
    ),
)
def full(shape: Shape, fill_value: float, dtype: str = "float32") -> StructInfo:
    """A tensor that holds one value."""
    dtypes.split_dtype(dtype)
    return TensorStructInfo(shape, dtype)  # type: ignore[arg-type]


def zeros(shape: Any, dtype: str = "float32") -> Any:
    """A tensor of zeros."""
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: str = "float32") -> Any:
    """A tensor of ones."""
    return full(shape, 1, dtype)


def full_like(x: RelaxExpr, fill_value: float, dtype: str | None = None) -> Any:
    """A tensor of ``x``'s shape that holds one value."""
    return full(x.shape, fill_value, dtype or x.dtype)


def zeros_like(x: RelaxExpr, dtype: str | None = None) -> Any:
    """A tensor of zeros of ``x``'s shape."""
    return full_like(x, 0, dtype)


def ones_like(x: RelaxExpr, dtype: str | None = None) -> Any:
    """A tensor of ones of ``x``'s shape."""
    return full_like(x, 1, dtype)


def _number(bound: Any) -> Any:
    return getattr(bound, "value", bound)


@operator(
    "arange",
    legalize=lambda start, stop, step, dtype: topi.arange(
        _number(start), _number(stop), _number(step), dtype
    ),
    numpy=lambda start, stop, step, dtype: np.arange(start, stop, step).astype(numpy_dtype(dtype)),
)
def _arange(start: Prim, stop: Prim, step: Prim, dtype: str = "int64") -> StructInfo:
    """``start, start + step, …`` below ``stop``."""
    low: Any = start
    high: Any = stop
    by: Any = step
    values: list[Any] = [getattr(value, "value", None) for value in (low, high, by)]
    if all(value is not None for value in values):
        if values[2] == 0:
            raise InferenceError("step is zero")
        return TensorStructInfo((max(0, math.ceil((values[1] - values[0]) / values[2])),), dtype)
    if values[2] is None:
        raise InferenceError("the step must be a number")
    if any(dtypes.is_float(value.dtype) for value in (low, high, by)):
        raise InferenceError("symbolic bounds must be integers")
    return TensorStructInfo((simplify(ceildiv(high - low, by)),), dtype)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "int64") -> Any:
    """``start, start + step, …`` below ``stop``; with one bound, from zero."""
    if stop is None:
        start, stop = 0, start
    return _arange(start, stop, step, dtype)
