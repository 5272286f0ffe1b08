"""Reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr, TupleGetItem
from tilewright.relax.frontend.torch.converters.base import (
    CONVERTERS,
    Context,
    Results,
    converts,
    dtype_name,
)
from tilewright.relax.ops.common import element_count
from tilewright.relax.values import const
from tilewright.topi.utils import sum_dtype

if TYPE_CHECKING:
    import torch

# Reductions computed in the result's dtype, with the overloads that name axes and those of all.
_REDUCTIONS: dict[Callable[..., RelaxExpr], tuple[str, ...]] = {
    op.sum: ("aten.sum.default", "aten.sum.dim_IntList"),
    op.mean: ("aten.mean.default", "aten.mean.dim"),
    op.max: ("aten.max.default", "aten.amax.default"),
    op.min: ("aten.min.default", "aten.amin.default"),
    op.all: ("aten.all.default", "aten.all.dim", "aten.all.dims"),
    op.any: ("aten.any.default", "aten.any.dim", "aten.any.dims"),
}


def _reduction(function: Callable[..., RelaxExpr]) -> Callable[..., RelaxExpr]:
    def convert(
        ctx: Context,
        x: RelaxExpr,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        dtype: torch.dtype | None = None,
    ) -> RelaxExpr:
        x = ctx.cast(x, ctx.dtype)
        if not x.ndim:
            return x
        return function(x, ctx.axes(dim, x.ndim), keepdim)

    return convert


for _function, _names in _REDUCTIONS.items():
    for _name in _names:
        CONVERTERS.register(_name, _reduction(_function))


@converts("aten.cumsum.default")
def _cumsum(ctx: Context, x: RelaxExpr, dim: int, dtype: torch.dtype | None = None) -> RelaxExpr:
    x = ctx.cast(x, ctx.dtype)
    return op.cumsum(x, ctx.axis(dim, x.ndim)) if x.ndim else x


@converts("aten.cumprod.default")
def _cumprod(ctx: Context, x: RelaxExpr, dim: int, dtype: torch.dtype | None = None) -> RelaxExpr:
    x = ctx.cast(x, ctx.dtype)
    return op.cumprod(x, ctx.axis(dim, x.ndim)) if x.ndim else x


@converts("aten.prod.default")
def _prod(ctx: Context, x: RelaxExpr, dtype: torch.dtype | None = None) -> RelaxExpr:
    return op.prod(ctx.cast(x, ctx.dtype))


@converts("aten.prod.dim_int")
def _prod_dim(
    ctx: Context, x: RelaxExpr, dim: int, keepdim: bool = False, dtype: torch.dtype | None = None
) -> RelaxExpr:
    return op.prod(ctx.cast(x, ctx.dtype), ctx.axes(dim, x.ndim), keepdim)


def _variance(
    ctx: Context,
    x: RelaxExpr,
    dim: int | Sequence[int] | None,
    correction: float | None,
    keepdim: bool,
) -> RelaxExpr:
    """Variance divided by ``n - correction`` (1 if not given)."""
    axes = ctx.axes(dim, x.ndim)
    made = op.variance(x, axes, keepdim)
    less = 1 if correction is None else correction
    if less == 0:
        return made
    extent = element_count([x.shape[axis] for axis in axes])
    count = as_int(extent)
    if count is not None:
        # As PyTorch: no degrees of freedom give inf or nan, not an error.
        factor = count / (count - less) if count > less else math.nan
        return op.multiply(made, factor)
    n = ctx.emit(ctx.tensor(extent, x.dtype))
    return op.multiply(made, op.divide(n, op.subtract(n, ctx.tensor(float(less), x.dtype))))


@dataclass(frozen=True)
class _Corrected:
    """The arguments of PyTorch's variances, after the tensor."""

    dim: int | Sequence[int] | None = None
    unbiased: bool | None = None
    keepdim: bool = False
    correction: float | None = None

    def of(self, ctx: Context, x: RelaxExpr) -> RelaxExpr:
        """The variance."""
        less = self.correction if self.unbiased is None else int(self.unbiased)
        return _variance(ctx, x, self.dim, less, self.keepdim)


@converts("aten.var.correction", "aten.var.dim", form=_Corrected)
def _var(ctx: Context, x: RelaxExpr, form: _Corrected) -> RelaxExpr:
    return form.of(ctx, x)


@converts("aten.var_mean.correction", form=_Corrected)
def _var_mean(ctx: Context, x: RelaxExpr, form: _Corrected) -> Results:
    mean = op.mean(x, ctx.axes(form.dim, x.ndim), form.keepdim)
    return [form.of(ctx, x), mean]


@converts("aten.std.correction", "aten.std.dim", form=_Corrected)
def _std(ctx: Context, x: RelaxExpr, form: _Corrected) -> RelaxExpr:
    return op.sqrt(form.of(ctx, x))


def _index_of(function: Callable[..., RelaxExpr]) -> Callable[..., RelaxExpr]:
    def convert(
        ctx: Context, x: RelaxExpr, dim: int | None = None, keepdim: bool = False
    ) -> RelaxExpr:
        if dim is None:
            made = function(op.reshape(x, (-1,)), 0, False)
            return op.reshape(made, ctx.shape)
        return ctx.as_result(function(ctx.row(x), ctx.axis(dim, x.ndim), keepdim))

    return convert


CONVERTERS.register("aten.argmax.default", _index_of(op.argmax))
CONVERTERS.register("aten.argmin.default", _index_of(op.argmin))


@converts("aten.max.dim")
def _max_dim(ctx: Context, x: RelaxExpr, dim: int, keepdim: bool = False) -> Results:
    return _extremum(ctx, x, dim, keepdim, (op.max, op.argmax))


@converts("aten.min.dim")
def _min_dim(ctx: Context, x: RelaxExpr, dim: int, keepdim: bool = False) -> Results:
    return _extremum(ctx, x, dim, keepdim, (op.min, op.argmin))


def _extremum(
    ctx: Context, x: RelaxExpr, dim: int, keepdim: bool, how: Sequence[Callable[..., RelaxExpr]]
) -> Results:
    """The extremum along an axis, and where it is."""
    row, axis = ctx.row(x), ctx.axis(dim, x.ndim)
    return [
        ctx.as_result(function(row, axis, keepdim), number) for number, function in enumerate(how)
    ]


@converts("aten.linalg_vector_norm.default")
def _vector_norm(
    ctx: Context,
    x: RelaxExpr,
    order: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> RelaxExpr:
    x = ctx.cast(x, ctx.dtype if dtype is None else dtype_name(dtype))
    # A square or a higher power of a half float may be too large for one.
    wide = ctx.emit(ctx.cast(x, sum_dtype(x.dtype)))
    return ctx.cast(norm_over(wide, order, ctx.axes(dim, x.ndim), keepdim), ctx.dtype)


def norm_over(x: RelaxExpr, order: float, axes: Sequence[int], keepdim: bool = False) -> RelaxExpr:
    """The norm over axes; of order 0, how many elements aren't zero."""
    if order == 0:
        return op.sum(op.astype(op.not_equal(x, const(0, x.dtype)), x.dtype), axes, keepdim)
    if order == 2:
        return op.grad.root(op.sum(op.square(x), axes, keepdim))
    size = op.abs(x)
    if abs(order) == math.inf:
        return (op.max if order > 0 else op.min)(size, axes, keepdim)
    if order == 1:
        return op.sum(size, axes, keepdim)
    total = op.sum(op.power(size, const(float(order), x.dtype)), axes, keepdim)
    return op.grad.root(total, float(order))


# ---- distances --------------------------------------------------------------------------------

# PyTorch finds Euclidean distances of more rows than so by a matrix product.
_FEW_ROWS = 25


@converts("aten._cdist_forward.default")
def _cdist(
    ctx: Context, a: RelaxExpr, b: RelaxExpr, order: float, compute_mode: int | None
) -> RelaxExpr:
    """Distances of all rows of ``a`` and ``b``."""
    if as_int(a.shape[-1]) == 0:
        return op.zeros(ctx.shape, ctx.dtype)
    rows = [as_int(x.shape[-2]) for x in (a, b)]
    many = any(count is None or count > _FEW_ROWS for count in rows)
    if order == 2 and (compute_mode == 1 or (many and compute_mode != 2)):
        return _euclidean(ctx, ctx.emit(a), ctx.emit(b))
    distance = op.subtract(op.expand_dims(a, a.ndim - 1), op.expand_dims(b, b.ndim - 2))
    return norm_over(distance, order, (distance.ndim - 1,))


def _euclidean(ctx: Context, a: RelaxExpr, b: RelaxExpr) -> RelaxExpr:
    """By the squares of lengths and a matrix product."""
    of_a = op.sum(op.square(a), (a.ndim - 1,), True)
    of_b = op.expand_dims(op.sum(op.square(b), (b.ndim - 1,)), b.ndim - 2)
    turned = op.permute_dims(b, (*range(b.ndim - 2), b.ndim - 1, b.ndim - 2))
    product = op.multiply(op.matmul(a, turned), ctx.tensor(2.0, a.dtype))
    square = op.subtract(op.add(of_a, of_b), product)
    return op.grad.root(op.maximum(square, ctx.tensor(0.0, a.dtype)))


@converts("aten._pdist_forward.default")
def _pdist(ctx: Context, x: RelaxExpr, order: float = 2) -> RelaxExpr:
    """Distances of each row and those after it."""
    (rows,) = ctx.ints([x.shape[0]], "the number of rows")
    if rows < 2 or as_int(x.shape[1]) == 0:
        return op.zeros(ctx.shape, ctx.dtype)
    x = ctx.emit(x)
    first, second = (op.take(x, const(side), 0, "fast") for side in np.triu_indices(rows, 1))
    return norm_over(op.subtract(first, second), order, (1,))


# ---- running results --------------------------------------------------------------------------


def _running_extremum(function: Callable[..., RelaxExpr]) -> Callable[..., Results]:
    def convert(ctx: Context, x: RelaxExpr, dim: int) -> Results:
        if not x.ndim:
            return [x, op.zeros((), "int64")]
        numbers = ctx.cast(x, "int8") if x.dtype == "bool" else x
        made = ctx.emit(function(numbers, ctx.axis(dim, x.ndim)))
        return [ctx.cast(TupleGetItem(made, 0), x.dtype), TupleGetItem(made, 1)]

    return convert


CONVERTERS.register("aten.cummax.default", _running_extremum(op.cummax))
CONVERTERS.register("aten.cummin.default", _running_extremum(op.cummin))


@converts("aten.logcumsumexp.default", "aten._logcumsumexp.default")
def _logcumsumexp(ctx: Context, x: RelaxExpr, dim: int) -> RelaxExpr:
    return op.logcumsumexp(x, ctx.axis(dim, x.ndim)) if x.ndim else x
