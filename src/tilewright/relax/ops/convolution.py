"""Convolutions and transposed convolutions over one to three axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.arith import simplify
from tilewright.ir import Expr, dtypes
from tilewright.relax.conditions import require, require_equal
from tilewright.relax.ops.common import (
    known,
    laid_out,
    plain_info,
    require_ndim,
    same_dtype,
    window,
)
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.layout import image_layout
from tilewright.topi.utils import padding_of, pair


def _check_groups(what: str, channels: Expr, groups: int) -> None:
    if groups < 1:
        raise VerifyError(f"groups must be positive, got {groups}")
    require(channels % groups == 0, channels, f" {what} do not divide into {groups} groups")


def _conv_shape(
    data: TensorStructInfo,
    weight: TensorStructInfo,
    strides: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
    spatial: int,
) -> StructInfo:
    require_ndim(data, spatial + 2, "data")
    require_ndim(weight, spatial + 2, "weight")
    x, w = known(data, "data"), known(weight, "weight")
    strides, dilation = pair(strides, spatial), pair(dilation, spatial)
    before, after = padding_of(padding, spatial)
    _check_groups("output channels", w[0], groups)
    require_equal("input channels differ (data, weight * groups)", x[1], simplify(w[1] * groups))
    extents = [
        window(x[2 + i], w[2 + i], strides[i], before[i], after[i], dilation[i])
        for i in range(spatial)
    ]
    return TensorStructInfo((x[0], w[0], *extents), same_dtype(data, weight))


def _transpose_shape(
    data: TensorStructInfo,
    weight: TensorStructInfo,
    steps: Sequence[int],
    padding: tuple[Sequence[int], Sequence[int]],
    extra: Sequence[int],
    reach: Sequence[int],
    groups: int,
    out_dtype: str | None,
) -> StructInfo:
    """``steps`` and so on have a number for each axis of the image, ``padding`` two."""
    spatial, (before, after) = len(steps), padding
    require_ndim(data, spatial + 2, "data")
    require_ndim(weight, spatial + 2, "weight")
    dtype = same_dtype(data, weight)
    if out_dtype is not None:
        dtypes.split_dtype(out_dtype)
        dtype = out_dtype
    x, w = known(data, "data"), known(weight, "weight")
    require_equal("input channels differ", x[1], w[0])
    _check_groups("input channels", x[1], groups)
    for i in range(spatial):
        if steps[i] < 1 or reach[i] < 1 or min(before[i], after[i], extra[i]) < 0:
            raise VerifyError("strides and dilation must be positive, padding not negative")
        require(w[2 + i] >= 1, "the window is empty: ", w[2 + i])
        if extra[i] >= max(steps[i], reach[i]):
            raise VerifyError(
                f"output_padding {extra[i]} must be below stride {steps[i]} or dilation {reach[i]}"
            )
    extents = [
        simplify(
            (x[2 + i] - 1) * steps[i]
            + (w[2 + i] - 1) * reach[i]
            + (1 + extra[i] - before[i] - after[i])
        )
        for i in range(spatial)
    ]
    for made in extents:
        require(made >= 0, "the padding takes more than there is: an extent of ", made)
    return TensorStructInfo((x[0], simplify(w[1] * groups), *extents), dtype)


@operator("nn.conv1d", legalize=topi.nn.conv1d)
def conv1d(
    data: Tensor,
    weight: Tensor,
    strides: int = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int = 1,
    groups: int = 1,
) -> StructInfo:
    """Convolution over one axis: data ``[N, C, W]``, weight ``[O, C / groups, K]``."""
    return _conv_shape(data, weight, strides, padding, dilation, groups, 1)


@operator("nn.conv2d", legalize=topi.nn.conv2d)
def conv2d(
    data: Tensor,
    weight: Tensor,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
) -> StructInfo:
    """Convolution over two axes: data ``[N, C, H, W]``, weight ``[O, C / groups, KH, KW]``.

    Layouts with blocks of channels (``NCHW16c``, ``OIHW16i16o``) are those of ``topi.nn.conv2d``.

    Raises ``VerifyError`` where shapes, groups and layouts don't fit.
    """
    operands: tuple[Any, Any] = data, weight
    x, y = image_layout("data", data_layout), image_layout("out", out_layout or data_layout)
    w = topi.nn.kernel_layout_of(kernel_layout, x, y)
    image, kernel = plain_info(operands[0], x, "data"), plain_info(operands[1], w, "weight")
    info = _conv_shape(image, kernel, strides, padding, dilation, groups, 2)
    channels, filters = image.shape[1], kernel.shape[0]
    if not topi.nn.check_groups(channels, filters, groups, x.block("C"), y.block("C")):
        raise VerifyError(f"{groups} groups are no whole blocks in these layouts")
    return laid_out(info, y)


@operator("nn.conv3d", legalize=topi.nn.conv3d)
def conv3d(
    data: Tensor,
    weight: Tensor,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
) -> StructInfo:
    """Convolution over three axes: data ``[N, C, D, H, W]``, weight ``[O, C / groups, …]``."""
    return _conv_shape(data, weight, strides, padding, dilation, groups, 3)


@operator("nn.conv1d_transpose", legalize=topi.nn.conv1d_transpose)
def conv1d_transpose(
    data: Tensor,
    weight: Tensor,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    output_padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> StructInfo:
    """Transposed convolution: data ``[N, I, W]``, weight ``[I, O / groups, K]``.

    Results have the operands' dtype, to which sums are rounded, or ``out_dtype``.
    """
    steps, extra, reach = (pair(given, 1) for given in (strides, output_padding, dilation))
    around = padding_of(padding, 1)
    return _transpose_shape(data, weight, steps, around, extra, reach, groups, out_dtype)


@operator("nn.conv2d_transpose", legalize=topi.nn.conv2d_transpose)
def conv2d_transpose(
    data: Tensor,
    weight: Tensor,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    output_padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> StructInfo:
    """Transposed convolution: data ``[N, I, H, W]``, weight ``[I, O / groups, KH, KW]``."""
    steps, extra, reach = (pair(given, 2) for given in (strides, output_padding, dilation))
    around = padding_of(padding, 2)
    return _transpose_shape(data, weight, steps, around, extra, reach, groups, out_dtype)


@operator("nn.conv3d_transpose", legalize=topi.nn.conv3d_transpose)
def conv3d_transpose(
    data: Tensor,
    weight: Tensor,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    output_padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> StructInfo:
    """Transposed convolution: data ``[N, I, D, H, W]``, weight ``[I, O / groups, …]``."""
    steps, extra, reach = (pair(given, 3) for given in (strides, output_padding, dilation))
    around = padding_of(padding, 3)
    return _transpose_shape(data, weight, steps, around, extra, reach, groups, out_dtype)
