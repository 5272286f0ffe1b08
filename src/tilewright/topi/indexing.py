"""Operators that read where indices say, or replace a slice.

Negative indices count from the end of their axis, and those outside of it even so are taken to be
the nearest that are inside, so nothing outside of an operand is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import (
    EQ,
    Expr,
    ExprLike,
    and_,
    as_expr,
    cast,
    compare,
    if_then_else,
    maximum,
    minimum,
    product,
)
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.topi.broadcast import read_broadcast
from tilewright.topi.scatter import indexed, neighbouring
from tilewright.topi.slices import slice_bounds, slice_extent
from tilewright.topi.utils import normal_axis, require_elements


def counted_index(index: Expr, extent: ExprLike) -> Expr:
    """An index into an axis: a negative one counts from the end; then it is clamped."""
    index, last = cast(index, "int64"), as_expr(extent) - 1
    return maximum(minimum(if_then_else(index < 0, index + extent, index), last), 0)


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
