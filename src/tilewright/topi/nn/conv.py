"""Convolutions, as a padding stage and a reduction.

All of them are one definition over any number of spatial axes, in any order of axes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import te
from tilewright.ir import Expr, as_int
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, require_equal, with_conditions
from tilewright.topi.layout import Layout, layout_of
from tilewright.topi.nn.conv_layout import conv2d_in_layouts
from tilewright.topi.nn.spatial import (
    Convolution,
    Padding,
    axis_names,
    compute_image,
    pad_image,
)
from tilewright.topi.utils import require_groups, require_ndim, rounded, total_dtype

#: The layout of filters that goes with one of images, if none is given.
_KERNEL_LAYOUTS = {
    "NCW": "OIW", "NWC": "WIO", "NCHW": "OIHW", "NHWC": "HWIO", "HWCN": "HWIO",
    "NCDHW": "OIDHW", "NDHWC": "DHWIO",
}  # fmt: skip


def conv_layouts(what: str, data_layout: str, kernel_layout: str) -> tuple[Layout, Layout]:
    """Parse the layouts of images and filters, in which axes may have any order.

    Raises ``VerifyError`` if these are not axes of an image and of its filters.
    """
    x = layout_of(data_layout)
    axes = "".join(axis_names(x.ndim - 2)).upper() if 3 <= x.ndim <= 5 else ""
    w = layout_of(kernel_layout or _KERNEL_LAYOUTS.get(data_layout, "OI" + axes))
    if sorted(x.name) != sorted("NC" + axes) or sorted(w.name) != sorted("OI" + axes):
        raise VerifyError(
            f"{what}: layouts {data_layout!r} of images and {w.name!r} of filters don't go together"
        )
    return x, w


@with_conditions
def conv(
    inp: Tensor,
    filt: Tensor,
    stride: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int],
    groups: int,
    data_layout: str,
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """Convolve images over one to three axes; layouts name the axes in any order.

    ``data_layout`` has ``N``, ``C`` and the spatial axes (of ``D``, ``H``, ``W`` the last ones), as
    has the result; ``kernel_layout`` has ``O``, ``I`` and these. See :func:`conv2d`.

    Raises ``VerifyError`` if shapes, groups and layouts don't fit.
    """
    x, w = conv_layouts("conv", data_layout, kernel_layout)
    spatial = x.ndim - 2
    what = f"conv{spatial}d"
    require_ndim(what, inp, spatial + 2)
    require_ndim(what, filt, spatial + 2)
    axes = "".join(axis_names(spatial)).upper()
    image, kernel = x.extents(inp.shape), w.extents(filt.shape)
    windows = [kernel[axis] for axis in axes]
    form = Convolution.over(spatial, stride, padding, dilation, groups, windows)
    steps, reach = form.stride, form.dilation
    out_dtype = out_dtype or inp.dtype
    wide = total_dtype(out_dtype, inp.dtype, filt.dtype)
    filters, group_in = kernel["O"], kernel["I"]
    require_equal(
        f"{what}: channels of {inp.name} {list(inp.shape)} and of {filt.name} "
        f"{list(filt.shape)} times {groups} groups",
        image["C"],
        group_in * groups,
    )
    require_groups(what, "filters", filters, groups)
    used = form.taps([image[axis] for axis in axes], windows)
    source = pad_image(inp, used, x.name.index(axes[0]))
    summed = {"I": te.reduce_axis((0, group_in), "rc")}
    for axis, taps in zip(axes, used):
        summed[axis] = te.reduce_axis((0, taps.count), f"r{axis.lower()}")
    rc, group_out = summed["I"], filters // groups

    def formula(n: Expr, f: Expr, *place: Expr) -> Expr:
        channel: Expr = rc.var
        if groups > 1:
            # One filter per group: the group is the filter itself.
            group = f if as_int(group_out) == 1 else f // group_out
            channel = group * group_in + rc.var
        at: dict[str, Expr] = {"N": n, "C": channel}
        tap: dict[str, Expr] = {"O": f, "I": rc.var}
        for a, axis in enumerate(axes):
            step = summed[axis].var
            at[axis] = place[a] * steps[a] + step * reach[a] + used[a].begin
            tap[axis] = step + used[a].first
        left, right = source(*x.indices(at)), filt(*w.indices(tap))
        result: Expr = te.sum(
            cast_expr(left, wide) * cast_expr(right, wide),
            axis=[summed[axis] for axis in w.name if axis != "O"],
        )
        return result

    extents = {"N": image["N"], "C": filters}
    extents.update((axis, taps.out) for axis, taps in zip(axes, used))
    tag = f"{what}_{data_layout.lower()}"
    made = compute_image(x.shape(extents), "f", formula, what, tag, layout=data_layout)
    return rounded(made, out_dtype)


def conv1d(
    data: Tensor,
    kernel: Tensor,
    strides: int | Sequence[int] = 1,
    padding: Padding = "VALID",
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """Convolve ``data [N, C, W]`` with ``kernel [F, C/groups, KW]``; see :func:`conv2d`."""
    return conv(
        data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype
    )


def conv2d(
    input: Tensor,
    filter: Tensor,
    strides: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
    *,
    groups: int = 1,
    out_layout: str = "",
) -> Tensor:
    """Convolve ``input [N, C, H, W]`` with ``filter [F, C/groups, KH, KW]``.

    ``padding``: one number, ``(h, w)``, ``(top, left, bottom, right)``, ``"VALID"`` or ``"SAME"``.
    The result and the sums are in ``out_dtype`` (the data's, if not given), but sums of 16-bit
    floats are kept in float32 and rounded once. ``groups == C`` is a depthwise convolution.

    ``data_layout`` and ``kernel_layout`` may have their axes in another order: ``NHWC`` goes with
    ``HWIO`` if nothing else is said. Channels may be in blocks: ``data_layout`` and ``out_layout``
    (the data's, if empty) are ``NCHW`` or such as ``NCHW16c``, ``kernel_layout`` is ``OIHW`` with
    blocks of ``i`` and ``o`` that are as large as those of the images, such as ``OIHW16i16o``
    (``OIHW16o`` if depthwise).

    Raises ``VerifyError`` if shapes, groups and layouts don't fit.
    """
    if data_layout.isalpha() and out_layout in ("", data_layout):
        return conv(
            input, filter, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype
        )
    form = Convolution.over(2, strides, padding, dilation, groups, filter.shape[2:4])
    layouts = data_layout, kernel_layout or "OIHW", out_layout or data_layout
    return conv2d_in_layouts(input, filter, form, layouts, out_dtype)


def conv3d(
    data: Tensor,
    weight: Tensor,
    strides: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Convolve ``data [N, C, D, H, W]`` with ``weight [F, C/groups, KD, KH, KW]``."""
    return conv(data, weight, strides, padding, dilation, groups, "NCDHW", "OIDHW", out_dtype)


def depthwise_conv2d(
    data: Tensor,
    weight: Tensor,
    strides: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """Convolve each channel of ``data [N, C, H, W]`` separately: ``weight [C * M, 1, KH, KW]``.

    Raises ``VerifyError`` if the number of channels isn't constant.
    """
    groups = as_int(data.shape[1])
    if groups is None:
        raise VerifyError("depthwise_conv2d needs a constant number of channels")
    return conv2d(data, weight, strides, padding, dilation, groups=groups)
