"""Operators that gather pixels and put them together: ``Col2Im``, ``DeformConv``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright import te
from tilewright.ir import Expr, call, cast, const, maximum, minimum, select
from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import (
    Context,
    Shape,
    Tensor,
    converts,
)
from tilewright.relax.frontend.onnx.converters.convolution import (
    Window,
    add_bias,
    kernel_size,
    window_of,
)
from tilewright.relax.transform.annotate_pattern import OPAQUE
from tilewright.relax.values import const as constant
from tilewright.topi.sampling import not_above


@converts("Col2Im")
def _col2im(
    ctx: Context, x: Tensor, image_shape: Shape, block_shape: Shape,
    *, dilations: tuple[int, ...] | None = None, pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:  # fmt: skip
    image = ctx.ints(image_shape, "image_shape")
    block = ctx.ints(block_shape, "block_shape")
    count = len(image)
    reach, steps = dilations or (1,) * count, strides or (1,) * count
    padding = pads or (0,) * (2 * count)
    ctx.require(
        len(block) == len(reach) == len(steps) == count and len(padding) == 2 * count,
        f"all numbers must be for {count} axes",
    )
    ctx.require(min(*image, *block, *reach, *steps) > 0, "extents and steps must be positive")
    whole = [e + padding[a] + padding[count + a] for a, e in enumerate(image)]
    windows = [(whole[a] - (block[a] - 1) * reach[a] - 1) // steps[a] + 1 for a in range(count)]
    ctx.require(min(windows) > 0, "a block is larger than the image")
    taps, places = math.prod(block), math.prod(windows)
    ctx.require(taps * places <= 1 << 26, "the image is too large")
    flat = np.zeros((taps, places), np.int64)
    for number, tap in enumerate(itertools.product(*map(range, block))):
        grids = np.meshgrid(
            *(np.arange(windows[a]) * steps[a] + tap[a] * reach[a] for a in range(count)),
            indexing="ij",
        )
        flat[number] = np.ravel_multi_index(grids, whole).reshape(-1)
    n = x.shape[0]
    channels = ctx.ints([x.shape[1]], "channels")[0] // taps
    updates = op.reshape(x, (n, channels, taps * places))
    index = op.broadcast_to(constant(flat.reshape(1, 1, -1)), updates.shape)
    made = op.zeros((n, channels, math.prod(whole)), x.dtype)
    made = op.scatter_elements(made, index, updates, 2, "add")
    made = op.reshape(made, (n, channels, *whole))
    begin = list(padding[:count])
    end = [b + e for b, e in zip(begin, image)]
    return op.strided_slice(made, list(range(2, 2 + count)), begin, end)


@dataclass(frozen=True, kw_only=True)
class _Deforming:
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    offset_group: int = 1
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None


@converts("DeformConv")
def _deform_conv(
    ctx: Context, x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None = None,
    mask: Tensor | None = None, *, attrs: _Deforming,
) -> Tensor:  # fmt: skip
    group, offset_group = attrs.group, attrs.offset_group
    ctx.require(x.ndim == 4, "only images of two axes are supported")
    size = kernel_size(ctx, weight, attrs.kernel_shape)
    window = window_of(ctx, x, size, attrs.strides, attrs.pads, attrs.dilations)
    channels, height, width = ctx.ints(x.shape[1:], "extents of the image")
    out = ctx.ints(offset.shape[2:], "extents of offset")
    taps = math.prod(size)
    ctx.require(
        group > 0 and offset_group > 0 and channels % offset_group == 0 and channels % group == 0,
        "channels don't divide into the groups",
    )
    offsets = op.reshape(offset, (x.shape[0], offset_group, taps, 2, *out))
    places = ctx.emit(
        ctx.te(_deformed, offsets, window=window, name="deform_places", primfunc_attrs=OPAQUE)
    )
    masks = None if mask is None else op.reshape(mask, (x.shape[0], offset_group, taps, *out))
    columns = ctx.te(
        _sampled, x, places, masks, per_group=channels // offset_group,
        extents=(height, width), name="deform_sampled", primfunc_attrs=OPAQUE,
    )  # fmt: skip
    pixels = math.prod(out)
    rows = op.reshape(columns, (x.shape[0], group, channels // group * taps, pixels))
    filters = ctx.ints([weight.shape[0]], "filters")[0]
    matrix = op.reshape(weight, (1, group, filters // group, channels // group * taps))
    made = op.reshape(op.matmul(matrix, rows), (x.shape[0], filters, *out))
    return add_bias(made, bias)


def _deformed(offset: te.Tensor, *, window: Window) -> te.Tensor:
    """Where each tap is on the image: rows and columns, ``[N, groups, taps, 2, OH, OW]``."""
    columns = window.size[1]

    def formula(n: Expr, g: Expr, tap: Expr, axis: Expr, i: Expr, j: Expr) -> Expr:
        def along(place: Expr, step: Expr, number: int) -> Expr:
            return (
                place * window.strides[number]
                + step * window.dilations[number]
                - window.padding[number]
            )

        row, column = along(i, tap // columns, 0), along(j, tap % columns, 1)
        fixed = select(axis == 0, row, column)
        return cast(fixed, offset.dtype) + offset(n, g, tap, axis, i, j)

    made: te.Tensor = te.compute(offset.shape, formula, name="deform_places")
    return made


def _sampled(
    x: te.Tensor, places: te.Tensor, mask: te.Tensor | None, *, per_group: int,
    extents: Sequence[int],
) -> te.Tensor:  # fmt: skip
    """Pixels between pixels, ``[N, C, taps, OH, OW]``; zero outside of the image."""
    n, c = x.shape[:2]
    _, _, taps, _, *out = places.shape
    dtype = places.dtype
    corner = te.reduce_axis((0, 4), "corner")

    def formula(image: Expr, channel: Expr, tap: Expr, i: Expr, j: Expr) -> Expr:
        share: Expr = const(1.0, dtype)
        inside: Expr = const(True, "bool")
        index = []
        for axis, extent in enumerate(extents):
            place = places(image, channel // per_group, tap, axis, i, j)
            low = call("floor", place)
            side = corner.var // 2 if axis == 0 else corner.var % 2
            near = low + cast(side, dtype)
            share = share * (const(1.0, dtype) - call("fabs", place - near))
            last = const(float(extent - 1), dtype)
            inside = inside & (near >= const(0.0, dtype)) & (near <= last)
            within = const(not_above(extent - 1, dtype), dtype)
            index.append(cast(minimum(maximum(near, const(0.0, dtype)), within), "int64"))
        pixel = cast(x(image, channel, *index), dtype) * share
        made: Expr = te.sum(select(inside, pixel, const(0.0, dtype)), axis=[corner])
        return made

    shape = (n, c, taps, *out)
    made: te.Tensor = te.compute(shape, formula, name="deform_sampled")
    if mask is None:
        return made
    masked: te.Tensor = te.compute(
        shape,
        lambda image, channel, *at: (
            made(image, channel, *at) * mask(image, channel // per_group, *at)
        ),
        name="deform_masked",
    )
    return masked
