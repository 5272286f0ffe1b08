"""Operators that move elements: transpose, reshape, concatenate, pad, take …."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
    dtypes,
    free_vars,
    if_then_else,
    product,
)
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require, require_equal, with_conditions
from tilewright.topi.utils import (
    normal_axes,
    normal_axis,
    ravel,
    require_elements,
    unravel,
)


def transpose(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Permute dimensions; without ``axes`` they are reversed.

    Raises ``VerifyError`` if ``axes`` is not a permutation.
    """
    order = (
        tuple(reversed(range(x.ndim)))
        if axes is None
        else tuple(normal_axis(axis, x.ndim) for axis in axes)
    )
    if sorted(order) != list(range(x.ndim)):
        raise VerifyError(f"transpose: {list(order)} is not a permutation of {x.ndim} axes")

    def formula(*i: Expr) -> Expr:
        source: list[Any] = [None] * x.ndim
        for position, axis in enumerate(order):
            source[axis] = i[position]
        return x(*source)

    made: Tensor = compute(
        tuple(x.shape[axis] for axis in order), formula, name="transpose", tag="injective"
    )
    return made


@with_conditions
def reshape(x: Tensor, newshape: Sequence[object]) -> Tensor:
    """Reshape in row-major order; one extent may be -1, and is inferred.

    Raises ``VerifyError`` if several are -1, or the number of elements changes.
    """
    shape = [as_expr(extent) for extent in newshape]
    unknown = [axis for axis, extent in enumerate(shape) if as_int(extent) == -1]
    if len(unknown) > 1:
        raise VerifyError("reshape: only one extent may be -1")
    if unknown:
        rest = product([extent for axis, extent in enumerate(shape) if axis != unknown[0]])
        shape[unknown[0]] = product(x.shape) // rest
    require_equal(f"reshape of {list(x.shape)} to {shape}", product(x.shape), product(shape))

    def element(*i: Var) -> Expr:
        analyzer = Analyzer()
        for var, extent in zip(i, shape):
            analyzer.bind(var, Range(const(0, extent.dtype), extent))
        return x(*map(analyzer.simplify, unravel(ravel(i, shape), x.shape)))

    made: Tensor = compute(
        tuple(shape),
        element if x.ndim else lambda *_: x(),
        name="reshape",
        tag="injective",
    )
    return made


def flatten(x: Tensor) -> Tensor:
    """Join all dimensions but the first."""
    return reshape(x, (x.shape[0], product(x.shape[1:])))


def expand_dims(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    """Insert unit dimensions at the given axes of the result."""
    count = 1 if isinstance(axis, int) else len(axis)
    axes = normal_axes(axis, x.ndim + count)
    rest = iter(x.shape)
    shape = [const(1) if a in axes else next(rest) for a in range(x.ndim + count)]
    made: Tensor = compute(
        tuple(shape),
        lambda *i: x(*(index for a, index in enumerate(i) if a not in axes)),
        name="expand_dims",
        tag="injective",
    )
    return made


@with_conditions
def squeeze(x: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """Remove unit dimensions: the given ones, or all."""
    if axis is None:
        axes: tuple[int, ...] = tuple(a for a in range(x.ndim) if as_int(x.shape[a]) == 1)
    else:
        axes = normal_axes(axis, x.ndim)
        for a in axes:
            require_equal(f"squeeze: extent of axis {a} of {x.name}", x.shape[a], 1)

    def formula(*i: Expr) -> Expr:
        rest = iter(i)
        return x(*(0 if a in axes else next(rest) for a in range(x.ndim)))

    made: Tensor = compute(
        tuple(extent for a, extent in enumerate(x.shape) if a not in axes),
        formula,
        name="squeeze",
        tag="injective",
    )
    return made


@with_conditions
def concatenate(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors along an axis.

    Raises ``VerifyError`` if ranks, dtypes or other extents differ.
    """
    first = tensors[0]
    axis = normal_axis(axis, first.ndim)
    starts: list[Expr] = [const(0)]
    for tensor in tensors:
        if tensor.ndim != first.ndim or tensor.dtype != first.dtype:
            raise VerifyError("concatenate: all tensors need the same rank and dtype")
        for a in range(first.ndim):
            if a != axis:
                require_equal(f"concatenate: extents of axis {a}", tensor.shape[a], first.shape[a])
        starts.append(starts[-1] + tensor.shape[axis])

    def formula(*i: Expr) -> Expr:
        def element(number: int) -> Expr:
            indices = list(i)
            indices[axis] = i[axis] - starts[number]
            return tensors[number](*indices)

        value = element(len(tensors) - 1)
        for number in range(len(tensors) - 2, -1, -1):
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
def split(x: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Split a tensor along an axis into equal sections or at the given indices.

    Raises ``VerifyError`` if sections aren't equal.
    """
    axis = normal_axis(axis, x.ndim)
    extent = x.shape[axis]
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1:
            raise VerifyError(f"split: {indices_or_sections} sections")
        require(
            extent % indices_or_sections == 0,
            "split: ", extent, f" does not divide into {indices_or_sections} sections",
        )  # fmt: skip
        part = extent // indices_or_sections
        cuts = [part * n for n in range(indices_or_sections + 1)]
    else:
        cuts = [as_expr(0), *map(as_expr, indices_or_sections), extent]
    return [strided_slice(x, [cuts[n]], [cuts[n + 1]], axes=[axis]) for n in range(len(cuts) - 1)]


@with_conditions
def strided_slice(
    x: Tensor,
    begin: Sequence[Any],
    end: Sequence[Any],
    strides: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
) -> Tensor:
    """Take ``begin:end:stride`` along the axes (all, in order, if not given).

    Constant bounds of constant extents follow Python's rules: negative ones count from the end,
    others are clamped. Where one of them is symbolic, the slice must lie in the axis; negative
    constants count from its end.

    Raises ``VerifyError`` for a stride of zero, and for a negative one over symbolic extents.
    """
    chosen = list(range(len(begin))) if axes is None else [normal_axis(a, x.ndim) for a in axes]
    steps = [1] * len(chosen) if strides is None else [int(step) for step in strides]
    shape: list[Any] = list(x.shape)
    starts: dict[int, Expr] = {}
    step_of: dict[int, int] = {}
    for a, low, high, step in zip(chosen, begin, end, steps):
        if step == 0:
            raise VerifyError("strided_slice: a stride of 0")
        size, b, e = as_int(x.shape[a]), as_int(low), as_int(high)
        if size is not None and b is not None and e is not None:
            b, e, step = slice(b, e, step).indices(size)
            shape[a] = const(len(range(b, e, step)))
            starts[a] = const(b)
        elif step > 0:
            first, last = (_from_end(bound, x.shape[a]) for bound in (low, high))
            _require_inside(x, a, first, last)
            starts[a] = first
            shape[a] = simplify((last - first + (step - 1)) // step)
        else:
            raise VerifyError("strided_slice: negative strides need constant bounds and extents")
        step_of[a] = step
    made: Tensor = compute(
        tuple(shape),
        lambda *i: x(
            *(i[a] * step_of[a] + starts[a] if a in starts else i[a] for a in range(x.ndim))
        ),
        name="strided_slice",
        tag="injective",
    )
    return made


def _from_end(bound: ExprLike, extent: Expr) -> Expr:
    """A bound of a slice; negative constants count from the end."""
    value = as_int(as_expr(bound))
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


def flip(x: Tensor, axis: int = 0) -> Tensor:
    """Reverse a tensor along an axis."""
    axis = normal_axis(axis, x.ndim)
    made: Tensor = compute(
        x.shape,
        lambda *i: x(*(x.shape[a] - 1 - i[a] if a == axis else i[a] for a in range(x.ndim))),
        name="flip",
        tag="injective",
    )
    return made


def tile(x: Tensor, reps: Sequence[int]) -> Tensor:
    """Repeat the whole tensor ``reps`` times per axis.

    Raises ``VerifyError`` for negative repetitions.
    """
    reps = tuple(reps)
    if any(count < 0 for count in reps):
        raise VerifyError(f"tile: repetitions {list(reps)} must not be negative")
    ndim = max(len(reps), x.ndim)
    repeat = (1,) * (ndim - len(reps)) + reps
    own = (const(1),) * (ndim - x.ndim) + tuple(x.shape)

    def element(*i: Expr) -> Expr:
        # Where nothing repeats, or nothing is there to repeat, places are what they were.
        return x(
            *(
                index if count <= 1 or as_int(extent) == 0 else index % extent
                for index, extent, count in list(zip(i, own, repeat))[ndim - x.ndim :]
            )
        )

    made: Tensor = compute(
        tuple(extent * count for extent, count in zip(own, repeat)),
        element,
        name="tile",
        tag="injective",
    )
    return made


def repeat(x: Tensor, repeats: int, axis: int | None = None) -> Tensor:
    """Repeat each element ``repeats`` times along an axis (of the flat tensor without one).

    Raises ``VerifyError`` for a negative number.
    """
    if repeats < 0:
        raise VerifyError(f"repeat: {repeats} is negative")
    if axis is None:
        x, axis = reshape(x, (product(x.shape),)), 0
    axis = normal_axis(axis, x.ndim)
    shape = list(x.shape)
    shape[axis] = shape[axis] * repeats
    made: Tensor = compute(
        tuple(shape),
        lambda *i: x(*(i[a] // max(repeats, 1) if a == axis else i[a] for a in range(x.ndim))),
        name="repeat",
        tag="injective",
    )
    return made


def _index_into(what: str, mode: str, extent: Expr) -> Callable[[Expr], Expr]:
    """Return the function that brings an index into an axis's range."""
    if mode not in ("clip", "wrap", "fast"):
        raise VerifyError(f"{what}: unknown mode {mode!r}; known: clip, wrap, fast")

    def place(index: Expr) -> Expr:
        index = cast_expr(index, "int64")
        if mode == "clip":
            zero, last = const(0), extent - 1
            return if_then_else(index < zero, zero, if_then_else(index > last, last, index))
        return index % extent if mode == "wrap" else index

    return place


@with_conditions
def take(x: Tensor, indices: Tensor, axis: int | None = None, mode: str = "clip") -> Tensor:
    """Gather slices of ``x`` along ``axis`` (of the flat tensor if ``None``).

    ``mode`` says what happens to indices outside: ``"clip"`` takes the nearest valid one,
    ``"wrap"`` counts modulo the extent, ``"fast"`` trusts them.
    """
    if axis is None:
        x, axis = reshape(x, (product(x.shape),)), 0
    axis = normal_axis(axis, x.ndim)
    place = _index_into("take", mode, x.shape[axis])
    require_elements("take", x.shape[axis], product(indices.shape))
    count = indices.ndim
    made: Tensor = compute(
        (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]),
        lambda *i: x(*i[:axis], place(indices(*i[axis : axis + count])), *i[axis + count :]),
        name="take",
        tag="injective",
    )
    return made


@with_conditions
def gather(x: Tensor, axis: int, indices: Tensor, mode: str = "clip") -> Tensor:
    """Return ``x[i0, …, indices[i0, …], …]`` with the index along ``axis`` looked up.

    ``mode`` says what happens to indices outside, as of :func:`take`.

    Raises ``VerifyError`` if the numbers of dimensions differ.
    """
    axis = normal_axis(axis, x.ndim)
    place = _index_into("gather", mode, x.shape[axis])
    if indices.ndim != x.ndim:
        raise VerifyError(f"gather: data has {x.ndim} dimensions, indices have {indices.ndim}")
    require_elements("gather", x.shape[axis], product(indices.shape))
    for a, (wanted, there) in enumerate(zip(indices.shape, x.shape)):
        if a != axis:
            require(
                wanted <= there,
                f"gather: more indices than elements along axis {a}: ", wanted, " and ", there,
            )  # fmt: skip
    made: Tensor = compute(
        indices.shape,
        lambda *i: x(*(place(indices(*i)) if a == axis else i[a] for a in range(x.ndim))),
        name="gather",
        tag="injective",
    )
    return made


def full(shape: Sequence[Any], dtype: str, value: float) -> Tensor:
    """Make a tensor that holds one value."""
    made: Tensor = compute(
        tuple(shape), lambda *i: const(value, dtype), name="full", tag="elemwise"
    )
    return made


def zeros(shape: Sequence[object], dtype: str = "float32") -> Tensor:
    """Make a tensor of zeros."""
    return full(shape, dtype, 0)


def ones(shape: Sequence[object], dtype: str = "float32") -> Tensor:
    """Make a tensor of ones."""
    return full(shape, dtype, 1)


def arange_count(start: Any, stop: Expr | float, step: Expr | bool | float) -> Any:
    """The length of ``arange``: a number or, of symbolic integers, an expression.

    A symbolic step is taken to be positive. Raises ``VerifyError`` for a step of zero, and for
    symbolic numbers that are not integers.
    """
    if not isinstance(step, Expr) and step == 0:
        raise VerifyError("arange: the step is zero")
    bounds = (start, stop)
    if not any(isinstance(bound, Expr) for bound in (*bounds, step)):
        if all(isinstance(number, int) for number in (*bounds, step)):
            return max(0, -((start - stop) // step))
        count = (stop - start) / step  # in double precision, as NumPy counts
        if not math.isfinite(count):
            raise VerifyError(f"arange: from {start} to {stop} by {step} is no finite number")
        return max(0, math.ceil(count))
    if not all(isinstance(number, int) or _is_whole(number) for number in (*bounds, step)):
        raise VerifyError("arange: symbolic bounds must be integers")
    rest = step - 1 if isinstance(step, Expr) or step > 0 else step + 1
    return (as_expr(stop) - start + rest) // step


def _is_whole(number: object) -> bool:
    return isinstance(number, Expr) and dtypes.is_integer(number.dtype)


def arange(
    start: ExprLike, stop: ExprLike | None = None, step: ExprLike = 1, dtype: str | None = None
) -> Tensor:
    """Return ``start, start + step, …`` below ``stop``.

    Without ``dtype`` the result is int64, or float32 if a bound or the step is a float. Elements
    are computed in int64 or float64 and converted once.
    """
    if stop is None:
        start, stop = 0, start
    count = arange_count(start, stop, step)
    floats = any(isinstance(number, float) for number in (start, stop, step))
    exact, made_as = ("float64", dtype or "float32") if floats else ("int64", dtype or "int64")

    def element(i: Expr) -> Expr:
        first = cast_expr(as_expr(start, exact), exact)
        return cast_expr(cast_expr(i, exact) * as_expr(step, exact) + first, made_as)

    made: Tensor = compute((count,), element, name="arange", tag="injective")
    return made


def tril(x: Tensor, k: int = 0, *, upper: bool = False) -> Tensor:
    """Keep the lower (or upper) triangle of the last two axes, zero elsewhere."""

    def formula(*i: Expr) -> Expr:
        row, column = i[-2], i[-1]
        keep = column >= row + k if upper else column <= row + k
        return if_then_else(keep, x(*i), const(0, x.dtype))

    made: Tensor = compute(x.shape, formula, name="triu" if upper else "tril", tag="injective")
    return made


def triu(x: Tensor, k: int = 0) -> Tensor:
    """Keep the upper triangle of the last two axes, zero elsewhere."""
    return tril(x, k, upper=True)


def one_hot(
    indices: Tensor, on_value: float, off_value: float, depth: int, axis: int = -1,
    dtype: str = "float32",
) -> Tensor:  # fmt: skip
    """Turn indices into vectors of ``depth`` with ``on_value`` at the index."""
    axis = normal_axis(axis, indices.ndim + 1)
    made: Tensor = compute(
        (*indices.shape[:axis], depth, *indices.shape[axis:]),
        lambda *i: if_then_else(
            cast_expr(indices(*i[:axis], *i[axis + 1 :]), "int64") == i[axis],
            const(on_value, dtype),
            const(off_value, dtype),
        ),
        name="one_hot",
        tag="injective",
    )
    return made


def in_range(index: Expr, low: ExprLike, high: ExprLike) -> Expr:
    """The condition ``low <= index < high``."""
    return and_(index >= low, index < high)
