"""Resizing, and sampling of images at given places.

Where each result lies on the image is known at import, so an axis is resized by look-ups with
constant weights; what ``image.resize2d`` has is left to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.arith import simplify
from tilewright.ir import Expr, as_int, dtypes
from tilewright.relax import ops as op
from tilewright.relax.expr import const
from tilewright.relax.frontend.onnx.converters.base import (
    Array,
    Context,
    Shape,
    Tensor,
    Value,
    converts,
)
from tilewright.topi.sampling import weighted_taps

_COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_crop_and_resize", "tf_half_pixel_for_nn",
)  # fmt: skip
_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


#: Weights of pixels along an axis.
_MOST_WEIGHTS = 1 << 26


@dataclass(frozen=True)
class _Style:
    """How results lie on the image, and what is computed of its pixels."""

    mode: str
    coordinates: str
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False
    extrapolation: float = 0.0


@dataclass(frozen=True)
class _Axis:
    """One axis: its extent, that of the result, results per pixel, and the part that is shown."""

    number: int
    extent: int
    count: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, kw_only=True)
class _ResizeAttributes:
    antialias: int = 0
    axes: tuple[int, ...] | None = None
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"

    def style(self, ctx: Context) -> _Style:
        """The style that the words name; raises ``ImportModelError`` if one is unknown."""
        coordinates, nearest = self.coordinate_transformation_mode, self.nearest_mode
        if ctx.opset < 11:
            # Results lie on multiples of pixels.
            coordinates, nearest = "asymmetric", "floor"
        ctx.choice("mode", self.mode, ("nearest", "linear", "cubic"))
        ctx.choice("coordinate_transformation_mode", coordinates, _COORDINATES)
        ctx.choice("nearest_mode", nearest, tuple(_NEAREST))
        return _Style(
            self.mode, coordinates, nearest, self.cubic_coeff_a, bool(self.antialias),
            bool(self.exclude_outside), self.extrapolation_value,
        )  # fmt: skip


@converts("Resize")
def _resize(
    ctx: Context, x: Tensor, roi: Value = None, scales: Value = None, sizes: Shape | None = None,
    *, attrs: _ResizeAttributes,
) -> Tensor:  # fmt: skip
    if ctx.opset < 11:
        roi, scales = None, roi  # the second input is scales
    style = attrs.style(ctx)
    where = ctx.axes(range(x.ndim) if attrs.axes is None else attrs.axes, x.ndim)
    shown = None
    if style.coordinates == "tf_crop_and_resize":
        shown = ctx.array(roi, "roi").astype(np.float64).reshape(2, -1)
    factors = None if scales is None else ctx.array(scales, "scales").reshape(-1)
    if factors is not None and factors.size:
        ctx.require(len(factors) == len(where), f"scales needs {len(where)} numbers")
        ctx.require(np.all(factors > 0), "scales must be positive")
        return _by_scales(ctx, x, where, factors, style, shown)
    ctx.require(sizes, "there are neither scales nor sizes")
    assert sizes is not None
    ctx.require(len(sizes) == len(where), f"sizes needs {len(where)} numbers")
    return _by_sizes(ctx, x, where, sizes, style, shown, attrs.keep_aspect_ratio_policy)


@converts("Upsample")
def _upsample(
    ctx: Context, x: Tensor, scales: Array | None = None,
    *, mode: str = "nearest", scales_: tuple[float, ...] | None = None,
) -> Tensor:  # fmt: skip
    given = scales if scales is not None else np.asarray(scales_ or ())
    ctx.require(given.size == x.ndim, f"scales needs {x.ndim} numbers")
    ctx.choice("mode", mode, ("nearest", "linear", "bilinear"))
    style = _Style(mode.removeprefix("bi"), "asymmetric", "floor")
    return _by_scales(ctx, x, range(x.ndim), given, style, None)


def _by_scales(
    ctx: Context, x: Tensor, where: Sequence[int], scales: Array, style: _Style,
    shown: Array | None,
) -> Tensor:  # fmt: skip
    if style.mode == "nearest" and _repeats(style, scales):
        for axis, scale in zip(where, scales):
            x = op.repeat(x, int(scale), axis) if scale != 1 else x
        return x
    axes = []
    for number, (axis, scale) in enumerate(zip(where, scales)):
        if scale == 1 and shown is None:
            continue
        (extent,) = ctx.ints([x.shape[axis]], "extents of the image")
        start, end = (0.0, 1.0) if shown is None else shown[:, number]
        count = math.floor(extent * (end - start) * float(scale))
        axes.append(_Axis(axis, extent, count, float(scale), float(start), float(end)))
    return _resized(ctx, x, axes, style)


def _repeats(style: _Style, scales: Array) -> bool:
    """Whether each pixel is repeated as often as ``scales`` say."""
    whole = bool(np.all((scales == np.floor(scales)) & (scales >= 1)))
    return whole and (
        (style.coordinates == "asymmetric" and style.nearest == "floor")
        or (style.coordinates == "half_pixel" and style.nearest.startswith("round"))
    )


def _by_sizes(
    ctx: Context, x: Tensor, where: Sequence[int], sizes: Sequence[Expr | int], style: _Style,
    shown: Array | None, policy: str,
) -> Tensor:  # fmt: skip
    ctx.choice("keep_aspect_ratio_policy", policy, ("stretch", "not_larger", "not_smaller"))
    pairs = [
        (n, axis, size)
        for n, (axis, size) in enumerate(zip(where, sizes))
        if not (isinstance(size, Expr) and as_int(simplify(size - x.shape[axis])) == 0)
    ]
    wanted = ctx.ints([size for _, _, size in pairs], "sizes")
    extents = ctx.ints([x.shape[axis] for _, axis, _ in pairs], "extents of the image")
    ctx.require(all(size >= 0 for size in wanted), "sizes must not be negative")
    ctx.require(all(extents), "the image is empty")
    scales = [size / extent for size, extent in zip(wanted, extents)]
    if policy != "stretch":
        scale = min(scales) if policy == "not_larger" else max(scales)
        scales = [scale] * len(scales)
        wanted = [math.floor(extent * scale + 0.5) for extent in extents]
    axes = [
        _Axis(axis, extent, size, scale, *([0.0, 1.0] if shown is None else shown[:, n]))
        for (n, axis, _), size, extent, scale in zip(pairs, wanted, extents, scales)
        if size != extent or shown is not None
    ]
    return _resized(ctx, x, axes, style)


def _resized(ctx: Context, x: Tensor, axes: Sequence[_Axis], style: _Style) -> Tensor:
    if not axes:
        return x
    ctx.require(all(axis.count <= 1 << 24 for axis in axes), "the result is too large")
    if _is_common(x, axes, style):
        return op.image.resize2d(
            x, tuple(axis.count for axis in axes), "NCHW",
            "nearest_neighbor" if style.mode == "nearest" else "linear",
            style.coordinates.removeprefix("pytorch_"), tuple(axis.scale for axis in axes),
        )  # fmt: skip
    kind = x.dtype
    if style.mode != "nearest" and kind not in ("float32", "float64"):
        x = ctx.cast(x, "float32")
    outside: Array | None = None
    for axis in axes:
        places = _places(axis, style)
        if style.coordinates == "tf_crop_and_resize":
            off = (places < 0) | (places > axis.extent - 1)
            view = [1] * x.ndim
            view[axis.number] = axis.count
            off = off.reshape(view)
            outside = off if outside is None else outside | off
        x = _along(ctx, x, axis, places, style)
    if outside is not None and outside.any():
        fill = ctx.scalar(style.extrapolation, x)
        x = op.where(const(np.ascontiguousarray(outside)), fill, x)
    return ctx.cast(x, kind)


def _is_common(x: Tensor, axes: Sequence[_Axis], style: _Style) -> bool:
    """Whether our operator for images does the same."""
    if [axis.number for axis in axes] != [2, 3] or x.ndim != 4 or style.antialias:
        return False
    if style.mode == "nearest":
        return style.coordinates == "asymmetric" and style.nearest == "floor"
    if style.mode != "linear" or not dtypes.is_float(x.dtype):
        return False
    if style.coordinates == "align_corners":
        return all(axis.extent * axis.scale == axis.count for axis in axes)
    return style.coordinates in ("half_pixel", "asymmetric") or (
        style.coordinates == "pytorch_half_pixel" and all(axis.count > 1 for axis in axes)
    )


def _places(axis: _Axis, style: _Style) -> Array:
    """Where each result lies on the image, in pixels."""
    i = np.arange(axis.count, dtype=np.float64)
    mode, scale, extent, count = style.coordinates, axis.scale, axis.extent, axis.count
    exact = extent * scale
    if mode == "align_corners":
        return i * ((extent - 1) / (exact - 1)) if exact > 1 else i * 0
    if mode == "asymmetric":
        return i / scale
    if mode == "tf_crop_and_resize":
        if count > 1:
            return axis.start * (extent - 1) + i * (axis.end - axis.start) * (extent - 1) / (
                count - 1
            )
        return i + 0.5 * (axis.start + axis.end) * (extent - 1)
    if mode == "pytorch_half_pixel" and count == 1:
        return i - 0.5
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if mode == "half_pixel_symmetric":
        adjustment = count / exact
        return extent / 2 * (1 - adjustment) + (i + 0.5) / scale - 0.5
    return (i + 0.5) / scale - 0.5


def _along(ctx: Context, x: Tensor, axis: _Axis, places: Array, style: _Style) -> Tensor:
    """Resize one axis: a weighted sum of neighbours."""
    extent = axis.extent
    if style.mode == "nearest":
        near = np.clip(_NEAREST[style.nearest](places), 0, extent - 1).astype(np.int64)
        return op.take(x, const(near), axis.number, "fast")
    reach = 4 / min(axis.scale, 1.0) if style.antialias else 4
    ctx.require(
        axis.count * reach <= _MOST_WEIGHTS and extent > 0,
        f"{axis.count} sums of {reach:.3g} pixels are too many",
    )
    first, weights = _taps(axis, places, style)
    index = first[:, None] + np.arange(weights.shape[1])
    if style.exclude_outside:
        weights = np.where((index >= 0) & (index < extent), weights, 0)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    table = const(np.clip(index, 0, extent - 1))
    return ctx.te(weighted_taps, x, table, const(weights, x.dtype), axis=axis.number, name="resize")


def _taps(axis: _Axis, places: Array, style: _Style) -> tuple[Array, Array]:
    """For each result the first pixel that it depends on, and the weights of all of them."""
    shrink = min(axis.scale, 1.0) if style.antialias else 1.0
    reach = (1 if style.mode == "linear" else 2) / shrink
    ratio = places - np.floor(places)
    # A place on a pixel is a whole step from the one before.
    ratio = np.where(ratio == 0, 1.0, ratio)
    left = math.floor(-reach) + 1
    count = 2 * (-left) + 2 if style.antialias else 2 * (1 if style.mode == "linear" else 2)
    if not style.antialias:
        left = 1 - count // 2
    offsets = np.arange(left, left + count)
    distance = np.abs(offsets[None, :] - ratio[:, None]) * shrink
    a = style.cubic
    if style.mode == "linear":
        weights = np.maximum(1 - distance, 0)
    else:
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    if style.antialias:
        weights = weights / weights.sum(1, keepdims=True)
    first = np.ceil(places).astype(np.int64) - 1 + left
    return first, weights
