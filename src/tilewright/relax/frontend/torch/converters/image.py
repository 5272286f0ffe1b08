"""Resizing and sampling of images.

Two axes, nearest or linear, are ``image.resize2d``. Everything else goes axis by axis: a result is
a sum of neighbours, whose places and weights are known at import. They are computed as PyTorch
does, in single precision (double for float64).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arith import simplify
from tilewright.ir import Expr, as_int, dtypes
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr, const
from tilewright.relax.frontend.torch.converters.base import (
    CONVERTERS,
    Context,
    Size,
    converts,
)
from tilewright.relax.frontend.torch.symbols import FINEST
from tilewright.topi.sampling import weighted_taps


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
    return op.image.resize2d(x, (height, width), "NCHW", method, mode, scale)


def _scaled(ctx: Context, extent: Expr, factor: float) -> Size:
    """The extent times a factor, rounded down."""
    known = as_int(extent)
    if known is not None:
        return math.floor(known * factor)
    share = Fraction(factor)
    if share.denominator > FINEST:
        raise ctx.error(
            f"an image of {extent} pixels that is scaled by {factor}; for sizes that are only "
            f"known when the model runs, factors are multiples of 1/{FINEST}: give the result's "
            "size, or a size that is known"
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


@dataclass(frozen=True)
class Axis:
    """One axis: its extent, that of the result, and how results lie on the image."""

    have: int
    want: int
    align: bool
    factor: float | None
    kind: type[Any]
    """The NumPy type in which places are computed."""

    def step(self) -> Any:
        """The distance between neighbours in the result, in pixels."""
        if self.align:
            return self.kind((self.have - 1) / (self.want - 1) if self.want > 1 else 0)
        if self.factor:
            return self.kind(1 / self.factor)
        return self.kind(self.have / max(self.want, 1))

    def numbers(self) -> NDArray[Any]:
        """The results, counted."""
        return np.arange(self.want).astype(self.kind)

    def places(self) -> NDArray[Any]:
        """Where each result lies, in pixels."""
        if self.align:
            return np.asarray(self.numbers() * self.step())
        half = self.kind(0.5)
        return np.asarray((self.numbers() + half) * self.step() - half)


@dataclass(frozen=True)
class Taps:
    """For each result the pixels that it is a sum of, and their weights: ``[results, taps]``."""

    index: NDArray[Any]
    weight: NDArray[Any]

    def matrix(self, extent: int) -> NDArray[np.float64]:
        """The share that each pixel (a row) has in each result (a column)."""
        made = np.zeros((extent, len(self.index)))
        columns = np.broadcast_to(np.arange(len(self.index))[:, None], self.index.shape)
        np.add.at(made, (self.index, columns), self.weight)
        return made


def _nearest_taps(axis: Axis) -> Taps:
    return _at(axis, axis.numbers() * axis.step())


def _exact_taps(axis: Axis) -> Taps:
    return _at(axis, (axis.numbers() + axis.kind(0.5)) * axis.step())


def _at(axis: Axis, places: NDArray[Any]) -> Taps:
    index = np.minimum(np.floor(places).astype(np.int64), axis.have - 1)[:, None]
    return Taps(index, np.ones_like(index))


def _linear_taps(axis: Axis) -> Taps:
    places = np.maximum(axis.places(), axis.kind(0))
    first = np.minimum(np.floor(places).astype(np.int64), axis.have - 1)
    part = np.clip(places - first.astype(axis.kind), 0, 1)
    index = np.stack([first, np.minimum(first + 1, axis.have - 1)], 1)
    return Taps(index, np.stack([1 - part, part], 1))


def _cubic(distance: NDArray[Any], a: float) -> NDArray[Any]:
    """Weights of Keys' cubic convolution."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _cubic_taps(axis: Axis) -> Taps:
    places = axis.places()
    first = np.floor(places)
    offsets = np.arange(-1, 3)
    weight = _cubic((places - first)[:, None] - offsets.astype(axis.kind), -0.75)
    index = np.clip(first.astype(np.int64)[:, None] + offsets, 0, axis.have - 1)
    return Taps(index, weight)


def _smooth_taps(axis: Axis, reach: int, share: Callable[[NDArray[Any]], NDArray[Any]]) -> Taps:
    """With antialiasing: where the image shrinks, more pixels are summed."""
    step = axis.step()
    stretch = max(step, axis.kind(1))
    support = axis.kind(reach) * stretch
    middle = (axis.numbers() + axis.kind(0.5)) * step
    low = np.maximum((middle - support + axis.kind(0.5)).astype(np.int64), 0)
    high = np.minimum((middle + support + axis.kind(0.5)).astype(np.int64), axis.have)
    offsets = np.arange(int((high - low).max(initial=1)))
    index = low[:, None] + offsets
    distance = (index - middle[:, None] + axis.kind(0.5)) / stretch
    weight = np.where(index < high[:, None], share(distance), 0)
    total = weight.sum(1, keepdims=True)
    return Taps(np.clip(index, 0, axis.have - 1), weight / np.where(total == 0, 1, total))


def _smooth_linear(axis: Axis) -> Taps:
    return _smooth_taps(axis, 1, lambda d: np.maximum(1 - np.abs(d), 0))


def _smooth_cubic(axis: Axis) -> Taps:
    return _smooth_taps(axis, 2, lambda d: _cubic(d, -0.5))


#: Operators: how they find the pixels, and whether they may align corners.
RESIZES: dict[str, tuple[Callable[[Axis], Taps], bool]] = {
    "upsample_nearest1d": (_nearest_taps, False),
    "upsample_nearest2d": (_nearest_taps, False),
    "upsample_nearest3d": (_nearest_taps, False),
    "_upsample_nearest_exact1d": (_exact_taps, False),
    "_upsample_nearest_exact2d": (_exact_taps, False),
    "_upsample_nearest_exact3d": (_exact_taps, False),
    "upsample_linear1d": (_linear_taps, True),
    "upsample_bilinear2d": (_linear_taps, True),
    "upsample_trilinear3d": (_linear_taps, True),
    "upsample_bicubic2d": (_cubic_taps, True),
    "_upsample_bilinear2d_aa": (_smooth_linear, True),
    "_upsample_bicubic2d_aa": (_smooth_cubic, True),
}


def axes_of(
    ctx: Context, have: Sequence[Size], want: Sequence[Size], align: bool,
    factors: Sequence[float | None], dtype: str,
) -> list[Axis]:  # fmt: skip
    """The axes that are resized; their sizes must be known."""
    kind = np.float64 if dtype == "float64" else np.float32
    sizes = zip(ctx.ints(have, "the size of the image"), ctx.ints(want, "size"))
    given = list(factors) or [None] * len(have)
    return [Axis(n, m, align, factor, kind) for (n, m), factor in zip(sizes, given)]


def _resized_by_axis(
    ctx: Context, x: RelaxExpr, axes: Sequence[Axis], taps: Callable[[Axis], Taps]
) -> RelaxExpr:
    dtype = x.dtype
    picks = taps in (_nearest_taps, _exact_taps)
    if not picks and not dtypes.is_float(dtype):
        raise ctx.error(f"interpolation is for floats, got {dtype}")
    if not picks and dtype not in ("float32", "float64"):
        x = op.astype(x, "float32")
    for number, axis in enumerate(axes, x.ndim - len(axes)):
        found = taps(axis)
        if picks:
            x = op.take(x, const(found.index[:, 0]), number, "fast")
        elif axis.have != axis.want or not np.array_equal(
            found.matrix(axis.have), np.eye(axis.have)
        ):
            x = ctx.builder.emit_te(
                weighted_taps, x, const(found.index), const(found.weight, x.dtype), axis=number,
                primfunc_name_hint="resize",
            )  # fmt: skip
    return ctx.cast(x, dtype)


def _declare(name: str, taps: Callable[[Axis], Taps], may_align: bool) -> None:
    def convert(
        ctx: Context, x: RelaxExpr, size: Sequence[Size] | None, align: bool,
        factors: Sequence[float | None],
    ) -> RelaxExpr:  # fmt: skip
        have = x.shape[2:]
        if size is None:
            known = ctx.ints(have, "the size of an image that is scaled by a factor")
            size = [math.floor(n * (factor or 1)) for n, factor in zip(known, factors)]
        axes = axes_of(ctx, have, size, align, factors, x.dtype)
        return _resized_by_axis(ctx, x, axes, taps)

    def by_size(ctx: Context, x: RelaxExpr, size: Sequence[Size], *rest: Any) -> RelaxExpr:
        align, factors = (rest[0], rest[1:]) if may_align else (False, rest)
        return convert(ctx, x, size, align, factors)

    def by_either(ctx: Context, x: RelaxExpr, size: Sequence[Size] | None, *rest: Any) -> RelaxExpr:
        return convert(ctx, x, size, rest[0] if may_align else False, rest[-1] or ())

    for overload, function in (("default", by_size), ("vec", by_either)):
        if f"aten.{name}.{overload}" not in CONVERTERS:
            CONVERTERS.register(f"aten.{name}.{overload}", function)


for _name, (_taps, _may_align) in RESIZES.items():
    _declare(_name, _taps, _may_align)


# ---- sampling ---------------------------------------------------------------------------------


@converts("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default",
          "aten._grid_sampler_2d_cpu_fallback.default", "aten.grid_sampler.default")  # fmt: skip
def _grid_sampler(
    ctx: Context, x: RelaxExpr, grid: RelaxExpr, mode: int, padding: int, align: bool
) -> RelaxExpr:
    method = ("linear", "nearest", "cubic")[mode]
    outside = ("zeros", "border", "reflection")[padding]
    return op.image.sample_at(x, grid, method, outside, align)
