"""Operators that create tensors: full, arange, triangles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilewright.ir import Expr
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import Context, Number, Operand, Size, converts
from tilewright.relax.values import const

if TYPE_CHECKING:
    import torch


def _filled(ctx: Context, value: Operand) -> RelaxExpr:
    if not ctx.shape:
        return ctx.tensor(value, ctx.dtype)
    if isinstance(value, (Expr, RelaxExpr)):
        return op.broadcast_to(ctx.tensor(value, ctx.dtype), ctx.shape)
    return op.full(ctx.shape, ctx.number(value, ctx.dtype), ctx.dtype)


@converts("aten.full.default")
def _full(
    ctx: Context, size: Sequence[Size], value: Operand, dtype: torch.dtype | None = None
) -> RelaxExpr:
    return _filled(ctx, value)


@converts("aten.full_like.default")
def _full_like(
    ctx: Context, x: RelaxExpr, value: Operand, dtype: torch.dtype | None = None
) -> RelaxExpr:
    return _filled(ctx, value)


@converts("aten.new_full.default")
def _new_full(
    ctx: Context,
    x: RelaxExpr,
    size: Sequence[Size],
    value: Operand,
    dtype: torch.dtype | None = None,
) -> RelaxExpr:
    return _filled(ctx, value)


@converts("aten.zero.default", "aten.zeros.default", "aten.zeros_like.default")
def _zeros(
    ctx: Context, like: RelaxExpr | Sequence[Size], dtype: torch.dtype | None = None
) -> RelaxExpr:
    return _filled(ctx, 0)


@converts(
    "aten.empty.memory_format", "aten.empty_like.default", "aten.empty_permuted.default",
    "aten.empty_strided.default", "aten.new_empty.default", "aten.new_empty_strided.default",
)  # fmt: skip
def _empty(ctx: Context, *_: object, dtype: torch.dtype | None = None) -> RelaxExpr:
    """Zeros: so a program that reads what it hasn't written gives the same numbers each time."""
    return _filled(ctx, 0)


@converts("aten.ones.default", "aten.ones_like.default")
def _ones(
    ctx: Context, like: RelaxExpr | Sequence[Size], dtype: torch.dtype | None = None
) -> RelaxExpr:
    return _filled(ctx, 1)


@converts("aten.new_zeros.default")
def _new_zeros(
    ctx: Context, x: RelaxExpr, size: Sequence[Size], dtype: torch.dtype | None = None
) -> RelaxExpr:
    return _filled(ctx, 0)


@converts("aten.new_ones.default")
def _new_ones(
    ctx: Context, x: RelaxExpr, size: Sequence[Size], dtype: torch.dtype | None = None
) -> RelaxExpr:
    return _filled(ctx, 1)


@converts("aten.scalar_tensor.default")
def _scalar_tensor(ctx: Context, value: Operand, dtype: torch.dtype | None = None) -> RelaxExpr:
    return ctx.tensor(value, ctx.dtype)


@converts("aten.arange.default")
def _arange(ctx: Context, end: Number, dtype: torch.dtype | None = None) -> RelaxExpr:
    return _range(ctx, 0, end)


@converts("aten.arange.start")
def _arange_start(
    ctx: Context, start: Number, end: Number, dtype: torch.dtype | None = None
) -> RelaxExpr:
    return _range(ctx, start, end)


@converts("aten.arange.start_step")
def _arange_step(
    ctx: Context, start: Number, end: Number, step: Number = 1, dtype: torch.dtype | None = None
) -> RelaxExpr:
    return _range(ctx, start, end, step)


def _range(ctx: Context, start: Number, end: Number, step: Number = 1) -> RelaxExpr:
    if ctx.dtype == "int64":  # then PyTorch rounds towards zero before it counts
        start, end, step = (int(x) if isinstance(x, float) else x for x in (start, end, step))
    return op.arange(start, end, step, ctx.dtype)


@converts("aten.tril.default")
def _tril(ctx: Context, x: RelaxExpr, diagonal: int = 0) -> RelaxExpr:
    return _triangle(ctx, op.tril, x, diagonal)


@converts("aten.triu.default")
def _triu(ctx: Context, x: RelaxExpr, diagonal: int = 0) -> RelaxExpr:
    return _triangle(ctx, op.triu, x, diagonal)


def _triangle(
    ctx: Context, function: Callable[[RelaxExpr, int], RelaxExpr], x: RelaxExpr, diagonal: int
) -> RelaxExpr:
    if x.dtype != "bool":
        return function(x, diagonal)
    return op.not_equal(function(op.astype(x, "int8"), diagonal), const(0, "int8"))
