"""Operators that read where indices say, or replace a slice.

Negative indices count from the end of their axis, and those outside of it even so are taken to be
the nearest that are inside, so nothing outside of an operand is read (``take`` and ``gather`` have
modes instead).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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
    dtypes,
    if_then_else,
    maximum,
    minimum,
    product,
    select,
)
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require, require_equal, with_conditions
from tilewright.te.arithmetic import read_broadcast
from tilewright.topi.scatter import indexed, neighbouring, require_indices
from tilewright.topi.slices import slice_bounds, slice_extent
from tilewright.topi.transform import reshape
from tilewright.topi.utils import normal_axis, require_elements, require_ndim


def counted_index(index: Expr, extent: ExprLike) -> Expr:
    """An index into an axis: a negative one counts from the end; then it is clamped."""
    index, last = cast(index, "int64"), as_expr(extent) - 1
    return maximum(minimum(if_then_else(index < 0, index + extent, index), last), 0)


def _index_into(what: str, mode: str, extent: Expr) -> Callable[[Expr], Expr]:
    """Return the function that brings an index into an axis's range."""
    if mode not in ("clip", "wrap", "fast"):
        raise VerifyError(f"{what}: unknown mode {mode!r}; known: clip, wrap, fast")

    def place(index: Expr) -> Expr:
        index = cast(index, "int64")
        if mode == "clip":
            zero, last = const(0), extent - 1
            return if_then_else(index < zero, zero, if_then_else(index > last, last, index))
        return index % extent if mode == "wrap" else index

    return place


@with_conditions
def take(
    a: Tensor,
    indices: Tensor,
    axis: int | None = None,
    batch_dims: int = 0,
    mode: str = "clip",
) -> Tensor:
    """Gather slices of ``a`` along ``axis`` (of the flat tensor if ``None``).

    The first ``batch_dims`` dimensions of both are the same, and stay. ``mode`` says what happens
    to indices outside: ``"clip"`` takes the nearest valid one, ``"wrap"`` counts modulo the extent,
    ``"nan"`` gives NaN, ``"fast"`` trusts them.

    Raises ``VerifyError`` for another mode, ``"nan"`` of integers, and batch dimensions that differ
    or aren't before ``axis``.
    """
    if axis is None:
        a, axis = reshape(a, (product(a.shape),)), 0
    axis = normal_axis(axis, a.ndim)
    batch = batch_dims + indices.ndim if batch_dims < 0 else batch_dims
    if not 0 <= batch <= min(axis, indices.ndim):
        raise VerifyError(
            f"take: batch_dims is at most the axis {axis} and the {indices.ndim} dimensions of "
            f"indices, got {batch_dims}"
        )
    for dim in range(batch):
        require_equal(f"take: batch axis {dim}", indices.shape[dim], a.shape[dim])
    if mode == "nan" and not dtypes.is_float(a.dtype):
        raise VerifyError(f"take: mode nan needs floating-point numbers, got {a.dtype}")
    extent = a.shape[axis]
    place = _index_into("take", "clip" if mode == "nan" else mode, extent)
    require_elements("take", extent, product(indices.shape))
    count = indices.ndim - batch

    def element(*i: Expr) -> Expr:
        index = indices(*i[:batch], *i[axis : axis + count])
        value = a(*i[:axis], place(index), *i[axis + count :])
        if mode != "nan":
            return value
        wide = cast(index, "int64")
        inside = and_(wide >= 0, wide < extent)
        return if_then_else(inside, value, const(math.nan, a.dtype))

    made: Tensor = compute(
        (*a.shape[:axis], *indices.shape[batch:], *a.shape[axis + 1 :]),
        element,
        name="take",
        tag="injective",
    )
    return made


@with_conditions
def gather(data: Tensor, axis: int, indices: Tensor, mode: str = "clip") -> Tensor:
    """Return ``data[i0, …, indices[i0, …], …]`` with the index along ``axis`` looked up.

    ``mode`` says what happens to indices outside, as of :func:`take`.

    Raises ``VerifyError`` if the numbers of dimensions differ.
    """
    axis = normal_axis(axis, data.ndim)
    place = _index_into("gather", mode, data.shape[axis])
    if indices.ndim != data.ndim:
        raise VerifyError(f"gather: data has {data.ndim} dimensions, indices have {indices.ndim}")
    require_elements("gather", data.shape[axis], product(indices.shape))
    for a, (wanted, there) in enumerate(zip(indices.shape, data.shape)):
        if a != axis:
            require(
                wanted <= there,
                f"gather: more indices than elements along axis {a}: ", wanted, " and ", there,
            )  # fmt: skip
    made: Tensor = compute(
        indices.shape,
        lambda *i: data(*(place(indices(*i)) if a == axis else i[a] for a in range(data.ndim))),
        name="gather",
        tag="injective",
    )
    return made


@with_conditions
def index_tensor(data: Tensor, indices: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Return ``data[indices]`` as NumPy's indexing by arrays of integers has it.

    The index tensors broadcast together and stand for neighbouring axes, of which ``axis`` is the
    first; their common shape takes the place of these axes.

    Raises ``VerifyError`` if indices aren't integers, or there are none or too many.
    """
    axis, count, common = neighbouring("index_tensor", data, indices, axis)
    for a in range(axis, axis + count):
        require_elements("index_tensor", data.shape[a], product(common))
    last = axis + len(common)

    def element(*i: Expr) -> Expr:
        chosen = (
            counted_index(read_broadcast(table, i[axis:last], common), extent)
            for table, extent in zip(indices, data.shape[axis:])
        )
        return data(*i[:axis], *chosen, *i[last:])

    made: Tensor = compute(
        (*data.shape[:axis], *common, *data.shape[axis + count :]),
        element,
        name="index_tensor",
        tag="injective",
    )
    return made


adv_index = index_tensor


@with_conditions
def unravel_index(indices: Tensor, shape: Tensor | Sequence[ExprLike]) -> Tensor:
    """Return the place of each flat index in a shape, which is a vector or known.

    The first axis of the result goes through the dimensions of the shape. Indices outside count
    modulo the size.

    Raises ``VerifyError`` if the number of dimensions isn't known, or numbers aren't integers.
    """
    what = "unravel_index"
    require_indices(what, indices)
    if isinstance(shape, Tensor):
        require_indices(what, shape)
        require_ndim(what, shape, 1)
        ndim, table = as_int(shape.shape[0]), shape
        if ndim is None:
            raise VerifyError(f"{what}: the number of dimensions must be known")
        extents = [maximum(cast(table(axis), "int64"), 1) for axis in range(ndim)]
    else:
        extents = [maximum(as_expr(extent), 1) for extent in shape]

    def element(axis: Expr, *i: Expr) -> Expr:
        rest, found = cast(indices(*i), "int64"), as_expr(0)
        for n in range(len(extents) - 1, -1, -1):
            found = select(compare(EQ, axis, n), rest % extents[n], found)
            rest = rest // extents[n]
        return cast(found, indices.dtype)

    made: Tensor = compute((len(extents), *indices.shape), element, name=what, tag="injective")
    return made


@with_conditions
def gather_nd(a: Tensor, indices: Tensor, batch_dims: int = 0, *, index_axis: int = 0) -> Tensor:
    """Gather elements or slices at multi-dimensional indices.

    The ``index_axis`` of ``indices`` goes through the axes of ``a`` after the first ``batch_dims``,
    which both have: TVM's has it first, ONNX's last. The result has the shape of the rest of
    ``indices``, followed by that of the other axes of ``a``.

    Raises ``VerifyError`` if shapes don't fit, or indices aren't integers.
    """
    what = "gather_nd"
    index_axis, depth, outer = indexed(what, a, indices, index_axis, batch_dims)
    if not 0 <= batch_dims <= len(outer):
        raise VerifyError(
            f"{what}: batch_dims is from 0 to {len(outer)}, the other dimensions of indices; got "
            f"{batch_dims}"
        )
    for axis in range(batch_dims):
        require_equal(f"{what}: batch axis {axis}", outer[axis], a.shape[axis])
    first = batch_dims + depth
    for extent in a.shape[batch_dims:first]:
        require_elements(what, extent, product(outer))

    def element(*i: Expr) -> Expr:
        before, after = i[:index_axis], i[index_axis : len(outer)]
        chosen = (
            counted_index(indices(*before, n, *after), a.shape[batch_dims + n])
            for n in range(depth)
        )
        return a(*i[:batch_dims], *chosen, *i[len(outer) :])

    made: Tensor = compute((*outer, *a.shape[first:]), element, name=what, tag="injective")
    return made


@with_conditions
def slice_scatter(
    input_tensor: Tensor, src: Tensor, start: ExprLike, end: ExprLike, step: int = 1, axis: int = 0
) -> Tensor:
    """Return ``input_tensor`` with ``src`` in place of ``start:end:step`` along an axis.

    The bounds are those of a Python slice; expressions count from the start of the axis.

    Raises ``VerifyError`` for a step below 1, another dtype, and if ``src`` isn't as large as the
    slice.
    """
    what = "slice_scatter"
    axis = normal_axis(axis, input_tensor.ndim)
    if src.dtype != input_tensor.dtype or src.ndim != input_tensor.ndim:
        raise VerifyError(
            f"{what}: src needs {input_tensor.ndim} dimensions of {input_tensor.dtype}, it has "
            f"{src.ndim} of {src.dtype}"
        )
    if step < 1:
        raise VerifyError(f"{what}: the step must be at least 1, got {step}")
    low, high = slice_bounds(start, end, input_tensor.shape[axis], step)
    for a, (extent, whole) in enumerate(zip(src.shape, input_tensor.shape)):
        wanted = slice_extent(low, high, step) if a == axis else whole
        require_equal(f"{what}: extent of axis {a} of src", extent, wanted)

    def element(*i: Expr) -> Expr:
        place, old = i[axis] - low, input_tensor(*i)
        new = src(*i[:axis], place if step == 1 else place // step, *i[axis + 1 :])
        if step == 1:
            return if_then_else(i[axis] < low, old, if_then_else(i[axis] < high, new, old))
        inside = and_(i[axis] >= low, i[axis] < high, compare(EQ, place % step, 0))
        return if_then_else(inside, new, old)

    made: Tensor = compute(input_tensor.shape, element, name=what, tag="injective")
    return made
