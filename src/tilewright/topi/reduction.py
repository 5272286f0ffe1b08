"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir import Expr, const, dtypes
from tilewright.ir import cast as cast_expr
from tilewright.te import Tensor, compute
from tilewright.topi.elementwise import fast_dtype, map_elements
from tilewright.topi.utils import normal_axes, product


def reduce_over(
    x: Tensor,
    axis: Any,
    keepdims: bool,
    reducer: Callable[..., Any],
    name: str,
    value: Callable[[Expr], Any] = lambda element: element,
) -> Tensor:
    """Reduce ``value(element)`` over ``axis`` (one, several or ``None`` for all)."""
    axes = normal_axes(axis, x.ndim)
    reduced = {a: te.reduce_axis((0, x.shape[a]), f"k{a}") for a in axes}
    shape = [
        const(1) if a in reduced else extent
        for a, extent in enumerate(x.shape)
        if keepdims or a not in reduced
    ]

    def formula(*i: Expr) -> Any:
        rest = iter(i)
        indices: list[Expr] = []
        for a in range(x.ndim):
            if a in reduced:
                indices.append(reduced[a].var)
                if keepdims:
                    next(rest)
            else:
                indices.append(next(rest))
        return reducer(value(x(*indices)), axis=list(reduced.values()))

    made: Tensor = compute(tuple(shape), formula, name=name, tag="comm_reduce")
    return made


def sum(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Sum over axes; narrow floats are added in float32 and rounded at the end."""
    wide = fast_dtype(x.dtype)
    total = reduce_over(x, axis, keepdims, te.sum, "sum", lambda v: cast_expr(v, wide))
    return (
        total
        if wide == x.dtype
        else map_elements(total, lambda v: cast_expr(v, x.dtype), "sum_cast")
    )


def prod(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Multiply over axes."""
    return reduce_over(x, axis, keepdims, te.prod, "prod")


def max(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the greatest element over axes."""
    return reduce_over(x, axis, keepdims, te.max, "max")


def min(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the least element over axes."""
    return reduce_over(x, axis, keepdims, te.min, "min")


def all(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Tell whether all truth values over axes hold."""
    return reduce_over(x, axis, keepdims, te.all_of, "all")


def any(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Tell whether any truth value over axes holds."""
    return reduce_over(x, axis, keepdims, te.any_of, "any")


def mean(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the mean over axes, accumulated in at least float32."""
    count = product([x.shape[a] for a in normal_axes(axis, x.ndim)])
    wide = fast_dtype(x.dtype)
    total = reduce_over(x, axis, keepdims, te.sum, "mean_sum", lambda v: cast_expr(v, wide))
    return map_elements(total, lambda v: cast_expr(v / cast_expr(count, wide), x.dtype), "mean")


def variance(x: Tensor, axis: Any = None, keepdims: bool = False, correction: int = 0) -> Tensor:
    """Return the variance over axes in two passes; divides by ``n - correction``."""
    axes = normal_axes(axis, x.ndim)
    count = product([x.shape[a] for a in axes]) - correction
    center = mean(x, axes, keepdims=True)
    wide = fast_dtype(x.dtype)
    centered = compute(
        x.shape,
        lambda *i: cast_expr(
            x(*i) - center(*(0 if a in axes else i[a] for a in range(x.ndim))), wide
        ),
        name="centered",
    )
    total = reduce_over(centered, axes, keepdims, te.sum, "variance_sum", lambda v: v * v)
    return map_elements(total, lambda v: cast_expr(v / cast_expr(count, wide), x.dtype), "variance")


def std(x: Tensor, axis: Any = None, keepdims: bool = False, correction: int = 0) -> Tensor:
    """Return the standard deviation over axes."""
    from_variance = variance(x, axis, keepdims, correction)
    return map_elements(from_variance, te.sqrt, "std")


def _arg(
    x: Tensor, axis: int | None, keepdims: bool, reducer: Any, name: str, dtype: str
) -> Tensor:
    axes = normal_axes(axis, x.ndim)
    reduced = {a: te.reduce_axis((0, x.shape[a]), f"k{a}") for a in axes}
    shape = [
        const(1) if a in reduced else extent
        for a, extent in enumerate(x.shape)
        if keepdims or a not in reduced
    ]

    def formula(*i: Expr) -> Any:
        rest = iter(i)
        indices: list[Expr] = []
        flat: Expr = const(0)
        for a in range(x.ndim):
            if a in reduced:
                indices.append(reduced[a].var)
                flat = flat * x.shape[a] + reduced[a].var
                if keepdims:
                    next(rest)
            else:
                indices.append(next(rest))
        return reducer((cast_expr(flat, dtype), x(*indices)), axis=list(reduced.values()))

    index, _ = compute(tuple(shape), formula, name=name, tag="comm_reduce_idx")
    # The pair's value is an intermediate of the block; only the index is a result.
    made: Tensor = index
    return made


def argmax(
    x: Tensor,
    axis: int | None = None,
    keepdims: bool = False,
    dtype: str = "int64",
    select_last_index: bool = False,
) -> Tensor:
    """Return the index of the greatest element along ``axis``, flat if ``None``.

    Of equal elements the first one counts, or the last one with ``select_last_index``.
    """
    reducer = te.argmax_last if select_last_index else te.argmax
    return _arg(x, axis, keepdims, reducer, "argmax", dtype)


def argmin(
    x: Tensor,
    axis: int | None = None,
    keepdims: bool = False,
    dtype: str = "int64",
    select_last_index: bool = False,
) -> Tensor:
    """Return the index of the least element along ``axis``, flat if ``None``.

    Of equal elements the first one counts, or the last one with ``select_last_index``.
    """
    reducer = te.argmin_last if select_last_index else te.argmin
    return _arg(x, axis, keepdims, reducer, "argmin", dtype)


def is_sum_exact(dtype: str) -> bool:
    """Whether sums of ``dtype`` do not depend on the order."""
    return not dtypes.is_float(dtype)
