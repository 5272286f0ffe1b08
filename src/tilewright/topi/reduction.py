"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright import te
from tilewright.ir import Expr, as_int, const, dtypes, max_value, min_value, or_, product, select
from tilewright.ir import cast as cast_expr
from tilewright.support.naming import named
from tilewright.te import Tensor, compute
from tilewright.te.arithmetic import map_elements
from tilewright.tir.float_division import fast_dtype
from tilewright.topi.utils import normal_axes, ravel

Reduced = Expr | tuple[Expr, ...]
Reducer = Callable[..., Reduced]
"""Such as ``te.sum``; reductions of pairs give a result for each part."""


def reduce_over(
    x: Tensor,
    axis: int | Sequence[int] | None,
    keepdims: bool,
    reducer: Reducer,
    name: str,
    value: Callable[[Expr], Expr] = lambda element: element,
) -> Tensor:
    """Reduce ``value(element)`` over ``axis`` (one, several or ``None`` for all)."""
    axes = normal_axes(axis, x.ndim)
    reduced = {a: te.reduce_axis((0, x.shape[a]), f"k{a}") for a in axes}
    shape = [
        const(1) if a in reduced else extent
        for a, extent in enumerate(x.shape)
        if keepdims or a not in reduced
    ]

    def formula(*i: Expr) -> Reduced:
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


def sum(data: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Sum over axes; narrow floats are added in float32 and rounded at the end."""
    return _in_single(data, axis, keepdims, te.sum, "sum")


def prod(data: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Multiply over axes; narrow floats in float32, rounded at the end."""
    return _in_single(data, axis, keepdims, te.prod, "prod")


def _in_single(
    x: Tensor, axis: int | Sequence[int] | None, keepdims: bool, reducer: Reducer, name: str
) -> Tensor:
    """Reduce narrow floats in float32, which is what processors have; comparing them is exact."""
    wide = fast_dtype(x.dtype)
    found = reduce_over(x, axis, keepdims, reducer, name, lambda v: cast_expr(v, wide))
    if wide == x.dtype:
        return found
    return map_elements(found, lambda v: cast_expr(v, x.dtype), f"{name}_cast")


def max(data: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Return the maximum over axes."""
    return _in_single(data, axis, keepdims, te.max, "max")


def min(data: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Return the minimum over axes."""
    return _in_single(data, axis, keepdims, te.min, "min")


def all(data: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Tell whether all elements over axes are true."""
    return reduce_over(data, axis, keepdims, te.all_of, "all")


def any(data: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Tell whether any element over axes is true."""
    return reduce_over(data, axis, keepdims, te.any_of, "any")


def mean(data: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Return the mean over axes, accumulated in at least float32."""
    count = product([data.shape[a] for a in normal_axes(axis, data.ndim)])
    wide = fast_dtype(data.dtype)
    total = reduce_over(data, axis, keepdims, te.sum, "mean_sum", lambda v: cast_expr(v, wide))
    return map_elements(total, lambda v: cast_expr(v / cast_expr(count, wide), data.dtype), "mean")


def variance(
    data: Tensor,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    correction: int = 0,
) -> Tensor:
    """Return the variance over axes in two passes; divides by ``n - correction``."""
    return _spread(data, axis, keepdims, correction, lambda v: v, "variance")


def _spread(
    x: Tensor,
    axis: int | Sequence[int] | None,
    keepdims: bool,
    correction: int,
    finish: Callable[[Expr], Expr],
    name: str,
) -> Tensor:
    """A function of the variance, computed in float32 for narrow floats."""
    axes = normal_axes(axis, x.ndim)
    extent = product([x.shape[a] for a in axes])
    wide = fast_dtype(x.dtype)
    total = reduce_over(x, axes, True, te.sum, "mean_sum", lambda v: cast_expr(v, wide))
    center = map_elements(total, lambda v: v / cast_expr(extent, wide), "mean")
    centered = compute(
        x.shape,
        lambda *i: (
            cast_expr(x(*i), wide) - center(*(0 if a in axes else i[a] for a in range(x.ndim)))
        ),
        name="centered",
    )
    squares = reduce_over(centered, axes, keepdims, te.sum, "variance_sum", lambda v: v * v)
    count = cast_expr(extent - correction, wide)
    return map_elements(squares, lambda v: cast_expr(finish(v / count), x.dtype), name)


def std(
    data: Tensor,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    correction: int = 0,
) -> Tensor:
    """Return the standard deviation over axes."""
    return _spread(data, axis, keepdims, correction, te.sqrt, "std")


def _arg(
    x: Tensor,
    axis: int | Sequence[int] | None,
    keepdims: bool,
    dtype: str,
    *,
    least: bool,
    last: bool,
) -> Tensor:
    """Index of an extremum. Along the last axis, find the extremum first, then its index."""
    axes = normal_axes(axis, x.ndim)
    name = "argmin" if least else "argmax"
    count = as_int(product(x.shape))
    index_dtype = "int32" if count is not None and count < 1 << 31 else "int64"
    pairs = getattr(te, f"{name}_last" if last else name)
    if x.ndim and (axis is None or axes == (x.ndim - 1,)):
        rows = _arg_of_rows(x, index_dtype, name, least, last)
        found = rows[0] if axes == (x.ndim - 1,) else _best_row(x, rows, pairs, index_dtype, name)
    else:
        found = _arg_of_pairs(x, axes, pairs, index_dtype, name)
    shape = [
        const(1) if a in axes else extent
        for a, extent in enumerate(x.shape)
        if keepdims or a not in axes
    ]
    kept = [n for n, a in enumerate(range(x.ndim)) if a not in axes]

    def formula(*i: Expr) -> Expr:
        rest = [i[n] for n in kept] if keepdims else list(i)
        return cast_expr(found(*rest), dtype)

    made: Tensor = compute(tuple(shape), formula, name=name, tag="comm_reduce_idx")
    return made


def _arg_of_rows(
    x: Tensor, index_dtype: str, name: str, least: bool, last: bool
) -> tuple[Tensor, Tensor]:
    """Index and value of the extremum along the last axis, by one reduction each.

    A reduction of pairs costs several times as much as two passes over a row in the L1 cache.
    """
    k, j = (te.reduce_axis((0, x.shape[-1]), "k") for _ in range(2))
    wide = fast_dtype(x.dtype)
    extremum = te.min if least else te.max

    def value(*i: Expr) -> Expr:
        made: Expr = cast_expr(x(*i), wide)
        return made

    best = compute(x.shape[:-1], lambda *i: extremum(value(*i, k.var), axis=k), f"{name}_value")
    never = min_value(index_dtype) if last else max_value(index_dtype)

    def place(*i: Expr) -> Reduced:
        element = value(*i, j.var)
        hit = element == best(*i)
        if dtypes.is_float(x.dtype):
            hit = or_(hit, element != element)  # a NaN is the extremum if there is any
        where: Reducer = te.max if last else te.min
        return where(select(hit, cast_expr(j.var, index_dtype), never), axis=j)

    return compute(x.shape[:-1], place, name=f"{name}_place", tag="comm_reduce"), best


def _best_row(
    x: Tensor, rows: tuple[Tensor, Tensor], pairs: Reducer, index_dtype: str, name: str
) -> Tensor:
    """The flat index of the extremum of all rows."""
    place, best = rows
    axes = [te.reduce_axis((0, extent), f"r{a}") for a, extent in enumerate(x.shape[:-1])]
    at = [axis.var for axis in axes]
    flat = cast_expr(ravel(at, x.shape[:-1]) * x.shape[-1], index_dtype) + place(*at)
    index, _ = compute((), lambda: pairs((flat, best(*at)), axis=axes), name=f"{name}_row")
    made: Tensor = index
    return made


def _arg_of_pairs(
    x: Tensor, axes: tuple[int, ...], pairs: Reducer, index_dtype: str, name: str
) -> Tensor:
    reduced = {a: te.reduce_axis((0, x.shape[a]), f"k{a}") for a in axes}
    inside = [reduced[a].var for a in axes]

    def formula(*i: Expr) -> Reduced:
        rest = iter(i)
        indices = [reduced[a].var if a in reduced else next(rest) for a in range(x.ndim)]
        flat = cast_expr(ravel(inside, [x.shape[a] for a in axes]), index_dtype)
        return pairs((flat, x(*indices)), axis=list(reduced.values()))

    outer = tuple(extent for a, extent in enumerate(x.shape) if a not in axes)
    index, _ = compute(outer, formula, name=f"{name}_pair", tag="comm_reduce_idx")
    made: Tensor = index
    return made


def _arg_extremum(name: str, what: str) -> Callable[..., Tensor]:
    def arg_extremum(
        data: Tensor,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        select_last_index: bool = False,
        *,
        dtype: str = "int32",
    ) -> Tensor:
        least = what == "minimum"
        return _arg(data, axis, keepdims, dtype, least=least, last=select_last_index)

    doc = f"""Return the index of the {what} along ``axis``: flat over several, or all of them.

    Of equal elements the first one counts, or the last one with ``select_last_index``.
    """
    return named(arg_extremum, name, doc)


argmax = _arg_extremum("argmax", "maximum")
argmin = _arg_extremum("argmin", "minimum")


def is_sum_exact(dtype: str) -> bool:
    """Whether sums of ``dtype`` do not depend on the order."""
    return not dtypes.is_float(dtype)
