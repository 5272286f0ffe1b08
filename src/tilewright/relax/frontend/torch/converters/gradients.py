"""Backward operators: the gradients of convolutions and of pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import (
    CONVERTERS,
    Context,
    Results,
    Size,
    converts,
)
from tilewright.relax.frontend.torch.converters.image import RESIZES
from tilewright.relax.frontend.torch.converters.networks import (
    AnyConvolution,
    Means,
    convolved,
    pair,
)
from tilewright.relax.gradients.convolution import Windows, image_gradient, weight_gradient
from tilewright.relax.values import const
from tilewright.topi.resampling import Axis, filter_of, known_taps
from tilewright.topi.sampling import CUBIC

# ---- convolution ------------------------------------------------------------------------------


@converts("aten.convolution_backward.default", form=AnyConvolution)
def _convolution_backward(
    ctx: Context, grad: RelaxExpr, x: RelaxExpr, weight: RelaxExpr,
    bias_sizes: Sequence[Size] | None, how: AnyConvolution,
) -> Results:  # fmt: skip
    """Gradients with respect to the image, the weights and the bias, where they are wanted."""
    form, transposed = how.parameters, how.transposed
    of_x, of_weight, of_bias = how.output_mask
    made: Results = [None, None, None]
    spatial = weight.ndim - 2
    stride, padding, dilation = (
        form.along(ctx, field, spatial) for field in ("stride", "padding", "dilation")
    )
    groups = ctx.int(form.groups, "groups")
    windows = Windows(stride, padding, padding, dilation, groups)
    if of_x and transposed:
        made[0] = _fitted(ctx, convolved(ctx, grad, weight, None, form), x)
    elif of_x:
        have, size, kernel = (
            ctx.ints(tensor.shape[2:], "the size of the image and of the kernel")
            for tensor in (grad, x, weight)
        )
        # Rows at the end of the image that no window reaches.
        missed = [
            full - ((n - 1) * by - 2 * pad + reach * (k - 1) + 1)
            for full, n, by, pad, reach, k in zip(size, have, stride, padding, dilation, kernel)
        ]
        made[0] = image_gradient(grad, weight, x.shape[2:], missed, windows)
    if of_weight:
        # A transposed convolution is the gradient of one with operand and result exchanged.
        image, result = (grad, x) if transposed else (x, grad)
        made[1] = weight_gradient(result, image, ctx.ints(weight.shape[2:], "kernel"), windows)
    if of_bias:
        made[2] = op.sum(grad, (0, *range(2, grad.ndim)))
    return made


def _fitted(ctx: Context, made: RelaxExpr, like: RelaxExpr) -> RelaxExpr:
    """Cut off what no window reaches whole."""
    if all(as_int(have) == as_int(want) for have, want in zip(made.shape[2:], like.shape[2:])):
        return made
    spatial = like.ndim - 2
    ends, zeros, ones = ctx.ints(like.shape[2:], "sizes"), [0] * spatial, [1] * spatial
    return op.strided_slice(made, tuple(range(2, 2 + spatial)), zeros, ends, ones)


# ---- pooling ----------------------------------------------------------------------------------


def _spread(grad: RelaxExpr, shares: Sequence[NDArray[np.float64]]) -> RelaxExpr:
    """Give each window's gradient to its elements.

    ``shares`` has for each of the last axes a matrix: which share of a window (its column) an
    element (its row) has. Half floats are added up as float32.
    """
    dtype = grad.dtype
    made = op.astype(grad, "float32") if dtype in ("float16", "bfloat16") else grad
    for axis, share in enumerate(shares, grad.ndim - len(shares)):
        last = grad.ndim - 1
        weights = const(share.T.astype(made.dtype), made.dtype)
        order = [n for n in range(grad.ndim) if n != axis] + [axis]
        turned = made if axis == last else op.permute_dims(made, order)
        # A single window: a product without a sum.
        product = op.multiply if share.shape[1] == 1 else op.matmul
        turned = product(turned, weights)
        back = [order.index(n) for n in range(grad.ndim)]
        made = turned if axis == last else op.permute_dims(turned, back)
    return made if made.dtype == dtype else op.astype(made, dtype)


def _shares(
    bounds: Sequence[tuple[int, int]], size: int, divisors: Sequence[float]
) -> NDArray[np.float64]:
    """The matrix of windows ``[start, end)`` along an axis, each divided by a number."""
    made = np.zeros((size, len(bounds)))
    for number, ((start, end), divisor) in enumerate(zip(bounds, divisors)):
        made[max(start, 0) : max(end, 0), number] = 1 / divisor if divisor else 0
    return made


@converts("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default",
          form=Means)  # fmt: skip
def _avg_pool_backward(ctx: Context, grad: RelaxExpr, x: RelaxExpr, form: Means) -> RelaxExpr:
    spatial, divisor = ctx.spatial, form.divisor_override
    kernel, padding = pair(form.kernel, spatial), pair(form.padding, spatial)
    steps = pair(form.stride, spatial) if form.stride else kernel
    windows = ctx.ints(grad.shape[-spatial:], "the number of windows")
    sizes = ctx.ints(x.shape[-spatial:], "the size of the image")
    shares = []
    for axis, (count, size) in enumerate(zip(windows, sizes)):
        k, pad, step = kernel[axis], padding[axis], steps[axis]
        starts = [number * step - pad for number in range(count)]
        bounds = [(start, min(start + k, size + pad)) for start in starts]
        inside = [(max(start, 0), min(end, size)) for start, end in bounds]
        counted = bounds if form.count_include_pad else inside
        whole = [1.0 if divisor else float(end - start) for start, end in counted]
        shares.append(_shares(inside, size, whole))
    made = _spread(grad, shares)
    return op.multiply(made, 1 / divisor) if divisor else made


@converts("aten._adaptive_avg_pool2d_backward.default",
          "aten._adaptive_avg_pool3d_backward.default")  # fmt: skip
def _adaptive_avg_pool_backward(ctx: Context, grad: RelaxExpr, x: RelaxExpr) -> RelaxExpr:
    spatial = ctx.spatial
    windows = ctx.ints(grad.shape[-spatial:], "the number of windows")
    sizes = ctx.ints(x.shape[-spatial:], "the size of the image")
    shares = []
    for count, size in zip(windows, sizes):
        bounds = [
            (number * size // count, -(-(number + 1) * size // count)) for number in range(count)
        ]
        shares.append(_shares(bounds, size, [float(end - start) for start, end in bounds]))
    return _spread(grad, shares)


@converts("aten.max_pool2d_with_indices_backward.default",
          "aten.max_pool3d_with_indices_backward.default")  # fmt: skip
def _max_pool_backward(
    ctx: Context, grad: RelaxExpr, x: RelaxExpr, *windows_and_places: object
) -> RelaxExpr:
    places = windows_and_places[-1]  # they say all that the windows do
    if x.ndim == ctx.spatial + 2:
        return op.grad.max_pool_places_backward(grad, x, places)
    one = (op.expand_dims(tensor, 0) for tensor in (grad, x, places))
    return op.squeeze(op.grad.max_pool_places_backward(*one), (0,))


@converts("aten.hardshrink_backward.default", "aten.softshrink_backward.default")
def _shrink_backward(ctx: Context, grad: RelaxExpr, x: RelaxExpr, bound: float) -> RelaxExpr:
    outside = op.greater(op.abs(x), ctx.tensor(float(bound), x.dtype))
    return op.where(outside, grad, ctx.tensor(0.0, grad.dtype))


# ---- losses -----------------------------------------------------------------------------------

_MEAN = 1  # PyTorch's number of this way to reduce a loss


@converts("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default")
def _nll_loss_backward(
    ctx: Context, grad: RelaxExpr, x: RelaxExpr, target: RelaxExpr, weight: RelaxExpr | None,
    reduction: int, ignored: int, total: RelaxExpr,
) -> RelaxExpr:  # fmt: skip
    """Each target's score gets its share; as a comparison of places, which fuses with its uses."""
    axis = min(x.ndim, 2) - 1
    if x.ndim == 1:
        target = op.reshape(target, ())
    share = op.divide(grad, total) if reduction == _MEAN else grad
    share = op.negative(op.expand_dims(share, axis) if share.ndim else share)
    view = [x.shape[axis] if place == axis else 1 for place in range(x.ndim)]
    if weight is not None:
        share = op.multiply(share, op.reshape(weight, view))
    target = ctx.emit(op.expand_dims(target, axis))
    places = op.reshape(op.arange(0, x.shape[axis], 1, target.dtype), view)
    counted = op.logical_and(
        op.equal(places, target), op.not_equal(target, const(ignored, target.dtype))
    )
    return op.where(counted, share, ctx.tensor(0.0, grad.dtype))


# ---- resizing ---------------------------------------------------------------------------------


def _resize_backward(method: str, mode: str, antialias: bool) -> Callable[..., RelaxExpr]:
    """Each result's gradient goes to the pixels that it is a sum of."""

    def convert(
        ctx: Context, grad: RelaxExpr, want: Sequence[Size], have: Sequence[Size], *rest: Any
    ) -> RelaxExpr:
        align, factors = (False, rest) if mode else (rest[0], rest[1:])
        coordinates = mode or ("align_corners" if align else "half_pixel")
        how = filter_of(method, coordinates, CUBIC, antialias)
        number = "float64" if grad.dtype == "float64" else "float32"
        pixels = ctx.ints(have[2:], "the size of the image")
        sizes = zip(pixels, ctx.ints(want, "size"), factors or [None] * len(pixels))
        axes = [Axis(n, m, number, coordinates, factor) for n, m, factor in sizes]
        return _spread(grad, [known_taps(axis, how).matrix(axis.have) for axis in axes])

    return convert


for _name, _way in RESIZES.items():
    CONVERTERS.register(f"aten.{_name}_backward.default", _resize_backward(*_way))
