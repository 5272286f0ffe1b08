"""Matrix products."""

from __future__ import annotations

from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import Context, Number, converts


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
