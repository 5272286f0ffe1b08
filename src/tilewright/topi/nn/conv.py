"""Convolutions of channel-first tensors, as a padding stage and a reduction.

All of them are one definition over any number of spatial axes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import te
from tilewright.ir import Expr, as_int
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, require_equal, with_conditions
from tilewright.topi.nn.conv_layout import conv2d_in_layouts
from tilewright.topi.nn.spatial import Convolution, axis_names, compute_image, pad_image
from tilewright.topi.utils import require_groups, require_ndim, rounded, total_dtype


@with_conditions
def _conv(
    data: Tensor,
    weight: Tensor,
    form: Convolution,
    out_dtype: str | None,
) -> Tensor:
    spatial, stride, dilate, groups = form.spatial, form.stride, form.dilation, form.groups
    what = f"conv{spatial}d"
    require_ndim(what, data, spatial + 2)
    require_ndim(what, weight, spatial + 2)
    out_dtype = out_dtype or data.dtype
    wide = total_dtype(out_dtype, data.dtype, weight.dtype)
    channels, filters = data.shape[1], weight.shape[0]
    require_equal(
        f"{what}: channels of {data.name} {list(data.shape)} and of {weight.name} "
        f"{list(weight.shape)} times {groups} groups",
        channels,
        weight.shape[1] * groups,
    )
    require_groups(what, "filters", filters, groups)
    used = form.taps(data.shape[2:], weight.shape[2:])
    source = pad_image(data, used)
    names = axis_names(spatial)
    rc = te.reduce_axis((0, weight.shape[1]), "rc")
    window = [te.reduce_axis((0, taps.count), f"r{name}") for name, taps in zip(names, used)]
    group_in, group_out = weight.shape[1], filters // groups

    def formula(n: Expr, f: Expr, *place: Expr) -> Expr:
        channel: Expr = rc.var
        if groups > 1:
            # One filter per group: the group is the filter itself.
            group = f if as_int(group_out) == 1 else f // group_out
            channel = group * group_in + rc.var
        at = [
            place[a] * stride[a] + window[a].var * dilate[a] + used[a].begin for a in range(spatial)
        ]
        left = cast_expr(source(n, channel, *at), wide)
        taps = [axis.var + taps.first for axis, taps in zip(window, used)]
        right = cast_expr(weight(f, rc.var, *taps), wide)
        result: Expr = te.sum(left * right, axis=[rc, *window])
        return result

    shape = (data.shape[0], filters, *(taps.out for taps in used))
    return rounded(compute_image(shape, "f", formula, what, f"{what}_nchw"), out_dtype)


def conv1d(
    data: Tensor,
    weight: Tensor,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Convolve ``data [N, C, W]`` with ``weight [F, C/groups, KW]``."""
    return _conv(data, weight, Convolution.over(1, strides, padding, dilation, groups), out_dtype)


def conv2d(
    data: Tensor,
    weight: Tensor,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    out_dtype: str | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
) -> Tensor:
    """Convolve ``data [N, C, H, W]`` with ``weight [F, C/groups, KH, KW]``.

    ``padding``: one number, ``(h, w)`` or ``(top, left, bottom, right)``. The result and the sums
    are in ``out_dtype`` (the data's, if not given), but sums of 16-bit floats are kept in float32
    and rounded once. ``groups == C`` is a depthwise convolution.

    Channels may be in blocks: ``data_layout`` and ``out_layout`` (the data's, if empty) are
    ``NCHW`` or such as ``NCHW16c``, ``kernel_layout`` is ``OIHW`` with blocks of ``i`` and ``o``
    that are as large as those of the images, such as ``OIHW16i16o`` (``OIHW16o`` if depthwise).

    Raises ``VerifyError`` if shapes, groups and layouts don't fit.
    """
    form = Convolution.over(2, strides, padding, dilation, groups)
    layouts = data_layout, kernel_layout, out_layout or data_layout
    if layouts != ("NCHW", "OIHW", "NCHW"):
        return conv2d_in_layouts(data, weight, form, layouts, out_dtype)
    return _conv(data, weight, form, out_dtype)


def conv3d(
    data: Tensor,
    weight: Tensor,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Convolve ``data [N, C, D, H, W]`` with ``weight [F, C/groups, KD, KH, KW]``."""
    return _conv(data, weight, Convolution.over(3, strides, padding, dilation, groups), out_dtype)


def depthwise_conv2d(
    data: Tensor,
    weight: Tensor,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """Convolve each channel of ``data [N, C, H, W]`` separately: ``weight [C * M, 1, KH, KW]``.

    Raises ``VerifyError`` if the number of channels isn't constant.
    """
    groups = as_int(data.shape[1])
    if groups is None:
        raise VerifyError("depthwise_conv2d needs a constant number of channels")
    return conv2d(data, weight, strides, padding, dilation, groups)
