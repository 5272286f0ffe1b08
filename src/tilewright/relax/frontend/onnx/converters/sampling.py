"""Sampling of images at places that data tell: ``GridSample``."""

from __future__ import annotations

from tilewright.relax.frontend.onnx.converters.base import Context, Tensor, converts
from tilewright.relax.frontend.sampling import grid_sample


@converts("GridSample")
def _grid_sample(
    ctx: Context, x: Tensor, grid: Tensor,
    *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros",
) -> Tensor:  # fmt: skip
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    ctx.choice("mode", mode, ("linear", "nearest", "cubic"))
    ctx.choice("padding_mode", padding_mode, ("zeros", "border", "reflection"))
    return grid_sample(ctx.builder, x, grid, mode, padding_mode, bool(align_corners))
