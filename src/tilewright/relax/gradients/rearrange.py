"""Gradients of rolls, diagonals, strided views and running extrema."""

from __future__ import annotations

from typing import Any

from tilewright.arith import simplify
from tilewright.ir import maximum, minimum
from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar, TupleGetItem
from tilewright.relax.gradients.common import count, number, pad_axis, slice_axis, zeros_like
from tilewright.relax.gradients.registry import Gradients, register_gradient, without_gradient

without_gradient("one_hot", "searchsorted")


@register_gradient("roll")
def _roll(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [op.roll(grad, -call.attrs["shift"], call.attrs["axis"])]


@register_gradient("diagonal")
def _diagonal(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x = call.args[0]
    axes = [call.attrs[name] % x.ndim for name in ("axis1", "axis2")]
    made: RelaxExpr = op.diag_embed(grad, call.attrs["offset"], *axes)
    for axis in axes:
        have, wanted = made.shape[axis], x.shape[axis]
        made = slice_axis(made, axis, 0, simplify(minimum(have, wanted)))
        made = pad_axis(made, axis, 0, simplify(maximum(wanted - have, 0)))
    return [made]


@register_gradient("diag_embed")
def _diag_embed(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [op.diagonal(grad, call.attrs["offset"], call.attrs["axis1"], call.attrs["axis2"])]


@register_gradient("as_strided")
def _as_strided(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, size, stride = call.args
    flat = op.zeros((count(x.shape),), grad.dtype)
    places = op.arange(count(x.shape), dtype="int64")
    places = op.as_strided(places, size, stride, call.attrs["storage_offset"])
    return [op.reshape(op.index_put(flat, [places], grad, True), x.shape), None, None]


@register_gradient("logcumsumexp")
def _logcumsumexp(var: RelaxVar, call: RelaxCall, grad: Any, ctx: BlockBuilder) -> Gradients:
    x, axis = call.args[0], call.attrs["axis"] % grad.ndim

    def part(weights: RelaxCall) -> Any:
        """What flows back by weights that aren't negative, summed as logarithms."""
        known = op.subtract(op.log(op.maximum(weights, number(0, weights))), var)
        later = op.flip(op.logcumsumexp(op.flip(known, axis), axis), axis)
        return op.exp(op.add(later, x))

    return [op.subtract(part(grad), part(op.negative(grad)))]


def _running_extremum(var: RelaxVar, call: RelaxCall, grad: Any, ctx: BlockBuilder) -> Gradients:
    places = ctx.emit(TupleGetItem(var, 1))
    values = grad.fields[0]
    return [op.scatter_elements(zeros_like(values), places, values, call.attrs["axis"], "add")]


register_gradient("cummax", _running_extremum)
register_gradient("cummin", _running_extremum)
