"""Operators of images: resizing, sampling, crops, morphology."""

from __future__ import annotations

from tilewright.topi.image.crop import crop_and_resize
from tilewright.topi.image.dilation2d import dilation2d_nchw, dilation2d_nhwc
from tilewright.topi.image.grid_sample import affine_grid, grid_sample
from tilewright.topi.image.resize import (
    RESIZE,
    RESIZE_COORDINATES,
    RESIZE_LAYOUTS,
    RESIZE_METHODS,
    check_resize,
    resize,
    resize2d_by_tables,
    resized_axes,
)
from tilewright.topi.image.resize_modes import check_modes, resize1d, resize2d, resize3d

__all__ = [
    "RESIZE", "RESIZE_COORDINATES", "RESIZE_LAYOUTS", "RESIZE_METHODS", "affine_grid",
    "check_modes", "check_resize", "crop_and_resize", "dilation2d_nchw", "dilation2d_nhwc",
    "grid_sample", "resize", "resize1d", "resize2d", "resize2d_by_tables", "resize3d",
    "resized_axes",
]  # fmt: skip
