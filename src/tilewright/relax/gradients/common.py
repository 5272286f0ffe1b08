"""What rules of gradients share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.arith import simplify
from tilewright.ir import Expr, as_int, const, product
from tilewright.relax import ops as op
from tilewright.relax.expr import Constant, RelaxExpr
from tilewright.relax.struct_info import prove_equal, same_shape
from tilewright.relax.values import const as constant
from tilewright.relax.values import numpy_dtype


def number(value: float, like: RelaxExpr) -> Constant:
    """A constant of a tensor's dtype."""
    return constant(np.asarray(value, numpy_dtype(like.dtype)))


def as_dtype(x: RelaxExpr, dtype: str) -> RelaxExpr:
    """A tensor of another dtype, or itself."""
    return x if x.dtype == dtype else op.astype(x, dtype)


def collapse(grad: RelaxExpr, like: RelaxExpr) -> RelaxExpr:
    """Sum over the axes along which ``like`` was repeated to get the gradient's shape."""
    return collapse_to(grad, like.shape)


def collapse_to(grad: RelaxExpr, shape: Sequence[Expr]) -> RelaxExpr:
    """Sum over the axes along which a tensor of a shape was repeated."""
    wanted = tuple(shape)
    if same_shape(grad.shape, wanted):
        return grad
    extra = len(grad.shape) - len(wanted)
    repeated = tuple(
        axis + extra
        for axis, extent in enumerate(wanted)
        if as_int(extent) == 1 and as_int(grad.shape[axis + extra]) != 1
    )
    made: RelaxExpr = op.sum(grad, tuple(range(extra)) + repeated, keepdims=True)
    return op.reshape(made, wanted) if extra else made


def expanded(
    value: RelaxExpr, x: RelaxExpr, axis: int | Sequence[int], keepdims: bool
) -> RelaxExpr:
    """The result of a reduction of ``x``, with the reduced axes as axes of extent 1."""
    if keepdims:
        return value
    axes = reduced_axes(x, axis)
    shape = [const(1) if a in axes else extent for a, extent in enumerate(x.shape)]
    return op.reshape(value, shape)


def reduced_axes(x: RelaxExpr, axis: int | Sequence[int]) -> tuple[int, ...]:
    """The axes that a reduction goes over."""
    if axis is None:
        return tuple(range(x.ndim))
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    return tuple(a % x.ndim for a in given)


def count_of(extents: Sequence[Expr], like: RelaxExpr) -> RelaxExpr:
    """How many elements a tensor of these extents has, as a number of a tensor's dtype."""
    known = 1
    made: RelaxExpr | None = None
    for extent in extents:
        value = as_int(extent)
        if value is not None:
            known *= value
            continue
        size = op.sum(op.ones((extent,), like.dtype))
        made = size if made is None else op.multiply(made, size)
    counted = number(known, like)
    return counted if made is None else op.multiply(made, counted)


def zeros_like(x: RelaxExpr) -> RelaxExpr:
    """Zeros of a tensor's shape and dtype."""
    return op.zeros(x.shape, x.dtype)


def count(extents: Sequence[Expr]) -> Expr:
    """Number of elements of some extents."""
    return simplify(product(tuple(extents)))


def slice_axis(x: RelaxExpr, axis: int, start: Expr | int, size: Expr) -> RelaxExpr:
    """``size`` elements of an axis from ``start`` on, which may be symbolic."""
    begin, length = as_int(start), as_int(size)
    if begin == 0 and prove_equal(size, x.shape[axis]):
        return x
    if begin is not None and length is not None:
        return op.strided_slice(x, [axis], [begin], [begin + length], assume_inbound=True)
    places = op.arange(start, simplify(start + size), 1, "int64")
    return op.take(x, places, axis, "fast")


def pad_axis(x: RelaxExpr, axis: int, before: Expr | int, after: Expr | int) -> RelaxExpr:
    """``x`` between zeros along an axis."""
    parts = [x]
    for extent, position in ((before, 0), (after, len(parts))):
        if as_int(extent) == 0:
            continue
        shape = list(x.shape)
        shape[axis] = extent if isinstance(extent, Expr) else const(extent)
        parts.insert(0 if position == 0 else len(parts), op.zeros(shape, x.dtype))
    return parts[0] if len(parts) == 1 else op.concat(parts, axis)


def swap_last(x: RelaxExpr) -> RelaxExpr:
    """A tensor with its last two axes swapped."""
    order = list(range(x.ndim))
    order[-1], order[-2] = order[-2], order[-1]
    return op.permute_dims(x, order)
