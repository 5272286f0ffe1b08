"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright import te
from tilewright.ir import Expr, cast
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import Context, Number, converts
from tilewright.relax.ops.einsum import sum_products
from tilewright.topi.utils import sum_dtype

if TYPE_CHECKING:
    import torch


@converts("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default")
def _matmul(ctx: Context, a: RelaxExpr, b: RelaxExpr) -> RelaxExpr:
    return op.matmul(a, b)


@converts("aten.dot.default")
def _dot(ctx: Context, a: RelaxExpr, b: RelaxExpr) -> RelaxExpr:
    return op.sum(op.multiply(a, b))


@converts("aten.linear.default")
def _linear(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr, bias: RelaxExpr | None = None
) -> RelaxExpr:
    if weight.ndim == 1:
        made = op.matmul(x, weight)
        return made if bias is None else op.add(made, bias)
    return op.linear(x, weight, bias)


@converts("aten.einsum.default")
def _einsum(
    ctx: Context, equation: str, tensors: Sequence[RelaxExpr], *, path: object = None
) -> RelaxExpr:
    def require(holds: bool, message: str) -> None:
        if not holds:
            raise ctx.error(message)

    return sum_products(equation, tensors, require)


@converts("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def _addmm(
    ctx: Context, x: RelaxExpr, a: RelaxExpr, b: RelaxExpr, *, beta: Number = 1, alpha: Number = 1
) -> RelaxExpr:
    made = op.matmul(a, b)
    if alpha != 1:
        made = op.multiply(made, ctx.tensor(alpha, made.dtype))
    if beta == 0:
        return made
    if beta != 1:
        x = op.multiply(x, ctx.tensor(beta, x.dtype))
    return op.add(made, x)


@converts("aten.addbmm.default")
def _addbmm(
    ctx: Context, x: RelaxExpr, a: RelaxExpr, b: RelaxExpr, *, beta: Number = 1, alpha: Number = 1
) -> RelaxExpr:
    """All products of a batch added up: one product whose rows are joined."""
    batch, rows, inner = a.shape
    left = op.reshape(op.permute_dims(a, (1, 0, 2)), (rows, batch * inner))
    right = op.reshape(b, (batch * inner, b.shape[2]))
    return _addmm(ctx, x, left, right, beta=beta, alpha=alpha)


@converts("aten.mm.dtype", "aten.bmm.dtype", "aten._int_mm.default")
def _wide_matmul(
    ctx: Context, a: RelaxExpr, b: RelaxExpr, dtype: torch.dtype | None = None
) -> RelaxExpr:
    return op.matmul(a, b, ctx.dtype)


@converts("aten._grouped_mm.default")
def _grouped_mm(
    ctx: Context, a: RelaxExpr, b: RelaxExpr, ends: RelaxExpr | None = None,
    bias: RelaxExpr | None = None, dtype: torch.dtype | None = None,
) -> RelaxExpr:  # fmt: skip
    """Products of groups: of rows of ``a``, columns of ``b``, or terms of the sums.

    ``ends`` has the end of each group. The last group takes what is beyond it, too.
    """
    if bias is not None:
        raise ctx.error("a bias is not supported")
    if ends is None:
        return op.matmul(a, b, ctx.dtype)
    if a.ndim == b.ndim:
        return _summed_by_group(ctx, a, b, ends)
    by_rows = a.ndim == 2
    extent = a.shape[0] if by_rows else b.shape[1]
    places = op.reshape(op.arange(0, extent, 1, ends.dtype), (extent, 1))
    before = op.astype(op.less_equal(op.expand_dims(ends, 0), places), "int64")
    group = op.minimum(op.sum(before, (1,)), op.subtract(ctx.tensor(ends.shape[0]), 1))
    return ctx.builder.call_te(
        _product_by_group, a, b, ctx.emit(group), dtype=ctx.dtype, by_rows=by_rows
    )


@converts("transformers.grouped_mm_fallback.default")
def _grouped_mm_of_experts(
    ctx: Context, x: RelaxExpr, weights: RelaxExpr, ends: RelaxExpr
) -> RelaxExpr:
    """Transformers' products of the rows of each expert; rows beyond the last end are zero."""
    made = ctx.emit(_grouped_mm(ctx, x, weights, ends))
    places = op.reshape(op.arange(0, x.shape[0], 1, ends.dtype), (x.shape[0], 1))
    return op.where(op.less(places, op.max(ends, (0,), True)), made, ctx.tensor(0.0, ctx.dtype))


def _summed_by_group(ctx: Context, a: RelaxExpr, b: RelaxExpr, ends: RelaxExpr) -> RelaxExpr:
    """A product for each group of terms, those of others being zero."""
    ends = ctx.emit(ends)
    groups, terms = ends.shape[0], b.shape[0]
    places = op.arange(0, terms, 1, ends.dtype)
    ended = op.less(op.expand_dims(places, 0), op.expand_dims(ends, 1))
    count = op.sum(op.astype(ended, "int64"), (0,), True)
    own = op.subtract(ctx.tensor(groups), op.expand_dims(op.arange(0, groups, 1, "int64"), 1))
    mine = op.reshape(op.equal(count, own), (groups, 1, terms))
    left = op.where(mine, op.expand_dims(a, 0), ctx.tensor(0.0, a.dtype))
    return op.matmul(left, b, ctx.dtype)


def _product_by_group(
    a: te.Tensor, b: te.Tensor, group: te.Tensor, *, dtype: str, by_rows: bool
) -> te.Tensor:
    """``a @ b``, where the group of each row (of a) or column (of b) chooses the other operand."""
    wide = sum_dtype(a.dtype)
    inner = te.reduce_axis((0, b.shape[-2]), "k")

    def formula(i: Expr, j: Expr) -> Expr:
        k = inner.var
        left, right = (a(i, k), b(group(i), k, j)) if by_rows else (a(group(j), i, k), b(k, j))
        made: Expr = te.sum(cast(left, wide) * cast(right, wide), axis=[inner])
        return made

    shape = (a.shape[-2], b.shape[-1])
    made: te.Tensor = te.compute(shape, formula, name="grouped_product")
    if wide != dtype:
        made = te.compute(shape, lambda *i: cast(made(*i), dtype), name="grouped_cast")
    return made
