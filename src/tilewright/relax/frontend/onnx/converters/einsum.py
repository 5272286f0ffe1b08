"""``Einsum``."""

from __future__ import annotations

from tilewright.relax.frontend.onnx.converters.base import Context, Tensor, converts
from tilewright.relax.ops.einsum import sum_products


@converts("Einsum")
def _einsum(ctx: Context, *tensors: Tensor, equation: str) -> Tensor:
    return sum_products(equation, tensors, ctx.require)
