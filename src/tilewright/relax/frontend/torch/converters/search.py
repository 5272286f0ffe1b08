"""Searching, counting and order statistics."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import dtypes
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr, Tuple
from tilewright.relax.frontend.torch.converters.base import (
    Context,
    Operand,
    Results,
    Size,
    converts,
)
from tilewright.relax.ops.common import broadcast, element_count
from tilewright.relax.values import const

# ---- in sorted rows ------------------------------------------------------------------------------


@converts("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def _searchsorted(
    ctx: Context,
    sequence: RelaxExpr,
    values: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: RelaxExpr | None = None,
) -> RelaxExpr:
    if sorter is not None:
        sequence = op.gather_elements(sequence, sorter, sequence.ndim - 1)
    return _search(ctx, sequence, values, right or side == "right")


@converts("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def _bucketize(
    ctx: Context,
    values: Operand,
    boundaries: RelaxExpr,
    *,
    out_int32: bool = False,
    right: bool = False,
) -> RelaxExpr:
    return _search(ctx, boundaries, values, right)


def _search(ctx: Context, sequence: RelaxExpr, values: Operand, right: bool) -> RelaxExpr:
    dtype = ctx.operand_dtype()
    wanted = ctx.tensor(values, dtype)
    if ctx.is_empty(sequence):
        return op.zeros(ctx.shape, ctx.dtype)
    rows = wanted if wanted.ndim else op.reshape(wanted, (1,))
    made = op.searchsorted(ctx.cast(sequence, dtype), rows, right, ctx.dtype)
    return made if wanted.ndim else op.reshape(made, ())


# ---- of sizes that only data tell ---------------------------------------------------------------


@converts("aten.nonzero.default")
def _nonzero(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    chosen = ctx.emit(ctx.cast(x, "bool"))
    count = op.sum(op.astype(chosen, "int64"))
    size = ctx.counted(count, ctx.result.shape[0], element_count(x.shape))
    return op.permute_dims(op.nonzero(chosen, size).fields[0], (1, 0))


@converts("aten.nonzero_static.default")
def _nonzero_static(ctx: Context, x: RelaxExpr, *, size: Size, fill_value: int = -1) -> RelaxExpr:
    places, count = op.nonzero(ctx.cast(x, "bool"), size).fields
    inside = op.less(op.arange(0, size, 1, "int64"), count)
    made = op.where(inside, places, const(fill_value, "int64"))
    return op.permute_dims(made, (1, 0))


@converts("aten.masked_select.default")
def _masked_select(ctx: Context, x: RelaxExpr, mask: RelaxExpr) -> RelaxExpr:
    shape = broadcast(x.shape, mask.shape)
    chosen = ctx.emit(op.broadcast_to(ctx.cast(mask, "bool"), shape))
    count = op.sum(op.astype(chosen, "int64"))
    size = ctx.counted(count, ctx.result.shape[0], element_count(shape))
    made: RelaxExpr = op.masked_select(op.broadcast_to(x, shape), chosen, size).fields[0]
    return made


@converts("aten.bincount.default")
def _bincount(
    ctx: Context, x: RelaxExpr, weights: RelaxExpr | None = None, minlength: Size = 0
) -> RelaxExpr:
    if ctx.is_empty(x):
        return op.zeros(ctx.shape, ctx.dtype)
    wide = op.astype(x, "int64")
    most = op.maximum(op.max(wide), ctx.tensor(minlength - 1, "int64"))
    size = ctx.counted(op.add(most, const(1, "int64")), ctx.result.shape[0])
    return op.bincount(wide, size, None if weights is None else ctx.cast(weights, ctx.dtype))


@converts("aten._unique2.default", "aten._unique.default")
def _unique(
    ctx: Context,
    x: RelaxExpr,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Results:
    values, count, inverse, counts = map(ctx.emit, op.unique(x).fields)
    size = ctx.counted(count, ctx.result[0].shape[0], element_count(x.shape))
    first = op.arange(0, size, 1, "int64")
    made: Results = [op.take(values, first, 0), inverse, op.take(counts, first, 0)]
    return made[: len(ctx.result)]


# ---- order statistics ----------------------------------------------------------------------------


def _along(ctx: Context, x: RelaxExpr, dim: int, choose: Callable[..., Tuple]) -> Results:
    """Values and places along an axis; a number counts as a row of one."""
    rows = x if x.ndim else op.reshape(x, (1,))
    made = choose(rows, ctx.axis(dim, rows.ndim))
    return list(made.fields) if x.ndim else [op.reshape(item, ()) for item in made.fields]


@converts("aten.median.dim")
def _median(ctx: Context, x: RelaxExpr, dim: int, keepdim: bool = False) -> Results:
    return _along(ctx, x, dim, lambda rows, axis: op.median(rows, axis, keepdim and bool(x.ndim)))


@converts("aten.median.default")
def _median_of_all(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    if ctx.is_empty(x):
        return op.full((), float("nan"), ctx.dtype)
    made: RelaxExpr = op.median(op.reshape(x, (element_count(x.shape),)), 0).fields[0]
    return made


@converts("aten.nanmedian.dim")
def _nanmedian(ctx: Context, x: RelaxExpr, dim: int, keepdim: bool = False) -> Results:
    return _along(
        ctx, x, dim, lambda rows, axis: _median_of_numbers(ctx, rows, axis, keepdim and x.ndim > 0)
    )


@converts("aten.nanmedian.default")
def _nanmedian_of_all(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    if ctx.is_empty(x):
        return op.full((), float("nan"), ctx.dtype)
    flat = op.reshape(x, (element_count(x.shape),))
    return _median_of_numbers(ctx, flat, 0, False).fields[0]


def _median_of_numbers(ctx: Context, x: RelaxExpr, axis: int, keepdim: bool) -> Tuple:
    """The median of what isn't NaN, the lower one of two."""
    if not dtypes.is_float(x.dtype):
        made: Tuple = op.median(x, axis, keepdim)
        return made
    order = ctx.emit(op.argsort(x, axis, dtype="int64"))  # with NaN at the end
    numbers = op.sum(op.astype(op.logical_not(op.isnan(x)), "int64"), axis, True)
    middle = op.floor_divide(op.subtract(numbers, const(1, "int64")), const(2, "int64"))
    middle = op.maximum(middle, const(0, "int64"))
    places = ctx.emit(op.gather_elements(order, middle, axis))
    values = op.gather_elements(x, places, axis)
    if keepdim:
        return Tuple((values, places))
    return Tuple((op.squeeze(values, axis), op.squeeze(places, axis)))


@converts("aten.kthvalue.default")
def _kthvalue(ctx: Context, x: RelaxExpr, k: Size, dim: int = -1, keepdim: bool = False) -> Results:
    number = ctx.int(k, "k")
    return _along(
        ctx, x, dim, lambda rows, axis: op.kthvalue(rows, number, axis, keepdim and bool(x.ndim))
    )


@converts("aten.mode.default")
def _mode(ctx: Context, x: RelaxExpr, dim: int = -1, keepdim: bool = False) -> Results:
    return _along(ctx, x, dim, lambda rows, axis: op.mode(rows, axis, keepdim and bool(x.ndim)))


# ---- counts --------------------------------------------------------------------------------------


@converts("aten.histc.default")
def _histc(
    ctx: Context, x: RelaxExpr, bins: int = 100, min: float = 0, max: float = 0
) -> RelaxExpr:
    if min != max:
        return op.histc(x, bins, min, max)
    if min != 0 or ctx.is_empty(x):
        return op.histc(x, bins, min - 1, max + 1)
    low, high = ctx.emit(op.min(x)), ctx.emit(op.max(x))
    same = op.equal(low, high)
    one = const(1, x.dtype)
    below = op.where(same, op.subtract(low, one), low)
    return op.histc(x, bins, below, op.where(same, op.add(high, one), high))


@converts("aten.repeat_interleave.Tensor")
def _repeated_numbers(
    ctx: Context, repeats: RelaxExpr, *, output_size: Size | None = None
) -> RelaxExpr:
    """Each number as often as the element at its place says, ``output_size`` in all."""
    numbers = ctx.emit(op.astype(repeats, "int64"))
    ends = op.cumsum(numbers, 0)
    size = ctx.counted(op.sum(numbers), ctx.result.shape[0])
    made = op.searchsorted(ends, op.arange(0, size, 1, "int64"), True)
    return ctx.cast(made, ctx.dtype)
