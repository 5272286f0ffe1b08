"""Matrix products."""

from __future__ import annotations

from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import Context, Tensor, converts
from tilewright.relax.frontend.onnx.converters.products import scaled_matmul, transposed


@converts("MatMul")
def _matmul(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    scaled = scaled_matmul(ctx, a, b)
    return op.matmul(a, b) if scaled is None else scaled


@converts("Gemm")
def _gemm(
    ctx: Context, a: Tensor, b: Tensor, c: Tensor | None = None,
    *, alpha: float = 1.0, beta: float = 1.0, broadcast: int = 1, transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    if transA:
        a = transposed(ctx, a)
    b = transposed(ctx, b) if transB else b
    made = scaled_matmul(ctx, a, b)
    made = op.matmul(a, b) if made is None else made
    if alpha != 1:
        made = op.multiply(made, ctx.scalar(alpha, made))
    if c is None or beta == 0:
        return made
    if beta != 1:
        c = op.multiply(c, ctx.scalar(beta, c))
    return op.add(made, c)
