"""Data of inputs and constants: mostly ordinary numbers, at times the awkward ones."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int32", "int64", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
HALVES = ("float16", "bfloat16")

_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 65504.0, 1e-7, np.inf, -np.inf, np.nan)


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype of a name, bfloat16 among them."""
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def draw_array(seed: int, shape: tuple[int, ...], dtype: str, likes: str = "") -> np.ndarray:
    """An array of a shape and dtype.

    ``likes`` is ``""`` (ordinary numbers, at times with infinities and NaN among them, integers at
    times the extreme ones), ``"tame"`` (no such), ``"positive"``, or ``"index:N"``: at least 0 and
    below N, so far as that is possible.
    """
    chooser = random.Random(seed)
    rng = np.random.default_rng(seed)
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return rng.random(shape) < chooser.choice([0.5, 0.1, 0.9])
    if likes.startswith("index:"):
        return rng.integers(0, max(int(likes[6:]), 1), shape).astype(kind)
    if dtype in FLOATS:
        made = rng.standard_normal(shape) * chooser.choice([0.3, 1.0, 1.0, 3.0, 20.0])
        if likes == "positive":
            return (np.abs(made) + 0.1).astype(kind)
        if not likes and chooser.random() < 0.12:
            spots = rng.random(shape) < 0.15
            made = np.where(spots, rng.choice(_SPECIAL, shape), made)
        if not likes and chooser.random() < 0.15:
            made = np.round(made)
        with np.errstate(over="ignore"):
            return made.astype(kind)
    limits = np.iinfo(kind)
    if likes or chooser.random() < 0.6:
        low = max(-6, int(limits.min))
        return rng.integers(low, 7, shape).astype(kind)
    made = rng.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    extremes = np.array([limits.min, limits.max, 0, 1], kind)
    return np.where(rng.random(shape) < 0.2, rng.choice(extremes, shape), made)
