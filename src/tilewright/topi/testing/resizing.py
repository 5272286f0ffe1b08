"""Resizing in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.topi.testing.sampling import cubic_weight
from tilewright.topi.testing.windows import Array, channels_first, moved

CUBIC_SHARPNESS = -0.5
"""Of the cubic kernel where the operators aren't told another one."""

POSITIONS: dict[str, Callable[[Array, int, int], Array]] = {
    "half_pixel": lambda i, size, out: (i + 0.5) * size / out - 0.5,
    "align_corners": lambda i, size, out: i * ((size - 1) / (out - 1) if out > 1 else 0.0),
    "asymmetric": lambda i, size, out: i * size / out,
}
"""Where output ``i`` of ``out`` lies among ``size`` inputs."""

ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round": np.rint,
    "floor": lambda x: np.floor(x + 1e-5),
    "ceil": lambda x: np.ceil(x - 1e-5),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}


def _taps(position: Array, size: int, method: str, rounding: str) -> list[tuple[Array, Array]]:
    """Return which inputs each output is made of along an axis, with their weights."""
    if method == "nearest_neighbor":
        chosen = [(ROUNDINGS[rounding](position), np.ones_like(position))]
    else:
        low = np.floor(position)
        part = position - low
        if method == "linear":
            chosen = [(low, 1 - part), (low + 1, part)]
        else:
            chosen = [(low + k, cubic_weight(part - k, CUBIC_SHARPNESS)) for k in range(-1, 3)]
    return [(np.clip(at, 0, size - 1).astype("int64"), weight) for at, weight in chosen]


def _resized(
    data: Array, scale: Sequence[float], layout: str, method: str, mode: str, rounding: str
) -> Array:
    if method not in ("nearest_neighbor", "linear", "cubic"):
        raise VerifyError(f"method is nearest_neighbor, linear or cubic, got {method}")
    if mode not in POSITIONS:
        raise VerifyError(f"coordinate_transformation_mode is in {list(POSITIONS)}, got {mode}")
    rounding = rounding or ("round" if mode == "align_corners" else "floor")
    if rounding not in ROUNDINGS:
        raise VerifyError(f"rounding_method is in {list(ROUNDINGS)}, got {rounding}")
    first = channels_first(layout)
    x = moved(data, layout, first)
    sizes = x.shape[2:]
    if len(scale) != len(sizes):
        raise VerifyError(f"{len(scale)} scales for {len(sizes)} dimensions")
    out = [round(size * factor) for size, factor in zip(sizes, scale)]
    taps = [
        _taps(POSITIONS[mode](np.arange(o, dtype="float64"), size, o), size, method, rounding)
        for size, o in zip(sizes, out)
    ]
    made = np.zeros((*x.shape[:2], *out))
    for chosen in product(*taps):
        at: tuple[Any, ...] = (slice(None), slice(None), *np.ix_(*(index for index, _ in chosen)))
        weight = np.ones(())
        for _, part in chosen:
            weight = weight[..., None] * part
        made += x[at] * weight
    return moved(made.astype(data.dtype), first, layout)


def _resizing(axes: str, doc: str) -> Callable[..., Array]:
    def resize(
        data: Array,
        scale: Sequence[float],
        layout: str = axes,
        method: str = "nearest_neighbor",
        coordinate_transformation_mode: str = "align_corners",
        rounding_method: str = "",
    ) -> Array:
        mode = coordinate_transformation_mode
        return _resized(data, scale, layout, method, mode, rounding_method)

    return named(resize, f"resize{len(axes) - 2}d_python", doc)


resize1d_python = _resizing("NCW", "Resize one dimension by a scale of one number.")
resize2d_python = _resizing("NCHW", "Resize height and width by a scale for each.")
resize3d_python = _resizing("NCDHW", "Resize depth, height and width by a scale for each.")


def crop_and_resize_python(
    image: Array,
    boxes: Array,
    box_indices: Array,
    crop_size: Sequence[int],
    layout: str,
    method: str = "bilinear",
    extrapolation_value: float = 0,
) -> Array:
    """Resize boxes ``(y1, x1, y2, x2)``, from 0 to 1, of the images that ``box_indices`` name.

    Corners are aligned; what lies outside of an image is ``extrapolation_value``.
    """
    if layout not in ("NHWC", "NCHW") or method not in ("bilinear", "nearest_neighbor"):
        raise VerifyError(f"no {method} crops in layout {layout}")
    images = moved(image, layout, "NCHW").astype("float64")
    made = [
        _crop(images[at], box, crop_size, method, extrapolation_value)
        for box, at in zip(boxes, box_indices)
    ]
    return moved(np.stack(made).astype(image.dtype), "NCHW", layout)


def _crop(
    image: Array, box: Array, crop_size: Sequence[int], method: str, extrapolation_value: float
) -> Array:
    positions = []  # in the boxes' dtype, which decides what is nearest
    for low, high, size, out in zip(box[:2], box[2:], image.shape[1:], crop_size):
        last = box.dtype.type(size - 1)
        step = (high - low) * last / box.dtype.type(max(out - 1, 1))
        middle = (low + high) * last / 2
        steps = np.arange(out, dtype=box.dtype)
        positions.append(low * last + steps * step if out > 1 else np.array([middle]))
    ys, xs = np.meshgrid(*positions, indexing="ij")
    inside = (ys >= 0) & (ys <= image.shape[1] - 1) & (xs >= 0) & (xs <= image.shape[2] - 1)
    rounding = "round"
    made = np.zeros((image.shape[0], *ys.shape))
    each = "linear" if method == "bilinear" else method
    for (i, down), (j, right) in product(
        _taps(ys, image.shape[1], each, rounding), _taps(xs, image.shape[2], each, rounding)
    ):
        made += image[:, i, j] * down * right
    return np.where(inside, made, extrapolation_value)
