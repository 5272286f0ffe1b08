"""Images enlarged by factors; resizing is that of ``topi.image``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import INDEX, Expr, ExprLike, as_int, call, cast, const
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor
from tilewright.topi.image.resize_modes import resize2d, resize3d


def _scaled(extent: Expr, scale: float) -> ExprLike:
    """An extent times a factor, rounded to the nearest integer."""
    number = as_int(extent)
    if number is not None:
        return round(number * scale)
    if float(scale).is_integer():
        return extent * int(scale)
    return cast(call("nearbyint", cast(extent, "float64") * const(float(scale), "float64")), INDEX)


def _size(
    what: str, data: Tensor, layout: str, axes: str, scales: Sequence[float], output_shape: Any
) -> tuple[str, list[Any]]:
    """The layout to resize in, and the extents of the result."""
    if layout not in (f"NC{axes}", f"N{axes}C"):
        raise VerifyError(f"{what}: layout is 'NC{axes}' or 'N{axes}C', got {layout!r}")
    first = layout.index(axes[0])
    if output_shape is not None:
        return layout, list(output_shape[first : first + len(axes)])
    return layout, [_scaled(data.shape[first + n], scale) for n, scale in enumerate(scales)]


def upsampling(
    data: Tensor,
    scale_h: float,
    scale_w: float,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    output_shape: Sequence[ExprLike] | None = None,
) -> Tensor:
    """Resize images by factors; ``method``: ``nearest_neighbor``, ``bilinear`` or ``bicubic``.

    ``output_shape``, the whole result's shape, goes before the factors.

    Raises ``VerifyError`` for other methods and layouts.
    """
    methods = {"bilinear": "linear", "bicubic": "cubic"}
    layout, size = _size("upsampling", data, layout, "HW", (scale_h, scale_w), output_shape)
    mode = "align_corners" if align_corners else "asymmetric"
    return resize2d(data, (0.0,) * 4, size, layout, methods.get(method, method), mode)


def upsampling3d(
    data: Tensor,
    scale_d: float,
    scale_h: float,
    scale_w: float,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
    output_shape: Sequence[ExprLike] | None = None,
) -> Tensor:
    """Resize volumes by factors; ``method``: ``nearest_neighbor`` or ``trilinear``.

    Raises ``VerifyError`` for other methods and layouts.
    """
    scales = scale_d, scale_h, scale_w
    layout, size = _size("upsampling3d", data, layout, "DHW", scales, output_shape)
    method = "linear" if method == "trilinear" else method
    return resize3d(data, (0.0,) * 6, size, layout, method, coordinate_transformation_mode)
