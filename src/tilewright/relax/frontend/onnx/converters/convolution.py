"""Convolutions, and how ONNX pads images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.onnx.converters.base import Context, Tensor, converts
from tilewright.relax.frontend.onnx.converters.shapes import cut
from tilewright.topi.utils import sum_dtype

_AUTO = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True)
class Window:
    """A sliding window over the spatial axes: padding has all axes before, then all after."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def spatial(self) -> int:
        """The number of axes."""
        return len(self.size)


def window_of(
    ctx: Context,
    x: Tensor,
    size: Sequence[int],
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
) -> Window:
    """Complete a window's attributes."""
    count = x.ndim - 2
    ctx.require(1 <= count <= 3, f"takes images of one to three axes, got {x.ndim} dimensions")
    steps = tuple(strides) if strides else (1,) * count
    reach = tuple(dilations) if dilations else (1,) * count
    padding = tuple(pads) if pads else (0,) * (2 * count)
    ctx.require(
        len(size) == len(steps) == len(reach) == count and len(padding) == 2 * count,
        f"kernel_shape, strides and dilations need {count} numbers, pads {2 * count}",
    )
    ctx.require(
        min(steps) > 0 and min(reach) > 0 and min(size) > 0,
        "kernel_shape, strides and dilations must be positive",
    )
    if ctx.choice("auto_pad", auto_pad, _AUTO) in ("SAME_UPPER", "SAME_LOWER"):
        before, after = [], []
        for axis in range(count):
            span = (size[axis] - 1) * reach[axis] + 1
            if steps[axis] == 1:
                total = span - 1
            else:
                (extent,) = ctx.ints([x.shape[2 + axis]], "extents, for this auto_pad,")
                total = max((-(-extent // steps[axis]) - 1) * steps[axis] + span - extent, 0)
            less = total // 2
            before.append(less if auto_pad == "SAME_UPPER" else total - less)
            after.append(total - before[-1])
        padding = (*before, *after)
    elif auto_pad == "VALID":
        padding = (0,) * (2 * count)
    return Window(tuple(size), steps, padding, reach)


def kernel_size(ctx: Context, weight: Tensor, given: Sequence[int] | None) -> list[int]:
    """The window of a weight, which the attribute must agree with."""
    size = ctx.ints(weight.shape[2:], "extents of the weight")
    ctx.require(not given or list(given) == size, f"kernel_shape is {given}, the weight has {size}")
    return size


@dataclass(frozen=True, kw_only=True)
class Sliding:
    """The attributes by which a window slides over an image."""

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def window_of_size(self, ctx: Context, x: Tensor, size: Sequence[int]) -> Window:
        """The window, completed; raises ``ImportModelError`` if it doesn't fit the image."""
        return window_of(ctx, x, size, self.strides, self.pads, self.dilations, self.auto_pad)


@dataclass(frozen=True, kw_only=True)
class Convolving(Sliding):
    """The attributes of a convolution."""

    group: int = 1
    kernel_shape: tuple[int, ...] | None = None

    def window(self, ctx: Context, x: Tensor, weight: Tensor) -> Window:
        """The window of a weight; raises ``ImportModelError`` if attributes don't fit it."""
        return self.window_of_size(ctx, x, kernel_size(ctx, weight, self.kernel_shape))


def add_bias(made: Tensor, bias: Tensor | None) -> Tensor:
    """Add a number to each channel."""
    if bias is None:
        return made
    channels = op.reshape(bias, (1, bias.shape[0], *[1] * (made.ndim - 2)))
    if made.dtype == bias.dtype:
        return op.add(made, channels)
    return op.astype(op.add(made, op.astype(channels, made.dtype)), bias.dtype)


def conv(x: Tensor, weight: Tensor, window: Window, groups: int) -> Tensor:
    """A convolution over one to three axes."""
    function = (op.nn.conv1d, op.nn.conv2d, op.nn.conv3d)[window.spatial - 1]
    one = window.spatial == 1
    return function(
        x, weight, window.strides[0] if one else window.strides, window.padding,
        window.dilations[0] if one else window.dilations, groups,
    )  # fmt: skip


def padded(x: Tensor, window: Window) -> tuple[Tensor, Window]:
    """Cut off what negative padding takes, which convolutions don't."""
    if min(window.padding) >= 0:
        return x, window
    count = window.spatial
    before, after = window.padding[:count], window.padding[count:]
    axes = [2 + axis for axis in range(count)]
    begin = [max(-before[axis], 0) for axis in range(count)]
    end = [x.shape[2 + axis] + min(after[axis], 0) for axis in range(count)]
    for axis in range(count):
        x = cut(x, axes[axis], begin[axis], end[axis])
    left = tuple(max(item, 0) for item in window.padding)
    return x, Window(window.size, window.strides, left, window.dilations)


@dataclass(frozen=True, kw_only=True)
class _Transposed(Convolving):
    output_padding: tuple[int, ...] | None = None
    output_shape: tuple[int, ...] | None = None


@converts("ConvTranspose")
def _conv_transpose(
    ctx: Context, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, attrs: _Transposed
) -> Tensor:
    auto_pad, output_shape = attrs.auto_pad, attrs.output_shape
    # Other ways to pad are about the result, see below.
    valid = "VALID" if auto_pad == "VALID" else "NOTSET"
    window = replace(attrs, auto_pad=valid).window(ctx, x, weight)
    count = window.spatial
    extra = list(attrs.output_padding or [0] * count)
    ctx.require(len(extra) == count, f"output_padding needs {count} numbers")
    before, after = list(window.padding[:count]), list(window.padding[count:])
    ctx.choice("auto_pad", auto_pad, _AUTO)
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        for axis in range(count):
            full, have = _full_extent(ctx, x, window, axis)
            want = have * window.strides[axis]
            if output_shape is not None:
                want = output_shape[len(output_shape) - count + axis]
            total = full + extra[axis] - want
            less = abs(total) // 2 * (1 if total > 0 else -1)
            before[axis] = less if auto_pad == "SAME_UPPER" or total < 0 else total - less
            after[axis] = total - before[axis]
    # All of it, then padding cuts off at both ends; where it is negative, zeros follow.
    function = (
        op.nn.conv1d_transpose, op.nn.conv2d_transpose, op.nn.conv3d_transpose
    )[count - 1]  # fmt: skip
    wide = sum_dtype(x.dtype)  # half floats are rounded once the bias is added
    dtype = None if bias is None or wide == x.dtype else wide
    fits = all(a >= 0 and b >= 0 for a, b in zip(before, after)) and all(
        e < max(s, d) for e, s, d in zip(extra, window.strides, window.dilations)
    )
    if fits:
        whole = function(
            x, weight, window.strides, (*before, *after), tuple(extra), window.dilations,
            attrs.group, out_dtype=dtype,
        )  # fmt: skip
        return add_bias(whole, bias)
    made: Tensor = function(
        x, weight, window.strides, 0, 0, window.dilations, attrs.group, out_dtype=dtype
    )
    widths = [0] * (2 * x.ndim)
    for axis in range(count):
        at = 2 + axis
        right = extra[axis] - after[axis]
        low, high = max(before[axis], 0), max(-right, 0)
        if low or high:
            made = cut(made, at, low, made.shape[at] - high)
        widths[2 * at], widths[2 * at + 1] = max(-before[axis], 0), max(right, 0)
    made = op.nn.pad(made, widths) if any(widths) else made
    return add_bias(made, bias)


def _full_extent(ctx: Context, x: RelaxExpr, window: Window, axis: int) -> tuple[int, int]:
    """The extent of a result without padding, and that of the image."""
    (have,) = ctx.ints([x.shape[2 + axis]], "extents, for this padding,")
    span = (window.size[axis] - 1) * window.dilations[axis] + 1
    return (have - 1) * window.strides[axis] + span, have
