"""Grids and samples between pixels, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from tilewright.support.errors import VerifyError
from tilewright.topi.testing.windows import Array, channels_first, moved

CUBIC_SHARPNESS = -0.75
"""Of the cubic kernel (Keys 1981), as PyTorch has it."""


def _taps(position: Array, method: str) -> list[tuple[Array, Array]]:
    """Return which pixels a sample is made of along one axis, with their weights."""
    if method == "nearest":
        return [(np.rint(position).astype("int64"), np.ones_like(position))]
    low = np.floor(position).astype("int64")
    part = position - low
    if method == "linear":
        return [(low, 1 - part), (low + 1, part)]
    return [(low + k, cubic_weight(part - k)) for k in range(-1, 3)]


def cubic_weight(distance: Array, sharpness: float = CUBIC_SHARPNESS) -> Array:
    """Return the weight of a pixel at a distance under cubic convolution (Keys 1981)."""
    x = np.abs(distance)
    near = ((sharpness + 2) * x - (sharpness + 3)) * x * x + 1
    far = sharpness * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def sampled(
    data: Array, positions: Sequence[Array], method: str = "linear", padding_mode: str = "zeros"
) -> Array:
    """Return what lies at positions in ``(C, ...)``, one array of positions for each axis.

    Outside is zero, or with another ``padding_mode`` what is at the border.
    """
    made = np.zeros((data.shape[0], *np.shape(positions[0])))
    for taps in product(*(_taps(np.asarray(p, "float64"), method) for p in positions)):
        inside = np.ones(np.shape(positions[0]), bool)
        at: list[Any] = [slice(None)]
        weight = np.ones(np.shape(positions[0]))
        for (index, part), size in zip(taps, data.shape[1:]):
            if padding_mode == "zeros":
                inside &= (index >= 0) & (index < size)
            at.append(np.clip(index, 0, size - 1))
            weight = weight * part
        made += np.where(inside, data[tuple(at)], 0) * weight
    return made


def affine_grid_python(data: Array, target_shape: Sequence[int]) -> Array:
    """Return where an affine map takes a grid of ``target_shape`` from -1 to 1.

    ``data`` is ``(N, 2, 3)``; the grid is ``(N, 2, height, width)``: x, then y.
    """
    height, width = target_shape
    ys, xs = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    places = np.stack([xs, ys, np.ones_like(xs)])
    return np.asarray(np.einsum("nij,jhw->nihw", data, places), data.dtype)


def grid_sample_python(
    data: Array,
    grid: Array,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Array:
    """Sample ``(N, C, ...)`` where a grid ``(N, dimensions, ...)`` points: x first, from -1 to 1.

    With ``align_corners`` -1 and 1 are the centres of the corners' pixels, else their edges.
    """
    if method not in METHODS or (method == "bicubic" and data.ndim != 4):
        raise VerifyError(f"no method {method} of samples in {data.ndim - 2} dimensions")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise VerifyError(f"padding_mode is zeros, border or reflection, got {padding_mode}")
    first = channels_first(layout)
    images = moved(data, layout, first)
    return np.stack(
        [
            _sampled_image(image, places[::-1], METHODS[method], padding_mode, align_corners)
            for image, places in zip(images, grid)
        ]
    ).astype(data.dtype)


METHODS = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}


def _sampled_image(
    image: Array, places: Array, method: str, padding_mode: str, align_corners: bool
) -> Array:
    positions = []
    for place, size in zip(places.astype("float64"), image.shape[1:]):
        edge = 0.0 if align_corners else 0.5
        position = (place + 1) / 2 * (size - 1 + 2 * edge) - edge
        if padding_mode == "reflection" and method != "cubic":
            position = _reflected(position, size, edge)
        if padding_mode != "zeros" and method != "cubic":
            position = np.clip(position, 0, size - 1)
        positions.append(position)
    if padding_mode == "reflection" and method == "cubic":  # each pixel is, not the place
        image, positions = _mirrored(image, positions, edge)
    return sampled(image, positions, method, padding_mode)


def _mirrored(image: Array, positions: Sequence[Array], edge: float) -> tuple[Array, list[Array]]:
    """Continue an image by its reflections, as far as samples reach; return moved positions."""
    moved_positions = []
    for axis, position in enumerate(positions):
        size = image.shape[1 + axis]
        low = min(int(np.floor(position.min())) - 1, 0)
        high = max(int(np.floor(position.max())) + 3, size)
        at = _reflected(np.arange(low, high, dtype="float64"), size, edge)
        image = np.take(image, np.clip(np.rint(at), 0, size - 1).astype("int64"), 1 + axis)
        moved_positions.append(position - low)
    return image, moved_positions


def _reflected(position: Array, size: int, edge: float) -> Array:
    """Fold positions into ``[-edge, size - 1 + edge]``, as between two mirrors."""
    length = size - 1 + 2 * edge
    if length == 0:
        return np.zeros_like(position)
    folded = np.abs(position + edge) % (2 * length)
    return np.minimum(folded, 2 * length - folded) - edge
