"""Gradients of a convolution's filters."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import te
from tilewright.ir import Expr, ExprLike, as_int
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
