"""Quantised operators of ``com.microsoft``.

Products are of integers; elementwise operators compute in float32 between, as ONNX Runtime does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.onnx.converters.base import (
    Context,
    Tensor,
    converts,
)
from tilewright.relax.frontend.onnx.converters.convolution import window_of
from tilewright.relax.frontend.onnx.converters.pooling import average_pool
from tilewright.relax.frontend.onnx.converters.products import int_matmul, transposed
from tilewright.relax.frontend.onnx.converters.quantize import Operand, quantized


def _binary(name: str, function: Callable[[RelaxExpr, RelaxExpr], RelaxExpr]) -> None:
    @converts(f"com.microsoft.{name}")
    def convert(
        ctx: Context, a: Operand, b: Operand, y_scale: Tensor, y_zero: Tensor | None = None
    ) -> Tensor:
        made = function(a.dequantized(ctx), b.dequantized(ctx))
        return quantized(ctx, made, y_scale, y_zero, a.x.dtype)


_binary("QLinearAdd", op.add)
_binary("QLinearMul", op.multiply)


@converts("com.microsoft.QLinearSigmoid")
def _sigmoid(ctx: Context, x: Operand, y_scale: Tensor, y_zero: Tensor | None = None) -> Tensor:
    return quantized(ctx, op.sigmoid(x.dequantized(ctx)), y_scale, y_zero, x.x.dtype)


@converts("com.microsoft.QLinearLeakyRelu")
def _leaky_relu(
    ctx: Context, x: Operand, y_scale: Tensor, y_zero: Tensor | None = None,
    *, alpha: float = 0.01,
) -> Tensor:  # fmt: skip
    made = op.nn.leaky_relu(x.dequantized(ctx), alpha)
    return quantized(ctx, made, y_scale, y_zero, x.x.dtype)


@converts("com.microsoft.QLinearSoftmax")
def _softmax(
    ctx: Context, x: Operand, y_scale: Tensor, y_zero: Tensor | None = None,
    *, axis: int = -1, opset: int = 13,
) -> Tensor:  # fmt: skip
    at = ctx.axis(axis, x.x.ndim)
    ctx.require(opset >= 13 or at == x.x.ndim - 1, "softmax over several axes is not supported")
    return quantized(ctx, op.nn.softmax(x.dequantized(ctx), at), y_scale, y_zero, x.x.dtype)


@converts("com.microsoft.QLinearGlobalAveragePool")
def _global_average_pool(
    ctx: Context, x: Operand, y_scale: Tensor, y_zero: Tensor | None = None,
    *, channels_last: int = 0,
) -> Tensor:  # fmt: skip
    ndim = x.x.ndim
    axes = tuple(range(1, ndim - 1)) if channels_last else tuple(range(2, ndim))
    return quantized(ctx, op.mean(x.dequantized(ctx), axes, True), y_scale, y_zero, x.x.dtype)


@dataclass(frozen=True, kw_only=True)
class _Pooling:
    kernel_shape: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    channels_last: int = 0
    count_include_pad: int = 0
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None


@converts("com.microsoft.QLinearAveragePool")
def _average_pool(
    ctx: Context, x: Operand, y_scale: Tensor, y_zero: Tensor | None = None, *, attrs: _Pooling
) -> Tensor:
    ctx.require(not attrs.channels_last, "channels must come before pixels")
    size, auto_pad = attrs.kernel_shape, attrs.auto_pad
    window = window_of(ctx, x.x, size, attrs.strides, attrs.pads, auto_pad=auto_pad)
    data = x.dequantized(ctx)
    made = average_pool(ctx, data, window, attrs.ceil_mode, attrs.count_include_pad)
    return quantized(ctx, made, y_scale, y_zero, x.x.dtype)


@converts("com.microsoft.QLinearConcat")
def _concat(
    ctx: Context, y_scale: Tensor, y_zero: Tensor | None, *operands: Tensor, axis: int
) -> Tensor:
    ctx.require(operands and len(operands) % 3 == 0, "operands are tensor, scale and zero point")
    triples = [operands[n : n + 3] for n in range(0, len(operands), 3)]
    parts = [Operand(*triple).dequantized(ctx) for triple in triples]
    joined = op.concat(parts, ctx.axis(axis, parts[0].ndim))
    return quantized(ctx, joined, y_scale, y_zero, operands[0].dtype)


@dataclass(frozen=True, kw_only=True)
class _GemmAttributes:
    alpha: float = 1.0
    transA: int = 0
    transB: int = 0


@converts("com.microsoft.QGemm")
def _gemm(
    ctx: Context, a: Operand, b: Operand, c: Tensor | None = None, y_scale: Tensor | None = None,
    y_zero: Tensor | None = None, *, attrs: _GemmAttributes,
) -> Tensor:  # fmt: skip
    left = transposed(ctx, a.x) if attrs.transA else a.x
    right = transposed(ctx, b.x) if attrs.transB else b.x
    sums = int_matmul(ctx, left, right, a.zero_point, b.zero_point)
    sums = sums if c is None else op.add(sums, c)
    scale = op.multiply(_one(a.scale), _one(b.scale))
    made = op.multiply(op.astype(sums, "float32"), scale)
    if attrs.alpha != 1:
        made = op.multiply(made, ctx.scalar(attrs.alpha, made))
    return made if y_scale is None else quantized(ctx, made, y_scale, y_zero, a.x.dtype)


def _one(scale: Tensor) -> Tensor:
    """A scale of one number as a scalar."""
    return op.reshape(scale, ()) if all(as_int(e) == 1 for e in scale.shape) else scale


@converts("com.microsoft.MatMulIntegerToFloat")
def _matmul_to_float(
    ctx: Context, a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor,
    a_zero: Tensor | None = None, b_zero: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    sums = int_matmul(ctx, a, b, a_zero, b_zero)
    made = op.multiply(op.astype(sums, "float32"), op.multiply(_one(a_scale), _one(b_scale)))
    return made if bias is None else op.add(made, bias)
