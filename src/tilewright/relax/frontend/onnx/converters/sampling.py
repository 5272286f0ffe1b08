"""Sampling of images at places that data tell: ``GridSample``."""

from __future__ import annotations

from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import Context, Tensor, converts


@converts("GridSample")
def _grid_sample(
    ctx: Context, x: Tensor, grid: Tensor,
    *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros",
) -> Tensor:  # fmt: skip
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    ctx.choice("mode", mode, ("linear", "nearest", "cubic"))
    ctx.choice("padding_mode", padding_mode, ("zeros", "border", "reflection"))
    return op.image.sample_at(x, grid, mode, padding_mode, bool(align_corners))
