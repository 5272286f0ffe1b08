"""Writing where indices, masks or slices say: each gives a new tensor.

PyTorch doesn't define which of several writes to one element stays; here it is the last one. Sums
are made in the order of the updates, so they are the same in each run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import Expr, as_int, dtypes
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import Context, Operand, Size, converts
from tilewright.relax.frontend.torch.converters.indexing import (
    compact,
    cut,
    indexed_axes,
    is_mask,
    put_first,
    strided_places,
)
from tilewright.relax.ops.common import element_count
from tilewright.relax.struct_info import prove_equal
from tilewright.relax.values import const
from tilewright.topi.utils import sum_dtype

# ---- at tensors of indices -----------------------------------------------------------------------


@converts("aten.index_put.default", "aten._unsafe_index_put.default")
def _index_put(
    ctx: Context,
    x: RelaxExpr,
    indices: list[RelaxExpr | None],
    values: RelaxExpr,
    accumulate: bool = False,
) -> RelaxExpr:
    values = ctx.cast(values, x.dtype)
    given = [index for index in indices if index is not None]
    if len(given) == 1 and is_mask(given[0]):
        return _put_at_mask(ctx, x, indices, values, accumulate)
    if not given:
        new = op.broadcast_to(values, x.shape)
        return op.add(x, new) if accumulate else new
    axes, places = indexed_axes(ctx, x, indices)
    if axes == list(range(axes[0], axes[-1] + 1)):
        return op.index_put(x, places, values, accumulate, axes[0])
    first, back = put_first(x, axes)
    return op.permute_dims(op.index_put(first, places, values, accumulate), back)


def _put_at_mask(
    ctx: Context,
    x: RelaxExpr,
    indices: list[RelaxExpr | None],
    values: RelaxExpr,
    accumulate: bool,
) -> RelaxExpr:
    """``x[:, mask] = values``: one value for all elements, or one for each that is chosen."""
    first = next(axis for axis, index in enumerate(indices) if index is not None)
    mask = ctx.cast(indices[first], "bool")  # type: ignore[arg-type]
    rest = x.ndim - first - mask.ndim
    # What the mask chooses is one axis of the values, which have `rest` axes after it.
    chosen = values.ndim - rest - 1
    whole: list[Size] = [*[1] * first, *mask.shape, *[1] * rest]
    if chosen >= 0 and not ctx.is_one(values.shape[chosen]):
        if ctx.is_empty(values):
            return x  # then nothing is chosen
        values = _with_one_more(ctx, values, chosen)
        flat = op.reshape(mask, (element_count(mask.shape),))
        before = op.subtract(op.cumsum(op.astype(flat, "int64"), 0), const(1, "int64"))
        made = op.take(values, before, chosen)
        values = op.reshape(made, _instead(made.shape, chosen, *mask.shape))
    elif chosen >= 0:
        values = op.reshape(values, _instead(values.shape, chosen, *[1] * mask.ndim))
    new = op.add(x, values) if accumulate else op.broadcast_to(values, x.shape)
    return op.where(op.reshape(mask, whole), new, x)


def _instead(shape: Sequence[Expr], axis: int, *extents: Size) -> list[Size]:
    """A shape with other extents in place of one axis."""
    return [*shape[:axis], *extents, *shape[axis + 1 :]]


def _with_one_more(ctx: Context, values: RelaxExpr, axis: int) -> RelaxExpr:
    """Values that may be looked up even if there are none, which isn't known before."""
    if ctx.known(values.shape[axis]) is not None:
        return values
    one_more = op.zeros(_instead(values.shape, axis, 1), values.dtype)
    return op.concat([values, one_more], axis)


def _along(
    ctx: Context, x: RelaxExpr, dim: int, index: RelaxExpr, source: RelaxExpr
) -> tuple[RelaxExpr, int, RelaxExpr, RelaxExpr]:
    """Operands of writing whole slices: no axis counts as one, and so does one index."""
    x = _rows(x)
    axis = ctx.axis(dim, x.ndim)
    index = _rows(index)
    source = ctx.cast(source, x.dtype)
    shape = _instead(x.shape, axis, index.shape[0])
    return x, axis, index, op.reshape(source, shape) if source.ndim < x.ndim else source


def _rows(x: RelaxExpr) -> RelaxExpr:
    return x if x.ndim else op.reshape(x, (1,))


def _shaped(ctx: Context, made: RelaxExpr) -> RelaxExpr:
    return made if made.ndim == len(ctx.shape) else op.reshape(made, ctx.shape)


@converts("aten.index_add.default")
def _index_add(
    ctx: Context, x: RelaxExpr, dim: int, index: RelaxExpr, source: RelaxExpr, *, alpha: Operand = 1
) -> RelaxExpr:
    if alpha != 1:
        source = op.multiply(ctx.cast(source, x.dtype), ctx.tensor(alpha, x.dtype))
    x, axis, index, source = _along(ctx, x, dim, index, source)
    return _shaped(ctx, op.index_put(x, [index], source, True, axis))


@converts("aten.index_copy.default")
def _index_copy(
    ctx: Context, x: RelaxExpr, dim: int, index: RelaxExpr, source: RelaxExpr
) -> RelaxExpr:
    x, axis, index, source = _along(ctx, x, dim, index, source)
    return _shaped(ctx, op.index_put(x, [index], source, False, axis))


@converts("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def _index_fill(
    ctx: Context, x: RelaxExpr, dim: int, index: RelaxExpr, value: Operand
) -> RelaxExpr:
    rows = _rows(x)
    places = [_rows(index)]
    axis = ctx.axis(dim, rows.ndim)
    return _shaped(ctx, op.index_put(rows, places, ctx.tensor(value, x.dtype), False, axis))


@converts("aten.index_reduce.default")
def _index_reduce(
    ctx: Context,
    x: RelaxExpr,
    dim: int,
    index: RelaxExpr,
    source: RelaxExpr,
    reduce: str,
    *,
    include_self: bool = True,
) -> RelaxExpr:
    x, axis, index, source = _along(ctx, x, dim, index, source)
    write = _by_slices(index, axis)
    return _shaped(ctx, _reduced(ctx, x, source, source.shape, reduce, include_self, write))


# ---- at one index for each update ----------------------------------------------------------------


@converts("aten.scatter.src")
def _scatter(
    ctx: Context, x: RelaxExpr, dim: int, index: RelaxExpr, source: RelaxExpr
) -> RelaxExpr:
    return _scattered(ctx, x, dim, index, source, "update")


@converts("aten.scatter.value")
def _scatter_value(
    ctx: Context, x: RelaxExpr, dim: int, index: RelaxExpr, value: Operand
) -> RelaxExpr:
    return _scattered(ctx, x, dim, index, _repeated(ctx, index, value, x.dtype), "update")


@converts("aten.scatter.reduce")
def _scatter_by(
    ctx: Context, x: RelaxExpr, dim: int, index: RelaxExpr, source: RelaxExpr, *, reduce: str
) -> RelaxExpr:
    return _scattered(ctx, x, dim, index, source, reduce)


@converts("aten.scatter.value_reduce")
def _scatter_value_by(
    ctx: Context, x: RelaxExpr, dim: int, index: RelaxExpr, value: Operand, *, reduce: str
) -> RelaxExpr:
    return _scattered(ctx, x, dim, index, _repeated(ctx, index, value, x.dtype), reduce)


@converts("aten.scatter_add.default")
def _scatter_add(
    ctx: Context, x: RelaxExpr, dim: int, index: RelaxExpr, source: RelaxExpr
) -> RelaxExpr:
    return _scattered(ctx, x, dim, index, source, "sum")


@converts("aten.scatter_reduce.two")
def _scatter_reduce(
    ctx: Context,
    x: RelaxExpr,
    dim: int,
    index: RelaxExpr,
    source: RelaxExpr,
    reduce: str,
    *,
    include_self: bool = True,
) -> RelaxExpr:
    return _scattered(ctx, x, dim, index, source, reduce, include_self)


def _repeated(ctx: Context, like: RelaxExpr, value: Operand, dtype: str) -> RelaxExpr:
    return op.broadcast_to(ctx.tensor(value, dtype), like.shape)


_REDUCTIONS = {
    "update": "update",
    "sum": "add", "add": "add",
    "prod": "mul", "multiply": "mul",
    "amin": "min", "amax": "max",
    "mean": "mean",
}  # fmt: skip


def _scattered(
    ctx: Context,
    x: RelaxExpr,
    dim: int,
    index: RelaxExpr,
    source: RelaxExpr,
    reduce: str,
    include_self: bool = True,
) -> RelaxExpr:
    rows, index, source = _rows(x), _rows(index), _rows(ctx.cast(source, x.dtype))
    if index.ndim != rows.ndim:
        return x  # without an index, its number of axes doesn't matter
    axis = ctx.axis(dim, rows.ndim)
    write = _by_elements(index, axis)
    if _is_of_slices(ctx.node.args[2], rows, axis, index, source):
        others = [a for a in range(rows.ndim) if a != axis]
        none, one = [0] * len(others), [1] * len(others)
        first = op.strided_slice(index, others, none, one, assume_inbound=True)
        write = _by_slices(ctx.emit(op.reshape(first, (index.shape[axis],))), axis)
    made = _reduced(ctx, rows, source, index.shape, reduce, include_self, write)
    return _shaped(ctx, made)


def _is_of_slices(node: Any, x: RelaxExpr, axis: int, index: RelaxExpr, source: RelaxExpr) -> bool:
    """Whether an index is the same for all elements of a slice, since it was expanded so."""
    if str(node.target) not in ("aten.expand.default", "aten.expand_as.default") or x.ndim == 1:
        return False
    sizes = node.args[0].meta["val"].shape
    sizes = (1,) * (x.ndim - len(sizes)) + tuple(sizes)
    others = [a for a in range(x.ndim) if a != axis]
    return (
        all(isinstance(sizes[a], int) and sizes[a] == 1 for a in others)
        and all(as_int(x.shape[a]) and prove_equal(x.shape[a], index.shape[a]) for a in others)
        and all(map(prove_equal, index.shape, source.shape))
    )


Write = Callable[[RelaxExpr, RelaxExpr, str], RelaxExpr]
"""From data, updates and the name of a reduction to the updated data."""


def _by_elements(index: RelaxExpr, axis: int) -> Write:
    return lambda x, updates, how: op.scatter_elements(x, index, updates, axis, how)


def _by_slices(index: RelaxExpr, axis: int) -> Write:
    """One index for each slice: the elements of slices are updated side by side."""

    def write(x: RelaxExpr, updates: RelaxExpr, how: str) -> RelaxExpr:
        if how in ("update", "add"):
            return op.index_put(x, [index], updates, how == "add", axis)
        places = op.expand_dims(index, 1)
        if axis == 0:
            return op.scatter_nd(x, places, updates, how)
        first, back = put_first(x, [axis])
        made = op.scatter_nd(first, places, put_first(updates, [axis])[0], how)
        return op.permute_dims(made, back)

    return write


def _reduced(
    ctx: Context,
    x: RelaxExpr,
    source: RelaxExpr,
    shape: Sequence[Expr],
    reduce: str,
    include_self: bool,
    write: Write,
) -> RelaxExpr:
    """Combine elements with their updates, or the updates alone where there are any."""
    if reduce not in _REDUCTIONS:
        raise ctx.error(f"unknown reduction {reduce!r}; known: {', '.join(_REDUCTIONS)}")
    how = _REDUCTIONS[reduce]
    # Half floats are added up, and multiplied, as float32.
    wide = x.dtype if how in ("update", "min", "max") else sum_dtype(x.dtype)
    values = ctx.cast(source, wide)
    if include_self:
        return ctx.cast(write(ctx.cast(x, wide), values, how), x.dtype)
    rest = write(x, op.full(shape, _neutral(how, x.dtype), x.dtype), "update")
    if how != "mean":
        return ctx.cast(write(ctx.cast(rest, wide), values, how), x.dtype)
    total = write(ctx.cast(rest, wide), values, "add")
    count = write(op.full(x.shape, 0, wide), op.full(shape, 1, wide), "add")
    count = op.maximum(count, const(1, wide))
    divide = op.divide if dtypes.is_float(wide) else op.floor_divide
    return ctx.cast(divide(total, count), x.dtype)


def _neutral(how: str, dtype: str) -> float:
    """What changes nothing in a reduction."""
    if how in ("add", "mean", "mul"):
        return int(how == "mul")
    if dtypes.is_float(dtype):
        return float("inf") if how == "min" else float("-inf")
    if dtypes.is_bool(dtype):
        return how == "min"
    bounds = np.iinfo(dtype)
    return int(bounds.max if how == "min" else bounds.min)


# ---- at masks, slices, diagonals -----------------------------------------------------------------


@converts("aten.masked_scatter.default")
def _masked_scatter(ctx: Context, x: RelaxExpr, mask: RelaxExpr, source: RelaxExpr) -> RelaxExpr:
    if ctx.is_empty(source):
        return x  # then nothing is chosen
    flat = op.reshape(ctx.cast(source, x.dtype), (element_count(source.shape),))
    whole, given = op.broadcast_to(x, ctx.shape), _with_one_more(ctx, flat, 0)
    return op.masked_scatter(whole, ctx.cast(mask, "bool"), given)


@converts("aten.slice_scatter.default")
def _slice_scatter(
    ctx: Context,
    x: RelaxExpr,
    source: RelaxExpr,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> RelaxExpr:
    axis = ctx.axis(dim, x.ndim)
    source = ctx.cast(source, x.dtype)
    first = 0 if start is None else start
    stop = 2**63 - 1 if end is None else end
    extent = ctx.known(x.shape[axis])
    low, high = ctx.known(first), ctx.known(stop)
    if step != 1 or extent is None or low is None or high is None:
        source = op.broadcast_to(source, _instead(x.shape, axis, source.shape[axis]))
        return op.slice_scatter(x, source, first, stop, step, axis)
    low, high, _ = slice(low, high).indices(extent)
    # Chunks are copied faster than elements are chosen.
    before = [] if low == 0 else [cut(ctx, x, axis, 0, low)]
    after = [] if high >= extent else [cut(ctx, x, axis, max(low, high), extent)]
    source = op.broadcast_to(source, _instead(x.shape, axis, max(0, high - low)))
    chunks = [*before, source, *after]
    return chunks[0] if len(chunks) == 1 else op.concat(chunks, axis)


@converts("aten.select_scatter.default")
def _select_scatter(
    ctx: Context, x: RelaxExpr, source: RelaxExpr, dim: int, index: Size
) -> RelaxExpr:
    axis = ctx.axis(dim, x.ndim)
    chunk = op.reshape(ctx.cast(source, x.dtype), _instead(x.shape, axis, 1))
    end = None if ctx.known(index) == -1 else index + 1
    return _slice_scatter(ctx, x, chunk, axis, index, end)


@converts("aten.diagonal_scatter.default")
def _diagonal_scatter(
    ctx: Context, x: RelaxExpr, source: RelaxExpr, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> RelaxExpr:
    axes = [ctx.axis(dim1, x.ndim), ctx.axis(dim2, x.ndim)]
    order = [*(axis for axis in range(x.ndim) if axis not in axes), *axes]
    last = op.permute_dims(x, order)
    steps = op.arange(0, source.shape[-1], 1, "int64")
    places = [op.add(steps, const(first, "int64")) for first in (max(0, -offset), max(0, offset))]
    made = op.index_put(last, places, ctx.cast(source, x.dtype), False, x.ndim - 2)
    return op.permute_dims(made, [order.index(axis) for axis in range(x.ndim)])


@converts("aten.as_strided_scatter.default")
def _as_strided_scatter(
    ctx: Context,
    x: RelaxExpr,
    source: RelaxExpr,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> RelaxExpr:
    stored, back, first = compact(ctx, x, storage_offset)
    places = strided_places(ctx.ints(size, "size"), ctx.ints(stride, "stride"), first)
    flat = op.reshape(stored, (element_count(x.shape),))
    new = op.reshape(ctx.cast(source, x.dtype), (-1,))
    made = op.reshape(op.index_put(flat, [const(places)], new), stored.shape)
    return op.permute_dims(made, back)
