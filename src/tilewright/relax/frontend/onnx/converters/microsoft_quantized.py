"""Quantised operators of ``com.microsoft``.

Products are of integers; elementwise operators compute in float32 between, as ONNX Runtime does.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.onnx.converters.base import (
    Context,
    Tensor,
    converts,
)
from tilewright.relax.frontend.onnx.converters.pooling import average_pool
from tilewright.relax.frontend.onnx.converters.products import int_matmul, transposed
from tilewright.relax.frontend.onnx.converters.quantize import dequantized, quantized

Operand = tuple[Tensor, Tensor, Tensor | None]


def _binary(name: str, function: Callable[[RelaxExpr, RelaxExpr], RelaxExpr]) -> None:
    @converts(f"com.microsoft.{name}")
    def convert(
        ctx: Context, a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor,
        b_scale: Tensor, b_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        left, right = dequantized(ctx, a, a_scale, a_zero), dequantized(ctx, b, b_scale, b_zero)
        return quantized(ctx, function(left, right), y_scale, y_zero, a.dtype)


_binary("QLinearAdd", op.add)
_binary("QLinearMul", op.multiply)


def _unary(ctx: Context, function: Callable[[RelaxExpr], RelaxExpr], x: Operand,
           y: tuple[Tensor, Tensor | None]) -> Tensor:  # fmt: skip
    return quantized(ctx, function(dequantized(ctx, *x)), *y, x[0].dtype)


@converts("com.microsoft.QLinearSigmoid")
def _sigmoid(
    ctx: Context, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor,
    y_zero: Tensor | None = None,
) -> Tensor:  # fmt: skip
    return _unary(ctx, op.sigmoid, (x, x_scale, x_zero), (y_scale, y_zero))


@converts("com.microsoft.QLinearLeakyRelu")
def _leaky_relu(
    ctx: Context, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor,
    y_zero: Tensor | None = None, *, alpha: float = 0.01,
) -> Tensor:  # fmt: skip
    return _unary(
        ctx, lambda t: op.nn.leaky_relu(t, alpha), (x, x_scale, x_zero), (y_scale, y_zero)
    )


@converts("com.microsoft.QLinearSoftmax")
def _softmax(
    ctx: Context, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor,
    y_zero: Tensor | None = None, *, axis: int = -1, opset: int = 13,
) -> Tensor:  # fmt: skip
    at = ctx.axis(axis, x.ndim)
    ctx.require(opset >= 13 or at == x.ndim - 1, "softmax over several axes is not supported")
    return _unary(ctx, lambda t: op.nn.softmax(t, at), (x, x_scale, x_zero), (y_scale, y_zero))


@converts("com.microsoft.QLinearGlobalAveragePool")
def _global_average_pool(
    ctx: Context, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor,
    y_zero: Tensor | None = None, *, channels_last: int = 0,
) -> Tensor:  # fmt: skip
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    return _unary(ctx, lambda t: op.mean(t, axes, True), (x, x_scale, x_zero), (y_scale, y_zero))


@converts("com.microsoft.QLinearAveragePool")
def _average_pool(
    ctx: Context, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor,
    y_zero: Tensor | None = None,
    *, kernel_shape: tuple[int, ...], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    channels_last: int = 0, count_include_pad: int = 0, pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:  # fmt: skip
    ctx.require(not channels_last, "channels must come before pixels")

    def pool(t: RelaxExpr) -> RelaxExpr:
        return average_pool(
            ctx, t, kernel_shape, auto_pad, ceil_mode, count_include_pad, None, pads, strides
        )

    return _unary(ctx, pool, (x, x_scale, x_zero), (y_scale, y_zero))


@converts("com.microsoft.QLinearConcat")
def _concat(
    ctx: Context, y_scale: Tensor, y_zero: Tensor | None, *operands: Tensor, axis: int
) -> Tensor:
    ctx.require(operands and len(operands) % 3 == 0, "operands are tensor, scale and zero point")
    parts = [dequantized(ctx, *operands[n : n + 3]) for n in range(0, len(operands), 3)]
    joined = op.concat(parts, ctx.axis(axis, parts[0].ndim))
    return quantized(ctx, joined, y_scale, y_zero, operands[0].dtype)


@converts("com.microsoft.QGemm")
def _gemm(
    ctx: Context, a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor,
    b_zero: Tensor, c: Tensor | None = None, y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
    *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    a = transposed(ctx, a) if transA else a
    b = transposed(ctx, b) if transB else b
    sums = int_matmul(ctx, a, b, a_zero, b_zero)
    sums = sums if c is None else op.add(sums, c)
    scale = op.multiply(_one(a_scale), _one(b_scale))
    made = op.multiply(op.astype(sums, "float32"), scale)
    if alpha != 1:
        made = op.multiply(made, ctx.scalar(alpha, made))
    return made if y_scale is None else quantized(ctx, made, y_scale, y_zero, a.dtype)


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
