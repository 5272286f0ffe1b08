"""Gradients of a convolution's filters."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import te
from tilewright.ir import Expr, ExprLike, and_, as_expr, as_int
from tilewright.ir import cast as cast_expr
from tilewright.te import Tensor, require_equal, with_conditions
from tilewright.topi.nn.pad import pad
from tilewright.topi.nn.spatial import Convolution, axis_names
from tilewright.topi.utils import require_groups, require_ndim, rounded, sum_dtype


@with_conditions
def conv_weight_backward(
    output_grad: Tensor,
    data: Tensor,
    window: Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    by_image: bool = False,
) -> Tensor:
    """Give ``[F, C / groups, *window]``, the gradient of filters of such a window.

    ``data`` ``[N, C, …]`` was convolved with them, ``output_grad`` ``[N, F, …]`` is the gradient of
    the result. With ``by_image`` the result begins with an axis of images, over which the gradient
    is the sum. Sums of 16-bit floats are kept in float32 and rounded once.

    Raises ``VerifyError`` if shapes and groups don't fit.
    """
    spatial, what = len(window), "conv_weight_backward"
    require_ndim(what, data, spatial + 2)
    require_ndim(what, output_grad, spatial + 2)
    require_equal(f"{what}: images", data.shape[0], output_grad.shape[0])
    form = Convolution.over(spatial, strides, padding, dilation, groups)
    filters, channels = output_grad.shape[1], data.shape[1]
    require_groups(what, "channels", channels, groups)
    require_groups(what, "filters", filters, groups)
    group_in, group_out = channels // groups, filters // groups
    before, after = (0, 0, *form.before), (0, 0, *form.after)
    source = pad(data, before, after, name="pad_temp") if any((*before, *after)) else data
    wide = sum_dtype(data.dtype)
    image = te.reduce_axis((0, data.shape[0]), "rn")
    places = [
        te.reduce_axis((0, extent), f"r{name}")
        for extent, name in zip(output_grad.shape[2:], axis_names(spatial))
    ]

    def summed(n: Expr, f: Expr, c: Expr, *tap: Expr) -> Expr:
        channel = c
        if groups > 1:
            group = f if as_int(group_out) == 1 else f // group_out
            channel = group * group_in + c
        at = [p.var * s + t * d for p, s, t, d in zip(places, form.stride, tap, form.dilation)]
        left = cast_expr(source(n, channel, *at), wide)
        right = cast_expr(output_grad(n, f, *(p.var for p in places)), wide)
        steps = places if by_image else [image, *places]
        made: Expr = te.sum(left * right, axis=steps)
        return made

    shape: tuple[ExprLike, ...] = (filters, group_in, *window)
    if by_image:
        total = te.compute((data.shape[0], *shape), summed, name=what)
    else:
        total = te.compute(shape, lambda *i: summed(image.var, *i), name=what)
    return rounded(total, data.dtype)


@with_conditions
def depthwise_conv2d_backward_input_nhwc(
    Filter: Tensor,
    Out_grad: Tensor,
    oshape: Sequence[ExprLike],
    ishape: Sequence[ExprLike],
    stride: int | Sequence[int],
    padding: int | Sequence[int],
) -> Tensor:
    """Give the gradient of a depthwise convolution's images, of shape ``ishape [N, H, W, C]``.

    ``Filter`` is ``[KH, KW, C, M]``, ``Out_grad`` of shape ``oshape [N, OH, OW, C * M]``.

    Raises ``VerifyError`` if shapes don't fit.
    """
    form = _depthwise_form(Filter, Out_grad, oshape, stride, padding)
    rows, columns, channels, number = Filter.shape
    require_equal("depthwise gradient: channels", as_expr(ishape[3]), channels)
    taps = [te.reduce_axis((0, extent), f"r{axis}") for extent, axis in zip((rows, columns), "hw")]
    rm = te.reduce_axis((0, number), "rm")
    wide = sum_dtype(Out_grad.dtype)

    def summed(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        at, there = [], []
        for place, tap, step, lead, extent in zip(
            (h, w), taps, form.stride, form.before, Out_grad.shape[1:3]
        ):
            moved = place + lead - tap.var
            at.append(moved // step)
            there += [moved >= 0, moved % step == 0, moved // step < extent]
        left = cast_expr(Out_grad(n, *at, c * number + rm.var), wide)
        right = cast_expr(Filter(taps[0].var, taps[1].var, c, rm.var), wide)
        made: Expr = te.sum(left * right, axis=[*taps, rm], where=and_(*there))
        return made

    total = te.compute(tuple(ishape), summed, name="depthwise_input_grad")
    return rounded(total, Out_grad.dtype)


@with_conditions
def depthwise_conv2d_backward_weight_nhwc(
    Input: Tensor,
    Out_grad: Tensor,
    oshape: Sequence[ExprLike],
    fshape: Sequence[ExprLike],
    stride: int | Sequence[int],
    padding: int | Sequence[int],
) -> Tensor:
    """Give the gradient of a depthwise convolution's filters, of shape ``fshape [KH, KW, C, M]``.

    ``Input`` is ``[N, H, W, C]``, ``Out_grad`` of shape ``oshape [N, OH, OW, C * M]``.

    Raises ``VerifyError`` if shapes don't fit.
    """
    form = _depthwise_form(Input, Out_grad, oshape, stride, padding)
    number = as_expr(fshape[3])
    require_equal("depthwise gradient: filters", Out_grad.shape[3], Input.shape[3] * number)
    before, after = (0, *form.before, 0), (0, *form.after, 0)
    source = pad(Input, before, after, name="pad_temp") if any((*before, *after)) else Input
    rn = te.reduce_axis((0, Input.shape[0]), "rn")
    places = [
        te.reduce_axis((0, extent), f"r{axis}") for extent, axis in zip(Out_grad.shape[1:3], "hw")
    ]
    wide = sum_dtype(Out_grad.dtype)

    def summed(r: Expr, s: Expr, c: Expr, m: Expr) -> Expr:
        at = [p.var * step + tap for p, step, tap in zip(places, form.stride, (r, s))]
        left = cast_expr(source(rn.var, *at, c), wide)
        right = cast_expr(Out_grad(rn.var, places[0].var, places[1].var, c * number + m), wide)
        made: Expr = te.sum(left * right, axis=[rn, *places])
        return made

    total = te.compute(tuple(fshape), summed, name="depthwise_weight_grad")
    return rounded(total, Out_grad.dtype)


def _depthwise_form(
    operand: Tensor,
    grad: Tensor,
    oshape: Sequence[ExprLike],
    stride: int | Sequence[int],
    padding: int | Sequence[int],
) -> Convolution:
    require_ndim("depthwise gradient", operand, 4)
    require_ndim("depthwise gradient", grad, 4)
    for extent, wanted in zip(grad.shape, oshape):
        require_equal("depthwise gradient: oshape", extent, as_expr(wanted))
    return Convolution.over(2, stride, padding, 1, 1)
