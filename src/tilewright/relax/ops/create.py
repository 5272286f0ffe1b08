"""Operators that create tensors: full, zeros, ones, arange."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import topi
from tilewright.arith import simplify
from tilewright.ir import Expr, ExprLike, as_expr, const, dtypes
from tilewright.relax.conditions import require
from tilewright.relax.expr import Constant, PrimValue, RelaxCall, RelaxExpr
from tilewright.relax.registry import BUILDERS, Prim, Shape, builder, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.create import arange_count


@operator("full", legalize=topi.full)
def _full(shape: Shape, fill_value: float, dtype: str = "float32") -> StructInfo:
    """A tensor that holds one value."""
    dtypes.split_dtype(dtype)
    return TensorStructInfo(shape, dtype)


@builder("full")
def full(shape: object, fill_value: float | RelaxExpr, dtype: str | None = None) -> RelaxCall:
    """A tensor that holds one value: a number, or what a tensor without axes holds.

    Without ``dtype`` it is the tensor's; of a number, float32.

    Raises ``VerifyError`` if a tensor has axes.
    """
    value = getattr(fill_value, "_expr", fill_value)
    if isinstance(value, Constant) and value.data.ndim == 0:
        return _full(shape, value.data.item(), dtype or value.dtype)
    if not isinstance(value, RelaxExpr) or isinstance(value, PrimValue):
        return _full(shape, value, dtype or "float32")
    if value.ndim != 0:
        raise VerifyError(f"full: fill_value has no axes, got {value.struct_info!r}")
    kind = dtype or value.dtype
    made = value if kind == value.dtype else BUILDERS["astype"](value, kind)
    return BUILDERS["broadcast_to"](made, shape)  # type: ignore[no-any-return]


@builder("zeros")
def zeros(shape: object, dtype: str = "float32") -> RelaxCall:
    """A tensor of zeros."""
    return full(shape, 0, dtype)


@builder("ones")
def ones(shape: object, dtype: str = "float32") -> RelaxCall:
    """A tensor of ones."""
    return full(shape, 1, dtype)


@builder("full_like")
def full_like(x: RelaxExpr, fill_value: float, dtype: str | None = None) -> RelaxCall:
    """A tensor of ``x``'s shape that holds one value."""
    return full(x.shape, fill_value, dtype or x.dtype)


@builder("zeros_like")
def zeros_like(x: RelaxExpr, dtype: str | None = None) -> RelaxCall:
    """A tensor of zeros of ``x``'s shape."""
    return full_like(x, 0, dtype)


@builder("ones_like")
def ones_like(x: RelaxExpr, dtype: str | None = None) -> RelaxCall:
    """A tensor of ones of ``x``'s shape."""
    return full_like(x, 1, dtype)


def _number(bound: Expr) -> ExprLike:
    return getattr(bound, "value", bound)


@operator(
    "arange",
    legalize=lambda start, end, step, dtype: topi.arange(
        _number(start), _number(end), _number(step), dtype
    ),
)
def _arange(start: Prim, end: Prim, step: Prim, dtype: str = "int64") -> StructInfo:
    """``start, start + step, …`` below ``end``."""
    values: list[Any] = [getattr(value, "value", None) for value in (start, end, step)]
    bounds = [item if value is None else value for item, value in zip((start, end, step), values)]
    if isinstance(bounds[2], Expr):
        require(bounds[2] >= 1, "a symbolic step is positive, not ", bounds[2])
    try:
        return TensorStructInfo((simplify(as_expr(arange_count(*bounds))),), dtype)
    except VerifyError as error:
        raise VerifyError(str(error)) from None


@builder("arange")
def arange(
    start: ExprLike, end: ExprLike | None = None, step: ExprLike = 1, dtype: str | None = None
) -> RelaxCall:
    """``start, start + step, …`` below ``end``; with one bound, from zero.

    The length is NumPy's, computed in double precision. Without ``dtype`` the result is int64, or
    float32 if a bound or the step is a float.
    """
    if end is None:
        start, end = 0, start
    bounds = [_exact(value) for value in (start, end, step)]
    if dtype is None:
        kinds = [getattr(value, "value", value) for value in bounds]
        floats = [dtypes.is_float(getattr(kind, "dtype", "int64")) for kind in kinds]
        dtype = "float32" if any(floats) else "int64"
    return _arange(*bounds, dtype)


def _exact(bound: ExprLike) -> ExprLike | PrimValue:
    """Keep all digits of Python floats."""
    if isinstance(bound, (float, np.floating)):
        return PrimValue(const(float(bound), "float64"))
    return bound
