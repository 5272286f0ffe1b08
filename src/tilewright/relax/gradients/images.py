"""Gradients of resizing, of layouts, and of operators that are gradients themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arith import simplify
from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.gradients.common import as_dtype, count, number, slice_axis
from tilewright.relax.gradients.convolution import Windows, image_gradient
from tilewright.relax.gradients.registry import Gradients, register_gradient, without_gradient
from tilewright.relax.values import const
from tilewright.support.errors import ScheduleError, VerifyError
from tilewright.tir import IndexMap
from tilewright.topi.image import resized_axes
from tilewright.topi.resampling import filter_of, known_taps
from tilewright.topi.utils import padding_of, pair

without_gradient("nn.max_pool_places", "nn.adaptive_max_pool_places")


# ---- resizing --------------------------------------------------------------------------------


def _shares(call: RelaxCall, axis: int, extent: int, size: int) -> NDArray[Any]:
    """How much each pixel of the image (a column) counts in each of the result (a row)."""
    attrs = call.attrs
    kind: Any = np.float64 if call.args[0].dtype == "float64" else np.float32
    mode, factor = attrs["coordinate_transformation_mode"], attrs["scale_factor"]
    if mode == "align_corners":
        step = kind(0) if size == 1 else kind(extent - 1) / kind(size - 1)
    else:
        step = kind(extent) / kind(size) if factor is None else kind(1 / factor[axis])
    places, made = np.arange(size).astype(kind), np.zeros((size, extent), kind)
    rows = np.arange(size)
    if attrs["method"] == "nearest_neighbor":
        shift = 0.5 if mode == "align_corners" else 0.0
        at = (places + kind(0.5)) * step if mode == "half_pixel" else places * step + kind(shift)
        made[rows, np.minimum(np.floor(at).astype(np.int64), extent - 1)] = 1
        return made
    at = places * step
    if mode == "half_pixel":
        at = np.maximum((places + kind(0.5)) * step - kind(0.5), kind(0))
    first = np.minimum(at.astype(np.int64), extent - 1)
    part = at - first.astype(kind)
    np.add.at(made, (rows, first), kind(1) - part)
    np.add.at(made, (rows, np.minimum(first + 1, extent - 1)), part)
    return made


@register_gradient("image.resize2d")
def _resize2d(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, layout = call.args[0], call.attrs["layout"]
    at = layout.index("H")
    extents, sizes = (list(map(as_int, y.shape[at : at + 2])) for y in (x, var))
    if None in extents or None in sizes:
        raise VerifyError(
            "image.resize2d has a gradient for images of constant height and width, "
            f"got {x.shape} and {var.shape}"
        )
    down, across = (const(_shares(call, k, extents[k] or 0, sizes[k] or 0)) for k in range(2))
    made = as_dtype(grad, down.dtype)
    if layout == "NHWC":
        made = op.permute_dims(made, (0, 3, 1, 2))
    made = op.matmul(op.permute_dims(down, (1, 0)), op.matmul(made, across))
    if layout == "NHWC":
        made = op.permute_dims(made, (0, 2, 3, 1))
    return [as_dtype(made, grad.dtype), None]


@register_gradient("image.resize")
def _resize(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    """Along each axis, a result's gradient goes to the pixels that it is a sum of."""
    x, attrs = call.args[0], call.attrs
    mode, layout = attrs["coordinate_transformation_mode"], attrs["layout"]
    first = 1 if layout.endswith("C") else 2
    sizes = var.shape[first : first + len(layout) - 2]
    axes = resized_axes(x.shape, sizes, layout, mode, attrs["scale_factor"], x.dtype)
    if not all(axis.is_known for axis in axes.values()):
        raise VerifyError(
            "image.resize has a gradient for images of constant size, "
            f"got {x.shape} and {var.shape}"
        )
    how = filter_of(attrs["method"], mode, attrs["cubic_alpha"], attrs["antialias"])
    made = grad
    for at, axis in axes.items():
        shares = known_taps(axis, how).matrix(axis.have).T.astype(axis.dtype)
        order = [n for n in range(x.ndim) if n != at] + [at]
        turned = op.permute_dims(as_dtype(made, axis.dtype), order)
        made = op.permute_dims(
            op.matmul(turned, const(np.ascontiguousarray(shares))),
            [order.index(n) for n in range(x.ndim)],
        )
    return [as_dtype(made, grad.dtype), None]


@register_gradient("image.affine_grid")
def _affine_grid(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    """Each number of a matrix moves all places, in proportion to where they were."""
    extents = [as_int(extent) or 0 for extent in var.shape[2:]]
    ends = [
        (1.0 if call.attrs["align_corners"] else 1 - 1 / max(size, 1)) if size > 1 else 0.0
        for size in extents
    ]
    lines = [np.linspace(-end, end, size) for end, size in zip(ends, extents)]
    places = [*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(extents)]
    table = np.stack([place.reshape(-1) for place in places], 1).astype(var.dtype)
    flat = op.reshape(grad, (*var.shape[:2], count(var.shape[2:])))
    return [op.matmul(flat, const(table)), None]


# ---- layouts ---------------------------------------------------------------------------------


@register_gradient("layout_transform")
def _layout_transform(
    var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder
) -> Gradients:
    x = call.args[0]
    try:
        back = IndexMap.from_text(call.attrs["index_map"]).layout_inverse(x.shape)
    except ScheduleError as error:
        raise VerifyError(
            f"layout_transform has a gradient where nothing is padded: {error}"
        ) from None
    return [op.layout_transform(grad, back)]


# ---- gradients of gradients ------------------------------------------------------------------


@register_gradient("grad.root")
def _root(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    order, zero = call.attrs["order"], number(0, var)
    at_zero = op.equal(var, zero)
    size = op.where(at_zero, number(1, var), var)
    slope = 1 / (size * 2.0) if order == 2 else op.power(size, number(1 - order, var)) / order
    return [op.where(at_zero, zero, grad * slope)]


def _average(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    pool = getattr(op.nn, call.op_name.removeprefix("grad.").removesuffix("_backward"))
    options = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad")
    return [pool(grad, **{name: call.attrs[name] for name in options}), None]


def _at_places(grad: RelaxExpr, places: RelaxExpr) -> RelaxExpr:
    """The elements of images at flat places."""
    outer = grad.shape[:2]
    flat = op.reshape(grad, (*outer, count(grad.shape[2:])))
    rows = op.reshape(places, (*outer, count(places.shape[2:])))
    return op.reshape(op.gather_elements(flat, rows, 2), places.shape)


def _maximum(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    names = ("pool_size", "strides", "padding", "dilation", "ceil_mode")
    places = op.nn.max_pool_places(call.args[1], *(call.attrs[name] for name in names))
    return [_at_places(grad, places), None]


for _spatial in (1, 2, 3):
    register_gradient(f"grad.avg_pool{_spatial}d_backward", _average)
    register_gradient(f"grad.max_pool{_spatial}d_backward", _maximum)


@register_gradient("grad.max_pool_places_backward")
def _maximum_at(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [_at_places(grad, call.args[2]), None, None]


def _joined(x: RelaxExpr) -> RelaxExpr:
    """All images as the channels of one."""
    return op.reshape(x, (1, simplify(x.shape[0] * x.shape[1]), *x.shape[2:]))


@register_gradient("grad.conv_weight_backward")
def _of_filters(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    """It is linear in both: a convolution of the images, and the gradient of these."""
    result, data = call.args
    attrs, spatial = call.attrs, data.ndim - 2
    before, after = padding_of(attrs["padding"], spatial)
    strides, dilation = pair(attrs["strides"], spatial), pair(attrs["dilation"], spatial)
    groups, weight, filters, image = attrs["groups"], grad, result, data
    if attrs["by_image"]:
        # Each image has filters of its own, as groups have.
        images = as_int(data.shape[0])
        if images is None:
            raise VerifyError(f"{call.op_name} has a gradient for a known number of images")
        groups = groups * images
        weight = op.reshape(grad, (simplify(grad.shape[0] * grad.shape[1]), *grad.shape[2:]))
        filters, image = map(_joined, (result, data))
    form = Windows(strides, before, after, dilation, groups)
    made = getattr(op.nn, f"conv{spatial}d")(image, weight, strides, form.padding, dilation, groups)
    for axis in range(2, data.ndim):
        made = slice_axis(made, axis, 0, result.shape[axis])
    spare: list[int] = []
    for a, step in enumerate(strides):
        left = data.shape[2 + a] + before[a] + after[a] - 1
        left = left - (weight.shape[2 + a] - 1) * dilation[a]
        known = as_int(simplify(left - (result.shape[2 + a] - 1) * step))
        spare.append(step - 1 if known is None else known)
    back = image_gradient(filters, weight, data.shape[2:], spare, form)
    return [op.reshape(made, result.shape), op.reshape(back, data.shape)]
