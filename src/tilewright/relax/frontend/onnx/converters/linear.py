"""Matrix products."""

from __future__ import annotations

from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import Context, Tensor, converts


@converts("MatMul")
def _matmul(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    return op.matmul(a, b)


@converts("Gemm")
def _gemm(
    ctx: Context, a: Tensor, b: Tensor, c: Tensor | None = None,
    *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    if transA:
        a = op.permute_dims(a, (1, 0))
    made = op.matmul(a, op.permute_dims(b, (1, 0)) if transB else b)
    if alpha != 1:
        made = op.multiply(made, ctx.scalar(alpha, made))
    if c is None or beta == 0:
        return made
    if beta != 1:
        c = op.multiply(c, ctx.scalar(beta, c))
    return op.add(made, c)
