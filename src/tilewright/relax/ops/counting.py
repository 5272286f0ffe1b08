"""Counting and choosing by data, composed of scans, sorts and scatters.

How many elements ``nonzero``, ``masked_select`` and ``unique`` find only data tell. Here they give
tensors of a size that is known beforehand, the results first, and the number of results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import Expr, ExprLike, as_int, dtypes
from tilewright.relax.expr import RelaxCall, RelaxExpr, Tuple
from tilewright.relax.ops.binary import (
    add,
    divide,
    equal,
    floor_divide,
    floor_mod,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_or,
    multiply,
    not_equal,
    subtract,
)
from tilewright.relax.ops.common import element_count
from tilewright.relax.ops.create import arange, full, ones_like, zeros
from tilewright.relax.ops.index import scatter_elements
from tilewright.relax.ops.manipulate import (
    broadcast_to,
    gather_elements,
    permute_dims,
    reshape,
    squeeze,
    stack,
    strided_slice,
    take,
    where,
)
from tilewright.relax.ops.reduce import argmax, sum
from tilewright.relax.ops.scan import cumsum
from tilewright.relax.ops.search import searchsorted
from tilewright.relax.ops.sort import argsort
from tilewright.relax.ops.unary import astype, isnan, trunc
from tilewright.relax.registry import builder
from tilewright.relax.values import const
from tilewright.support.errors import VerifyError
from tilewright.topi.utils import normal_axes, normal_axis


def _flat(x: RelaxExpr) -> RelaxExpr:
    return reshape(x, (element_count(x.shape),))


# ---- order statistics ----------------------------------------------------------------------------


@builder("kthvalue")
def kthvalue(x: RelaxExpr, k: int, axis: int = -1, keepdims: bool = False) -> Tuple:
    """The ``k``-th least element of an axis, counted from 1, and where it is (int64).

    NaN is greater than anything; of equal elements the first are the least.

    Raises ``VerifyError`` for a ``k`` below 1, and if there are fewer elements.
    """
    position = normal_axis(axis, x.ndim)
    if k < 1:
        raise VerifyError(f"kthvalue: k is counted from 1, got {k}")
    order = argsort(x, position, dtype="int64")
    places = strided_slice(order, [position], [k - 1], [k], assume_inbound=True)
    values = gather_elements(x, places, position)
    if keepdims:
        return Tuple((values, places))
    return Tuple((squeeze(values, position), squeeze(places, position)))


@builder("median")
def median(
    x: RelaxExpr, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> Any:  # a tuple of one axis, else a tensor
    """The median of an axis, the lower one of two, and where it is (int64); NaN if there is one.

    Of several axes, or of all (``None``), it is the median alone.

    Raises ``VerifyError`` if there are no elements, or their number isn't known.
    """
    axes = normal_axes(axis, x.ndim)
    if axis is not None and len(axes) == 1:
        return _median(x, axes[0], keepdims)
    rest = [a for a in range(x.ndim) if a not in axes]
    shape = [x.shape[a] for a in rest]
    rows = reshape(
        permute_dims(x, (*rest, *axes)) if rest else x,
        (*shape, element_count([x.shape[a] for a in axes])),
    )
    values: RelaxExpr = _median(rows, len(rest), False).fields[0]
    if not keepdims:
        return values
    return reshape(values, [1 if a in axes else x.shape[a] for a in range(x.ndim)])


def _median(x: RelaxExpr, axis: int, keepdims: bool) -> Tuple:
    position = axis
    extent = as_int(x.shape[position])
    if not extent:
        raise VerifyError(f"median: axis {axis} needs a known number of elements, from 1 up")
    made = kthvalue(x, (extent + 1) // 2, position, True)
    values, places = made.fields
    if dtypes.is_float(x.dtype):
        # The first NaN, if there is one, else the median.
        first = argmax(astype(isnan(x), "int32"), position, True)
        candidate = gather_elements(x, first, position)
        broken = isnan(candidate)
        values = where(broken, candidate, values)
        places = where(broken, astype(first, "int64"), places)
    if keepdims:
        return Tuple((values, places))
    return Tuple((squeeze(values, position), squeeze(places, position)))


@builder("mode")
def mode(x: RelaxExpr, axis: int = -1, keepdims: bool = False) -> Tuple:
    """The most frequent element of an axis, the least of several, and the last place where it is.

    NaN isn't counted as equal to anything.
    """
    position = normal_axis(axis, x.ndim)
    last = x.ndim - 1
    axes = [a for a in range(x.ndim) if a != position] + [position]
    rows = permute_dims(x, axes) if position != last else x
    order = argsort(rows, last, dtype="int64")
    ordered = gather_elements(rows, order, last)
    ends = searchsorted(ordered, ordered, True)
    counts = subtract(ends, searchsorted(ordered, ordered))
    first = argmax(counts, last, True)
    run = gather_elements(counts, first, last)
    at = subtract(add(astype(first, "int64"), run), const(1, "int64"))
    values, places = gather_elements(ordered, first, last), gather_elements(order, at, last)
    if not keepdims:
        return Tuple((squeeze(values, last), squeeze(places, last)))
    back = [axes.index(a) for a in range(x.ndim)]
    return Tuple((permute_dims(values, back), permute_dims(places, back)))


# ---- counts --------------------------------------------------------------------------------------


@builder("bincount")
def bincount(x: RelaxExpr, size: ExprLike, weights: RelaxExpr | None = None) -> RelaxCall:
    """How often each number from 0 to below ``size`` is in ``x``, or the sum of its ``weights``.

    Other numbers aren't counted. The counts are int64.

    Raises ``VerifyError`` unless ``x`` are integers and ``weights`` of its shape.
    """
    if not dtypes.is_integer(x.dtype):
        raise VerifyError(f"bincount: needs integers, got {x.dtype}")
    flat = astype(_flat(x), "int64")
    amount = ones_like(flat, "int64") if weights is None else _flat(weights)
    # An index that is negative would count from the end.
    place = where(less(flat, const(0, "int64")), const(2**63 - 1, "int64"), flat)
    return scatter_elements(zeros((size,), amount.dtype), place, amount, 0, "add")


@builder("histc")
def histc(x: RelaxExpr, bins: int, min: float | RelaxExpr, max: float | RelaxExpr) -> RelaxExpr:
    """How many elements are in each of ``bins`` equal parts of ``min`` to ``max``, in its dtype.

    The last part contains ``max``; elements outside and NaN aren't counted. Both bounds are numbers
    or both are tensors without axes.

    Raises ``VerifyError`` unless ``bins`` is positive, ``min`` less than ``max`` and ``x`` floats.
    """
    from_data = isinstance(min, RelaxExpr) or isinstance(max, RelaxExpr)
    if bins < 1 or not (from_data or min < max):  # both are numbers
        raise VerifyError(
            f"histc: bins must be positive and min less than max, got {bins}, {min} and {max}"
        )
    if not dtypes.is_float(x.dtype):
        raise VerifyError(f"histc: needs floating-point numbers, got {x.dtype}")
    wide = "float64" if x.dtype == "float64" else "float32"
    flat = astype(_flat(x), wide)
    low, high = (
        astype(item, wide) if isinstance(item, RelaxExpr) else const(item, wide)
        for item in (min, max)
    )
    share = divide(multiply(subtract(flat, low), const(bins, wide)), subtract(high, low))
    inside = logical_and(greater_equal(flat, low), less_equal(flat, high))
    place = astype(trunc(where(inside, share, const(0, wide))), "int64")
    place = where(less(place, const(bins, "int64")), place, const(bins - 1, "int64"))
    place = where(inside, place, const(bins, "int64"))
    counts = bincount(place, bins)
    return astype(counts, x.dtype)


# ---- choices -------------------------------------------------------------------------------------


@builder("masked_fill")
def masked_fill(x: RelaxExpr, mask: RelaxExpr, value: object) -> RelaxCall:
    """``value`` where ``mask`` is true, else ``x``; they broadcast."""
    filled = value if isinstance(value, RelaxExpr) else const(value, x.dtype)
    return where(mask, filled, x)


@builder("masked_scatter")
def masked_scatter(x: RelaxExpr, mask: RelaxExpr, source: RelaxExpr) -> RelaxExpr:
    """``x`` with elements of ``source``, in order, where ``mask``, which broadcasts, is true.

    If ``source`` has too few elements, its last one is repeated.

    Raises ``VerifyError`` if dtypes differ, or the mask isn't bool.
    """
    if not dtypes.is_bool(mask.dtype):
        raise VerifyError(f"masked_scatter: the mask must be bool, got {mask.dtype}")
    if source.dtype != x.dtype:
        raise VerifyError(f"masked_scatter: x is {x.dtype} and source is {source.dtype}")
    chosen = _flat(broadcast_to(mask, x.shape))
    place = subtract(cumsum(astype(chosen, "int64"), 0), const(1, "int64"))
    made = where(chosen, take(_flat(source), place, 0), _flat(x))
    return reshape(made, x.shape)


def _compact(chosen: RelaxExpr, values: Sequence[RelaxExpr], size: ExprLike) -> list[RelaxExpr]:
    """The chosen elements of vectors first, in ``size`` elements, and zeros after them."""
    place = subtract(cumsum(astype(chosen, "int64"), 0), const(1, "int64"))
    place = where(chosen, place, const(2**63 - 1, "int64"))
    return [scatter_elements(zeros((size,), value.dtype), place, value) for value in values]


def _count(chosen: RelaxExpr) -> RelaxExpr:
    return sum(astype(chosen, "int64"))


@builder("nonzero")
def nonzero(x: RelaxExpr, size: ExprLike | None = None) -> Tuple:
    """Where elements aren't zero: ``(places, count)``, one row of places for each axis (int64).

    There are ``size`` columns (as many as ``x`` has elements, if not given), of which the first
    ``count`` are filled, in row-major order, as far as there is room; the others are zero.
    """
    total = element_count(x.shape)
    flat = _flat(x)
    chosen = flat if dtypes.is_bool(x.dtype) else not_equal(flat, const(0, x.dtype))
    room = total if size is None else size
    (place,) = _compact(chosen, [arange(0, total, 1, "int64")], room)
    rows: list[RelaxExpr] = []
    for extent in reversed(x.shape[1:]):
        number = _extent(extent)
        rows.append(floor_mod(place, number))
        place = floor_divide(place, number)
    if x.shape:
        rows.append(place)
    places = stack(rows[::-1]) if rows else zeros((0, room), "int64")
    return Tuple((places, _count(chosen)))


def _extent(extent: Expr) -> RelaxExpr:
    """An extent as a tensor."""
    known = as_int(extent)
    if known is not None:
        return const(known, "int64")
    return reshape(arange(extent, extent + 1, 1, "int64"), ())


@builder("masked_select")
def masked_select(x: RelaxExpr, mask: RelaxExpr, size: ExprLike | None = None) -> Tuple:
    """The elements where ``mask``, which broadcasts, is true, in order: ``(values, count)``.

    There are ``size`` values (as many as ``x`` has elements, if not given), of which the first
    ``count`` are filled, as far as there is room; the others are zero.

    Raises ``VerifyError`` if the mask isn't bool.
    """
    if not dtypes.is_bool(mask.dtype):
        raise VerifyError(f"masked_select: the mask must be bool, got {mask.dtype}")
    chosen = _flat(broadcast_to(mask, x.shape))
    room = element_count(x.shape) if size is None else size
    (values,) = _compact(chosen, [_flat(x)], room)
    return Tuple((values, _count(chosen)))


@builder("unique")
def unique(x: RelaxExpr, size: ExprLike | None = None) -> Tuple:
    """The different elements, sorted: ``(values, count, inverse, counts)``.

    There are ``size`` values (as many as ``x`` has elements, if not given), of which the first
    ``count`` are filled, as far as there is room; the others are zero, and so are their counts.
    ``inverse`` has the shape of ``x`` and says which of the values each element is. Each NaN is
    different from all others.
    """
    total = element_count(x.shape)
    room = total if size is None else size
    flat = _flat(x)
    order = argsort(flat, 0, dtype="int64")
    ordered = gather_elements(flat, order, 0)
    before = gather_elements(ordered, _before(total), 0)
    at_start = equal(_before(total), arange(0, total, 1, "int64"))
    chosen = logical_or(at_start, not_equal(ordered, before))
    rank = subtract(cumsum(astype(chosen, "int64"), 0), const(1, "int64"))
    (values,) = _compact(chosen, [ordered], room)
    inverse = scatter_elements(zeros((total,), "int64"), order, rank)
    counts = scatter_elements(zeros((room,), "int64"), rank, full((total,), 1, "int64"), 0, "add")
    return Tuple((values, _count(chosen), reshape(inverse, x.shape), counts))


def _before(total: Expr) -> RelaxExpr:
    """``0, 0, 1, 2, …``: the place before each, and that of the first itself."""
    places = arange(0, total, 1, "int64")
    return where(equal(places, const(0, "int64")), places, subtract(places, const(1, "int64")))
