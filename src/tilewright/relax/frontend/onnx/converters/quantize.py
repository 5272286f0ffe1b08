"""Quantised tensors: to and from integers, and products of them, which are our int8 kernels.

``Quantized`` notes where floats come from, so that a product of dequantised operands is one of
integers, whose sums are scaled (``products.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.ir import as_int, dtypes
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.onnx.converters.base import (
    Context,
    Quantized,
    Tensor,
    converts,
)
from tilewright.relax.frontend.onnx.converters.cast import convert, narrow_limits
from tilewright.relax.frontend.onnx.converters.shapes import cut
from tilewright.relax.frontend.onnx.model import dtype_of, element_name
from tilewright.relax.values import const

_DTYPE_NAMES = {
    "int8": "INT8", "uint8": "UINT8", "int16": "INT16", "uint16": "UINT16", "int32": "INT32",
    "float8_e4m3fn": "FLOAT8E4M3FN", "float8_e5m2": "FLOAT8E5M2",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Operand:
    """A quantised tensor: the inputs for it of operators that compute with integers."""

    x: Tensor
    scale: Tensor
    zero_point: Tensor | None

    def dequantized(self, ctx: Context) -> Tensor:
        """The tensor as float32; there is one scale, and one zero point or none."""
        number: Tensor = op.astype(self.x, "int32")
        if self.zero_point is not None:
            zero = op.reshape(ctx.cast(self.zero_point, "int32"), ())
            number = op.subtract(number, zero)
        return op.multiply(op.astype(number, "float32"), op.reshape(self.scale, ()))


def spread(ctx: Context, value: Tensor, x: Tensor, axis: int, block_size: int = 0) -> Tensor:
    """Scales or zero points such that they broadcast with a tensor."""
    if value.ndim == 0 or (value.ndim == 1 and as_int(value.shape[0]) == 1 and not block_size):
        return op.reshape(value, ())
    at = ctx.axis(axis, x.ndim)
    if value.ndim == 1 and not block_size:
        return op.reshape(value, [value.shape[0] if n == at else 1 for n in range(x.ndim)])
    ctx.require(
        block_size > 0 and value.ndim == x.ndim,
        f"scales of {value.ndim} dimensions for blocks of {block_size} don't fit {x.ndim}",
    )
    wide = op.repeat(value, block_size, at)
    return cut(wide, at, 0, x.shape[at])


@dataclass(frozen=True, kw_only=True)
class _QuantizeAttributes:
    axis: int = 1
    block_size: int = 0
    output_dtype: int = 0
    precision: int = 0
    saturate: int = 1


@converts("QuantizeLinear")
def _quantize(
    ctx: Context, x: Tensor, scale: Tensor, zero_point: Tensor | None = None,
    *, attrs: _QuantizeAttributes,
) -> Tensor:  # fmt: skip
    axis, block_size = attrs.axis, attrs.block_size
    element = element_name(attrs.output_dtype) if attrs.output_dtype else "UINT8"
    if zero_point is not None:
        found = ctx.element(zero_point)
        element = _DTYPE_NAMES.get(found, found)
    kind = dtype_of(attrs.precision) if attrs.precision else "float32"
    wide = "float64" if x.dtype == "float64" else kind
    number = op.divide(ctx.cast(x, wide), spread(ctx, ctx.cast(scale, wide), x, axis, block_size))
    if element.startswith("FLOAT"):
        return convert(ctx, number, element, bool(attrs.saturate))
    limits = narrow_limits(element) or dtypes.integer_limits(element.lower())
    rounded = op.round(number)
    if zero_point is not None:
        zero = ctx.cast(zero_point, wide)
        rounded = op.add(rounded, spread(ctx, zero, x, axis, block_size))
    made = op.clip(rounded, limits[0], limits[1])
    if narrow_limits(element):
        ctx.element_of_result = element
        return op.astype(made, "uint8" if element.startswith("U") else "int8")
    return op.astype(made, element.lower())


@converts("DequantizeLinear")
def _dequantize(
    ctx: Context, x: Tensor, scale: Tensor, zero_point: Tensor | None = None,
    *, axis: int = 1, block_size: int = 0, output_dtype: int = 0,
) -> Tensor:  # fmt: skip
    kind = dtype_of(output_dtype) if output_dtype else scale.dtype
    wide = "float64" if kind == "float64" else "float32"
    if zero_point is not None and not dtypes.is_float(x.dtype):
        zero = spread(ctx, ctx.cast(zero_point, "int32"), x, axis, block_size)
        number: RelaxExpr = op.subtract(ctx.cast(x, "int32"), zero)
    else:
        number = x
    made = op.multiply(
        ctx.cast(number, wide), spread(ctx, ctx.cast(scale, wide), x, axis, block_size)
    )
    result = ctx.emit(ctx.cast(made, kind))
    if x.dtype in ("int8", "uint8") and not block_size:
        ctx.quantized[result] = Quantized(x, scale, zero_point, axis)
    return result


@converts("DynamicQuantizeLinear")
def _dynamic_quantize(ctx: Context, x: Tensor) -> tuple[Tensor, ...]:
    zero, one = const(0, "float32"), const(1, "float32")
    low = op.minimum(op.min(x), zero)
    high = op.maximum(op.max(x), zero)
    span = ctx.emit(op.subtract(high, low))
    # Of nothing but zeros any scale is right; the reference takes this one.
    span = op.where(op.equal(span, zero), one, span)
    scale = ctx.emit(op.divide(span, const(255, "float32")))
    safe = op.where(op.equal(scale, zero), one, scale)
    moved = op.round(op.divide(op.negative(low), safe))
    place = ctx.emit(op.clip(moved, 0, 255))
    number = op.add(op.round(op.divide(x, safe)), place)
    return op.astype(op.clip(number, 0, 255), "uint8"), scale, op.astype(place, "uint8")


def requantized(
    ctx: Context, sums: Tensor, scale: Tensor, out_scale: Tensor, zero_point: Tensor | None,
    dtype: str,
) -> Tensor:  # fmt: skip
    """Sums of products as integers again; scales broadcast."""
    kind = "float32"
    factor = op.divide(ctx.cast(scale, kind), ctx.cast(out_scale, kind))
    number = op.round(op.multiply(ctx.cast(sums, kind), factor))
    if zero_point is not None:
        number = op.add(number, ctx.cast(zero_point, kind))
    low, high = dtypes.integer_limits(dtype)
    return op.astype(op.clip(number, low, high), dtype)


def quantized(
    ctx: Context, x: Tensor, scale: Tensor, zero_point: Tensor | None, dtype: str
) -> Tensor:
    """A float32 tensor as integers, with one scale; without a zero point of ``dtype``."""
    number = op.round(op.divide(x, op.reshape(scale, ())))
    if zero_point is not None:
        dtype = zero_point.dtype
        number = op.add(number, op.reshape(ctx.cast(zero_point, "float32"), ()))
    low, high = dtypes.integer_limits(dtype)
    return op.astype(op.clip(number, low, high), dtype)


def known_int(ctx: Context, value: Tensor | None) -> int | None:
    """A zero point that is one known number; none is 0."""
    if value is None:
        return 0
    found = ctx.known(value)
    if found is None or not found.size or np.any(found != found.reshape(-1)[0]):
        return None
    return int(found.reshape(-1)[0])


def as_signed(
    ctx: Context, weight: Tensor, zero_point: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Weights as int8 with a zero point to match, int32; kernels multiply by signed weights."""
    zero = None if zero_point is None else ctx.cast(zero_point, "int32")
    if weight.dtype == "int8":
        return weight, zero
    moved = op.astype(op.subtract(op.astype(weight, "int16"), const(128, "int16")), "int8")
    zero = const(0, "int32") if zero is None else zero
    return ctx.emit(moved), op.subtract(zero, const(128, "int32"))
