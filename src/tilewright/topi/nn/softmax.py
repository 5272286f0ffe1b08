"""Softmax and log-softmax."""

from __future__ import annotations

from tilewright import te
from tilewright.ir import Expr, const
from tilewright.ir import cast as cast_expr
from tilewright.te import Tensor, compute
from tilewright.tir.float_division import fast_dtype
from tilewright.topi.utils import normal_axis

# A NaN need not be the maximum of its row: the row's sum is NaN in any case.
_max = te.reducer("max_of_numbers")


def _top_and_total(x: Tensor, axis: int) -> tuple[int, str, Tensor, Tensor]:
    """Maximum along the axis, and the sum of ``exp(x - maximum)``."""
    axis = normal_axis(axis, x.ndim)
    wide = fast_dtype(x.dtype)
    outer = tuple(extent for a, extent in enumerate(x.shape) if a != axis)
    k = te.reduce_axis((0, x.shape[axis]), "k")

    def along(i: tuple[Expr, ...], index: Expr) -> tuple[Expr, ...]:
        return (*i[:axis], index, *i[axis:])

    top = compute(
        outer,
        lambda *i: _max(cast_expr(x(*along(i, k.var)), wide), axis=k),
        name="softmax_max",
        tag="comm_reduce",
    )
    j = te.reduce_axis((0, x.shape[axis]), "k")
    total = compute(
        outer,
        lambda *i: te.sum(te.exp(cast_expr(x(*along(i, j.var)), wide) - top(*i)), axis=j),
        name="softmax_sum",
        tag="comm_reduce",
    )
    return axis, wide, top, total


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """``exp(x - max) / sum(exp(x - max))`` along an axis; narrow floats compute in float32."""
    axis = normal_axis(axis, x.ndim)
    wide = fast_dtype(x.dtype)
    outer = tuple(extent for a, extent in enumerate(x.shape) if a != axis)

    def drop(i: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*i[:axis], *i[axis + 1 :])

    def along(i: tuple[Expr, ...], index: Expr) -> tuple[Expr, ...]:
        return (*i[:axis], index, *i[axis:])

    k, j = (te.reduce_axis((0, x.shape[axis]), "k") for _ in range(2))
    top = compute(
        outer, lambda *i: _max(cast_expr(x(*along(i, k.var)), wide), axis=k), name="softmax_max"
    )
    powers = compute(
        x.shape,
        lambda *i: te.exp(cast_expr(x(*i), wide) - top(*drop(i))),
        name="softmax_exp",
    )
    total = compute(outer, lambda *i: te.sum(powers(*along(i, j.var)), axis=j), name="softmax_sum")
    made: Tensor = compute(
        x.shape,
        # One division a row: the sum is at least one, so its inverse loses nothing.
        lambda *i: cast_expr(powers(*i) * (const(1, wide) / total(*drop(i))), x.dtype),
        name="softmax",
        tag="softmax",
    )
    return made


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """``x - max - log(sum(exp(x - max)))`` along an axis."""
    axis, wide, top, total = _top_and_total(x, axis)

    def formula(*i: Expr) -> Expr:
        rest = (*i[:axis], *i[axis + 1 :])
        value = cast_expr(x(*i), wide) - top(*rest) - te.log(total(*rest))
        return cast_expr(value, x.dtype)

    made: Tensor = compute(x.shape, formula, name="log_softmax", tag="softmax")
    return made


fast_softmax = softmax
"""The same: exponentials of float32 are polynomials anyway."""


def softmax_common(x: Tensor, axis: int, use_fast_exp: bool) -> Tensor:
    """Return :func:`fast_softmax` or :func:`softmax`."""
    return fast_softmax(x, axis) if use_fast_exp else softmax(x, axis)
