"""Products of integers with zero points, exact in int32: matrices and convolutions.

``(a - za) @ (b - zb)`` is ``a @ b`` of bytes, a dot-product kernel, corrected by sums of rows and
columns; those of constant weights are constants.
"""

from __future__ import annotations

from typing import Any

from tilewright import te, topi
from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import (
    Context,
    Quantized,
    Tensor,
    converts,
)
from tilewright.relax.frontend.onnx.converters.convolution import (
    Convolving,
    Window,
    add_bias,
    conv,
    padded,
)
from tilewright.relax.frontend.onnx.converters.quantize import (
    Operand,
    as_signed,
    known_int,
    requantized,
)
from tilewright.relax.values import const


def _is_zero(ctx: Context, value: Tensor | None) -> bool:
    return value is None or known_int(ctx, value) == 0


def int_matmul(ctx: Context, a: Tensor, b: Tensor, za: Tensor | None, zb: Tensor | None) -> Tensor:
    """``(a - za) @ (b - zb)`` as int32; zero points are numbers, or of rows of a, columns of b."""
    b, zero_b = as_signed(ctx, b, zb)
    zero_a = None if za is None else ctx.cast(za, "int32")
    if zero_a is not None and zero_a.ndim == 1 and as_int(zero_a.shape[0]) != 1 and a.ndim > 1:
        zero_a = op.reshape(zero_a, (zero_a.shape[0], 1))
    made: Tensor = op.matmul(a, b, out_dtype="int32")
    depth = as_int(a.shape[-1])
    columns = rows = None
    if not _is_zero(ctx, za):
        assert zero_a is not None
        columns = op.sum(op.astype(b, "int32"), b.ndim - 2 if b.ndim > 1 else 0, b.ndim > 1)
        made = op.subtract(made, op.multiply(_shaped(zero_a, made), columns))
    if zero_b is not None and not _is_zero(ctx, zero_b):
        rows = op.sum(op.astype(a, "int32"), a.ndim - 1, a.ndim > 1)
        if columns is not None:
            ctx.require(depth is not None, "the summed extent must be known")
            assert zero_a is not None and depth is not None
            taken = op.multiply(_shaped(zero_a, made), const(depth, "int32"))
            rows = op.subtract(rows, taken)
        made = op.subtract(made, op.multiply(rows, _shaped(zero_b, made)))
    return made


def _shaped(zero: Tensor, made: Tensor) -> Tensor:
    """A zero point of one number as a scalar."""
    if zero.ndim and all(as_int(extent) == 1 for extent in zero.shape):
        return op.reshape(zero, ())
    return zero


@converts("MatMulInteger")
def _matmul_integer(
    ctx: Context, a: Tensor, b: Tensor, a_zero_point: Tensor | None = None,
    b_zero_point: Tensor | None = None,
) -> Tensor:  # fmt: skip
    return int_matmul(ctx, a, b, a_zero_point, b_zero_point)


@converts("QLinearMatMul")
def _qlinear_matmul(
    ctx: Context, a: Operand, b: Operand, y_scale: Tensor, y_zero_point: Tensor
) -> Tensor:
    sums = int_matmul(ctx, a.x, b.x, a.zero_point, b.zero_point)
    rows = a.scale
    if rows.ndim == 1 and as_int(rows.shape[0]) != 1:
        rows = op.reshape(rows, (rows.shape[0], 1))
    scale = op.multiply(_shaped(rows, sums), _shaped(b.scale, sums))
    return requantized(
        ctx, sums, scale, _shaped(y_scale, sums), _shaped(y_zero_point, sums), y_zero_point.dtype
    )


def int_conv(
    ctx: Context, x: Tensor, w: Tensor, zx: Tensor | None, zw: Tensor | None, window: Window,
    groups: int, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """A convolution of integers less their zero points, as int32; padding is the zero point."""
    zero = known_int(ctx, zx)
    signed, zero_w = as_signed(ctx, w, zw)
    if window.spatial == 2 and zero is not None and _is_zero(ctx, zero_w):
        sums = None
        if zero:
            total = op.sum(op.astype(signed, "int32"), (1, 2, 3))
            sums = ctx.emit(total)
        return ctx.te(
            _conv2d_int8, x, signed, sums, bias, zero=zero, window=window, groups=groups,
            name="conv2d_int8",
        )  # fmt: skip
    data, weight = ctx.cast(x, "int32"), ctx.cast(w, "int32")
    if zx is not None:
        data = op.subtract(data, op.reshape(ctx.cast(zx, "int32"), ()))
    if zw is not None:
        z = ctx.cast(zw, "int32")
        several = z.ndim and as_int(z.shape[0]) != 1
        view: list[Any] = [z.shape[0], *[1] * (w.ndim - 1)] if several else []
        weight = op.subtract(weight, op.reshape(z, view))
    made = conv(data, weight, window, groups)
    if bias is None:
        return made
    return op.add(made, op.reshape(bias, (1, bias.shape[0], *[1] * window.spatial)))


def _conv2d_int8(
    x: te.Tensor, w: te.Tensor, sums: te.Tensor | None, bias: te.Tensor | None,
    *, zero: int, window: Window, groups: int,
) -> te.Tensor:  # fmt: skip
    point = topi.nn.ZeroPoint(zero, sums) if zero else topi.nn.ZeroPoint()
    return topi.nn.conv2d_int8(
        x, w, window.strides, window.padding, window.dilations, groups, point, bias
    )


@converts("ConvInteger")
def _conv_integer(
    ctx: Context, x: Tensor, w: Tensor, x_zero_point: Tensor | None = None,
    w_zero_point: Tensor | None = None, *, attrs: Convolving,
) -> Tensor:  # fmt: skip
    window = attrs.window(ctx, x, w)
    return int_conv(ctx, x, w, x_zero_point, w_zero_point, window, attrs.group)


@converts("QLinearConv")
def _qlinear_conv(
    ctx: Context, x: Operand, w: Operand, y_scale: Tensor, y_zero_point: Tensor,
    bias: Tensor | None = None, *, attrs: Convolving,
) -> Tensor:  # fmt: skip
    window = attrs.window(ctx, x.x, w.x)
    sums = int_conv(ctx, x.x, w.x, x.zero_point, w.zero_point, window, attrs.group, bias)
    scale = op.multiply(op.reshape(x.scale, ()), channel_scale(w.scale, window.spatial))
    return requantized(
        ctx, sums, scale, op.reshape(y_scale, ()), op.reshape(y_zero_point, ()),
        y_zero_point.dtype,
    )  # fmt: skip


def channel_scale(scale: Tensor, spatial: int) -> Tensor:
    """The scale of each filter, against ``[N, C, …]``."""
    if scale.ndim and as_int(scale.shape[0]) != 1:
        return op.reshape(scale, (1, scale.shape[0], *[1] * spatial))
    return op.reshape(scale, ())


# ---- products of dequantised operands ------------------------------------------------------------


def _is_number(value: Tensor | None) -> bool:
    return value is None or all(as_int(extent) == 1 for extent in value.shape)


def scaled_matmul(ctx: Context, a: Tensor, b: Tensor) -> Tensor | None:
    """The product of two dequantised matrices by one of integers; ``None`` if it isn't that."""
    left, right = ctx.quantized.get(a), ctx.quantized.get(b)
    if left is None or right is None or a.dtype != "float32" or a.ndim < 2:
        return None
    if not _is_number(left.scale) or not _is_number(left.zero_point):
        return None
    if not (_is_number(right.scale) and _is_number(right.zero_point)) and (
        b.ndim != 2 or right.axis not in (1, -1)
    ):
        return None
    sums = int_matmul(ctx, left.x, right.x, left.zero_point, right.zero_point)
    scale = op.multiply(_shaped(left.scale, sums), _shaped(right.scale, sums))
    return op.multiply(op.astype(sums, "float32"), scale)


def scaled_conv(
    ctx: Context, x: Tensor, weight: Tensor, window: Window, groups: int
) -> Tensor | None:
    """A convolution of dequantised operands by one of integers; ``None`` if it isn't that."""
    left, right = ctx.quantized.get(x), ctx.quantized.get(weight)
    if left is None or right is None or x.dtype != "float32":
        return None
    if not _is_number(left.scale) or known_int(ctx, left.zero_point) is None:
        return None
    if window.spatial != 2 or min(window.padding) < 0 or right.x.dtype != "int8":
        return None
    if known_int(ctx, right.zero_point) != 0 or not _per_filter(right):
        return None
    sums = int_conv(ctx, left.x, right.x, left.zero_point, None, window, groups)
    scale = op.multiply(op.reshape(left.scale, ()), channel_scale(right.scale, 2))
    return op.multiply(op.astype(sums, "float32"), scale)


def _per_filter(weight: Quantized) -> bool:
    return _is_number(weight.scale) or weight.axis % weight.x.ndim == 0


@converts("Conv")
def _conv(
    ctx: Context, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, attrs: Convolving
) -> Tensor:
    window = attrs.window(ctx, x, weight)
    made = scaled_conv(ctx, x, weight, window, attrs.group)
    if made is None:
        x, window = padded(x, window)
        made = conv(x, weight, window, attrs.group)
    return add_bias(made, bias)


def transposed(ctx: Context, b: Tensor) -> Tensor:
    """A matrix transposed; what is noted of its quantisation stays."""
    made: Tensor = op.permute_dims(b, (1, 0))
    noted = ctx.quantized.get(b)
    if noted is not None:
        made = ctx.emit(made)
        turned = ctx.emit(op.permute_dims(noted.x, (1, 0)))
        axis = 1 - noted.axis % 2
        ctx.quantized[made] = Quantized(turned, noted.scale, noted.zero_point, axis)
    return made
