"""Operators on coordinates of sparse tensors: ``sparse_to_dense``, ``sparse_reshape``."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import EQ, Expr, ExprLike, as_int, compare, const, dtypes, select
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.topi.broadcast import broadcast_to
from tilewright.topi.scatter import require_indices, scatter_nd
from tilewright.topi.transform import expand_dims, reshape
from tilewright.topi.utils import require_ndim


@with_conditions
def sparse_to_dense(
    sparse_indices: Tensor,
    output_shape: Sequence[ExprLike],
    sparse_values: Tensor,
    default_value: Tensor | ExprLike = 0,
) -> Tensor:
    """Return a tensor of ``default_value`` (a number or a tensor without dimensions) and values.

    ``sparse_indices``: ``[n, d]`` for a result of ``d`` dimensions, or for one of a single
    dimension ``[n]`` or no dimensions; ``sparse_values``: ``[n]``, or without dimensions for all.
    Of values for one element the last one stays.

    Raises ``VerifyError`` if shapes don't fit, or indices aren't integers.
    """
    what = "sparse_to_dense"
    if sparse_indices.ndim > 2:
        raise VerifyError(f"{what}: indices have at most 2 dimensions, got {sparse_indices.ndim}")
    if sparse_values.ndim > 1:
        raise VerifyError(f"{what}: values have at most 1 dimension, got {sparse_values.ndim}")
    if sparse_indices.ndim == 0:
        sparse_indices = expand_dims(sparse_indices, 0)
    if sparse_indices.ndim == 1:
        sparse_indices = expand_dims(sparse_indices, 1)
    require_equal(f"{what}: coordinates and dimensions", sparse_indices.shape[1], len(output_shape))
    if sparse_values.ndim == 0:
        sparse_values = broadcast_to(sparse_values, sparse_indices.shape[:1])
    dtype = sparse_values.dtype

    def default(*_: Expr) -> Expr:
        value = (
            default_value() if isinstance(default_value, Tensor) else const(default_value, dtype)
        )
        return cast_expr(value, dtype)

    empty = compute(tuple(output_shape), default, name="default_value", tag="injective")
    return scatter_nd(empty, sparse_indices, sparse_values, index_axis=-1)


@with_conditions
def sparse_reshape(
    sparse_indices: Tensor,
    prev_shape: Tensor,
    new_shape: Tensor,
    new_sparse_indices_shape: Sequence[ExprLike],
    new_shape_shape: Sequence[ExprLike],
) -> tuple[Tensor, Tensor]:
    """Return the coordinates of elements after a reshape, and the shape, of which one may be -1.

    ``sparse_indices``: ``[n, d]`` (``[n]`` is ``[n, 1]``), ``prev_shape``: ``[d]``, ``new_shape``:
    ``[e]``; shapes are integers in tensors. ``new_sparse_indices_shape`` is ``[n, e]`` or ``[n]``,
    ``new_shape_shape`` is ``[e]``.

    Raises ``VerifyError`` if these don't fit, or numbers of dimensions aren't known.
    """
    what = "sparse_reshape"
    for tensor in (sparse_indices, prev_shape, new_shape):
        require_indices(what, tensor)
    require_ndim(what, prev_shape, 1)
    require_ndim(what, new_shape, 1)
    before, after = as_int(prev_shape.shape[0]), as_int(new_shape.shape[0])
    if before is None or after is None:
        raise VerifyError(f"{what}: the numbers of dimensions must be known")
    if sparse_indices.ndim == 1:
        sparse_indices = expand_dims(sparse_indices, 1)
    require_ndim(what, sparse_indices, 2)
    require_equal(f"{what}: coordinates and dimensions", sparse_indices.shape[1], before)
    count, dtype = sparse_indices.shape[0], sparse_indices.dtype
    full: tuple[ExprLike, ...] = (count, after)
    if len(new_shape_shape) != 1 or not 1 <= len(new_sparse_indices_shape) <= 2:
        raise VerifyError(f"{what}: shapes of shapes have 1 dimension, those of indices 1 or 2")
    require_equal(f"{what}: new_shape_shape", new_shape_shape[0], after)
    for given, extent in zip(new_sparse_indices_shape, full):
        require_equal(f"{what}: new_sparse_indices_shape", given, extent)
    sizes = _inferred(prev_shape, new_shape, before, after)

    def flat(row: Expr) -> Expr:
        made: Expr = const(0, "int64")
        for axis in range(before):
            made = made * _wide(prev_shape(axis)) + _wide(sparse_indices(row, axis))
        return made

    flat_index = compute((count,), flat, name="flat_index", tag="injective")

    def element(row: Expr, column: Expr) -> Expr:
        rest, found = flat_index(row), const(0, "int64")
        for axis in range(after - 1, -1, -1):
            here = rest % sizes(axis) if axis else rest
            found = select(compare(EQ, column, axis), here, found)
            rest = rest // sizes(axis)
        return cast_expr(found, dtype)

    made = compute(full, element, name=what, tag="injective")
    if len(new_sparse_indices_shape) == 1:
        made = reshape(made, (count,))
    shape = compute(
        (after,), lambda i: cast_expr(sizes(i), new_shape.dtype), name="new_shape", tag="injective"
    )
    return made, shape


def _inferred(prev_shape: Tensor, new_shape: Tensor, before: int, after: int) -> Tensor:
    """The new shape, with what -1 stands for; at least 1, as all are divisors."""
    total: Expr = const(1, "int64")
    for axis in range(before):
        total = total * _wide(prev_shape(axis))
    known: Expr = const(1, "int64")
    for axis in range(after):
        extent = _wide(new_shape(axis))
        known = known * select(extent < 1, const(1, "int64"), extent)

    def element(i: Expr) -> Expr:
        extent = _wide(new_shape(i))
        return select(extent < 0, total // known, select(extent < 1, const(1, "int64"), extent))

    made: Tensor = compute((after,), element, name="sizes", tag="injective")
    return made


def _wide(value: Expr) -> Expr:
    assert dtypes.is_integer(value.dtype)
    made: Expr = cast_expr(value, "int64")
    return made
