"""Gradients of operators that only move elements."""

from __future__ import annotations

from typing import Any

from tilewright.arith import simplify
from tilewright.ir import Expr, as_expr, const, maximum
from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.gradients.common import collapse, count, pad_axis, slice_axis
from tilewright.relax.gradients.registry import Gradients, register_gradient, without_gradient
from tilewright.relax.ops.derived import size_value
from tilewright.relax.values import const as constant
from tilewright.topi.slices import slice_bounds


def _reshaped(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x = call.args[0]
    return [op.reshape(grad, x.shape), *[None] * (len(call.args) - 1)]


for _name in ("reshape", "expand_dims", "squeeze"):
    register_gradient(_name, _reshaped)

without_gradient("scalar_to_tensor", "shape_to_tensor", "tensor_to_shape")


@register_gradient("permute_dims")
def _permute_dims(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    axes = list(call.attrs["axes"])
    if not axes:
        return [grad]
    return [op.permute_dims(grad, [axes.index(axis) for axis in range(len(axes))])]


@register_gradient("broadcast_to")
def _broadcast_to(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [collapse(grad, call.args[0]), None]


@register_gradient("concat")
def _concat(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    axis = call.attrs["axis"] % grad.ndim
    operand = call.args[0]
    parts, start = [], const(0)
    for part in operand:
        size = part.shape[axis]
        parts.append(slice_axis(grad, axis, simplify(start), size))
        start = start + size
    return [parts]


@register_gradient("split")
def _split(var: RelaxVar, call: RelaxCall, grad: Any, ctx: BlockBuilder) -> Gradients:
    return [op.concat(list(grad.fields), call.attrs["axis"])]


@register_gradient("strided_slice")
def _strided_slice(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x = call.args[0]
    options = call.attrs
    for axis, begin, end, step in zip(
        options["axes"], options["begin"], options["end"], options["strides"]
    ):
        extent = x.shape[axis]
        inside = options["assume_inbound"]
        low, _ = slice_bounds(begin, end, extent, step, assume_inbound=inside)
        if step < 0:
            low = simplify(low + (grad.shape[axis] - 1) * step)
            grad, step = op.flip(grad, axis), -step
        grad = _between_zeros(grad, axis, low, step, extent)
    return [grad]


def _between_zeros(grad: RelaxExpr, axis: int, start: Expr, step: int, extent: Expr) -> RelaxExpr:
    """Put the elements of an axis at ``start``, ``start + step``, … of an axis of zeros."""
    made = grad
    if step > 1:
        shape = list(grad.shape)
        wide = pad_axis(op.expand_dims(grad, axis + 1), axis + 1, 0, step - 1)
        shape[axis] = simplify(shape[axis] * step)
        made = op.reshape(wide, shape)
    taken = simplify(start + made.shape[axis])
    made = pad_axis(made, axis, start, simplify(maximum(extent - taken, 0)))
    return slice_axis(made, axis, 0, extent)


@register_gradient("nn.pad")
def _pad(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, mode, widths = call.args[0], call.attrs["pad_mode"], call.attrs["pad_width"]
    if min(widths, default=0) < 0:  # what a negative width takes away has no part
        return [op.nn.pad(grad, [-width for width in widths])]
    for axis, before in enumerate(call.attrs["pad_width"][::2]):
        extent = x.shape[axis]
        if mode == "constant":
            grad = slice_axis(grad, axis, before, extent)
        elif call.attrs["pad_width"][2 * axis : 2 * axis + 2] != (0, 0):
            shape = [*grad.shape[:axis], extent, *grad.shape[axis + 1 :]]
            places = _source(mode, op.arange(-before, grad.shape[axis] - before), extent)
            grad = op.grad.take_backward(grad, op.zeros(shape, grad.dtype), places, axis, "fast")
    return [grad]


def _source(mode: str, place: RelaxExpr, extent: Expr) -> RelaxExpr:
    """From where along an axis padding takes its elements."""
    size = size_value(extent)
    if mode == "circular":
        return op.floor_mod(place, size)
    one = constant(1, "int64")
    last = op.subtract(size, one)
    if mode == "replicate":
        return op.maximum(op.minimum(place, last), constant(0, "int64"))
    back_and_forth = op.multiply(last, constant(2, "int64"))
    turn = op.floor_mod(place, op.maximum(back_and_forth, one))
    return op.minimum(turn, op.subtract(back_and_forth, turn))


@register_gradient("flip")
def _flip(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [op.flip(grad, call.attrs["axis"])]


@register_gradient("repeat")
def _repeat(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, axis = call.args[0], call.attrs["axis"]
    shape = [count(x.shape)] if axis is None else list(x.shape)
    at = 0 if axis is None else axis % x.ndim
    apart = (*shape[: at + 1], call.attrs["repeats"], *shape[at + 1 :])
    return [op.reshape(op.sum(op.reshape(grad, apart), at + 1), x.shape)]


@register_gradient("tile")
def _tile(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, repeats = call.args[0], call.attrs["repeats"]
    ndim = grad.ndim
    shape = (*[const(1)] * (ndim - x.ndim), *x.shape)
    counts = (*[1] * (ndim - len(repeats)), *repeats)
    apart = [as_expr(item) for pair in zip(counts, shape) for item in pair]
    total = op.sum(op.reshape(grad, apart), tuple(range(0, 2 * ndim, 2))) if ndim else grad
    return [op.reshape(total, x.shape)]


@register_gradient("tril")
def _tril(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [op.tril(grad, call.attrs["k"])]


@register_gradient("triu")
def _triu(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [op.triu(grad, call.attrs["k"])]


@register_gradient("take")
def _take(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, indices = call.args
    return [op.grad.take_backward(grad, x, indices, call.attrs["axis"], call.attrs["mode"]), None]


@register_gradient("gather_elements")
def _gather(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, at = call.args
    options = call.attrs["axis"], call.attrs["mode"]
    return [op.grad.gather_elements_backward(grad, x, at, *options), None]


@register_gradient("grad.take_backward")
def _take_backward(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [op.take(grad, call.args[2], call.attrs["axis"], call.attrs["mode"]), None, None]


@register_gradient("grad.gather_elements_backward")
def _gather_backward(
    var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder
) -> Gradients:
    options = call.attrs["axis"], call.attrs["mode"]
    return [op.gather_elements(grad, call.args[2], *options), None, None]
