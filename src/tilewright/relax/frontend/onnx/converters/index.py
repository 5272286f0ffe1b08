"""Reading and writing at places that tensors say; sorting."""

from __future__ import annotations

import numpy as np

from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.onnx.converters.base import (
    Array,
    Context,
    Shape,
    Tensor,
    Value,
    converts,
)
from tilewright.relax.values import const


def from_front(ctx: Context, indices: Tensor, x: Tensor, axis: int) -> Tensor:
    """Indices of which negative ones count from the end, as places from the front."""
    found = ctx.known(indices)
    if found is not None and (not found.size or found.min() >= 0):
        return indices
    extent = as_int(x.shape[axis])
    if found is not None and extent is not None:
        return const((found + (found < 0) * extent).astype(found.dtype))
    size = (
        const(extent, indices.dtype)
        if extent is not None
        else ctx.cast(op.reshape(op.arange(x.shape[axis], x.shape[axis] + 1), ()), indices.dtype)
    )
    return op.where(op.less(indices, const(0, indices.dtype)), op.add(indices, size), indices)


@converts("Gather")
def _gather(ctx: Context, data: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    at = ctx.axis(axis, data.ndim)
    return op.take(data, from_front(ctx, indices, data, at), at)


@converts("GatherElements")
def _gather_elements(ctx: Context, data: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    at = ctx.axis(axis, data.ndim)
    return op.gather_elements(data, from_front(ctx, indices, data, at), at)


@converts("GatherND")
def _gather_nd(ctx: Context, data: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    return op.gather_nd(data, indices, batch_dims)


_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@converts("ScatterElements", "Scatter")
def _scatter_elements(
    ctx: Context, data: Tensor, indices: Tensor, updates: Tensor,
    *, axis: int = 0, reduction: str = "none",
) -> Tensor:  # fmt: skip
    ctx.choice("reduction", reduction, tuple(_REDUCTIONS))
    at = ctx.axis(axis, data.ndim)
    return op.scatter_elements(data, indices, updates, at, _REDUCTIONS[reduction])


@converts("ScatterND")
def _scatter_nd(
    ctx: Context, data: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none"
) -> Tensor:
    ctx.choice("reduction", reduction, tuple(_REDUCTIONS))
    return op.scatter_nd(data, indices, updates, _REDUCTIONS[reduction])


@converts("OneHot")
def _one_hot(
    ctx: Context, indices: Tensor, depth: Value, values: Tensor, *, axis: int = -1
) -> Tensor:
    found = ctx.array(depth, "depth").reshape(-1)
    ctx.require(len(found) == 1, "depth must be one number")
    count = int(found[0])
    places = ctx.cast(indices, "int64")
    size = const(count, "int64")
    places = op.where(op.less(places, const(0, "int64")), op.add(places, size), places)
    chosen = op.one_hot(places, 1, 0, count, axis, "int8")
    off, on = (op.strided_slice(values, [0], [n], [n + 1]) for n in range(2))
    return op.where(op.not_equal(chosen, const(0, "int8")), on, off)


@converts("TopK")
def _topk(
    ctx: Context, x: Tensor, k: Shape | None = None,
    *, axis: int = -1, largest: int = 1, sorted: int = 1, k_: int | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    count = k_ if k is None else ctx.ints(k, "k")[0]
    ctx.require(count is not None, "k is missing")
    made = ctx.emit(op.topk(x, count, ctx.axis(axis, x.ndim), "both", bool(largest), "int64"))
    return tuple(made)


@converts("Compress")
def _compress(ctx: Context, x: Tensor, condition: Array, *, axis: int | None = None) -> Tensor:
    places = condition.reshape(-1).nonzero()[0].astype("int64")
    if axis is None:
        return op.take(op.reshape(x, (-1,)), const(places), 0)
    return op.take(x, const(places), ctx.axis(axis, x.ndim))


@converts("NonZero")
def _nonzero(ctx: Context, x: Array) -> Tensor:
    return const(_stacked(x))


def _stacked(x: Array) -> Array:
    if not x.ndim:
        return np.zeros((0, int(bool(x))), np.int64)
    return np.stack(x.nonzero()).astype(np.int64)


@converts("TensorScatter")
def _tensor_scatter(
    ctx: Context, past: Tensor, update: Tensor, write_indices: Tensor | None = None,
    *, axis: int = -2, mode: str = "linear",
) -> Tensor:  # fmt: skip
    ctx.choice("mode", mode, ("linear", "circular"))
    at = ctx.axis(axis, past.ndim)
    batch = past.shape[0]
    view = [update.shape[at] if n == at else 1 for n in range(past.ndim)]
    places: RelaxExpr = op.reshape(op.arange(0, update.shape[at], 1, "int64"), view)
    if write_indices is not None:
        start = op.reshape(ctx.cast(write_indices, "int64"), [batch, *[1] * (past.ndim - 1)])
        places = op.add(places, start)
    if mode == "circular":
        extent = op.reshape(op.arange(past.shape[at], past.shape[at] + 1), ())
        places = op.floor_mod(places, extent)
    places = op.broadcast_to(places, update.shape)
    return op.scatter_elements(past, places, update, at)
