"""Image resizing. PyTorch decomposes what is missing (cubic, other numbers of axes)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import Context, Size, converts


def _resized(
    ctx: Context,
    x: RelaxExpr,
    size: Sequence[Size] | None,
    factors: Sequence[float | None],
    method: str,
    mode: str,
) -> RelaxExpr:
    given = [factor for factor in factors if factor is not None]
    if size is None:
        extents = [as_int(extent) for extent in x.shape[2:]]
        if None in extents:
            raise ctx.error("a scale factor needs images of constant size; give the result's size")
        size = [math.floor(n * factor) for n, factor in zip(extents, given)]  # type: ignore[operator]
    height, width = ctx.ints(size, "size")
    scale = (float(given[0]), float(given[1])) if len(given) == 2 else None
    if mode == "align_corners":
        scale = None
    return op.image.resize2d(x, (height, width), "NCHW", method, mode, scale)


@converts("aten.upsample_nearest2d.vec")
def _nearest_vec(
    ctx: Context, x: RelaxExpr, size: Sequence[Size] | None, factors: Sequence[float] | None
) -> RelaxExpr:
    return _resized(ctx, x, size, factors or (), "nearest_neighbor", "asymmetric")


@converts("aten.upsample_nearest2d.default")
def _nearest(
    ctx: Context, x: RelaxExpr, size: Sequence[Size], h: float | None = None, w: float | None = None
) -> RelaxExpr:
    return _resized(ctx, x, size, (h, w), "nearest_neighbor", "asymmetric")


@converts("aten._upsample_nearest_exact2d.vec")
def _exact_vec(
    ctx: Context, x: RelaxExpr, size: Sequence[Size] | None, factors: Sequence[float] | None
) -> RelaxExpr:
    return _resized(ctx, x, size, factors or (), "nearest_neighbor", "half_pixel")


@converts("aten._upsample_nearest_exact2d.default")
def _exact(
    ctx: Context, x: RelaxExpr, size: Sequence[Size], h: float | None = None, w: float | None = None
) -> RelaxExpr:
    return _resized(ctx, x, size, (h, w), "nearest_neighbor", "half_pixel")


def _coordinates(align_corners: bool) -> str:
    return "align_corners" if align_corners else "half_pixel"


@converts("aten.upsample_bilinear2d.vec")
def _bilinear_vec(
    ctx: Context,
    x: RelaxExpr,
    size: Sequence[Size] | None,
    align: bool,
    factors: Sequence[float] | None,
) -> RelaxExpr:
    return _resized(ctx, x, size, factors or (), "linear", _coordinates(align))


@converts("aten.upsample_bilinear2d.default")
def _bilinear(
    ctx: Context,
    x: RelaxExpr,
    size: Sequence[Size],
    align: bool,
    h: float | None = None,
    w: float | None = None,
) -> RelaxExpr:
    return _resized(ctx, x, size, (h, w), "linear", _coordinates(align))
