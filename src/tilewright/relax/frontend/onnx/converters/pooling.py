"""Pooling: by our own operators where they have it, else tap by tap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright import te
from tilewright.ir import Expr, as_int, dtypes
from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import Context, Shape, Tensor, converts
from tilewright.relax.frontend.onnx.converters.convolution import (
    Sliding,
    Window,
    window_of,
)
from tilewright.relax.values import const


def _least(dtype: str) -> float:
    return float("-inf") if dtypes.is_float(dtype) else dtypes.integer_limits(dtype)[0]


#: Elements of a window that is taken apart, and of tables over an image.
_MOST_TAPS, _MOST_PLACES = 4096, 1 << 26


def _counts(ctx: Context, x: Tensor, window: Window, ceil_mode: int) -> list[int]:
    """Extents of the result."""
    made = []
    extents = ctx.ints(x.shape[2:], "extents, for this pooling,")
    for axis, extent in enumerate(extents):
        before, after = window.padding[axis], window.padding[window.spatial + axis]
        span = (window.size[axis] - 1) * window.dilations[axis] + 1
        step = window.strides[axis]
        free = extent + before + after - span
        count = (-(-free // step) if ceil_mode else free // step) + 1
        if ceil_mode and (count - 1) * step >= extent + before:
            count -= 1
        ctx.require(count > 0, f"the window does not fit an image of {extents}")
        made.append(count)
    ctx.require(math.prod(made) <= _MOST_PLACES, f"an image of {made} is too large for it")
    return made


def _padded(x: Tensor, window: Window, counts: Sequence[int], value: float) -> Tensor:
    """The image with all that windows reach."""
    widths = [0, 0, 0, 0]
    for axis, count in enumerate(counts):
        span = (window.size[axis] - 1) * window.dilations[axis] + 1
        need = (count - 1) * window.strides[axis] + span
        before = window.padding[axis]
        extent = as_int(x.shape[2 + axis]) or 0
        widths += [before, max(need - before - extent, 0)]
    return op.nn.pad(x, widths, pad_value=value) if any(widths) else x


def _taps(x: Tensor, window: Window, counts: Sequence[int], value: float) -> list[Tensor]:
    """For each element of the window: those of the image that meet it."""
    source = _padded(x, window, counts, value)
    axes = list(range(2, x.ndim))
    made: list[Tensor] = []
    for place in itertools.product(*map(range, window.size)):
        begin = [p * d for p, d in zip(place, window.dilations)]
        end = [b + (count - 1) * step + 1 for b, count, step in zip(begin, counts, window.strides)]
        made.append(op.strided_slice(source, axes, begin, end, window.strides))
    return made


def _window_sums(ctx: Context, x: Tensor, window: Window, counts: Sequence[int]) -> Tensor:
    """The sum of each window."""

    def sums(image: te.Tensor) -> te.Tensor:
        taps = [te.reduce_axis((0, size), f"r{axis}") for axis, size in enumerate(window.size)]

        def formula(n: Expr, c: Expr, *at: Expr) -> Expr:
            place = [
                i * step + tap.var * reach
                for i, step, tap, reach in zip(at, window.strides, taps, window.dilations)
            ]
            made: Expr = te.sum(image(n, c, *place), axis=taps)
            return made

        made: te.Tensor = te.compute((*image.shape[:2], *counts), formula, name="window_sums")
        return made

    return ctx.te(sums, _padded(x, window, counts, 0), name="window_sums")


@dataclass(frozen=True, kw_only=True)
class _Pooling(Sliding):
    """The attributes of a pool."""

    kernel_shape: tuple[int, ...]
    ceil_mode: int = 0

    def window(self, ctx: Context, x: Tensor) -> Window:
        return self.window_of_size(ctx, x, self.kernel_shape)


@dataclass(frozen=True, kw_only=True)
class _MaxPooling(_Pooling):
    storage_order: int = 0


@converts("MaxPool")
def _max_pool(ctx: Context, x: Tensor, *, attrs: _MaxPooling) -> tuple[Tensor, ...]:
    window = attrs.window(ctx, x)
    if not ctx.uses(1):
        function = (op.nn.max_pool1d, op.nn.max_pool2d, op.nn.max_pool3d)[window.spatial - 1]
        made = function(
            x, window.size, window.strides, window.padding, window.dilations,
            bool(attrs.ceil_mode),
        )  # fmt: skip
        return (made,)
    counts = _counts(ctx, x, window, attrs.ceil_mode)
    extents = ctx.ints(x.shape[2:], "extents")
    ctx.require(
        math.prod(extents) <= _MOST_PLACES and math.prod(window.size) <= _MOST_TAPS,
        f"places in images of {extents} and windows of {list(window.size)} are too many",
    )
    places = np.arange(math.prod(extents), dtype=np.int64).reshape(extents)
    if attrs.storage_order:
        places = places.reshape(extents[::-1]).transpose()
    grid = const(np.ascontiguousarray(places.reshape(1, 1, *extents)))
    values = _taps(x, window, counts, _least(x.dtype))
    outside = const(-1, "int64")
    indices = _taps(grid, window, counts, -1)
    best, where = values[0], indices[0]
    for value, index in zip(values[1:], indices[1:]):
        # The padding may be as great as what is in the image, but is nowhere.
        first = op.logical_and(op.equal(where, outside), op.not_equal(index, outside))
        better = ctx.emit(op.logical_or(op.greater(value, best), first))
        best, where = op.where(better, value, best), op.where(better, index, where)
        best, where = ctx.emit(best), ctx.emit(where)
    images = op.arange(0, x.shape[0] * x.shape[1], 1, "int64")
    start = op.multiply(images, const(math.prod(extents), "int64"))
    start = op.reshape(start, (x.shape[0], x.shape[1], *[1] * len(extents)))
    return best, op.add(op.broadcast_to(where, best.shape), start)


@dataclass(frozen=True, kw_only=True)
class _AveragePooling(_Pooling):
    count_include_pad: int = 0


@converts("AveragePool")
def _average_pool(ctx: Context, x: Tensor, *, attrs: _AveragePooling) -> Tensor:
    window = attrs.window(ctx, x)
    return average_pool(ctx, x, window, attrs.ceil_mode, attrs.count_include_pad)


def average_pool(
    ctx: Context, x: Tensor, window: Window, ceil_mode: int, count_include_pad: int
) -> Tensor:
    """The mean of each window."""
    if set(window.dilations) == {1}:
        function = (op.nn.avg_pool1d, op.nn.avg_pool2d, op.nn.avg_pool3d)[window.spatial - 1]
        return function(
            x, window.size, window.strides, window.padding, 1, bool(ceil_mode),
            bool(count_include_pad),
        )  # fmt: skip
    counts = _counts(ctx, x, window, ceil_mode)
    total = _window_sums(ctx, x, window, counts)
    extents = ctx.ints(x.shape[2:], "extents")
    share = np.ones((1, 1), np.float64)
    ctx.require(max(window.size) <= _MOST_TAPS, f"windows of {list(window.size)} are too large")
    for axis, count in enumerate(counts):
        taps = np.arange(window.size[axis]) * window.dilations[axis] - window.padding[axis]
        at = np.arange(count)[:, None] * window.strides[axis] + taps
        low, high = 0, extents[axis]
        if count_include_pad:
            low, high = -window.padding[axis], high + window.padding[window.spatial + axis]
        inside = ((at >= low) & (at < high)).sum(1)
        share = share[..., None] * inside
    return op.divide(total, const(share, x.dtype))


@dataclass(frozen=True, kw_only=True)
class _LpPooling(_Pooling):
    p: int = 2


@converts("LpPool")
def _lp_pool(ctx: Context, x: Tensor, *, attrs: _LpPooling) -> Tensor:
    window = attrs.window(ctx, x)
    counts = _counts(ctx, x, window, attrs.ceil_mode)
    powers = ctx.emit(_power(ctx, x, attrs.p))
    return _root(ctx, _window_sums(ctx, powers, window, counts), attrs.p)


def _power(ctx: Context, x: Tensor, p: int) -> Tensor:
    ctx.require(p >= 1, f"p must be positive, got {p}")
    if p == 1:
        return op.abs(x)
    return op.square(x) if p == 2 else op.power(op.abs(x), ctx.scalar(p, x))


def _root(ctx: Context, x: Tensor, p: int) -> Tensor:
    if p == 1:
        return x
    return op.sqrt(x) if p == 2 else op.power(x, ctx.scalar(1 / p, x))


def _spatial(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@converts("GlobalAveragePool")
def _global_average_pool(ctx: Context, x: Tensor) -> Tensor:
    return op.mean(x, _spatial(x), True)


@converts("GlobalMaxPool")
def _global_max_pool(ctx: Context, x: Tensor) -> Tensor:
    return op.max(x, _spatial(x), True)


@converts("GlobalLpPool")
def _global_lp_pool(ctx: Context, x: Tensor, *, p: int = 2) -> Tensor:
    return _root(ctx, op.sum(_power(ctx, x, p), _spatial(x), True), p)


@converts("MaxUnpool")
def _max_unpool(
    ctx: Context, x: Tensor, indices: Tensor, output_shape: Shape | None = None,
    *, kernel_shape: tuple[int, ...], pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:  # fmt: skip
    window = window_of(ctx, x, kernel_shape, strides, pads)
    extents = ctx.ints(x.shape, "extents")
    count = window.spatial
    own = [
        (extents[2 + a] - 1) * window.strides[a] + window.size[a]
        - window.padding[a] - window.padding[count + a]
        for a in range(count)
    ]  # fmt: skip
    whole = [*extents[:2], *own]
    wanted = whole if output_shape is None else ctx.ints(output_shape, "output_shape")
    # Indices are places in the image without output_shape, which then is the corner of another.
    flat = op.zeros((math.prod(whole),), x.dtype)
    made = op.scatter_elements(flat, op.reshape(indices, (-1,)), op.reshape(x, (-1,)))
    made = op.reshape(made, whole)
    widths = [item for a, b in zip(whole, wanted) for item in (0, b - a)]
    return op.nn.pad(made, widths) if any(widths) else made
