"""Operators of images."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import topi
from tilewright.ir import Expr
from tilewright.relax.conditions import require
from tilewright.relax.expr import RelaxCall, RelaxExpr, ShapeExpr, ShapeLike, shape_values
from tilewright.relax.ops.common import known, require_ndim
from tilewright.relax.ops.sampling import sample_at as sample_at
from tilewright.relax.registry import Shape, Tensor, builder, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError


def _resized_info(
    data: TensorStructInfo, size: Sequence[Expr], layout: str, method: str, mode: str,
    scale_factor: tuple[float, ...] | None,
) -> StructInfo:  # fmt: skip
    axes = topi.image.check_resize(method, mode, layout, scale_factor, data.dtype)
    require_ndim(data, axes + 2, "data")
    shape = list(known(data, "data"))
    at = 1 if layout.endswith("C") else 2
    if len(size) != axes:
        raise VerifyError(f"size takes {axes} extent(s), got {list(size)}")
    for extent in shape[at : at + axes]:
        require(extent >= 1, "the image is empty: an extent of ", extent)
    shape[at : at + axes] = size
    return TensorStructInfo(shape, data.dtype)


@operator("image.resize2d", legalize=topi.image.resize2d_by_tables)
def _resize2d(
    data: Tensor,
    size: Shape,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: tuple[float, float] | None = None,
) -> StructInfo:
    """Resize images to a height and a width."""
    mode = coordinate_transformation_mode
    return _resized_info(data, size, layout, method, mode, scale_factor)


@operator("image.resize", legalize=topi.image.resize)
def _resize(
    data: Tensor,
    size: Shape,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: tuple[float, ...] | None = None,
    cubic_alpha: float = -0.75,
    antialias: bool = False,
) -> StructInfo:
    """Resize one to three axes of images, one after the other."""
    mode = coordinate_transformation_mode
    return _resized_info(data, size, layout, method, mode, scale_factor)


def _extents(size: int | ShapeLike, layout: str) -> ShapeExpr:
    extents = [size] if isinstance(size, (int, Expr)) else list(shape_values(size))
    count = len(layout) - 2 if len(extents) == 1 else 1
    return ShapeExpr(shape_values(extents * count))


@builder("image.resize2d")
def resize2d(
    data: RelaxExpr,
    size: int | ShapeLike,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: Sequence[float] | None = None,
    cubic_alpha: float = -0.75,
) -> RelaxCall:
    """Resize images to the height and width of ``size``.

    ``method`` is ``nearest_neighbor``, ``linear`` or ``cubic`` (Keys' convolution with
    ``cubic_alpha``). One number is both sizes. ``scale_factor`` (height, width) gives the distance
    between pixels of the result, if that is not the ratio of the sizes; it is unused with aligned
    corners.

    Raises ``VerifyError`` for negative sizes and unknown methods.
    """
    mode = coordinate_transformation_mode
    if method == "cubic":
        return resize(data, size, layout, method, mode, scale_factor, cubic_alpha)
    factors = None if scale_factor is None else tuple(scale_factor)
    return _resize2d(data, _extents(size, layout), layout, method, mode, factors)


@builder("image.resize")
def resize(
    data: RelaxExpr,
    size: int | ShapeLike,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: Sequence[float] | None = None,
    cubic_alpha: float = -0.75,
    antialias: bool = False,
) -> RelaxCall:
    """Resize the axes of ``layout`` that aren't ``N`` or ``C``, one after the other.

    Options are those of :func:`resize2d`; with ``antialias``, a result of an image that shrinks is
    a mean of all the pixels it covers.
    """
    factors = None if scale_factor is None else tuple(scale_factor)
    return _resize(
        data, _extents(size, layout), layout, method, coordinate_transformation_mode, factors,
        cubic_alpha, antialias,
    )  # fmt: skip


def resize1d(
    data: RelaxExpr,
    size: int | ShapeLike,
    layout: str = "NCW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: Sequence[float] | None = None,
    cubic_alpha: float = -0.75,
) -> RelaxCall:
    """Resize rows to the width ``size``; options as of :func:`resize2d`."""
    mode = coordinate_transformation_mode
    return resize(data, size, layout, method, mode, scale_factor, cubic_alpha)


def resize3d(
    data: RelaxExpr,
    size: int | ShapeLike,
    layout: str = "NCDHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: Sequence[float] | None = None,
    cubic_alpha: float = -0.75,
) -> RelaxCall:
    """Resize volumes to depth, height and width of ``size``; options as of :func:`resize2d`."""
    mode = coordinate_transformation_mode
    return resize(data, size, layout, method, mode, scale_factor, cubic_alpha)
