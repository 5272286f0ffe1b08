"""Resizing, and sampling of images at given places.

What ``image.resize2d`` has is left to it; other images are resized axis by axis, by look-ups with
weights (``relax/transform/resize_axis.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tilewright.arith import simplify
from tilewright.ir import INDEX, Expr, as_expr, as_int, ceildiv, dtypes
from tilewright.ir import maximum as larger
from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import (
    Array,
    Context,
    Shape,
    Tensor,
    Value,
    converts,
)
from tilewright.relax.transform.resize_axis import resized
from tilewright.relax.values import const
from tilewright.topi.resampling import Arithmetic, Extents, Filter, Known, Number, cubic_share

_COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_crop_and_resize", "tf_half_pixel_for_nn",
)  # fmt: skip
_NEAREST: dict[str, Callable[[Arithmetic, Number], Number]] = {
    "round_prefer_floor": lambda a, x: -a.floor(-(x - a.number(0.5))),
    "round_prefer_ceil": lambda a, x: a.floor(x + a.number(0.5)),
    "floor": lambda a, x: a.floor(x),
    "ceil": lambda a, x: -a.floor(-x),
}


#: Weights of pixels along an axis.
_MOST_WEIGHTS = 1 << 26
#: Symbolic sizes are scaled by multiples of 1 / this: products are whole numbers below 2**63.
_FINEST = 1 << 32


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


@dataclass(frozen=True, kw_only=True)
class _Axis(Extents):
    """One axis: results per pixel, the part that is shown, and how results lie on it."""

    number: int
    style: _Style
    scale: float | None = None
    """Results per pixel; ``None`` for the ratio of the extents."""
    start: float = 0.0
    end: float = 1.0

    def per_pixel(self, a: Arithmetic) -> Number:
        """Results per pixel."""
        return a.real(self.want) / a.real(self.have) if self.scale is None else a.number(self.scale)

    def place(self, a: Arithmetic, i: Number) -> Number:
        """Where a result lies on the image, in pixels."""
        mode, scale, half, one = (
            self.style.coordinates,
            self.per_pixel(a),
            a.number(0.5),
            a.number(1),
        )
        have, want, i = a.real(self.have), a.real(self.want), a.real(i)
        if mode == "align_corners":
            steps = have * scale - one
            several = steps > a.number(0)
            return i * a.where(several, (have - one) / a.where(several, steps, one), a.number(0))
        if mode == "asymmetric":
            return i / scale
        if mode == "tf_crop_and_resize":
            start, end, last = a.number(self.start), a.number(self.end), have - one
            if self.want == 1:
                return i + half * (start + end) * last
            return start * last + i * (end - start) * last / (want - one)
        middle = (i + half) / scale
        if mode == "tf_half_pixel_for_nn":
            return middle
        if mode == "half_pixel_symmetric":
            adjustment = want / (have * scale)
            return have / a.number(2) * (one - adjustment) + middle - half
        if mode == "pytorch_half_pixel":
            return a.where(want == one, i - half, middle - half)
        return middle - half


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
        extent, factor = as_int(x.shape[axis]), float(scale)
        start, end = (0.0, 1.0) if shown is None else shown[:, number]
        count: int | Expr
        if extent is not None:
            count = math.floor(extent * (end - start) * factor)
        else:
            _only_whole(ctx, x.shape[axis], shown, "stretch")
            share = Fraction(factor)
            ctx.require(
                share.denominator <= _FINEST, f"a symbolic size can't be scaled by {factor}"
            )
            count = simplify(x.shape[axis] * share.numerator // share.denominator)
        axes.append(
            _Axis(
                x.shape[axis] if extent is None else extent, count, "float64", number=axis,
                style=style, scale=factor, start=float(start), end=float(end),
            )
        )  # fmt: skip
    return _resized(ctx, x, axes, style)


def _only_whole(ctx: Context, extent: Expr | int, shown: Array | None, policy: str) -> None:
    """Refuse what needs numbers, of an axis whose size comes with the call."""
    ctx.require(shown is None, f"tf_crop_and_resize needs a known size, got {extent}")
    ctx.require(policy == "stretch", f"keeping the aspect ratio needs known sizes, got {extent}")


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
    wanted = [_number(size) for _, _, size in pairs]
    extents = [_number(x.shape[axis]) for _, axis, _ in pairs]
    ctx.require(all(n >= 0 for n in wanted if isinstance(n, int)), "sizes must not be negative")
    ctx.require(all(n for n in extents if isinstance(n, int)), "the image is empty")
    scales: list[Number] = [
        size / extent if isinstance(size, int) and isinstance(extent, int) else None
        for size, extent in zip(wanted, extents)
    ]
    if None in scales:
        _only_whole(ctx, extents[scales.index(None)], shown, policy)
    elif policy != "stretch":
        scale = min(scales) if policy == "not_larger" else max(scales)
        scales = [scale] * len(scales)
        wanted = [math.floor(extent * scale + 0.5) for extent in extents]
    axes = []
    for (n, axis, _), size, extent, factor in zip(pairs, wanted, extents, scales):
        start, end = (0.0, 1.0) if shown is None else map(float, shown[:, n])
        if shown is not None or factor is None or size != extent:
            axes.append(
                _Axis(
                    extent, size, "float64", number=axis, style=style, scale=factor, start=start,
                    end=end,
                )
            )  # fmt: skip
    return _resized(ctx, x, axes, style)


def _number(extent: Expr | int) -> Number:
    known = as_int(as_expr(extent, INDEX))
    return as_expr(extent, INDEX) if known is None else known


def _resized(ctx: Context, x: Tensor, axes: Sequence[_Axis], style: _Style) -> Tensor:
    if not axes:
        return x
    for axis in axes:
        ctx.require(not axis.is_known or axis.want <= 1 << 24, "the result is too large")
    if _is_common(x, axes, style):
        factors = [axis.scale for axis in axes if axis.scale is not None]
        coordinates = style.coordinates.removeprefix("pytorch_")
        return op.image.resize2d(
            x, tuple(axis.want for axis in axes), None, "NCHW",
            "nearest_neighbor" if style.mode == "nearest" else "linear", coordinates,
            "pytorch",
            scale_factor=tuple(factors) if len(factors) == 2 else None,
        )  # fmt: skip
    kind = x.dtype
    if style.mode != "nearest" and kind not in ("float32", "float64"):
        x = ctx.cast(x, "float32")
    outside: Array | None = None
    for axis in axes:
        if style.coordinates == "tf_crop_and_resize":
            places = axis.place(Known(axis.dtype), np.arange(axis.want))
            off = (places < 0) | (places > axis.have - 1)
            view = [1] * x.ndim
            view[axis.number] = axis.want
            off = off.reshape(view)
            outside = off if outside is None else outside | off
        x = _along(ctx, x, axis)
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
        return all(axis.scale is None or axis.have * axis.scale == axis.want for axis in axes)
    return style.coordinates in ("half_pixel", "asymmetric") or (
        style.coordinates == "pytorch_half_pixel"
        and all(axis.is_known and axis.want > 1 for axis in axes)
    )


def _along(ctx: Context, x: Tensor, axis: _Axis) -> Tensor:
    """Resize one axis."""
    style = axis.style
    if style.mode == "nearest":
        return resized(ctx.builder, x, axis.number, axis, Filter(lambda _: 1, _near, picks=True))
    if axis.is_known:
        reach = 4 / min(axis.scale or 1.0, 1.0) if style.antialias else 4
        ctx.require(
            axis.want * reach <= _MOST_WEIGHTS and axis.have > 0,
            f"{axis.want} sums of {reach:.3g} pixels are too many",
        )
    weighs = style.antialias or style.exclude_outside
    how = Filter(lambda axis: _reach(axis)[1], _tap, normalizes=weighs)
    return resized(ctx.builder, x, axis.number, axis, how)


def _near(axis: _Axis, a: Arithmetic, i: Number, t: Number) -> tuple[Number, Number]:
    """The nearest pixel."""
    near = a.whole(_NEAREST[axis.style.nearest](a, axis.place(a, i)))
    return a.minimum(a.maximum(near, 0), axis.have - 1), a.number(1)


def _reach(axis: _Axis) -> tuple[Expr | int, Expr | int]:
    """How far from a place the first pixel of its sum is, and how many there are."""
    pixels = 1 if axis.style.mode == "linear" else 2
    if not axis.style.antialias:
        return 1 - pixels, 2 * pixels
    far: Expr | int
    if axis.scale is not None:
        far = math.ceil(pixels / min(axis.scale, 1.0))
    else:
        shrunk = ceildiv(as_expr(axis.have, INDEX) * pixels, larger(as_expr(axis.want, INDEX), 1))
        far = larger(shrunk, pixels)
    return 1 - far, 2 * far


def _tap(axis: _Axis, a: Arithmetic, i: Number, t: Number) -> tuple[Number, Number]:
    """A pixel of a weighted sum of neighbours, and its weight."""
    style, place, one = axis.style, axis.place(a, i), a.number(1)
    left, _ = _reach(axis)
    ratio = place - a.floor(place)
    # A place on a pixel is a whole step from the one before.
    ratio = a.where(ratio == a.number(0), one, ratio)
    shrink = a.minimum(axis.per_pixel(a), one) if style.antialias else one
    distance = a.real(left + t) - ratio
    distance = a.maximum(distance, -distance) * shrink
    if style.mode == "linear":
        weight = a.maximum(one - distance, a.number(0))
    else:
        weight = cubic_share(a, distance, style.cubic)
    index = a.whole(-a.floor(-place)) - 1 + left + t
    if style.exclude_outside:
        weight = a.where((index >= 0) & (index < axis.have), weight, a.number(0))
    return a.minimum(a.maximum(index, 0), axis.have - 1), weight
