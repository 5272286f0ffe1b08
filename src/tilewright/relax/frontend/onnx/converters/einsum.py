"""``Einsum``."""

from __future__ import annotations

from tilewright.relax.frontend.einsum import einsum
from tilewright.relax.frontend.onnx.converters.base import Context, Tensor, converts


@converts("Einsum")
def _einsum(ctx: Context, *tensors: Tensor, equation: str) -> Tensor:
    return einsum(equation, tensors, ctx.require)
