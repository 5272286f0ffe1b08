"""The gradients of a convolution, for ``transform.Gradient`` and importers of such operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.arith import simplify
from tilewright.ir import Expr, as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.gradients.common import slice_axis


@dataclass(frozen=True)
class Windows:
    """How filters slide over an image: one number for each spatial axis."""

    strides: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @property
    def padding(self) -> tuple[int, ...]:
        """Before all axes, then after all."""
        return (*self.before, *self.after)


def image_gradient(
    grad: RelaxExpr, weight: RelaxExpr, extents: Sequence[Expr], spare: Sequence[int], form: Windows
) -> RelaxExpr:
    """The gradient of images of such extents, from that of their convolution.

    ``spare`` says how many pixels at the ends no window reaches; more than so many are cut off.
    """
    spatial = len(extents)
    kernel = [as_int(extent) for extent in weight.shape[2:]]
    if _is_of_points(kernel, form):
        made = _through_points(grad, weight)
        unit = set(form.strides) == {1}
        return made if unit else _between_zeros(made, extents, form.strides)
    transpose: Callable[..., RelaxExpr] = getattr(op.nn, f"conv{spatial}d_transpose")
    made = transpose(
        grad, weight, form.strides, form.padding, tuple(spare), form.dilation, form.groups
    )
    for axis, extent in enumerate(extents, 2):
        made = slice_axis(made, axis, 0, extent)
    return made


def weight_gradient(
    grad: RelaxExpr, data: RelaxExpr, window: Sequence[int], form: Windows
) -> RelaxExpr:
    """The gradient of filters of such a window, from that of what they make of images."""
    known = None not in map(as_int, (*grad.shape, *data.shape))
    if known and _is_of_points(window, form):
        return _weight_of_points(grad, data, form.strides)
    return op.grad.conv_weight_backward(
        grad, data, tuple(window), form.strides, form.padding, form.dilation, form.groups
    )


# ---- filters of single pixels: matrix products ------------------------------------------------


def _is_of_points(window: Sequence[int | None], form: Windows) -> bool:
    return set(window) == {1} and form.groups == 1 and not any(form.padding)


def _through_points(grad: RelaxExpr, weight: RelaxExpr) -> RelaxExpr:
    plain: Callable[..., RelaxExpr] = getattr(op.nn, f"conv{weight.ndim - 2}d")
    return plain(grad, op.permute_dims(weight, (1, 0, *range(2, weight.ndim))))


def _between_zeros(x: RelaxExpr, extents: Sequence[Expr], strides: Sequence[int]) -> RelaxExpr:
    """Pixels ``strides`` apart in images of zeros."""
    apart: list[Expr | int] = list(x.shape[:2])
    widths, joined = [0] * 4, list(x.shape[:2])
    for extent, step in zip(x.shape[2:], strides):
        apart += [extent, 1]
        widths += [0, 0, 0, step - 1]
        joined.append(simplify(extent * step))
    wide: RelaxExpr = op.reshape(op.nn.pad(op.reshape(x, apart), widths), joined)
    for axis, extent in enumerate(extents, 2):
        wide = slice_axis(wide, axis, 0, extent)
    return wide


def _weight_of_points(grad: RelaxExpr, data: RelaxExpr, strides: Sequence[int]) -> RelaxExpr:
    images, filters, *places = (as_int(extent) or 0 for extent in grad.shape)
    channels, pixels = as_int(data.shape[1]) or 0, math.prod(places)
    if set(strides) != {1}:
        ends = [(count - 1) * step + 1 for count, step in zip(places, strides)]
        axes = tuple(range(2, data.ndim))
        data = op.strided_slice(data, axes, [0] * len(axes), ends, strides)
    parts = [
        op.reshape(x, (images, count, pixels)) for x, count in ((grad, filters), (data, channels))
    ]
    shape = (filters, channels, *[1] * len(places))
    if filters * channels <= pixels * (filters + channels):
        return op.reshape(op.sum(op.matmul(*parts, transpose_b=True), 0), shape)
    # Products of all images take more memory than the images themselves.
    rows = [op.reshape(op.permute_dims(x, (1, 0, 2)), (x.shape[1], images * pixels)) for x in parts]
    return op.reshape(op.matmul(*rows, transpose_b=True), shape)
