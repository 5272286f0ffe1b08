"""Reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import (
    CONVERTERS,
    Context,
    Results,
    converts,
    dtype_name,
)
from tilewright.relax.ops.common import element_count

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
        return function(x, ctx.axis(dim, x.ndim), keepdim)

    return convert


CONVERTERS.register("aten.argmax.default", _index_of(op.argmax))
CONVERTERS.register("aten.argmin.default", _index_of(op.argmin))


@converts("aten.max.dim")
def _max_dim(ctx: Context, x: RelaxExpr, dim: int, keepdim: bool = False) -> Results:
    axis = ctx.axis(dim, x.ndim)
    return [op.max(x, (axis,), keepdim), op.argmax(x, axis, keepdim)]


@converts("aten.min.dim")
def _min_dim(ctx: Context, x: RelaxExpr, dim: int, keepdim: bool = False) -> Results:
    axis = ctx.axis(dim, x.ndim)
    return [op.min(x, (axis,), keepdim), op.argmin(x, axis, keepdim)]


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
    x = ctx.emit(ctx.cast(x, ctx.dtype if dtype is None else dtype_name(dtype)))
    axes = ctx.axes(dim, x.ndim)
    if order == 2:
        return op.sqrt(op.sum(op.multiply(x, x), axes, keepdim))
    if order == 1:
        return op.sum(op.abs(x), axes, keepdim)
    if order == math.inf:
        return op.max(op.abs(x), axes, keepdim)
    raise ctx.error(f"norms of order 1, 2 and inf are supported, got {order}")
