"""Resizing and sampling of images.

Two axes, nearest or linear, are ``image.resize2d``. Everything else is ``image.resize``, which goes
axis by axis: a result is a sum of neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tilewright.arith import simplify
from tilewright.ir import Expr, as_int, dtypes
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import (
    CONVERTERS,
    Context,
    Size,
    converts,
)
from tilewright.relax.frontend.torch.symbols import FINEST, fraction_of


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
        size = [_scaled(ctx, extent, factor) for extent, factor in zip(x.shape[2:], given)]
    height, width = size
    scale = (float(given[0]), float(given[1])) if len(given) == 2 else None
    if mode == "align_corners":
        scale = None
    return op.image.resize2d(
        x, (height, width), None, "NCHW", method, mode, "pytorch", scale_factor=scale
    )


def _scaled(ctx: Context, extent: Expr, factor: float) -> Size:
    """The extent times a factor, rounded down."""
    known = as_int(extent)
    if known is not None:
        return math.floor(known * factor)
    share = fraction_of(Fraction(factor))
    if share is None:
        raise ctx.error(
            f"an image of {extent} pixels that is scaled by {factor}; for sizes that are only "
            f"known when the model runs, factors are fractions with denominators up to {FINEST}, "
            "as floats that scale whole numbers to whole ones: give the result's size, or a size "
            "that is known"
        )
    return simplify(extent * share.numerator // share.denominator)


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


# ---- axis by axis -----------------------------------------------------------------------------


#: Operators: method, coordinates, and whether results are smoothed.
RESIZES: dict[str, tuple[str, str, bool]] = {
    "upsample_nearest1d": ("nearest_neighbor", "asymmetric", False),
    "upsample_nearest2d": ("nearest_neighbor", "asymmetric", False),
    "upsample_nearest3d": ("nearest_neighbor", "asymmetric", False),
    "_upsample_nearest_exact1d": ("nearest_neighbor", "half_pixel", False),
    "_upsample_nearest_exact2d": ("nearest_neighbor", "half_pixel", False),
    "_upsample_nearest_exact3d": ("nearest_neighbor", "half_pixel", False),
    "upsample_linear1d": ("linear", "", False),
    "upsample_bilinear2d": ("linear", "", False),
    "upsample_trilinear3d": ("linear", "", False),
    "upsample_bicubic2d": ("cubic", "", False),
    "_upsample_bilinear2d_aa": ("linear", "", True),
    "_upsample_bicubic2d_aa": ("cubic", "", True),
}
LAYOUTS = ("NCW", "NCHW", "NCDHW")


def _declare(name: str, method: str, mode: str, antialias: bool) -> None:
    def convert(
        ctx: Context, x: RelaxExpr, size: Sequence[Size] | None, align: bool,
        factors: Sequence[float | None],
    ) -> RelaxExpr:  # fmt: skip
        have = x.shape[2:]
        if size is None:
            size = [_scaled(ctx, n, factor or 1) for n, factor in zip(have, factors)]
        if method != "nearest_neighbor" and not dtypes.is_float(x.dtype):
            raise ctx.error(f"interpolation is for floats, got {x.dtype}")
        given = [factor for factor in factors if factor]
        scale = tuple(given) if len(given) == len(have) else None
        how = mode or _coordinates(align)
        layout = LAYOUTS[len(have) - 1]
        return op.image.resize(x, tuple(size), layout, method, how, scale, antialias=antialias)

    def by_size(ctx: Context, x: RelaxExpr, size: Sequence[Size], *rest: Any) -> RelaxExpr:
        align, factors = (False, rest) if mode else (rest[0], rest[1:])
        return convert(ctx, x, size, align, factors)

    def by_either(ctx: Context, x: RelaxExpr, size: Sequence[Size] | None, *rest: Any) -> RelaxExpr:
        return convert(ctx, x, size, False if mode else rest[0], rest[-1] or ())

    for overload, function in (("default", by_size), ("vec", by_either)):
        if f"aten.{name}.{overload}" not in CONVERTERS:
            CONVERTERS.register(f"aten.{name}.{overload}", function)


for _name, _way in RESIZES.items():
    _declare(_name, *_way)


# ---- sampling ---------------------------------------------------------------------------------


@converts("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default",
          "aten._grid_sampler_2d_cpu_fallback.default", "aten.grid_sampler.default")  # fmt: skip
def _grid_sampler(
    ctx: Context, x: RelaxExpr, grid: RelaxExpr, mode: int, padding: int, align: bool
) -> RelaxExpr:
    method = ("linear", "nearest", "cubic")[mode]
    outside = ("zeros", "border", "reflection")[padding]
    return op.image.sample_at(x, grid, method, outside, align)
