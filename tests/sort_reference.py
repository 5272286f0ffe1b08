"""What sorting tests compare with: awkward rows, and their stable order; NaN is the greatest."""

from __future__ import annotations

from typing import Any

import numpy as np


def awkward(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Random elements with many equal ones; floats with NaN, infinities and zeros of both signs."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(kind)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        made = rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
        made.flat[::3] = rng.integers(0, 4, made.flat[::3].shape)
        return made
    made = rng.standard_normal(shape).astype(kind)
    special = [np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5, -np.nan]
    for number, value in enumerate(special):
        made.flat[number :: 2 * len(special) + number] = kind.type(value)
    return made


def order(x: np.ndarray, axis: int, is_ascend: bool) -> np.ndarray:
    """Places in stable order."""
    wide = x.astype(np.float64) if x.dtype.kind not in "iub" else x
    if is_ascend:
        return np.argsort(wide, axis, kind="stable")
    backwards = np.argsort(np.flip(wide, axis), axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(backwards, axis)
