"""Reading where indices, strides or windows say; tables of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir import Expr, as_expr, as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import Constant, RelaxExpr
from tilewright.relax.frontend.torch.converters.base import (
    Context,
    Results,
    Size,
    converts,
)
from tilewright.relax.frontend.torch.converters.reductions import norm_over
from tilewright.relax.ops.common import element_count
from tilewright.relax.struct_info import prove_equal
from tilewright.relax.values import const
from tilewright.topi.utils import sum_dtype


def cut(ctx: Context, x: RelaxExpr, axis: int, start: Size, stop: Size, step: int = 1) -> RelaxExpr:
    """``x[start:stop:step]`` along an axis; with symbolic bounds by look-up."""
    low, high = as_int(as_expr(start)), as_int(as_expr(stop))
    if low is not None and high is not None:
        places = (axis,), (low,), (high,), (step,)
        if as_int(x.shape[axis]) is None:
            # Where PyTorch has proven that nothing is cut off, extents need no `min`.
            whole = op.strided_slice(x, *places, assume_inbound=True)
            if len(ctx.shape) != x.ndim or prove_equal(whole.shape[axis], ctx.shape[axis]):
                return whole
        return op.strided_slice(x, *places)
    extent = x.shape[axis]
    if low is not None and low < 0:
        start = extent + low
    if high is not None:
        stop = extent if high >= 2**31 - 1 else extent + high if high < 0 else stop
    return op.take(x, op.arange(start, stop, step), axis)


# ---- by tensors of indices -----------------------------------------------------------------------


def is_mask(index: RelaxExpr) -> bool:
    """Whether an index chooses elements by truth values, as bytes do too."""
    return index.dtype in ("bool", "uint8")


def indexed_axes(
    ctx: Context, x: RelaxExpr, indices: Sequence[RelaxExpr | None]
) -> tuple[list[int], list[RelaxExpr]]:
    """Axes that indices stand for, and the indices.

    A mask stands for as many axes as it has, with the places where it is true.
    """
    chosen: list[tuple[int, RelaxExpr]] = []
    axis = 0
    for index in indices:
        if index is None:
            axis += 1
        elif is_mask(index):
            mask = ctx.cast(index, "bool")
            chosen += enumerate(_true_places(ctx, mask, _recorded(ctx, indices)), axis)
            axis += mask.ndim
        else:
            chosen.append((axis, index))
            axis += 1
    return [axis for axis, _ in chosen], [place for _, place in chosen]


def _recorded(ctx: Context, indices: Sequence[RelaxExpr | None]) -> object:
    """The extent of what `ctx` reads by a mask; ``None`` if it writes."""
    if "put" in str(ctx.node.target):
        return None
    given = [number for number, index in enumerate(indices) if index is not None]
    first = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    others = [index.ndim for index in indices if index is not None and not is_mask(index)]
    extent: object = ctx.result.shape[first + max([1, *others]) - 1]
    return extent


def _true_places(ctx: Context, mask: RelaxExpr, extent: object) -> list[RelaxExpr]:
    """For each axis of a mask, where along it the elements are that are true."""
    mask = ctx.emit(mask)
    size = ctx.counted(op.sum(op.astype(mask, "int64")), extent, element_count(mask.shape))
    places = ctx.emit(op.nonzero(mask, size).fields[0])
    rows = ([axis] for axis in range(mask.ndim))
    return [op.reshape(op.strided_slice(places, [0], row, [row[0] + 1]), (size,)) for row in rows]


def _from_front(ctx: Context, index: RelaxExpr, extent: Expr) -> RelaxExpr:
    """Make indices non-negative: negative ones count from the end."""
    if isinstance(index, Constant) and as_int(extent) is not None:
        return const(np.where(index.data < 0, index.data + as_int(extent), index.data), "int64")
    index = ctx.emit(ctx.cast(index, "int64"))
    wrapped = op.add(index, ctx.tensor(extent, "int64"))
    made: RelaxExpr = op.where(op.less(index, const(0, "int64")), wrapped, index)
    return made


def put_first(x: RelaxExpr, axes: Sequence[int]) -> tuple[RelaxExpr, list[int]]:
    """Some axes of a tensor before the others, and the permutation that undoes that."""
    order = [*axes, *(axis for axis in range(x.ndim) if axis not in axes)]
    return op.permute_dims(x, order), [order.index(axis) for axis in range(x.ndim)]


@converts("aten.index.Tensor", "aten._unsafe_index.Tensor")
def _index(ctx: Context, x: RelaxExpr, indices: list[RelaxExpr | None]) -> RelaxExpr:
    axes, given = indexed_axes(ctx, x, indices)
    places = [_from_front(ctx, index, x.shape[axis]) for axis, index in zip(axes, given)]
    if len(axes) == 1:
        return op.take(x, places[0], axes[0])
    if axes != list(range(axes[0], axes[0] + len(axes))):
        # Indices that are not next to each other put their dimensions first.
        x, _ = put_first(x, axes)
        axes = list(range(len(axes)))
    first, last = axes[0], axes[-1]
    shape = x.shape
    flat = places[0]
    for place, axis in zip(places[1:], axes[1:]):
        flat = op.add(op.multiply(flat, ctx.tensor(shape[axis], "int64")), place)
    joined = op.reshape(
        x, (*shape[:first], element_count(shape[first : last + 1]), *shape[last + 1 :])
    )
    return op.take(joined, flat, first)


@converts("aten.index_select.default")
def _index_select(ctx: Context, x: RelaxExpr, dim: int, index: RelaxExpr) -> RelaxExpr:
    if not x.ndim:
        return op.reshape(op.take(op.reshape(x, (1,)), index, 0), ())
    return op.take(x, op.reshape(index, (-1,)) if not index.ndim else index, ctx.axis(dim, x.ndim))


@converts("aten.gather.default")
def _gather(
    ctx: Context, x: RelaxExpr, dim: int, index: RelaxExpr, sparse_grad: bool = False
) -> RelaxExpr:
    rows = x if x.ndim else op.reshape(x, (1,))
    places = index if index.ndim else op.reshape(index, (1,))
    if places.ndim != rows.ndim:
        return op.zeros(ctx.shape, x.dtype)  # without an index, its number of axes doesn't matter
    made = op.gather_elements(rows, places, ctx.axis(dim, rows.ndim))
    return made if made.ndim == len(ctx.shape) else op.reshape(made, ctx.shape)


@converts("aten.take.default")
def _take(ctx: Context, x: RelaxExpr, index: RelaxExpr) -> RelaxExpr:
    flat = op.reshape(x, (element_count(x.shape),))
    return op.take(flat, _from_front(ctx, index, element_count(x.shape)), 0)


# ---- by strides and windows ----------------------------------------------------------------------


def compact(
    ctx: Context, x: RelaxExpr, storage_offset: Size | None
) -> tuple[RelaxExpr, list[int], int]:
    """The first operand as it lies in PyTorch's memory, which is what strides are about.

    Also the permutation back, and the offset. Raises ``ImportModelError`` if the operand is a part
    of a larger tensor: then other elements of that may be read.
    """
    value = ctx.node.args[0].meta["val"]
    strides, sizes = value.stride(), value.shape
    if not all(isinstance(number, int) for number in (*strides, *sizes)):
        raise ctx.error("the operand needs constant sizes and strides")
    order = sorted(range(x.ndim), key=lambda axis: (-strides[axis], sizes[axis]))
    expected = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != expected and value.numel():
            raise ctx.error(
                "strides are about the memory of a tensor, but this operand is a part of another "
                "one, or repeats elements: use slices, unfold or expand, or clone it before"
            )
        expected *= sizes[axis]
    given = value.storage_offset()
    first = given if storage_offset is None else ctx.int(storage_offset, "storage_offset")
    back = [order.index(axis) for axis in range(x.ndim)]
    natural = order == list(range(x.ndim))
    return x if natural else op.permute_dims(x, order), back, first - given


def strided_places(size: Sequence[int], stride: Sequence[int], first: int) -> NDArray[np.int64]:
    """Where elements of a strided view are in memory, in its row-major order."""
    places = np.full((), first, np.int64)
    for extent, step in zip(size, stride):
        places = np.add.outer(places, np.arange(extent) * step)
    return places.reshape(-1)


@converts("aten.as_strided.default", "aten.as_strided_copy.default")
def _as_strided(
    ctx: Context,
    x: RelaxExpr,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> RelaxExpr:
    stored, _, first = compact(ctx, x, storage_offset)
    if first < 0:
        raise ctx.error("elements before those of the operand are read")
    return op.as_strided(stored, ctx.shape, tuple(stride), first)


@converts("aten.diagonal.default", "aten.diagonal_copy.default")
def _diagonal(
    ctx: Context, x: RelaxExpr, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> RelaxExpr:
    return op.diagonal(x, offset, dim1, dim2)


@converts("aten.linalg_diagonal.default")
def _matrix_diagonal(
    ctx: Context, x: RelaxExpr, *, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> RelaxExpr:
    return op.diagonal(x, offset, dim1, dim2)


@converts("aten.unfold.default", "aten.unfold_copy.default")
def _unfold(ctx: Context, x: RelaxExpr, dimension: int, size: int, step: int) -> RelaxExpr:
    """Windows along an axis; the places in one are the last axis of the result."""
    if not x.ndim:
        return op.broadcast_to(op.reshape(x, (1,)), ctx.shape)
    strides = [element_count(x.shape[axis + 1 :]) for axis in range(x.ndim)]
    within = strides[ctx.axis(dimension, x.ndim)]
    strides[ctx.axis(dimension, x.ndim)] = within * step
    return op.as_strided(x, ctx.shape, (*strides, within))


@converts("aten.roll.default")
def _roll(
    ctx: Context, x: RelaxExpr, shifts: Sequence[Size], dims: Sequence[int] = ()
) -> RelaxExpr:
    if not x.ndim or ctx.is_empty(x):
        return x
    if not dims:
        return op.roll(x, ctx.int(shifts[0], "shifts"))
    return op.roll(x, ctx.ints(shifts, "shifts"), ctx.axes(dims, x.ndim))


# ---- tables of embeddings ------------------------------------------------------------------------


@converts("aten.embedding.default")
def _embedding(
    ctx: Context,
    weight: RelaxExpr,
    indices: RelaxExpr,
    padding_idx: Size = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> RelaxExpr:
    """Rows of a table; the padding row is special for gradients only."""
    return op.take(weight, indices, 0)


@converts("aten.embedding_renorm.default")
def _embedding_renorm(
    ctx: Context, weight: RelaxExpr, indices: RelaxExpr, max_norm: float, norm_type: float
) -> RelaxExpr:
    """A table whose rows that are used have at most a norm."""
    flat = op.reshape(indices, (element_count(indices.shape), 1))
    unused = op.full((weight.shape[0],), 0, "int32")
    used = op.scatter_nd(unused, flat, op.full((flat.shape[0],), 1, "int32"), "max")
    wide = ctx.emit(ctx.cast(weight, sum_dtype(weight.dtype)))
    norm = ctx.cast(ctx.cast(norm_over(wide, norm_type, (1,), True), weight.dtype), wide.dtype)
    norm = ctx.emit(norm)
    most = ctx.tensor(float(max_norm), wide.dtype)
    long = op.logical_and(
        op.expand_dims(op.not_equal(used, const(0, "int32")), 1), op.greater(norm, most)
    )
    # The number against division by zero is PyTorch's.
    less = op.multiply(wide, op.divide(most, op.add(norm, ctx.tensor(1e-7, wide.dtype))))
    return ctx.cast(op.where(long, less, wide), weight.dtype)


@dataclass(frozen=True)
class _Bags:
    """How rows of a table are put together, as PyTorch's arguments say."""

    scale_grad_by_freq: bool = False
    mode: int = 0
    sparse: bool = False
    per_sample_weights: RelaxExpr | None = None
    include_last_offset: bool = False
    padding_idx: int | None = None

    @property
    def reduction(self) -> str:
        """``sum``, ``mean`` or ``max``."""
        return ("sum", "mean", "max")[self.mode]


@converts(
    "aten._embedding_bag.default", "aten._embedding_bag_forward_only.default",
    "aten.embedding_bag.default", "aten.embedding_bag.padding_idx",
    form=_Bags,
)  # fmt: skip
def _embedding_bag(
    ctx: Context, weight: RelaxExpr, indices: RelaxExpr, offsets: RelaxExpr, bags: _Bags
) -> Results:
    """Sums, means or maxima of rows of a table; the other results are for gradients only."""
    chosen, padding = None, bags.padding_idx
    if padding is not None and str(ctx.node.target) == "aten.embedding_bag.padding_idx":
        padding %= ctx.int(weight.shape[0], "number of rows")
    if padding is not None and padding >= 0:
        chosen = ctx.emit(op.not_equal(indices, const(padding, indices.dtype)))
    wide = "float32" if weight.dtype in ("float16", "bfloat16") else weight.dtype
    rows = ctx.cast(op.take(weight, indices, 0), wide)
    if bags.per_sample_weights is not None:
        factors = ctx.cast(bags.per_sample_weights, wide)
        rows = op.multiply(rows, op.expand_dims(factors, 1))
    if chosen is not None:
        lowest = float("-inf") if bags.reduction == "max" else 0.0
        rows = op.where(op.expand_dims(chosen, 1), rows, const(lowest, wide))
    ones = op.full(indices.shape, 1, wide) if chosen is None else ctx.cast(chosen, wide)
    count, width = ctx.symbols.shape(ctx.result[0].shape)
    size = _bag_size(ctx, ctx.node.args[2], count, indices.shape[0])
    if size is not None:
        made = _equal_bags(bags.reduction, rows, ones, [count, size, width])
    else:
        starts = ctx.cast(offsets, "int64")
        places = op.searchsorted(starts, op.arange(0, indices.shape[0], 1, "int64"), True)
        bag = ctx.emit(op.subtract(places, const(1, "int64")))
        made = _marked_bags(bags.reduction, rows, ones, bag, [count, width])
    return [ctx.cast(made, weight.dtype), None, None, None]


def _bag_size(ctx: Context, offsets: Any, bags: Expr, total: Expr) -> Expr | None:
    """The size of bags that are equal, as those of rows of a matrix; ``None`` for others."""
    if str(offsets.target) != "aten.arange.start_step" or 0 in (ctx.known(bags), ctx.known(total)):
        return None
    start, _, step = offsets.args
    size = ctx.symbols.expr(getattr(step, "meta", {}).get("val", step))
    return size if start == 0 and prove_equal(size * bags, total) else None


def _equal_bags(how: str, rows: RelaxExpr, ones: RelaxExpr, shape: list[Any]) -> RelaxExpr:
    apart = op.reshape(rows, shape)
    number = op.sum(op.reshape(ones, shape[:2]), 1, True)
    return _finished(how, op.max(apart, 1) if how == "max" else op.sum(apart, 1), number)


def _marked_bags(
    how: str, rows: RelaxExpr, ones: RelaxExpr, bag: RelaxExpr, shape: list[Any]
) -> RelaxExpr:
    """Bags of any sizes: ``bag`` says to which one a row belongs."""
    places = op.expand_dims(bag, 1)
    lowest = float("-inf") if how == "max" else 0
    start = op.full(shape, lowest, rows.dtype)
    made = op.scatter_nd(start, places, rows, "max" if how == "max" else "add")
    none = op.full((shape[0], 1), 0, rows.dtype)
    return _finished(how, made, op.scatter_nd(none, places, op.expand_dims(ones, 1), "add"))


def _finished(how: str, made: RelaxExpr, number: RelaxExpr) -> RelaxExpr:
    """The mean of a sum; a bag with nothing in it has zeros."""
    zero = const(0, made.dtype)
    if how == "max":
        return op.where(op.greater(number, zero), made, zero)
    return op.divide(made, op.maximum(number, const(1, made.dtype))) if how == "mean" else made
