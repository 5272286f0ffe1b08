"""Convolutions of channel-first tensors, as a padding stage and a reduction.

All of them are one definition over any number of spatial axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir import Expr, and_, as_int, const, if_then_else
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute
from tilewright.topi.nn.pad import pad
from tilewright.topi.utils import padding_of, pair, require_equal, require_ndim

_AXIS_NAMES = ("d", "h", "w")


def _conv(
    data: Tensor,
    weight: Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    out_dtype: str | None,
    spatial: int,
) -> Tensor:
    what = f"conv{spatial}d"
    require_ndim(what, data, spatial + 2)
    require_ndim(what, weight, spatial + 2)
    stride, dilate = pair(strides, spatial, "strides"), pair(dilation, spatial, "dilation")
    before, after = padding_of(padding, spatial)
    out_dtype = out_dtype or data.dtype
    channels, filters = data.shape[1], weight.shape[0]
    require_equal(
        f"{what}: channels of {data.name} {list(data.shape)} and of {weight.name} "
        f"{list(weight.shape)} times {groups} groups",
        channels,
        weight.shape[1] * groups,
    )
    count = as_int(filters)
    if count is not None and count % groups:
        raise VerifyError(f"{what}: {count} filters do not divide into {groups} groups")
    kernel = weight.shape[2:]
    if any(before) or any(after):
        source = pad(data, (0, 0, *before), (0, 0, *after))
    else:
        source = data
    out = tuple(
        (source.shape[2 + a] - (kernel[a] - 1) * dilate[a] - 1) // stride[a] + 1
        for a in range(spatial)
    )
    names = _AXIS_NAMES[3 - spatial :]
    rc = te.reduce_axis((0, weight.shape[1]), "rc")
    window = [te.reduce_axis((0, kernel[a]), f"r{names[a]}") for a in range(spatial)]
    group_in, group_out = weight.shape[1], filters // groups

    def formula(n: Expr, f: Expr, *place: Expr) -> Expr:
        channel: Any = rc.var
        if groups > 1:
            # One filter per group: the group is the filter itself.
            group = f if as_int(group_out) == 1 else f // group_out
            channel = group * group_in + rc.var
        at = [place[a] * stride[a] + window[a].var * dilate[a] for a in range(spatial)]
        left = cast_expr(source(n, channel, *at), out_dtype)
        right = cast_expr(weight(f, rc.var, *(axis.var for axis in window)), out_dtype)
        result: Expr = te.sum(left * right, axis=[rc, *window])
        return result

    arguments = "n, f, " + ", ".join(names)
    scope: dict[str, Any] = {"formula": formula}
    named = eval(f"lambda {arguments}: formula({arguments})", scope)  # axes get readable names
    made: Tensor = compute((data.shape[0], filters, *out), named, name=what, tag=f"{what}_nchw")
    return made


def conv1d(
    data: Tensor,
    weight: Tensor,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Convolve ``data [N, C, W]`` with ``weight [F, C/groups, KW]``."""
    return _conv(data, weight, strides, padding, dilation, groups, out_dtype, 1)


def conv2d(
    data: Tensor,
    weight: Tensor,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Convolve ``data [N, C, H, W]`` with ``weight [F, C/groups, KH, KW]``.

    ``padding``: one number, ``(h, w)`` or ``(top, left, bottom, right)``. Sums are kept in
    ``out_dtype`` (the data's, if not given). ``groups == C`` is a depthwise convolution.
    """
    return _conv(data, weight, strides, padding, dilation, groups, out_dtype, 2)


def conv3d(
    data: Tensor,
    weight: Tensor,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Convolve ``data [N, C, D, H, W]`` with ``weight [F, C/groups, KD, KH, KW]``."""
    return _conv(data, weight, strides, padding, dilation, groups, out_dtype, 3)


def depthwise_conv2d(
    data: Tensor, weight: Tensor, strides: Any = 1, padding: Any = 0, dilation: Any = 1
) -> Tensor:
    """Convolve each channel of ``data [N, C, H, W]`` by itself: ``weight [C * M, 1, KH, KW]``."""
    groups = as_int(data.shape[1])
    if groups is None:
        raise VerifyError("depthwise_conv2d needs a constant number of channels")
    return conv2d(data, weight, strides, padding, dilation, groups)


def conv2d_transpose(
    data: Tensor,
    weight: Tensor,
    strides: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Transposed convolution of ``data [N, C, H, W]`` with ``weight [C, F/groups, KH, KW]``.

    The output extent is ``(H - 1) * stride - before - after + dilation * (KH - 1) + 1 +
    output_padding``. Each output element gathers the inputs whose window covers it.
    """
    require_ndim("conv2d_transpose", data, 4)
    require_ndim("conv2d_transpose", weight, 4)
    require_equal("conv2d_transpose: channels", data.shape[1], weight.shape[0])
    stride, dilate = pair(strides, 2, "strides"), pair(dilation, 2, "dilation")
    extra = pair(output_padding, 2, "output_padding")
    before, after = padding_of(padding, 2)
    for a in range(2):
        if extra[a] >= max(stride[a], dilate[a]):
            raise VerifyError("conv2d_transpose: output_padding must be below stride or dilation")
    out_dtype = out_dtype or data.dtype
    spread = _dilate(data, stride)
    kernel = weight.shape[2:]
    lead = [dilate[a] * (kernel[a] - 1) - before[a] for a in range(2)]
    tail = [dilate[a] * (kernel[a] - 1) - after[a] + extra[a] for a in range(2)]
    amounts = [as_int(value) for value in (*lead, *tail)]
    if any(value is None or value < 0 for value in amounts):
        raise VerifyError(
            "conv2d_transpose: padding must not exceed dilation * (kernel - 1), "
            f"got padding {list(before)} / {list(after)} for kernel {list(kernel)}"
        )
    low, high = [int(v or 0) for v in amounts[:2]], [int(v or 0) for v in amounts[2:]]
    source = pad(spread, (0, 0, *low), (0, 0, *high))
    group_in, group_out = data.shape[1] // groups, weight.shape[1]
    out = tuple(source.shape[2 + a] - (kernel[a] - 1) * dilate[a] for a in range(2))
    rc = te.reduce_axis((0, group_in), "rc")
    rh = te.reduce_axis((0, kernel[0]), "rh")
    rw = te.reduce_axis((0, kernel[1]), "rw")

    def formula(n: Expr, f: Expr, h: Expr, w: Expr) -> Expr:
        channel = rc.var if groups == 1 else f // group_out * group_in + rc.var
        filter_index = f if groups == 1 else f % group_out
        left = source(n, channel, h + rh.var * dilate[0], w + rw.var * dilate[1])
        right = weight(channel, filter_index, kernel[0] - 1 - rh.var, kernel[1] - 1 - rw.var)
        result: Expr = te.sum(
            cast_expr(left, out_dtype) * cast_expr(right, out_dtype), axis=[rc, rh, rw]
        )
        return result

    made: Tensor = compute(
        (data.shape[0], group_out * groups, *out),
        formula,
        name="conv2d_transpose",
        tag="conv2d_transpose_nchw",
    )
    return made


def _dilate(x: Tensor, stride: Sequence[int]) -> Tensor:
    """Put ``stride - 1`` zeros between the elements of the last two axes."""
    if all(step == 1 for step in stride):
        return x
    shape = (*x.shape[:2], *((x.shape[2 + a] - 1) * stride[a] + 1 for a in range(2)))

    def formula(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        holds = and_(*(i % s == 0 for i, s in zip((h, w), stride) if s > 1))
        return if_then_else(holds, x(n, c, h // stride[0], w // stride[1]), const(0, x.dtype))

    made: Tensor = compute(shape, formula, name="dilate", tag="injective")
    return made
