"""Normalisation, and padding."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arith import simplify
from tilewright.ir import Expr, as_int
from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import (
    Array,
    Context,
    Shape,
    Tensor,
    Value,
    converts,
)
from tilewright.relax.frontend.onnx.converters.shapes import cut
from tilewright.relax.frontend.padding import extended
from tilewright.relax.values import const

#: Channels that ``LRN`` sums.
_WIDEST = 1024


@dataclass(frozen=True, kw_only=True)
class _BatchAttributes:
    epsilon: float = 1e-5
    momentum: float = 0.9
    training_mode: int = 0
    spatial: int = 1
    is_test: int | None = None


@converts("BatchNormalization")
def _batch_normalization(
    ctx: Context, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor,
    *, attrs: _BatchAttributes,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    training = bool(attrs.training_mode) or (ctx.opset < 7 and not attrs.is_test)
    ctx.require(attrs.spatial, "only statistics for each channel are supported")
    kind = mean.dtype
    data = ctx.cast(x, kind)
    scale, bias = ctx.cast(scale, kind), ctx.cast(bias, kind)
    made = op.nn.batch_norm(
        data, scale, bias, mean, var, 1, attrs.epsilon, momentum=1 - attrs.momentum,
        training=training,
    )  # fmt: skip
    if not training:
        return ctx.cast(made[0], x.dtype)
    result, new_mean, new_var = ctx.emit(made)
    return ctx.cast(result, x.dtype), new_mean, new_var


@converts("InstanceNormalization")
def _instance_normalization(
    ctx: Context, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    axes = tuple(range(2, x.ndim))
    return _scaled(_normalized(ctx, x, axes, epsilon), scale, bias)


def _normalized(ctx: Context, x: Tensor, axes: tuple[int, ...], epsilon: float) -> Tensor:
    centred = ctx.emit(op.subtract(x, op.mean(x, axes, True)))
    spread = op.mean(op.square(centred), axes, True)
    return op.multiply(centred, op.rsqrt(op.add(spread, ctx.scalar(epsilon, x))))


def _scaled(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    view: list[Expr | int] = [1, scale.shape[0], *[1] * (x.ndim - 2)]
    return op.add(op.multiply(x, op.reshape(scale, view)), op.reshape(bias, view))


@converts("GroupNormalization")
def _group_normalization(
    ctx: Context, x: Tensor, scale: Tensor, bias: Tensor,
    *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1,
) -> Tensor:  # fmt: skip
    channels = as_int(x.shape[1])
    ctx.require(
        num_groups > 0 and channels is not None and channels % num_groups == 0,
        f"{x.shape[1]} channels don't divide into {num_groups} groups",
    )
    assert channels is not None
    wide = "float32" if stash_type == 1 and x.dtype in ("float16", "bfloat16") else x.dtype
    data = ctx.cast(x, wide)
    grouped = op.reshape(data, (x.shape[0], num_groups, -1))
    normal = _normalized(ctx, grouped, (2,), epsilon)
    per = channels // num_groups
    if as_int(scale.shape[0]) != channels:
        # Before version 21 there is one number for each group.
        scale, bias = (op.repeat(item, per, 0) for item in (scale, bias))
    made: Tensor = op.reshape(normal, x.shape)
    if ctx.opset >= 21 and wide != x.dtype:
        made = ctx.cast(made, x.dtype)
    return ctx.cast(_scaled(made, ctx.cast(scale, made.dtype), ctx.cast(bias, made.dtype)), x.dtype)


@converts("LayerNormalization")
def _layer_normalization(
    ctx: Context, x: Tensor, scale: Tensor, bias: Tensor | None = None,
    *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    axes = tuple(range(ctx.axis(axis, x.ndim), x.ndim))
    same = [as_int(a) for a in scale.shape] == [as_int(x.shape[a]) for a in axes]
    plain = not ctx.uses(1) and not ctx.uses(2)
    if plain and same and None not in [as_int(x.shape[a]) for a in axes]:
        return (op.nn.layer_norm(x, scale, bias, axes, epsilon),)
    wide = "float32" if x.dtype in ("float16", "bfloat16") else x.dtype
    data = ctx.cast(x, wide)
    mean = ctx.emit(op.mean(data, axes, True))
    centred = ctx.emit(op.subtract(data, mean))
    inverse = ctx.emit(
        op.rsqrt(op.add(op.mean(op.square(centred), axes, True), ctx.scalar(epsilon, wide)))
    )
    made = ctx.cast(op.multiply(centred, inverse), x.dtype)
    made = op.multiply(made, scale)
    return (made if bias is None else op.add(made, bias)), mean, inverse


@converts("RMSNormalization")
def _rms_normalization(
    ctx: Context, x: Tensor, scale: Tensor,
    *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
) -> Tensor:  # fmt: skip
    axes = tuple(range(ctx.axis(axis, x.ndim), x.ndim))
    if x.dtype == scale.dtype and [as_int(a) for a in scale.shape] == [
        as_int(x.shape[a]) for a in axes
    ]:
        return op.nn.rms_norm(x, scale, axes, epsilon)
    wide = "float32" if x.dtype in ("float16", "bfloat16") else x.dtype
    data = ctx.cast(x, wide)
    inverse = op.rsqrt(op.add(op.mean(op.square(data), axes, True), ctx.scalar(epsilon, wide)))
    return op.multiply(ctx.cast(op.multiply(data, inverse), scale.dtype), scale)


@converts("LRN")
def _lrn(
    ctx: Context, x: Tensor,
    *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0,
) -> Tensor:  # fmt: skip
    ctx.require(0 < size <= _WIDEST, f"size must be from 1 to {_WIDEST}, got {size}")
    before, after = (size - 1) // 2, size // 2
    widths = [0, 0, before, after, *[0] * (2 * (x.ndim - 2))]
    squares = ctx.emit(op.nn.pad(op.square(x), widths))
    total = cut(squares, 1, 0, x.shape[1])
    for start in range(1, size):
        total = op.add(total, cut(squares, 1, start, x.shape[1] + start))
    share = op.multiply(total, ctx.scalar(alpha / size, x))
    return op.divide(x, op.power(op.add(share, ctx.scalar(bias, x)), ctx.scalar(beta, x)))


# ---- padding -------------------------------------------------------------------------------------


@converts("Pad")
def _pad(
    ctx: Context, x: Tensor, pads: Shape | None = None, value: Value = None,
    axes: Shape | None = None,
    *, mode: str = "constant", pads_: tuple[int, ...] | None = None, value_: float = 0.0,
) -> Tensor:  # fmt: skip
    ctx.choice("mode", mode, ("constant", "edge", "reflect", "wrap"))
    given = pads if pads is not None else pads_
    ctx.require(given is not None, "pads are missing")
    assert given is not None
    where = list(range(x.ndim)) if axes is None else list(ctx.axes(ctx.ints(axes, "axes"), x.ndim))
    widths = ctx.ints(given, "pads")
    count = len(where)
    ctx.require(len(widths) == 2 * count, f"pads needs {2 * count} numbers, got {len(widths)}")
    before = {axis: widths[n] for n, axis in enumerate(where)}
    after = {axis: widths[count + n] for n, axis in enumerate(where)}
    for axis in where:
        x = _cropped(x, axis, max(-before[axis], 0), max(-after[axis], 0))
    before = {axis: max(width, 0) for axis, width in before.items()}
    after = {axis: max(width, 0) for axis, width in after.items()}
    if mode == "constant":
        return _filled(ctx, x, before, after, value, value_)
    for axis in where:
        x = extended(x, axis, before[axis], after[axis], mode)
    return x


def _cropped(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    if not (low or high):
        return x
    return cut(x, axis, low, simplify(x.shape[axis] - high))


def _filled(
    ctx: Context, x: Tensor, before: dict[int, int], after: dict[int, int], value: Value,
    number: float,
) -> Tensor:  # fmt: skip
    widths = [w for a in range(x.ndim) for w in (before.get(a, 0), after.get(a, 0))]
    if not any(widths):
        return x
    found: Array | None = None
    if value is not None:
        found = ctx.known(value)
        if found is None:
            # A number that only a call tells: chosen wherever there is no element.
            inside = op.nn.pad(op.ones(x.shape, "int8"), widths)
            fill = op.reshape(ctx.tensor(value), ())
            is_inside = op.not_equal(inside, const(0, "int8"))
            data = op.astype(x, "int8") if x.dtype == "bool" else x
            return op.where(is_inside, ctx.cast(op.nn.pad(data, widths), x.dtype), fill)
        number = found.reshape(-1)[0].item() if found.size else 0
    if x.dtype == "bool":
        return ctx.cast(op.nn.pad(op.astype(x, "int8"), widths, pad_value=int(number)), "bool")
    return op.nn.pad(x, widths, pad_value=number)
