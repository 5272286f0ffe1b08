"""Operators that move elements: transpose, reshape, concatenate, slice, repeat …."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import Analyzer, simplify
from tilewright.ir import (
    Expr,
    ExprLike,
    Range,
    Var,
    and_,
    as_expr,
    as_int,
    const,
    free_vars,
    if_then_else,
    product,
)
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require, require_equal, with_conditions
from tilewright.topi.slices import NO_END, section_cuts, slice_bounds, slice_extent
from tilewright.topi.utils import (
    normal_axes,
    normal_axis,
    ravel,
    repeated_extent,
    total_extent,
    unravel,
)


def transpose(a: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Permute dimensions; without ``axes`` they are reversed.

    Raises ``VerifyError`` if ``axes`` is not a permutation.
    """
    order = (
        tuple(reversed(range(a.ndim)))
        if axes is None
        else tuple(normal_axis(axis, a.ndim) for axis in axes)
    )
    if sorted(order) != list(range(a.ndim)):
        raise VerifyError(f"transpose: {list(order)} is not a permutation of {a.ndim} axes")

    def formula(*i: Expr) -> Expr:
        source: list[Any] = [None] * a.ndim
        for position, axis in enumerate(order):
            source[axis] = i[position]
        return a(*source)

    made: Tensor = compute(
        tuple(a.shape[axis] for axis in order), formula, name="transpose", tag="injective"
    )
    return made


@with_conditions
def reshape(a: Tensor, newshape: Sequence[object] | Expr | int) -> Tensor:
    """Reshape in row-major order; one extent may be -1, and is inferred.

    Raises ``VerifyError`` if several are -1, or the number of elements changes.
    """
    extents = (newshape,) if isinstance(newshape, (int, Expr)) else newshape
    shape = [as_expr(extent) for extent in extents]
    unknown = [axis for axis, extent in enumerate(shape) if as_int(extent) == -1]
    if len(unknown) > 1:
        raise VerifyError("reshape: only one extent may be -1")
    if unknown:
        rest = product([extent for axis, extent in enumerate(shape) if axis != unknown[0]])
        shape[unknown[0]] = product(a.shape) // rest
    require_equal(f"reshape of {list(a.shape)} to {shape}", product(a.shape), product(shape))

    def element(*i: Var) -> Expr:
        analyzer = Analyzer()
        for var, extent in zip(i, shape):
            analyzer.bind(var, Range.from_min_extent(const(0, extent.dtype), extent))
        return a(*map(analyzer.simplify, unravel(ravel(i, shape), a.shape)))

    made: Tensor = compute(
        tuple(shape),
        element if a.ndim else lambda *_: a(),
        name="reshape",
        tag="injective",
    )
    return made


def flatten(x: Tensor) -> Tensor:
    """Join all dimensions but the first."""
    return reshape(x, (x.shape[0], product(x.shape[1:])))


def expand_dims(a: Tensor, axis: int | Sequence[int], num_newaxis: int = 1) -> Tensor:
    """Insert unit dimensions: ``num_newaxis`` at ``axis``, or one at each axis of the result.

    Raises ``VerifyError`` for a number below zero, or one for several axes.
    """
    if isinstance(axis, Sequence):
        if num_newaxis != 1:
            raise VerifyError("expand_dims: num_newaxis is for a single axis")
        axes = normal_axes(axis, a.ndim + len(axis))
    else:
        first = normal_axis(axis, a.ndim + 1)
        if num_newaxis < 0:
            raise VerifyError(f"expand_dims: num_newaxis {num_newaxis} is negative")
        axes = tuple(range(first, first + num_newaxis))
    rest = iter(a.shape)
    shape = [const(1) if dim in axes else next(rest) for dim in range(a.ndim + len(axes))]
    made: Tensor = compute(
        tuple(shape),
        lambda *i: a(*(index for dim, index in enumerate(i) if dim not in axes)),
        name="expand_dims",
        tag="injective",
    )
    return made


@with_conditions
def squeeze(a: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """Remove unit dimensions: the given ones, or all."""
    if axis is None:
        axes: tuple[int, ...] = tuple(dim for dim in range(a.ndim) if as_int(a.shape[dim]) == 1)
    else:
        axes = normal_axes(axis, a.ndim)
        for dim in axes:
            require_equal(f"squeeze: extent of axis {dim} of {a.name}", a.shape[dim], 1)

    def formula(*i: Expr) -> Expr:
        rest = iter(i)
        return a(*(0 if dim in axes else next(rest) for dim in range(a.ndim)))

    made: Tensor = compute(
        tuple(extent for dim, extent in enumerate(a.shape) if dim not in axes),
        formula,
        name="squeeze",
        tag="injective",
    )
    return made


@with_conditions
def concatenate(a_tuple: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors along an axis.

    Raises ``VerifyError`` if ranks, dtypes or other extents differ.
    """
    first = a_tuple[0]
    axis = normal_axis(axis, first.ndim)
    starts: list[Expr] = [const(0)]
    for tensor in a_tuple:
        if tensor.ndim != first.ndim or tensor.dtype != first.dtype:
            raise VerifyError("concatenate: all tensors need the same rank and dtype")
        for a in range(first.ndim):
            if a != axis:
                require_equal(f"concatenate: extents of axis {a}", tensor.shape[a], first.shape[a])
        starts.append(total_extent(starts[-1], tensor.shape[axis]))

    def formula(*i: Expr) -> Expr:
        def element(number: int) -> Expr:
            indices = list(i)
            indices[axis] = i[axis] - starts[number]
            return a_tuple[number](*indices)

        value = element(len(a_tuple) - 1)
        for number in range(len(a_tuple) - 2, -1, -1):
            value = if_then_else(i[axis] < starts[number + 1], element(number), value)
        return value

    shape = list(first.shape)
    shape[axis] = starts[-1]
    made: Tensor = compute(tuple(shape), formula, name="concatenate", tag="injective")
    return made


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors along a new axis."""
    axis = normal_axis(axis, tensors[0].ndim + 1)
    return concatenate([expand_dims(tensor, axis) for tensor in tensors], axis)


@with_conditions
def split(ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Split a tensor along an axis into equal sections or at the given indices.

    Where a constant extent doesn't divide, the last section is smaller: see ``section_cuts``.

    Raises ``VerifyError`` if a symbolic extent doesn't divide, or nothing is left for a section.
    """
    axis = normal_axis(axis, ary.ndim)
    extent = ary.shape[axis]
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1:
            raise VerifyError(f"split: {indices_or_sections} sections")
        cuts = section_cuts("split: ", extent, indices_or_sections, require)
    else:
        cuts = [as_expr(0), *map(as_expr, indices_or_sections), extent]
    return [strided_slice(ary, [cuts[n]], [cuts[n + 1]], axes=[axis]) for n in range(len(cuts) - 1)]


@with_conditions
def strided_slice(
    a: Tensor,
    begin: Sequence[Any],
    end: Sequence[Any],
    strides: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
    assume_inbound: bool = True,
) -> Tensor:
    """Take ``begin:end:stride`` along the axes (the first ones, in order, if not given).

    Constant bounds of constant extents follow Python's rules: negative ones count from the end,
    others are clamped. Where one of them is symbolic, the slice must lie in the axis, or is clamped
    too with ``assume_inbound=False``; negative constants count from the end. With
    ``slice_mode="size"`` ``end`` has lengths, -1 for all that is left, and strides are 1.

    Raises ``VerifyError`` for a stride of zero, and for a negative one over symbolic extents that
    nothing clamps.
    """
    if slice_mode not in ("end", "size"):
        raise VerifyError(f"strided_slice: slice_mode is end or size, got {slice_mode!r}")
    chosen = list(range(len(begin))) if axes is None else [normal_axis(dim, a.ndim) for dim in axes]
    if slice_mode == "size":
        strides, end = None, _ends(begin, end)
    steps = [1] * len(chosen)
    steps[: len(strides or ())] = [int(step) for step in strides or ()]
    if not len(chosen) == len(begin) == len(end) == len(steps) <= a.ndim:
        raise VerifyError(
            f"strided_slice: {len(begin)} begins, {len(end)} ends and {len(steps)} strides for "
            f"{len(chosen)} axes of {a.ndim}"
        )
    shape: list[Any] = list(a.shape)
    starts: dict[int, Expr] = {}
    step_of = dict(zip(chosen, steps))
    for dim, low, high, step in zip(chosen, begin, end, steps):
        if step == 0:
            raise VerifyError("strided_slice: a stride of 0")
        size, b, e = as_int(a.shape[dim]), as_int(low), as_int(high)
        if size is not None and b is not None and e is not None:
            b, e, step_of[dim] = slice(b, e, step).indices(size)
            shape[dim] = const(len(range(b, e, step)))
            starts[dim] = const(b)
        elif not assume_inbound:
            starts[dim], last = slice_bounds(low, high, a.shape[dim], step)
            shape[dim] = slice_extent(starts[dim], last, step)
        elif step > 0:
            first, last = (_from_end(bound, a.shape[dim]) for bound in (low, high))
            _require_inside(a, dim, first, last)
            starts[dim] = first
            shape[dim] = simplify((last - first + (step - 1)) // step)
        else:
            raise VerifyError("strided_slice: negative strides need constant bounds and extents")
    made: Tensor = compute(
        tuple(shape),
        lambda *i: a(
            *(
                index * step_of[dim] + starts[dim] if dim in starts else index
                for dim, index in enumerate(i)
            )
        ),
        name="strided_slice",
        tag="injective",
    )
    return made


def _ends(begin: Sequence[Any], lengths: Sequence[Any]) -> list[Any]:
    """The ends of slices of these lengths; -1 means up to the end of the axis."""
    made: list[Any] = []
    for low, length in zip(begin, lengths):
        known, first = as_int(as_expr(length)), as_int(as_expr(low))
        if known is not None and known < 0:
            made.append(NO_END)
        else:
            stop = as_expr(low) + length
            # What counts from the end and reaches it has an end that would count from the start.
            reaches = first is not None and first < 0 and (as_int(stop) or 0) >= 0
            made.append(NO_END if reaches else stop)
    return made


def _from_end(bound: ExprLike, extent: Expr) -> Expr:
    """A bound of a slice; negative constants count from the end, huge ones are the end."""
    value = as_int(as_expr(bound))
    if value is not None and value >= NO_END:
        return extent
    return extent + value if value is not None and value < 0 else as_expr(bound)


def _require_inside(x: Tensor, axis: int, first: Expr, last: Expr) -> None:
    extent = x.shape[axis]
    analyzer = Analyzer()
    for var in free_vars(extent):
        analyzer.limit(var, 0)  # an extent is not negative
    require(
        analyzer.simplify(and_(first >= 0, first <= last, last <= extent)),
        f"strided_slice: axis {axis} of {x.name} of extent ", extent, " has no elements from ",
        first, " to ", last,
    )  # fmt: skip


def flip(a: Tensor, axis: int = 0) -> Tensor:
    """Reverse a tensor along an axis."""
    axis = normal_axis(axis, a.ndim)
    made: Tensor = compute(
        a.shape,
        lambda *i: a(
            *(a.shape[dim] - 1 - i[dim] if dim == axis else i[dim] for dim in range(a.ndim))
        ),
        name="flip",
        tag="injective",
    )
    return made


def tile(a: Tensor, reps: Sequence[int]) -> Tensor:
    """Repeat the whole tensor ``reps`` times per axis.

    Raises ``VerifyError`` for negative repetitions.
    """
    reps = tuple(reps)
    if any(count < 0 for count in reps):
        raise VerifyError(f"tile: repetitions {list(reps)} must not be negative")
    ndim = max(len(reps), a.ndim)
    repeat = (1,) * (ndim - len(reps)) + reps
    own = (const(1),) * (ndim - a.ndim) + tuple(a.shape)

    def element(*i: Expr) -> Expr:
        # Where nothing repeats, or nothing is there to repeat, places are what they were.
        return a(
            *(
                index if count <= 1 or as_int(extent) == 0 else index % extent
                for index, extent, count in list(zip(i, own, repeat))[ndim - a.ndim :]
            )
        )

    made: Tensor = compute(
        tuple(map(repeated_extent, own, repeat)),
        element,
        name="tile",
        tag="injective",
    )
    return made


def repeat(a: Tensor, repeats: int, axis: int | None = None) -> Tensor:
    """Repeat each element ``repeats`` times along an axis (of the flat tensor without one).

    Raises ``VerifyError`` for a negative number.
    """
    if repeats < 0:
        raise VerifyError(f"repeat: {repeats} is negative")
    if axis is None:
        a, axis = reshape(a, (product(a.shape),)), 0
    axis = normal_axis(axis, a.ndim)
    shape = list(a.shape)
    shape[axis] = repeated_extent(shape[axis], repeats)
    made: Tensor = compute(
        tuple(shape),
        lambda *i: a(
            *(i[dim] // max(repeats, 1) if dim == axis else i[dim] for dim in range(a.ndim))
        ),
        name="repeat",
        tag="injective",
    )
    return made


def trilu(data: Tensor, k: ExprLike, upper: bool) -> Tensor:
    """Keep the ``upper`` or lower triangle of the last two axes from diagonal ``k`` on; else zero.

    Raises ``VerifyError`` for fewer dimensions.
    """
    if data.ndim < 2:
        raise VerifyError(f"a triangle needs two dimensions, {data.name} has {data.ndim}")

    def formula(*i: Expr) -> Expr:
        row, column = i[-2], i[-1]
        keep = column >= row + k if upper else column <= row + k
        return if_then_else(keep, data(*i), const(0, data.dtype))

    made: Tensor = compute(data.shape, formula, name="triu" if upper else "tril", tag="injective")
    return made


def tril(data: Tensor, k: ExprLike = 0) -> Tensor:
    """Keep the lower triangle of the last two axes, zero elsewhere."""
    return trilu(data, k, upper=False)


def triu(data: Tensor, k: ExprLike = 0) -> Tensor:
    """Keep the upper triangle of the last two axes, zero elsewhere."""
    return trilu(data, k, upper=True)
