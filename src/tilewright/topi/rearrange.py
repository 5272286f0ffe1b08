"""Further operators that move elements: rolls, diagonals, windows, strided views."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith import simplify
from tilewright.ir import (
    EQ,
    Expr,
    ExprLike,
    and_,
    as_expr,
    as_int,
    compare,
    const,
    if_then_else,
    maximum,
    minimum,
    or_,
    product,
    select,
)
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require, require_equal, with_conditions
from tilewright.topi.slices import slice_extent
from tilewright.topi.utils import normal_axis, total_extent, unravel

_MOST_DIAGONALS = 8
"""So many are compared with one after the other, each with one element for a vector of columns."""


def reversed_slice(x: Tensor, first: Expr, last: Expr, step: int, axis: int) -> Tensor:
    """Take elements from ``first`` down to above ``last`` along an axis, by a negative step.

    ``-1 <= last <= first`` must be, and ``first`` be in the axis, as ``slice_bounds`` has it.
    """
    shape = list(x.shape)
    shape[axis] = slice_extent(first, last, step)
    made: Tensor = compute(
        tuple(shape),
        lambda *i: x(*i[:axis], first + i[axis] * step, *i[axis + 1 :]),
        name="reversed_slice",
        tag="injective",
    )
    return made


def roll(x: Tensor, shift: int, axis: int = 0) -> Tensor:
    """Move elements along an axis by ``shift`` places; those that leave it come in at its start."""
    axis = normal_axis(axis, x.ndim)
    extent = x.shape[axis]
    places = simplify(as_expr(shift) % maximum(extent, 1))

    def element(*i: Expr) -> Expr:
        def read(place: Expr) -> Expr:
            return x(*i[:axis], place, *i[axis + 1 :])

        here = i[axis]
        return if_then_else(here < places, read(here - places + extent), read(here - places))

    made: Tensor = compute(x.shape, element, name="roll", tag="injective")
    return made


def diagonal_extent(rows: Expr, columns: Expr, offset: int) -> Expr:
    """Number of elements of a diagonal: above the main one for a positive offset."""
    below, above = max(0, -offset), max(0, offset)
    return simplify(maximum(minimum(rows - below, columns - above), 0))


def diagonal(x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Take a diagonal of two axes; it becomes the last axis.

    Raises ``VerifyError`` if the axes are the same.
    """
    first, second = _two_axes("diagonal", axis1, axis2, x.ndim)
    rest = [a for a in range(x.ndim) if a not in (first, second)]

    def element(*i: Expr) -> Expr:
        at = dict(zip(rest, i))
        at[first], at[second] = i[-1] + max(0, -offset), i[-1] + max(0, offset)
        return x(*(at[a] for a in range(x.ndim)))

    length = diagonal_extent(x.shape[first], x.shape[second], offset)
    made: Tensor = compute(
        (*(x.shape[a] for a in rest), length), element, name="diagonal", tag="injective"
    )
    return made


def diag_embed(x: Tensor, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Make the last axis a diagonal of two axes of the result; zero elsewhere.

    Raises ``VerifyError`` if the axes are the same.
    """
    first, second = _two_axes("diag_embed", axis1, axis2, x.ndim + 1)
    size = simplify(total_extent(x.shape[-1], abs(offset)))
    rest = iter(x.shape[:-1])
    shape = [size if a in (first, second) else next(rest) for a in range(x.ndim + 1)]

    def element(*i: Expr) -> Expr:
        outer = [index for a, index in enumerate(i) if a not in (first, second)]
        place = i[first] - max(0, -offset)
        on = and_(place >= 0, place < x.shape[-1], compare(EQ, i[second], i[first] + offset))
        return if_then_else(on, x(*outer, place), const(0, x.dtype))

    made: Tensor = compute(tuple(shape), element, name="diag_embed", tag="injective")
    return made


def _two_axes(what: str, axis1: int, axis2: int, ndim: int) -> tuple[int, int]:
    first, second = normal_axis(axis1, ndim), normal_axis(axis2, ndim)
    if first == second:
        raise VerifyError(f"{what}: axes {axis1} and {axis2} are the same")
    return first, second


@with_conditions
def matrix_set_diag(
    data: Tensor,
    diagonal: Tensor,
    k: int | Sequence[int] = 0,
    align: str = "RIGHT_LEFT",
) -> Tensor:
    """Return matrices with other diagonals: number ``k``, or all from ``k[0]`` to ``k[1]``.

    ``data``: ``[..., rows, columns]``; ``diagonal``: ``[..., length]``, or if there are several
    ``[..., k[1] - k[0] + 1, length]`` with the highest one first. Shorter ones than ``length`` are
    at the ``RIGHT`` or ``LEFT`` of their row: ``align`` says it of those above the main diagonal,
    then of those below.

    Raises ``VerifyError`` if shapes and dtypes don't fit, or for another ``align``.
    """
    what = "matrix_set_diag"
    low, high = (k, k) if isinstance(k, int) else (k[0], k[-1])
    sides = align.split("_")
    if len(sides) != 2 or not {*sides} <= {"LEFT", "RIGHT"} or low > high:
        raise VerifyError(
            f"{what}: align is two of LEFT and RIGHT, such as RIGHT_LEFT, and k goes up; got "
            f"{align!r} and {k!r}"
        )
    several = low != high
    if data.ndim < 2 or diagonal.ndim != data.ndim - 1 + several or diagonal.dtype != data.dtype:
        raise VerifyError(
            f"{what}: {data.ndim} dimensions of {data.dtype} need diagonals in "
            f"{data.ndim - 1 + several}; got {diagonal.ndim} of {diagonal.dtype}"
        )
    for axis, (a, b) in enumerate(zip(diagonal.shape, data.shape[:-2])):
        require_equal(f"{what}: extent of axis {axis}", a, b)
    if several:
        require_equal(f"{what}: number of diagonals", diagonal.shape[-2], high - low + 1)
    rows, columns = data.shape[-2:]
    length = diagonal.shape[-1]
    longest = maximum(minimum(rows + min(high, 0), columns - max(low, 0)), 0)
    require(
        length >= longest, f"{what}: the longest diagonal has ", longest, " elements, not ", length
    )

    def on_diagonal(i: Sequence[Expr], offset: ExprLike) -> Expr:
        """The element of a diagonal in a row; where it is doesn't depend on the column."""
        size = minimum(rows + minimum(offset, 0), columns - maximum(offset, 0))
        moved = [length - size if side == "RIGHT" else const(0) for side in sides]
        place = i[-2] + minimum(offset, 0)
        if not several:
            return diagonal(*i[:-2], place)
        return diagonal(*i[:-2], high - offset, place + select(as_expr(offset) >= 0, *moved))

    def element(*i: Expr) -> Expr:
        offset: Expr = i[-1] - i[-2]
        found: Expr = data(*i)
        if high - low >= _MOST_DIAGONALS:
            on = and_(offset >= low, offset <= high)
            return if_then_else(on, on_diagonal(i, offset), found)
        for number in range(low, high + 1):
            there = and_(i[-2] >= -number, i[-2] < columns - number)
            value = if_then_else(there, on_diagonal(i, number), const(0, data.dtype))
            found = select(compare(EQ, offset, number), value, found)
        return found

    made: Tensor = compute(data.shape, element, name=what, tag="injective")
    return made


@with_conditions
def sliding_window(
    data: Tensor, axis: int, window_shape: Sequence[int], strides: Sequence[int]
) -> Tensor:
    """Move a window over the dimensions from ``axis`` on, and return all that it covers.

    The result has the dimensions before ``axis``, the numbers of windows, and the window's.

    Raises ``VerifyError`` unless there is an extent and a stride of at least 1 for each dimension,
    and a window fits.
    """
    what = "sliding_window"
    axis = normal_axis(axis, data.ndim)
    count = data.ndim - axis
    if not len(window_shape) == len(strides) == count or min(*window_shape, *strides) < 1:
        raise VerifyError(
            f"{what}: from axis {axis} there are {count} dimensions, which need a window and "
            f"strides of at least 1; got {list(window_shape)} and {list(strides)}"
        )
    numbers = []
    for extent, size, step in zip(data.shape[axis:], window_shape, strides):
        require(extent >= size, f"{what}: a window of {size} does not fit into ", extent)
        numbers.append(simplify((extent - size) // step + 1))

    def element(*i: Expr) -> Expr:
        windows, inside = i[axis : axis + count], i[axis + count :]
        return data(*i[:axis], *(w * step + n for w, step, n in zip(windows, strides, inside)))

    made: Tensor = compute(
        (*data.shape[:axis], *numbers, *window_shape), element, name=what, tag="injective"
    )
    return made


def strided_extent(size: Sequence[ExprLike], stride: Sequence[ExprLike], offset: int) -> Expr:
    """One more than the last place that ``as_strided`` reads, if it reads any."""
    last = as_expr(offset)
    for extent, step in zip(size, stride):
        last = last + (as_expr(extent) - 1) * step
    return simplify(last + 1)


@with_conditions
def as_strided(
    x: Tensor, size: Sequence[ExprLike], stride: Sequence[ExprLike], storage_offset: int = 0
) -> Tensor:
    """Read a tensor's elements in row-major order at ``offset + i0 * stride0 + …``.

    Raises ``VerifyError`` for a negative stride or offset, and if places are outside of it.
    """
    what = "as_strided"
    if len(size) != len(stride):
        raise VerifyError(f"{what}: {len(size)} extents and {len(stride)} strides")
    if storage_offset < 0 or any((as_int(as_expr(step)) or 0) < 0 for step in stride):
        raise VerifyError(
            f"{what}: offset and strides must not be negative: {storage_offset}, {list(stride)}"
        )
    extents = tuple(map(as_expr, size))
    needed, there = strided_extent(extents, stride, storage_offset), product(x.shape)
    require(
        or_(product(extents) <= 0, needed <= there),
        f"{what}: reads ", needed, " elements of a tensor that has ", there,
    )  # fmt: skip

    def element(*i: Expr) -> Expr:
        flat = as_expr(storage_offset)
        for index, step in zip(i, stride):
            flat = flat + index * step
        return x(*unravel(flat, x.shape)) if x.ndim else x()

    made: Tensor = compute(extents, element, name="as_strided", tag="injective")
    return made
