"""Convolutions of images whose channels are stored in blocks: ``NCHW16c`` with ``OIHW16i16o``.

A block of output channels is a vector, whatever the image's width; its weights are contiguous, and
so are the input channels that a pixel is summed over. Each of the three tensors may have blocks or
not: a first layer reads ``NCHW`` and writes ``NCHW16c``.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir import Expr, ExprLike, as_expr, as_int
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.topi.layout import Layout, image_layout, layout_of
from tilewright.topi.nn.spatial import Convolution, pad_image
from tilewright.topi.utils import rounded, total_dtype

_WHAT = "conv2d"


def kernel_layout_of(name: str, data: Layout, out: Layout) -> Layout:
    """Parse the layout of filters, which must match those of the images.

    Raises ``VerifyError`` if it doesn't.
    """
    made = layout_of(name)
    fits = made.axes == "OIHW" and all(size == 0 or axis in "OI" for axis, size in made.dims)
    if not fits:
        raise VerifyError(
            f"{_WHAT}: kernel layout {name!r} is not supported, only OIHW with blocks of i and o"
        )
    for axis, image in (("I", data), ("O", out)):
        if made.block(axis) not in (1, image.block("C")):
            raise VerifyError(
                f"{_WHAT}: blocks of {axis} in the kernel layout {name} differ from those of "
                f"channels in {image.name}"
            )
    return made


def check_groups(
    channels: ExprLike, filters: ExprLike, groups: int, block_in: int, block_out: int
) -> bool:
    """Whether blocks of channels lie within groups, or groups are single channels.

    The input and output channels of a group must be whole blocks; in a depthwise convolution there
    are as many filters as channels, with equal blocks.
    """
    if groups == 1:
        return True
    c, f = as_int(as_expr(channels)), as_int(as_expr(filters))
    if c is None or f is None:
        return False
    if groups == c == f:
        return block_in == block_out
    return (c // groups) % block_in == 0 and (f // groups) % block_out == 0


@with_conditions
def conv2d_in_layouts(
    data: Tensor,
    weight: Tensor,
    form: Convolution,
    layouts: tuple[str, str, str],
    out_dtype: str | None,
) -> Tensor:
    """Convolve images and filters of any supported layouts; see :func:`topi.nn.conv2d`.

    ``layouts`` are those of the data, the filters and the result.

    Raises ``VerifyError`` if blocks don't divide channels or groups.
    """
    data_layout, kernel_layout, out_layout = layouts
    x, y = image_layout(_WHAT, data_layout), image_layout(_WHAT, out_layout)
    w = kernel_layout_of(kernel_layout, x, y)
    image, kernel = x.extents(data.shape), w.extents(weight.shape)
    channels, filters, taken = image["C"], kernel["O"], kernel["I"]
    groups, block_in, block_out = form.groups, x.block("C"), y.block("C")
    require_equal(f"{_WHAT}: channels", channels, taken * groups)
    if not check_groups(channels, filters, groups, block_in, block_out):
        raise VerifyError(
            f"{_WHAT}: {groups} groups of {channels} channels and {filters} filters don't go with "
            f"layouts {data_layout} and {out_layout}: groups must be whole blocks"
        )
    depthwise = groups > 1 and as_int(as_expr(taken)) == 1
    stride, dilate = form.stride, form.dilation
    used = form.taps([image["H"], image["W"]], [kernel["H"], kernel["W"]])
    source = pad_image(data, used)
    rc = te.reduce_axis((0, 1 if depthwise else taken // block_in), "rc")
    rh, rw = te.reduce_axis((0, used[0].count), "rh"), te.reduce_axis((0, used[1].count), "rw")
    ri = None if depthwise or block_in == 1 else te.reduce_axis((0, block_in), "ri")
    steps = [rc, rh, rw, *([] if ri is None else [ri])]
    out_dtype = out_dtype or data.dtype
    dtype = total_dtype(out_dtype, data.dtype, weight.dtype)

    def formula(n: Expr, f: Expr, h: Expr, v: Expr, *lane: Expr) -> Expr:
        within = lane[0] if lane else as_expr(0)
        step = as_expr(0) if ri is None else ri.var
        if depthwise:
            block, element = f, within
        else:
            blocks = taken // block_in
            group = f // (filters // groups // block_out) if groups > 1 else as_expr(0)
            block, element = (group * blocks + rc.var if groups > 1 else rc.var), step
        at = (
            h * stride[0] + rh.var * dilate[0] + used[0].begin,
            v * stride[1] + rw.var * dilate[1] + used[1].begin,
        )
        pixel = source(n, block, *at, *([element] if x.ndim > 4 else []))
        row, column = rh.var + used[0].first, rw.var + used[1].first
        place = {"H": (row, 0), "W": (column, 0), "I": (rc.var, step), "O": (f, within)}
        sizes = {"H": 1, "W": 1, "I": block_in, "O": block_out}
        taps = [_index(w, axis, size, *place[axis], sizes[axis]) for axis, size in w.dims]
        result: Expr = te.sum(cast_expr(pixel, dtype) * cast_expr(weight(*taps), dtype), axis=steps)
        return result

    shape = y.shape({"N": image["N"], "C": filters, "H": used[0].out, "W": used[1].out})
    name, tag = f"{_WHAT}_nchwc", f"{_WHAT}_nchwc"
    if y.ndim > 4:
        made: Tensor = compute(
            shape, lambda n, f, h, w, b: formula(n, f, h, w, b), name=name, tag=tag
        )
    else:
        made = compute(shape, lambda n, f, h, w: formula(n, f, h, w), name=name, tag=tag)
    return rounded(made, out_dtype)


def _index(layout: Layout, axis: str, block: int, outer: Any, inner: Any, size: int) -> Any:
    """Index along a dimension of element ``inner`` of block ``outer`` of an axis."""
    if block:
        return inner
    if layout.block(axis) == size or size == 1:
        return outer
    return outer * size + inner
