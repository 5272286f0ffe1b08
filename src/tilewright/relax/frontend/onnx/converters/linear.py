"""Matrix products."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import Context, Tensor, converts
from tilewright.relax.frontend.onnx.converters.products import scaled_matmul, transposed


@converts("MatMul")
def _matmul(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    scaled = scaled_matmul(ctx, a, b)
    return op.matmul(a, b) if scaled is None else scaled


@dataclass(frozen=True, kw_only=True)
class _GemmAttributes:
    alpha: float = 1.0
    beta: float = 1.0
    broadcast: int = 1
    transA: int = 0
    transB: int = 0


@converts("Gemm")
def _gemm(
    ctx: Context, a: Tensor, b: Tensor, c: Tensor | None = None, *, attrs: _GemmAttributes
) -> Tensor:
    a = transposed(ctx, a) if attrs.transA else a
    b = transposed(ctx, b) if attrs.transB else b
    made = scaled_matmul(ctx, a, b)
    made = op.matmul(a, b) if made is None else made
    if attrs.alpha != 1:
        made = op.multiply(made, ctx.scalar(attrs.alpha, made))
    if c is None or attrs.beta == 0:
        return made
    if attrs.beta != 1:
        c = op.multiply(c, ctx.scalar(attrs.beta, c))
    return op.add(made, c)
