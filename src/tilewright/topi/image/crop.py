"""Boxes that are cut out of images, each resized to one size."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import (
    INDEX,
    Expr,
    ExprLike,
    and_,
    as_expr,
    call,
    cast,
    const,
    maximum,
    minimum,
    select,
)
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.topi.utils import require_elements, require_ndim


@with_conditions
def crop_and_resize(
    data: Tensor,
    boxes: Tensor,
    box_indices: Tensor,
    crop_size: Sequence[ExprLike],
    layout: str = "NCHW",
    method: str = "bilinear",
    extrapolation_value: float | None = None,
    out_dtype: str | None = None,
) -> Tensor:
    """Cut ``boxes [B, 4]`` out of images and resize them to the height and width ``crop_size``.

    A box has its top, left, bottom and right as parts of the image's height and width; corners are
    aligned. ``box_indices [B]`` tell each box its image; an index beyond the batch is moved into
    it. ``method``: ``bilinear`` or ``nearest_neighbor``. What lies outside of the image is
    ``extrapolation_value`` (zero, if not given).

    Raises ``VerifyError`` for other methods and layouts.
    """
    if layout not in ("NCHW", "NHWC"):
        raise VerifyError(f"crop_and_resize: layout is 'NCHW' or 'NHWC', got {layout!r}")
    if method not in ("bilinear", "nearest_neighbor"):
        raise VerifyError(
            f"crop_and_resize: method is 'bilinear' or 'nearest_neighbor', got {method!r}"
        )
    for tensor, ndim in ((data, 4), (boxes, 2), (box_indices, 1)):
        require_ndim("crop_and_resize", tensor, ndim)
    require_equal("crop_and_resize: numbers of a box", boxes.shape[1], 4)
    require_equal("crop_and_resize: boxes", boxes.shape[0], box_indices.shape[0])
    first = layout.index("H")
    size = [as_expr(extent, INDEX) for extent in crop_size]
    for extent in (data.shape[0], *data.shape[first : first + 2]):
        require_elements("crop_and_resize", extent, boxes.shape[0])
    wide = "float64" if boxes.dtype == "float64" else "float32"
    places = [_places(boxes, a, data.shape[first + a], size[a], wide) for a in range(2)]
    extents = data.shape[first : first + 2]
    outside = const(float(extrapolation_value or 0.0), wide)
    last_image = data.shape[0] - 1

    def formula(*i: Expr) -> Expr:
        box, at = i[0], i[first : first + 2]
        image = maximum(minimum(cast(box_indices(box), INDEX), last_image), 0)
        place = [places[a](box, at[a]) for a in range(2)]

        def pixel(*index: Expr) -> Expr:
            inner = [maximum(minimum(n, extent - 1), 0) for n, extent in zip(index, extents)]
            return cast(data(image, *i[1:first], *inner, *i[first + 2 :]), wide)

        inside = and_(*(
            condition
            for p, extent in zip(place, extents)
            for condition in (p >= const(0.0, wide), p <= cast(extent - 1, wide))
        ))  # fmt: skip
        if method == "nearest_neighbor":
            value = pixel(*(cast(call("nearbyint", p), INDEX) for p in place))
        else:
            value = _blended(pixel, place, wide)
        return cast(select(inside, value, outside), out_dtype or data.dtype)

    shape = (boxes.shape[0], *data.shape[1:first], *size, *data.shape[first + 2 :])
    made: Tensor = compute(shape, formula, name="crop_and_resize", tag="resize")
    return made


def _places(boxes: Tensor, axis: int, extent: Expr, want: Expr, wide: str) -> Tensor:
    """Where the results of each box lie along an axis, in pixels."""
    pixels = cast(extent - 1, wide)

    def formula(b: Expr, i: Expr) -> Expr:
        begin, end = cast(boxes(b, axis), wide), cast(boxes(b, axis + 2), wide)
        step = (end - begin) * pixels / cast(maximum(want - 1, 1), wide)
        middle = const(0.5, wide) * (begin + end) * pixels
        return select(want > 1, begin * pixels + cast(i, wide) * step, middle)

    made: Tensor = compute((boxes.shape[0], want), formula, name=f"places_{'yx'[axis]}")
    return made


def _blended(pixel: object, place: Sequence[Expr], wide: str) -> Expr:
    """The weighted mean of the four pixels around a place."""
    assert callable(pixel)
    low = [call("floor", p) for p in place]
    part = [p - whole for p, whole in zip(place, low)]
    y, x = (cast(whole, INDEX) for whole in low)
    one = const(1.0, wide)
    top = pixel(y, x) * (one - part[1]) + pixel(y, x + 1) * part[1]
    bottom = pixel(y + 1, x) * (one - part[1]) + pixel(y + 1, x + 1) * part[1]
    made: Expr = top * (one - part[0]) + bottom * part[0]
    return made
