"""Sorting along an axis."""

from __future__ import annotations

from typing import Any

from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import Context, Results, Size, converts


def _sorted(ctx: Context, x: RelaxExpr, k: int, dim: int, largest: bool) -> list[Any]:
    """The first ``k`` elements (all if -1) and their indices; a scalar counts as a row of one."""
    if not x.ndim:
        x = op.reshape(x, (1,))
    made = ctx.emit(op.topk(x, k, ctx.axis(dim, x.ndim), "both", largest, "int64"))
    return [made[0], made[1]]


def _in_shape(ctx: Context, x: RelaxExpr, made: list[Any]) -> list[Any]:
    return made if x.ndim else [op.reshape(item, ()) for item in made]


@converts("aten.sort.default")
def _sort(ctx: Context, x: RelaxExpr, dim: int = -1, descending: bool = False) -> Results:
    return _in_shape(ctx, x, _sorted(ctx, x, -1, dim, descending))


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
    return _in_shape(ctx, x, _sorted(ctx, x, ctx.int(k, "k"), dim, largest))
