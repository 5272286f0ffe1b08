"""What convolutions and pools have in common: padding, windows, layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tilewright.support.errors import VerifyError

Array = NDArray[Any]
Padding = int | str | Sequence[int]
Pads = list[tuple[int, int]]
"""How much is added before and after, for each dimension of space."""


def per_dimension(value: int | Sequence[int], count: int) -> tuple[int, ...]:
    """Return one number for each dimension of space."""
    values = (value,) * count if isinstance(value, (int, np.integer)) else tuple(value)
    if len(values) == 1:
        values *= count
    if len(values) != count:
        raise VerifyError(f"expected 1 or {count} numbers, got {values}")
    return tuple(int(v) for v in values)


def pads_of(padding: Padding, kernel: Sequence[int]) -> Pads:
    """Read a padding as the operators do.

    It is ``"VALID"`` or ``"SAME"`` (which keeps the size at stride 1), one number, one for each
    dimension, or all those before and then all those after. ``kernel`` has dilated extents.
    """
    count = len(kernel)
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID"):
            raise VerifyError(f'padding is numbers, "SAME" or "VALID", got "{padding}"')
        total = [k - 1 if padding == "SAME" else 0 for k in kernel]
        return [((t + 1) // 2, t // 2) for t in total]
    if not isinstance(padding, (int, np.integer)) and len(padding) == 2 * count:
        return list(zip(map(int, padding[:count]), map(int, padding[count:])))
    return [(p, p) for p in per_dimension(padding, count)]


def spread(array: Array, strides: Sequence[int], value: Any = 0) -> Array:
    """Put ``stride - 1`` elements of a value between any two along each axis."""
    shape = [max((size - 1) * stride + 1, 0) for size, stride in zip(array.shape, strides)]
    made = np.full(shape, value, array.dtype)
    made[every(strides)] = array
    return made


def windows(array: Array, kernel: Sequence[int], strides: Sequence[int]) -> Array:
    """Return all windows over the last axes, one axis for each place and then each offset."""
    axes = tuple(range(array.ndim - len(kernel), array.ndim))
    found = sliding_window_view(array, tuple(kernel), axes)
    at = every(strides)
    return np.asarray(found[(slice(None),) * axes[0] + at[1:]])


def every(steps: Sequence[int]) -> tuple[Any, ...]:
    """Return the index of every ``step``-th element along each of the last axes."""
    return (..., *(slice(None, None, step) for step in steps))


def wide(array: Array) -> Array:
    """Return floats as ``float64``, in which results are computed; integers as they are."""
    return array.astype("float64") if np.issubdtype(array.dtype, np.floating) else array


def moved(array: Array, source: str, target: str) -> Array:
    """Transpose from one layout to another, such as ``"NHWC"`` to ``"NCHW"``."""
    if sorted(source) != sorted(target) or array.ndim != len(source):
        raise VerifyError(f"{source} has other axes than {target} or an array of {array.ndim}")
    return array.transpose([source.index(axis) for axis in target])


SPATIAL = ("W", "HW", "DHW")


def channels_first(layout: str) -> str:
    """Return the layout with the same axes that begins with N and C."""
    found = [f"NC{axes}" for axes in SPATIAL if sorted(f"NC{axes}") == sorted(layout)]
    if not found:
        raise VerifyError(f"no layout of a batch with channels and a space: {layout}")
    return found[0]
