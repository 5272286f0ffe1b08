"""Gradients of reductions, running sums and products, and softmax."""

from __future__ import annotations

from typing import Any

from tilewright.ir import as_int, const
from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.gradients.common import (
    as_dtype,
    count,
    count_of,
    expanded,
    number,
    reduced_axes,
    slice_axis,
    zeros_like,
)
from tilewright.relax.gradients.registry import Gradients, register_gradient


def _operand_and_expanded(call: RelaxCall, *values: RelaxExpr) -> tuple[Any, ...]:
    """The operand, and values of the result's shape with the reduced axes kept."""
    x, axis, keepdims = call.args[0], call.attrs["axis"], call.attrs["keepdims"]
    return x, *(expanded(value, x, axis, keepdims) for value in values)


@register_gradient("sum")
def _sum(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, wide = _operand_and_expanded(call, grad)
    return [op.broadcast_to(wide, x.shape)]


@register_gradient("mean")
def _mean(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, wide = _operand_and_expanded(call, grad)
    return [op.broadcast_to(wide / _count(call), x.shape)]


def _count(call: RelaxCall) -> RelaxExpr:
    x = call.args[0]
    return count_of([x.shape[axis] for axis in reduced_axes(x, call.attrs["axis"])], x)


def _extremum(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    """Equal elements share."""
    x, wide, found = _operand_and_expanded(call, grad, var)
    hits = op.astype(op.equal(x, found), x.dtype)
    return [hits * (wide / op.sum(hits, call.attrs["axis"], keepdims=True))]


register_gradient("max", _extremum)
register_gradient("min", _extremum)


@register_gradient("variance")
def _variance(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, wide = _operand_and_expanded(call, grad)
    centred = x - op.mean(x, call.attrs["axis"], keepdims=True)
    return [centred * (wide * 2.0 / _count(call))]


@register_gradient("std")
def _std(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    """Zero where all elements are equal."""
    x, wide, found = _operand_and_expanded(call, grad, var)
    centred = x - op.mean(x, call.attrs["axis"], keepdims=True)
    zero = number(0, found)
    factor = op.where(op.equal(found, zero), zero, wide / (found * _count(call)))
    return [centred * factor]


@register_gradient("prod")
def _prod(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    """The product of all other elements: of those before times those after."""
    x, wide = _operand_and_expanded(call, grad)
    axes = reduced_axes(x, call.attrs["axis"])
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    order = [*kept, *axes]
    rows = op.reshape(
        op.permute_dims(x, order) if x.ndim else x,
        (*(x.shape[a] for a in kept), count([x.shape[a] for a in axes])),
    )
    last = len(kept)
    others = _before(rows, last) * op.flip(_before(op.flip(rows, last), last), last)
    turned = op.reshape(others, [x.shape[a] for a in order])
    back = [order.index(axis) for axis in range(x.ndim)]
    return [wide * (op.permute_dims(turned, back) if x.ndim else turned)]


def _before(rows: RelaxCall, axis: int) -> RelaxExpr:
    """For each element the product of those before it."""
    one = list(rows.shape)
    one[axis] = const(1)
    moved = op.concat([op.ones(one, rows.dtype), rows], axis)
    return op.cumprod(slice_axis(moved, axis, 0, rows.shape[axis]), axis)


# ---- running sums and products ---------------------------------------------------------------


def _flat(call: RelaxCall, *values: object) -> tuple[Any, ...]:
    """Operand and values along one axis, which is 0 of the flat tensor if none is given."""
    x, axis = call.args[0], call.attrs["axis"]
    if axis is not None:
        return (axis % x.ndim, x, *values)
    return (0, op.reshape(x, (count(x.shape),)), *values)


def _from_behind(x: RelaxExpr, axis: int) -> RelaxCall:
    return op.flip(op.cumsum(op.flip(x, axis), axis), axis)


def _as_operand(made: RelaxCall, call: RelaxCall) -> RelaxExpr:
    x = call.args[0]
    return as_dtype(op.reshape(made, x.shape), x.dtype)


@register_gradient("cumsum")
def _cumsum(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    axis, _, wide = _flat(call, grad)
    return [_as_operand(_from_behind(wide, axis), call)]


@register_gradient("cumprod")
def _cumprod(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    """Up to the first zero by division; for the zero itself with a one in its place."""
    axis, x, y, wide = _flat(call, var, grad)
    x = as_dtype(x, y.dtype)
    is_zero = op.equal(x, number(0, x))
    seen = op.cumsum(op.astype(is_zero, "int64"), axis)
    one = number(1, x)
    is_first = op.logical_and(is_zero, op.equal(seen, number(1, seen)))
    at_zero = _from_behind(wide * op.cumprod(op.where(is_first, one, x), axis), axis)
    before = _from_behind(wide * y, axis) / op.where(is_zero, one, x)
    is_before = op.equal(seen, number(0, seen))
    made = op.where(is_before, before, op.where(is_first, at_zero, number(0, x)))
    return [_as_operand(made, call)]


# ---- softmax ---------------------------------------------------------------------------------


@register_gradient("nn.softmax")
def _softmax(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    weighted = grad * var
    total = op.sum(weighted, call.attrs["axis"], keepdims=True)
    return [weighted - var * total]


@register_gradient("nn.log_softmax")
def _log_softmax(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    total = op.sum(grad, call.attrs["axis"], keepdims=True)
    return [grad - op.exp(var) * total]


# ---- sorting ---------------------------------------------------------------------------------


@register_gradient("sort")
def _sort(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, axis = call.args[0], call.attrs["axis"]
    if as_int(x.shape[axis]) == 0:
        return [zeros_like(x)]
    places = op.argsort(x, axis, call.attrs["descending"], "int64")
    return [op.grad.gather_elements_backward(grad, x, places, axis)]


@register_gradient("topk")
def _topk(var: RelaxVar, call: RelaxCall, grad: Any, ctx: BlockBuilder) -> Gradients:
    x, axis, kind = call.args[0], call.attrs["axis"], call.attrs["ret_type"]
    if kind == "indices":
        return [None]
    if kind == "both":
        places: RelaxExpr = var[1]
        grad = grad.fields[0]
    else:
        places = op.topk(x, **{**call.attrs, "ret_type": "indices"})
    return [op.grad.gather_elements_backward(grad, x, places, axis)]
