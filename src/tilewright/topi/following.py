"""Operators that take their shape from others: ``expand_like``, ``collapse_sum`` …."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import te
from tilewright.ir import Expr, ExprLike, as_expr
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.te.arithmetic import map_elements, read_broadcast
from tilewright.topi.broadcast import broadcast_to, require_broadcast
from tilewright.topi.elementwise import identity
from tilewright.topi.reduction import reduce_over
from tilewright.topi.transform import reshape
from tilewright.topi.utils import is_one, normal_axes, sum_dtype


@with_conditions
def expand_like(a: Tensor, shape_like: Tensor, axis: int | Sequence[int]) -> Tensor:
    """Repeat ``a`` along new axes, which ``shape_like`` has at ``axis``, to fill its shape.

    Raises ``VerifyError`` if the other axes of ``shape_like`` aren't those of ``a``.
    """
    new = normal_axes(axis, shape_like.ndim)
    kept = [n for n in range(shape_like.ndim) if n not in new]
    if not kept and a.ndim == 1 and is_one(a.shape[0]):
        return broadcast_to(a, shape_like.shape)
    if len(kept) != a.ndim:
        raise VerifyError(
            f"expand_like: {list(shape_like.shape)} without axes {list(new)} has {len(kept)} "
            f"dimensions, {a.name} has {a.ndim}"
        )
    for n, extent in zip(kept, a.shape):
        require_equal(f"expand_like: axis {n}", extent, shape_like.shape[n])
    made: Tensor = compute(
        shape_like.shape, lambda *i: a(*(i[n] for n in kept)), name="expand_like", tag="injective"
    )
    return made


@with_conditions
def collapse_sum(data: Tensor, target_shape: Sequence[ExprLike]) -> Tensor:
    """Sum what broadcasting ``target_shape`` to the shape of ``data`` would repeat.

    Narrow floats are added in float32, and rounded once.

    Raises ``VerifyError`` if ``target_shape`` doesn't broadcast to the shape of ``data``.
    """
    target = tuple(map(as_expr, target_shape))
    require_broadcast("collapse_sum: a target", target, data.shape)
    first = data.ndim - len(target)
    summed = [
        n for n in range(data.ndim)
        if n < first or (is_one(target[n - first]) and not is_one(data.shape[n]))
    ]  # fmt: skip
    if not summed:
        return identity(data)
    wide = sum_dtype(data.dtype)
    total = reduce_over(
        data, summed, False, te.sum, "collapse_sum", lambda value: cast_expr(value, wide)
    )
    if wide != data.dtype:
        total = map_elements(total, lambda value: cast_expr(value, data.dtype), "collapsed")
    return reshape(total, target) if total.ndim != len(target) else total


@with_conditions
def elemwise_sum(xs: Sequence[Tensor]) -> Tensor:
    """Add tensors of one shape and dtype, element by element.

    Raises ``VerifyError`` if there are none, or they differ.
    """
    if not xs:
        raise VerifyError("elemwise_sum needs a tensor")
    for x in xs[1:]:
        if x.dtype != xs[0].dtype or x.ndim != xs[0].ndim:
            raise VerifyError(f"elemwise_sum: {xs[0]!r} and {x!r} differ in dimensions or dtype")
        for axis, (a, b) in enumerate(zip(x.shape, xs[0].shape)):
            require_equal(f"elemwise_sum: extent of axis {axis}", a, b)
    shape = xs[0].shape

    def element(*i: Expr) -> Expr:
        made = read_broadcast(xs[0], i, shape)
        for x in xs[1:]:
            made = made + read_broadcast(x, i, shape)
        return made

    made: Tensor = compute(shape, element, name="elemwise_sum", tag="elemwise")
    return made
