"""Gradients of reads and writes where indices say.

Where several updates write one element, the gradient flows back to all of them, as in PyTorch.
"""

from __future__ import annotations

from typing import Any, cast

from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import PrimValue, RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.gradients.common import collapse_to, number, pad_axis, zeros_like
from tilewright.relax.gradients.registry import Gradients, register_gradient
from tilewright.support.errors import VerifyError
from tilewright.topi.slices import slice_bounds


@register_gradient("index_tensor")
def _index_tensor(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, indices = call.args
    tables: Any = indices
    made = op.index_put(zeros_like(x), indices, grad, True, call.attrs["axis"])
    return [made, [None] * len(tables.struct_info.fields)]


@register_gradient("index_put")
def _index_put(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    _, indices, values = call.args
    tables: Any = indices
    axis = call.attrs["axis"]
    kept = grad if call.attrs["accumulate"] else op.index_put(
        grad, indices, number(0, values), False, axis
    )  # fmt: skip
    taken = collapse_to(op.index_tensor(grad, indices, axis), values.shape)
    return [kept, [None] * len(tables.struct_info.fields), taken]


@register_gradient("gather_nd")
def _gather_nd(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, indices = call.args
    outer = indices.shape[:-1]
    parts = []
    for axis in range(call.attrs["batch_dims"]):
        own: list[Any] = [1] * indices.ndim
        own[axis] = outer[axis]
        place = op.reshape(op.arange(outer[axis], dtype=indices.dtype), own)
        parts.append(op.broadcast_to(place, (*outer, 1)))
    places = op.concat([*parts, indices], -1) if parts else indices
    return [op.scatter_nd(zeros_like(x), places, grad, "add"), None]


@register_gradient("scatter_elements")
def _scatter_elements(
    var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder
) -> Gradients:
    _, indices, updates = call.args
    axis = call.attrs["axis"]
    # "wrap" is how negative indices count from the end.
    taken: RelaxExpr = op.gather_elements(grad, indices, axis, "wrap")
    zeros = op.zeros(indices.shape, grad.dtype)
    kept = op.scatter_elements(grad, indices, zeros, axis) if _replaces(call) else grad
    for a, (given, used) in enumerate(zip(updates.shape, indices.shape)):
        taken = pad_axis(taken, a, 0, given - used)
    return [kept, None, taken]


@register_gradient("scatter_nd")
def _scatter_nd(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    _, indices, updates = call.args
    kept = op.scatter_nd(grad, indices, zeros_like(updates)) if _replaces(call) else grad
    return [kept, None, op.gather_nd(grad, indices)]


def _replaces(call: RelaxCall) -> bool:
    """Whether updates replace elements, rather than being added to them."""
    reduction = call.attrs["reduction"]
    if reduction not in ("update", "add"):
        raise VerifyError(
            f"{call.op_name}: there is a gradient for the reductions update and add, not for "
            f"{reduction}"
        )
    return bool(reduction == "update")


@register_gradient("slice_scatter")
def _slice_scatter(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, src = call.args[:2]
    start, end = cast("list[PrimValue]", call.args[2:])
    step, axis = call.attrs["step"], call.attrs["axis"]
    low, high = slice_bounds(start.value, end.value, x.shape[axis], step)
    kept = op.slice_scatter(grad, zeros_like(src), start, end, step, axis)
    begin, stop = as_int(low), as_int(high)
    if begin is None or stop is None:
        taken = op.take(grad, op.arange(low, high, step), axis, "fast")
    else:
        taken = op.strided_slice(grad, [axis], [begin], [stop], [step])
    return [kept, taken, None, None]
