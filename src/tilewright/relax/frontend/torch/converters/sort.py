"""Sorting along an axis."""

from __future__ import annotations

from typing import Any

from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import Context, Results, Size, converts


def _sorted(ctx: Context, x: RelaxExpr, k: int, dim: int, largest: bool) -> Results:
    """The first ``k`` elements (all if -1) and their indices."""
    made: Any = ctx.emit(op.topk(ctx.row(x), k, ctx.axis(dim, x.ndim), "both", largest, "int64"))
    return [ctx.as_result(made[number], number) for number in (0, 1)]


@converts("aten.sort.default")
def _sort(ctx: Context, x: RelaxExpr, dim: int = -1, descending: bool = False) -> Results:
    return _sorted(ctx, x, -1, dim, descending)


@converts("aten.sort.stable")
def _sort_stable(
    ctx: Context,
    x: RelaxExpr,
    *,
    stable: bool | None = None,
    dim: int = -1,
    descending: bool = False,
) -> Results:
    return _sort(ctx, x, dim, descending)


@converts("aten.argsort.default")
def _argsort(ctx: Context, x: RelaxExpr, dim: int = -1, descending: bool = False) -> RelaxExpr:
    if not x.ndim:
        return op.zeros((), "int64")
    return op.argsort(x, ctx.axis(dim, x.ndim), descending, "int64")


@converts("aten.argsort.stable")
def _argsort_stable(
    ctx: Context, x: RelaxExpr, *, stable: bool, dim: int = -1, descending: bool = False
) -> RelaxExpr:
    return _argsort(ctx, x, dim, descending)


@converts("aten.msort.default")
def _msort(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return op.sort(x, 0) if x.ndim else x


@converts("aten.topk.default")
def _topk(
    ctx: Context, x: RelaxExpr, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Results:
    """Always sorted, even where PyTorch need not sort."""
    return _sorted(ctx, x, ctx.int(k, "k"), dim, largest)
