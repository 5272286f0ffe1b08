"""In which width NumPy says what an operator means: double, and at times single precision.

A kernel's sums and products are single precision, in an order of its own: what overflows there, or
on the way, has no sure result. An evaluation in single precision shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_single = False


@contextmanager
def in_single_precision(chosen: bool = True) -> Iterator[None]:
    """Let ``wide`` give float32 inside of the context, if so chosen."""
    global _single
    before, _single = _single, chosen
    try:
        yield
    finally:
        _single = before


def wide(array: np.ndarray) -> np.ndarray:
    """Floating-point numbers in the width that sums are made in, others as they are."""
    if array.dtype.kind not in "fV":
        return array
    return array.astype(np.float32 if _single and array.dtype != np.float64 else np.float64)


def product(array: np.ndarray, **how: Any) -> np.ndarray:
    """``np.prod``; in single precision what grows is apart from what shrinks: both may overflow."""
    if not _single or array.dtype.kind not in "fV":
        return np.asarray(np.prod(array, **how))
    grows = np.abs(array) >= 1
    large, small = np.where(grows, array, 1), np.where(grows, 1, array)
    return np.asarray(np.prod(large, **how) * np.prod(small, **how))
