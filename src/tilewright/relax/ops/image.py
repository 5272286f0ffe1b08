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


@operator("image.resize2d", legalize=topi.image.resize2d)
def _resize2d(
    data: Tensor,
    size: Shape,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: tuple[float, float] | None = None,
) -> StructInfo:
    """Resize images to a height and a width."""
    require_ndim(data, 4, "data")
    mode = coordinate_transformation_mode
    topi.image.check_resize(method, mode, layout, scale_factor, data.dtype)
    shape = list(known(data, "data"))
    at = layout.index("H")
    if len(size) != 2:
        raise VerifyError(f"size takes a height and a width, got {list(size)}")
    for extent in shape[at : at + 2]:
        require(extent >= 1, "the image is empty: an extent of ", extent)
    shape[at : at + 2] = size
    return TensorStructInfo(shape, data.dtype)


@builder("image.resize2d")
def resize2d(
    data: RelaxExpr,
    size: int | ShapeLike,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: Sequence[float] | None = None,
) -> RelaxCall:
    """Resize images to the height and width of ``size``, by nearest or bilinear interpolation.

    One number is both. ``scale_factor`` (height, width) gives the distance between pixels of the
    result, if that is not the ratio of the sizes; it is unused with aligned corners.

    Raises ``VerifyError`` for negative sizes and unknown methods.
    """
    extents = [size] if isinstance(size, (int, Expr)) else list(shape_values(size))
    given = ShapeExpr(shape_values(extents * 2 if len(extents) == 1 else extents))
    factors = None if scale_factor is None else tuple(scale_factor)
    return _resize2d(data, given, layout, method, coordinate_transformation_mode, factors)
