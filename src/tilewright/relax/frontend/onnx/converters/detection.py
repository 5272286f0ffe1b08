"""Detection: ``RoiAlign`` and ``NonMaxSuppression``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright import te
from tilewright.ir import Expr, call, cast, const, least_of, maximum, minimum, select
from tilewright.relax.frontend.onnx.converters.base import (
    Array,
    Context,
    Tensor,
    Value,
    converts,
)
from tilewright.relax.frontend.onnx.values import UnknownValueError
from tilewright.relax.transform.annotate_pattern import OPAQUE
from tilewright.relax.values import const as constant

#: Boxes of an image from which some are selected at import.
_MOST_BOXES = 1 << 12


@dataclass(frozen=True, kw_only=True)
class _RoiAttributes:
    coordinate_transformation_mode: str | None = None
    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0


@converts("RoiAlign")
def _roi_align(
    ctx: Context, x: Tensor, rois: Tensor, batch_indices: Tensor, *, attrs: _RoiAttributes
) -> Tensor:
    default = "half_pixel" if ctx.opset >= 16 else "output_half_pixel"
    style = ctx.choice(
        "coordinate_transformation_mode", attrs.coordinate_transformation_mode or default,
        ("half_pixel", "output_half_pixel"),
    )  # fmt: skip
    mode = ctx.choice("mode", attrs.mode, ("avg", "max"))
    size = (attrs.output_height, attrs.output_width)
    ctx.require(min(size) > 0, "the output's extents must be positive")
    spatial_scale, ratio = attrs.spatial_scale, attrs.sampling_ratio
    if ratio <= 0:
        # As many samples as pixels, which differs between regions.
        boxes = ctx.array(rois, "rois, without a sampling_ratio,").astype(np.float64)
        spans = (boxes[:, [3, 2]] - boxes[:, [1, 0]]) * spatial_scale
        if style == "output_half_pixel":
            spans = np.maximum(spans, 1.0)
        needed = np.ceil(spans / size).astype(np.int64)
        ctx.require(
            len(np.unique(needed)) == 1,
            "without a sampling_ratio, regions must all have as many pixels in each part",
        )
        ratio = max(int(needed.reshape(-1)[0]), 1)
    half = 0.5 if style == "half_pixel" else 0.0

    def places(r: te.Tensor) -> te.Tensor:
        """Where samples are: ``[2, regions, output * ratio]``, rows and columns."""
        longest = max(size) * ratio

        def formula(axis: Expr, n: Expr, s: Expr) -> Expr:
            def number(value: float) -> Expr:
                return const(value, r.dtype)

            scale = number(spatial_scale)
            start = select(axis == 0, r(n, 1), r(n, 0)) * scale - number(half)
            end = select(axis == 0, r(n, 3), r(n, 2)) * scale - number(half)
            span = end - start
            if style == "output_half_pixel":
                span = maximum(span, number(1.0))
            parts = select(axis == 0, number(float(size[0])), number(float(size[1])))
            step = span / parts
            part, sample = cast(s // ratio, r.dtype), cast(s % ratio, r.dtype)
            return start + part * step + (sample + number(0.5)) * step / number(float(ratio))

        made: te.Tensor = te.compute((2, r.shape[0], longest), formula, name="roi_places")
        return made

    where = ctx.emit(ctx.te(places, rois, name="roi_places", primfunc_attrs=OPAQUE))
    index = ctx.cast(batch_indices, "int64")
    pooled = ctx.te(_pooled, x, where, index, size=size, ratio=ratio, mode=mode, name="roi_align")
    return pooled


def _pooled(
    x: te.Tensor, where: te.Tensor, batch: te.Tensor, *, size: tuple[int, int], ratio: int,
    mode: str,
) -> te.Tensor:  # fmt: skip
    _n, c, h, w = x.shape
    dtype = x.dtype
    a, b = (te.reduce_axis((0, ratio), name) for name in ("a", "b"))

    def low(axis: int, region: Expr, s: Expr, extent: Expr) -> tuple[Expr, Expr, Expr, Expr]:
        """The pixels before and after a sample, the second one's weight, and if it is inside."""
        place = where(axis, region, s)
        most = cast(extent, dtype)
        inside = (place >= const(-1.0, dtype)) & (place <= most)
        limited = maximum(place, const(0.0, dtype))
        first = minimum(call("floor", limited), most - const(1.0, dtype))
        second = minimum(first + const(1.0, dtype), most - const(1.0, dtype))
        part = select(limited >= most - const(1.0, dtype), const(0.0, dtype), limited - first)
        return cast(first, "int64"), cast(second, "int64"), part, inside

    def formula(region: Expr, channel: Expr, i: Expr, j: Expr) -> Expr:
        y0, y1, v, in_y = low(0, region, i * ratio + a.var, h)
        x0, x1, u, in_x = low(1, region, j * ratio + b.var, w)
        image = batch(region)
        one = const(1.0, dtype)
        corners = [
            x(image, channel, y, z) * p * q
            for y, p in ((y0, one - v), (y1, v))
            for z, q in ((x0, one - u), (x1, u))
        ]
        if mode == "avg":
            reduce, value = te.sum, corners[0] + corners[1] + corners[2] + corners[3]
        else:
            reduce = te.max
            value = maximum(maximum(corners[0], corners[1]), maximum(corners[2], corners[3]))
        made: Expr = reduce(select(in_y & in_x, value, const(0.0, dtype)), axis=[a, b])
        return made

    shape = (where.shape[1], c, *size)
    made: te.Tensor = te.compute(shape, formula, name="roi_align")
    if mode == "max":
        return made
    share = const(1.0 / ratio**2, dtype)
    mean: te.Tensor = te.compute(shape, lambda *i: made(*i) * share, name="roi_mean")
    return mean


@converts("MaxRoiPool")
def _max_roi_pool(
    ctx: Context, x: Tensor, rois: Tensor, *, pooled_shape: tuple[int, ...],
    spatial_scale: float = 1.0,
) -> Tensor:  # fmt: skip
    ctx.require(
        len(pooled_shape) == 2 and min(pooled_shape) > 0, "pooled_shape is two positive numbers"
    )
    return ctx.te(_max_pooled, x, rois, size=pooled_shape, scale=spatial_scale, name="max_roi_pool")


def _max_pooled(x: te.Tensor, rois: te.Tensor, *, size: tuple[int, ...], scale: float) -> te.Tensor:
    """The greatest pixel of each part of a region; 0 of parts without pixels."""
    _, c, h, w = x.shape
    dtype = x.dtype
    row, column = te.reduce_axis((0, h), "row"), te.reduce_axis((0, w), "column")

    def bounds(n: Expr, part: Expr, axis: int, extent: Expr) -> tuple[Expr, Expr]:
        first = call("round", rois(n, 2 - axis) * const(scale, dtype))
        last = call("round", rois(n, 4 - axis) * const(scale, dtype))
        step = maximum(last - first + const(1.0, dtype), const(1.0, dtype)) / const(
            float(size[axis]), dtype
        )
        low = call("floor", cast(part, dtype) * step) + first
        high = call("ceil", cast(part + 1, dtype) * step) + first
        return tuple(  # type: ignore[return-value]
            minimum(maximum(cast(item, "int64"), const(0, "int64")), extent) for item in (low, high)
        )

    def greatest(n: Expr, channel: Expr, i: Expr, j: Expr) -> Expr:
        top, bottom = bounds(n, i, 0, h)
        left, right = bounds(n, j, 1, w)
        y, z = row.var, column.var
        inside = (y >= top) & (y < bottom) & (z >= left) & (z < right)
        pixel = x(cast(rois(n, 0), "int64"), channel, y, z)
        made: Expr = te.max(select(inside, pixel, least_of(dtype)), axis=[row, column])
        return made

    shape: list[Expr | int] = [rois.shape[0], c, *size]
    made: te.Tensor = te.compute(shape, greatest, name="max_roi_pool")
    least = least_of(dtype)
    whole: te.Tensor = te.compute(
        shape,
        lambda *i: select(made(*i) == least, const(0.0, dtype), made(*i)),
        name="max_roi_pool_filled",
    )
    return whole


@converts("NonMaxSuppression")
def _non_max_suppression(
    ctx: Context, boxes: Value, scores: Value, max_output_boxes_per_class: Value = None,
    iou_threshold: Value = None, score_threshold: Value = None, *, center_point_box: int = 0,
) -> Tensor:  # fmt: skip
    box, score = ctx.known(boxes), ctx.known(scores)
    if box is None or score is None:
        raise UnknownValueError(
            ctx.error(
                "how many boxes it selects only data tell, so boxes and scores must be known when "
                "the model is imported; end the model before it, and select boxes by "
                "numbers"
            ).message,
            [boxes, scores],
        )
    ctx.require(
        box.ndim == 3 and score.ndim == 3 and box.shape[1] <= _MOST_BOXES,
        f"boxes are [images, up to {_MOST_BOXES}, 4], scores [images, kinds, boxes]",
    )
    most = _number(ctx, max_output_boxes_per_class, "max_output_boxes_per_class", 0)
    overlap = _number(ctx, iou_threshold, "iou_threshold", 0.0)
    least = None if score_threshold is None else _number(ctx, score_threshold, "score_threshold", 0)
    found = [
        (image, kind, place)
        for image in range(score.shape[0])
        for kind in range(score.shape[1])
        for place in _selected(
            _corners(box[image], center_point_box), score[image, kind], int(most), overlap, least
        )
    ]
    return constant(np.asarray(found, np.int64).reshape(-1, 3))


def _number(ctx: Context, value: Value, name: str, default: float) -> float:
    if value is None:
        return default
    found = ctx.array(value, name).reshape(-1)
    return float(found[0]) if found.size else default


def _corners(box: Array, centered: int) -> Array:
    """Boxes as least and greatest coordinates of both axes."""
    box = box.astype(np.float64)
    if centered:
        middle, size = box[:, [1, 0]], box[:, [3, 2]]
        return np.concatenate([middle - size / 2, middle + size / 2], 1)
    low, high = np.minimum(box[:, :2], box[:, 2:]), np.maximum(box[:, :2], box[:, 2:])
    return np.concatenate([low, high], 1)


def _selected(
    box: Array, score: Array, most: int, overlap: float, least: float | None
) -> list[int]:
    order = [int(n) for n in np.argsort(-score, kind="stable")]
    kept: list[int] = []
    for place in order:
        if len(kept) >= most:
            break
        if least is not None and score[place] <= least:
            continue
        if all(_union_share(box[place], box[other]) <= overlap for other in kept):
            kept.append(place)
    return kept


def _union_share(a: Array, b: Array) -> float:
    span = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    common = float(span.prod())
    total = float((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod()) - common
    return common / total if total > 0 else 0.0
