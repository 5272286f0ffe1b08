"""Slices and tiles whose bounds are operands: ``dynamic_strided_slice``, ``strided_set`` ….

Bounds are read where they are used, so shapes of results come as arguments. Nothing outside of an
operand is read, whatever the bounds are.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import (
    EQ,
    Expr,
    ExprLike,
    and_,
    as_expr,
    as_int,
    cast,
    compare,
    const,
    if_then_else,
    maximum,
    minimum,
    or_,
    select,
)
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.topi.scatter import require_indices
from tilewright.topi.utils import require_ndim


@with_conditions
def dynamic_strided_slice(
    a: Tensor, begin: Tensor, end: Tensor, strides: Tensor, output_shape: Sequence[ExprLike]
) -> Tensor:
    """Take ``begin:end:strides`` along the first axes, with bounds that are vectors of integers.

    As in Python, negative bounds count from the end, and others are clamped. ``output_shape`` says
    how many elements there are, and so ``end`` is not read.

    Raises ``VerifyError`` if there are more bounds than dimensions, or not as many of each.
    """
    what = "dynamic_strided_slice"
    count = _require_bounds(what, a, begin, end, strides)
    if len(output_shape) != a.ndim:
        raise VerifyError(f"{what}: output_shape needs {a.ndim} extents, got {len(output_shape)}")
    for axis in range(count, a.ndim):
        require_equal(f"{what}: axis {axis}", as_expr(output_shape[axis]), a.shape[axis])

    def element(*i: Expr) -> Expr:
        at = list(i)
        for axis in range(count):
            extent, step = a.shape[axis], _wide(strides(axis))
            first = _first(_wide(begin(axis)), extent, step)
            at[axis] = maximum(minimum(first + i[axis] * step, extent - 1), 0)
        return a(*at)

    made: Tensor = compute(tuple(output_shape), element, name=what, tag="injective")
    return made


@with_conditions
def strided_set(
    a: Tensor, v: Tensor, begin: Tensor, end: Tensor, strides: Tensor | None = None
) -> Tensor:
    """Return ``a`` with ``v`` in place of ``begin:end:strides`` along its first axes.

    Bounds are vectors of integers, as those of Python's slices; without ``strides`` they are 1.
    Elements of the slice beyond those of ``v`` stay.

    Raises ``VerifyError`` if dtypes or numbers of dimensions differ, or bounds aren't as many.
    """
    what = "strided_set"
    count = _require_bounds(what, a, begin, end, *([] if strides is None else [strides]))
    if v.ndim != a.ndim or v.dtype != a.dtype:
        raise VerifyError(
            f"{what}: v needs {a.ndim} dimensions of {a.dtype}, it has {v.ndim} of {v.dtype}"
        )
    for axis in range(count, a.ndim):
        require_equal(f"{what}: axis {axis}", v.shape[axis], a.shape[axis])

    places = [
        _places(
            a.shape[axis],
            v.shape[axis],
            begin(axis),
            end(axis),
            None if strides is None else strides(axis),
        )
        for axis in range(count)
    ]

    def element(*i: Expr) -> Expr:
        if not places:
            return v(*i)
        at = [place(index) for (_, place), index in zip(places, i)]
        inside = [table(index) for (table, _), index in zip(places, i)]
        return if_then_else(and_(*inside), v(*at, *i[count:]), a(*i))

    made: Tensor = compute(a.shape, element, name=what, tag="injective")
    return made


def _places(
    extent: Expr, values: Expr, begin: Expr, end: Expr, stride: Expr | None
) -> tuple[Tensor, Tensor]:
    """Of each index of an axis, whether it is in a slice, and where.

    Both are tables, made once: the divisions would cost more than what is copied.
    """

    def element(i: Expr) -> tuple[Expr, Expr]:
        step = const(1) if stride is None else _wide(stride)
        first, last = _first(_wide(begin), extent, step), _counted(_wide(end), extent)
        place = make_idx(first, last, step, extent, i)
        return and_(within_index(first, last, step, i), place < values), place

    inside, place = compute((extent,), element, name="places", tag="injective")
    return inside, place


@with_conditions
def dyn_tile(a: Tensor, new_shape: Sequence[ExprLike], rdim: ExprLike) -> Tensor:
    """Repeat ``a`` along its axes, and along new ones before them, to fill ``new_shape``.

    ``rdim`` is the number of repetitions that the shape was made of, which the shape says too.

    Raises ``VerifyError`` if the new shape has fewer dimensions, or fewer than ``rdim``.
    """
    if len(new_shape) < max(a.ndim, as_int(as_expr(rdim)) or 0):
        raise VerifyError(
            f"dyn_tile: {a.ndim} dimensions and {rdim} repetitions make more than {len(new_shape)}"
        )
    made: Tensor = compute(
        tuple(new_shape),
        lambda *i: a(*(n % e for n, e in zip(i[len(i) - a.ndim :], a.shape))),
        name="dyn_tile",
        tag="injective",
    )
    return made


def within_index(b: ExprLike, e: ExprLike, s: ExprLike, i: ExprLike) -> Expr:
    """Whether ``i`` is one of the slice ``b:e:s``; the step may be negative."""
    first, last, step, place = map(as_expr, (b, e, s, i))
    up = and_(place >= first, place < last)
    down = and_(place <= first, place > last)
    on = compare(EQ, (place - first) % select(step < 0, -step, maximum(step, 1)), 0)
    return and_(or_(and_(step > 0, up), and_(step < 0, down)), on)


def make_idx(b: ExprLike, e: ExprLike, s: ExprLike, z: ExprLike, i: ExprLike) -> Expr:
    """The place in the slice ``b:e:s`` of index ``i`` of an axis of extent ``z``.

    It is 0 for what is not in the slice (``within_index``).
    """
    first, step, place = map(as_expr, (b, s, i))
    forth = (place - first) // maximum(step, 1)
    back = (first - place) // maximum(-step, 1)
    inside = and_(within_index(b, e, s, i), place < z)
    return select(inside, select(step < 0, back, forth), 0)


def _require_bounds(what: str, a: Tensor, *bounds: Tensor) -> int:
    """The number of axes that bounds are for."""
    for tensor in bounds:
        require_indices(what, tensor)
        require_ndim(what, tensor, 1)
    counts = [as_int(tensor.shape[0]) for tensor in bounds]
    if counts[0] is None or counts[0] > a.ndim or len({*counts}) > 1:
        raise VerifyError(
            f"{what}: bounds need one number for each of up to {a.ndim} axes, there are "
            f"{[tensor.shape[0] for tensor in bounds]}"
        )
    return counts[0]


def _first(bound: Expr, extent: Expr, step: Expr) -> Expr:
    """Where a slice begins."""
    counted = _counted(bound, extent)
    return maximum(minimum(counted, select(step < 0, extent - 1, extent)), select(step < 0, -1, 0))


def _counted(bound: Expr, extent: Expr) -> Expr:
    return select(bound < 0, bound + extent, bound)


def _wide(value: Expr) -> Expr:
    made: Expr = cast(value, "int64")
    return made
