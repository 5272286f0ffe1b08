"""Operators of images."""

from __future__ import annotations

from tilewright import topi
from tilewright.ir import const
from tilewright.relax.conditions import require
from tilewright.relax.ops.common import known, require_ndim
from tilewright.relax.ops.sampling import sample_at as sample_at
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.utils import pair


@operator("image.resize2d", legalize=topi.image.resize2d)
def resize2d(
    data: Tensor,
    size: int | tuple[int, int] = 1,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: tuple[float, float] | None = None,
) -> StructInfo:
    """Resize images to the height and width of ``size``, by nearest or bilinear interpolation.

    ``scale_factor`` (height, width) gives the distance between pixels of the result, if that is not
    the ratio of the sizes.

    Raises ``VerifyError`` for negative sizes and unknown methods.
    """
    require_ndim(data, 4, "data")
    mode = coordinate_transformation_mode
    topi.image.check_resize(method, mode, layout, scale_factor, data.dtype)
    shape = list(known(data, "data"))
    at = layout.index("H")
    height, width = pair(size, 2)
    if height < 0 or width < 0:
        raise VerifyError(f"size must not be negative, got {[height, width]}")
    for extent in shape[at : at + 2]:
        require(extent >= 1, "the image is empty: an extent of ", extent)
    shape[at : at + 2] = const(height), const(width)
    return TensorStructInfo(shape, data.dtype)
