"""Operators of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir import const
from tilewright.relax.conditions import require
from tilewright.relax.ops.common import known, pair, require_ndim
from tilewright.relax.registry import InferenceError, Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError


def _coordinates(extent: int, out: int, mode: str, factor: float | None, number: Any) -> Any:
    """Where the pixels of a result lie along an axis, not yet moved to the image's middle."""
    places = np.arange(out).astype(number)
    if mode == "align_corners":
        return places * (number(extent - 1) / number(max(out - 1, 1)) if out > 1 else number(0))
    step = number(1.0 / factor) if factor else number(extent) / number(max(out, 1))
    return (places + number(0.5)) * step if mode == "half_pixel" else places * step


def _resized(
    data: Any,
    size: tuple[int, int],
    layout: str,
    method: str,
    coordinate_transformation_mode: str,
    scale_factor: tuple[float, float] | None,
) -> Any:
    number: Any = np.float64 if data.dtype == np.float64 else np.float32
    mode, made = coordinate_transformation_mode, data
    for k, axis in enumerate((layout.index("H"), layout.index("W"))):
        extent, factor = data.shape[axis], scale_factor[k] if scale_factor else None
        source = _coordinates(extent, pair(size)[k], mode, factor, number)
        if method == "nearest_neighbor":
            source = source + number(0.5 if mode == "align_corners" else 0)
            made = np.take(made, np.minimum(source.astype(int), extent - 1), axis)
            continue
        if mode == "half_pixel":
            source = np.maximum(source - number(0.5), number(0))
        first = np.minimum(source.astype(int), extent - 1)
        shape = [-1 if a == axis else 1 for a in range(4)]
        part = (source - first.astype(number)).reshape(shape)
        second = np.minimum(first + 1, extent - 1)
        a, b = (np.take(made, places, axis).astype(number) for places in (first, second))
        made = a * (number(1) - part) + b * part
    return made.astype(data.dtype)


@operator(
    "image.resize2d",
    legalize=lambda data, size, layout, method, coordinate_transformation_mode, scale_factor: (
        topi.image.resize2d(
            data, size, layout, method, coordinate_transformation_mode, scale_factor
        )
    ),
    numpy=_resized,
)
def resize2d(
    data: Tensor,
    size: int | tuple[int, int] = 1,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: tuple[float, float] | None = None,
) -> StructInfo:
    """Bring images to the height and width of ``size``, by the nearest pixels or between four.

    ``scale_factor`` (height, width) says how far pixels of the result are apart, if that is not the
    ratio of the sizes.
    """
    info: Any = data
    require_ndim(info, 4, "data")
    mode = coordinate_transformation_mode
    try:
        topi.image.check_resize(method, mode, layout, scale_factor, info.dtype)
    except VerifyError as error:
        raise InferenceError(str(error)) from None
    shape = list(known(info, "data"))
    at = layout.index("H")
    height, width = pair(size, 2)
    if height < 0 or width < 0:
        raise InferenceError(f"size must not be negative, got {[height, width]}")
    for extent in shape[at : at + 2]:
        require(extent >= 1, "the image is empty: an extent of ", extent)
    shape[at : at + 2] = const(height), const(width)
    return TensorStructInfo(shape, info.dtype)


__all__ = ["resize2d"]
