"""Pooling over windows of one to three axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir import as_int
from tilewright.relax.conditions import require
from tilewright.relax.ops.common import known, laid_out, plain_info, require_ndim, window
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.layout import Layout, image_layout
from tilewright.topi.utils import padding_of, pair


def _pool_shape(
    data: TensorStructInfo,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
    spatial: int,
    layout: str = "",
) -> StructInfo:
    made = _layout(layout, spatial)
    if made.ndim > spatial + 2:
        plain = plain_info(data, made, "data")
        args = pool_size, strides, padding, dilation, ceil_mode, spatial
        return laid_out(_pool_shape(plain, *args), made)
    require_ndim(data, spatial + 2, "data")
    x = known(data, "data")
    size, steps, reach = pair(pool_size, spatial), pair(strides, spatial), pair(dilation, spatial)
    before, after = padding_of(padding, spatial)
    for extent in x[2:]:
        require(extent >= 1, "the image is empty: an extent of ", extent)
    extents = [
        window(x[2 + i], size[i], steps[i], before[i], after[i], reach[i], ceil_mode=ceil_mode)
        for i in range(spatial)
    ]
    return TensorStructInfo((x[0], x[1], *extents), data.dtype)


def _layout(name: str, spatial: int) -> Layout:
    axes = "NC" + "DHW"[3 - spatial :]
    return image_layout("data", name or axes, axes)


def _adaptive_shape(
    data: TensorStructInfo,
    output_size: int | Sequence[int | None] | None,
    spatial: int,
    layout: str = "",
) -> StructInfo:
    made = _layout(layout, spatial)
    if made.ndim > spatial + 2:
        plain = plain_info(data, made, "data")
        return laid_out(_adaptive_shape(plain, output_size, spatial), made)
    require_ndim(data, spatial + 2, "data")
    n, c, *extents = known(data, "data")
    size = pair(output_size, spatial)
    if min(size) < 1:
        raise VerifyError(f"output_size must be positive, got {list(size)}")
    for extent in extents:
        require(extent >= 1, "the image is empty: an extent of ", extent)
    return TensorStructInfo((n, c, *size), data.dtype)


def _whole_size(
    data: TensorStructInfo, output_size: int | Sequence[int | None] | None, layout: str = ""
) -> dict[str, Any]:
    """Complete ``output_size`` by the image's own extents."""
    if isinstance(output_size, int) or (output_size is not None and None not in output_size):
        return {}
    extents = data.shape[2 : data.ndim - layout.count("c")]
    sizes = [None] * len(extents) if output_size is None else list(output_size)
    if len(sizes) != len(extents):
        raise VerifyError(f"output_size takes {len(extents)} numbers, got {sizes}")
    made = [as_int(e) if size is None else size for size, e in zip(sizes, extents)]
    if None in made:
        raise VerifyError(f"output_size must be given for extents {list(extents)}")
    return {"output_size": tuple(made)}


@operator("nn.max_pool1d", legalize=topi.nn.max_pool1d)
def max_pool1d(
    data: Tensor,
    pool_size: int | tuple[int, ...] = 1,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
) -> StructInfo:
    """Maximum of each window of ``[N, C, W]``."""
    return _pool_shape(data, pool_size, strides, padding, dilation, ceil_mode, 1)


@operator("nn.max_pool2d", legalize=topi.nn.max_pool2d)
def max_pool2d(
    data: Tensor,
    pool_size: int | tuple[int, ...] = 1,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
    layout: str = "NCHW",
) -> StructInfo:
    """Maximum of each window of ``[N, C, H, W]``; the layout may have blocks."""
    return _pool_shape(data, pool_size, strides, padding, dilation, ceil_mode, 2, layout)


@operator("nn.max_pool3d", legalize=topi.nn.max_pool3d)
def max_pool3d(
    data: Tensor,
    pool_size: int | tuple[int, ...] = 1,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
) -> StructInfo:
    """Maximum of each window of ``[N, C, D, H, W]``."""
    return _pool_shape(data, pool_size, strides, padding, dilation, ceil_mode, 3)


@operator("nn.avg_pool1d", legalize=topi.nn.avg_pool1d)
def avg_pool1d(
    data: Tensor,
    pool_size: int | tuple[int, ...] = 1,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> StructInfo:
    """Mean of each window of ``[N, C, W]``."""
    return _pool_shape(data, pool_size, strides, padding, 1, ceil_mode, 1)


@operator("nn.avg_pool2d", legalize=topi.nn.avg_pool2d)
def avg_pool2d(
    data: Tensor,
    pool_size: int | tuple[int, ...] = 1,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
) -> StructInfo:
    """Mean of each window of ``[N, C, H, W]``; the layout may have blocks."""
    return _pool_shape(data, pool_size, strides, padding, 1, ceil_mode, 2, layout)


@operator("nn.avg_pool3d", legalize=topi.nn.avg_pool3d)
def avg_pool3d(
    data: Tensor,
    pool_size: int | tuple[int, ...] = 1,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> StructInfo:
    """Mean of each window of ``[N, C, D, H, W]``."""
    return _pool_shape(data, pool_size, strides, padding, 1, ceil_mode, 3)


@operator(
    "nn.adaptive_avg_pool1d",
    prepare=_whole_size,
    legalize=topi.nn.adaptive_avg_pool1d,
)
def adaptive_avg_pool1d(
    data: Tensor, output_size: int | tuple[int | None, ...] | None = None
) -> StructInfo:
    """Mean over windows chosen so that the result has ``output_size``; ``None``: the image's."""
    return _adaptive_shape(data, output_size, 1)


@operator(
    "nn.adaptive_avg_pool2d",
    prepare=_whole_size,
    legalize=topi.nn.adaptive_avg_pool2d,
)
def adaptive_avg_pool2d(
    data: Tensor, output_size: int | tuple[int | None, ...] | None = None, layout: str = "NCHW"
) -> StructInfo:
    """Mean over windows chosen so that the result has ``output_size``; ``None``: the image's."""
    return _adaptive_shape(data, output_size, 2, layout)


@operator(
    "nn.adaptive_avg_pool3d",
    prepare=_whole_size,
    legalize=topi.nn.adaptive_avg_pool3d,
)
def adaptive_avg_pool3d(
    data: Tensor, output_size: int | tuple[int | None, ...] | None = None
) -> StructInfo:
    """Mean over windows chosen so that the result has ``output_size``; ``None``: the image's."""
    return _adaptive_shape(data, output_size, 3)


@operator(
    "nn.adaptive_max_pool1d",
    prepare=_whole_size,
    legalize=topi.nn.adaptive_max_pool1d,
)
def adaptive_max_pool1d(
    data: Tensor, output_size: int | tuple[int | None, ...] | None = None
) -> StructInfo:
    """Maximum over windows chosen so that the result has ``output_size``.

    ``None`` is the image's size.
    """
    return _adaptive_shape(data, output_size, 1)


@operator(
    "nn.adaptive_max_pool2d",
    prepare=_whole_size,
    legalize=topi.nn.adaptive_max_pool2d,
)
def adaptive_max_pool2d(
    data: Tensor, output_size: int | tuple[int | None, ...] | None = None, layout: str = "NCHW"
) -> StructInfo:
    """Maximum over windows chosen so that the result has ``output_size``.

    ``None`` is the image's size.
    """
    return _adaptive_shape(data, output_size, 2, layout)


@operator(
    "nn.adaptive_max_pool3d",
    prepare=_whole_size,
    legalize=topi.nn.adaptive_max_pool3d,
)
def adaptive_max_pool3d(
    data: Tensor, output_size: int | tuple[int | None, ...] | None = None
) -> StructInfo:
    """Maximum over windows chosen so that the result has ``output_size``.

    ``None`` is the image's size.
    """
    return _adaptive_shape(data, output_size, 3)


# ---- where maxima are --------------------------------------------------------------------------


def _spatial(data: TensorStructInfo) -> int:
    if data.ndim not in (3, 4, 5):
        raise VerifyError(f"data must have 3, 4 or 5 dimensions, got {data.ndim}")
    return data.ndim - 2


def _as_places(info: StructInfo) -> StructInfo:
    assert isinstance(info, TensorStructInfo)
    return TensorStructInfo(info.shape, "int64")


@operator("nn.max_pool_places", legalize=topi.nn.max_pool_places)
def max_pool_places(
    data: Tensor,
    pool_size: int | tuple[int, ...] = 1,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
) -> StructInfo:
    """Where in its image, counted flat, the maximum of each window of ``[N, C, ...]`` is: int64.

    Of equal elements it is the first.
    """
    spatial = _spatial(data)
    shape = _pool_shape(data, pool_size, strides, padding, dilation, ceil_mode, spatial)
    return _as_places(shape)


@operator(
    "nn.adaptive_max_pool_places",
    prepare=_whole_size,
    legalize=topi.nn.adaptive_max_pool_places,
)
def adaptive_max_pool_places(
    data: Tensor, output_size: int | tuple[int | None, ...] | None = None
) -> StructInfo:
    """Where in its image the maximum of each window of an adaptive pool is: int64."""
    return _as_places(_adaptive_shape(data, output_size, _spatial(data)))
