"""Gathering, slicing and masking in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.support.errors import VerifyError
from tilewright.topi.testing.windows import Array


def gather_python(data: Array, axis: int, indices: Array) -> Array:
    """Take along an axis: ``out[i, j] = data[i, indices[i, j]]`` for axis 1."""
    axis %= data.ndim
    at: list[Array] = list(np.indices(indices.shape))
    at[axis] = indices
    return np.asarray(data[tuple(at)])


def gather_nd_python(a_np: Array, indices_np: Array) -> Array:
    """Take at points; the first axis of the indices has the coordinates."""
    return np.asarray(a_np[tuple(indices_np.astype("int64"))])


def _slices(
    begin: Sequence[int | None], end: Sequence[int | None], strides: Sequence[int | None] | None,
    rank: int,
) -> tuple[slice, ...]:  # fmt: skip
    """Return slices as NumPy's, where what is missing at the end is everything."""
    steps = [1] * rank if strides is None else [*strides]
    steps = [*steps, *[1] * (rank - len(steps))]
    lows = [*begin, *[None] * (rank - len(begin))]
    highs = [*end, *[None] * (rank - len(end))]
    return tuple(slice(b, e, s) for b, e, s in zip(lows, highs, steps))


def strided_slice_python(
    data: Array,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None,
    slice_mode: str = "end",
    axes: Sequence[int] | None = None,
) -> Array:
    """Take ``begin:end:strides`` on each axis, or on ``axes``.

    With ``slice_mode="size"`` ``end`` says how many elements are taken (-1: all), in steps of 1.
    """
    if slice_mode not in ("end", "size"):
        raise VerifyError(f"slice_mode is end or size, got {slice_mode}")
    steps: Sequence[int | None] | None = strides
    ends: list[int | None] = list(end)
    if slice_mode == "size":
        steps = None
        starts = [b + data.shape[a] if b < 0 else b for a, b in zip(axes or range(99), begin)]
        ends = [None if n < 0 else b + n for b, n in zip(starts, end)]
    if axes is None:
        return np.asarray(data[_slices(begin, ends, steps, data.ndim)])
    made: list[Any] = [slice(None)] * data.ndim
    for axis, one in zip(axes, _slices(begin, ends, steps, len(axes))):
        made[axis] = one
    return np.asarray(data[tuple(made)])


def strided_set_python(
    data: Array, v: Array, begin: Sequence[int], end: Sequence[int], strides: Sequence[int]
) -> Array:
    """Return a copy in which ``begin:end:strides`` is ``v``."""
    made = data.copy()
    made[_slices(begin, end, strides, data.ndim)] = v
    return made


def slice_axis_python(data: Array, axis: int, begin: int, end: int | None = None) -> Array:
    """Take ``begin:end`` on one axis."""
    return strided_slice_python(data, [begin], [end], None, axes=[axis])  # type: ignore[list-item]


def one_hot(
    indices: Array, on_value: float, off_value: float, depth: int, axis: int, dtype: str
) -> Array:
    """Return ``on_value`` at each index along a new axis, and ``off_value`` elsewhere."""
    chosen = np.asarray(indices)[..., None] == np.arange(depth)
    made = np.where(chosen, on_value, off_value).astype(dtype)
    return np.moveaxis(made, -1, axis)


def matrix_set_diag(
    input_np: Array, diagonal: Array, k: int | tuple[int, int] = 0, align: str = "RIGHT_LEFT"
) -> Array:
    """Return a copy whose diagonals ``k`` (one, or the lowest and the highest) are replaced.

    Several come from the highest to the lowest, padded to one length: ``align`` says on which side
    those above the main diagonal lie, and those below.
    """
    if align not in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"):
        raise VerifyError(f"align is such as RIGHT_LEFT, got {align}")
    above, below = align.split("_")
    low, high = (k, k) if isinstance(k, (int, np.integer)) else tuple(k)
    made = input_np.copy()
    rows, columns = made.shape[-2:]
    several = low != high
    for offset in range(low, high + 1):
        length = min(rows + min(offset, 0), columns - max(offset, 0))
        values = diagonal[..., high - offset, :] if several else diagonal
        right = (above if offset >= 0 else below) == "RIGHT" and several
        start = values.shape[-1] - length if right else 0
        at = np.arange(length)
        made[..., at + max(-offset, 0), at + max(offset, 0)] = values[..., start : start + length]
    return made


def sequence_mask(data: Array, valid_length: Array, mask_value: float, axis: int) -> Array:
    """Replace what is at or after each sequence's length; time is axis 0 or 1, batch the other."""
    if axis not in (0, 1):
        raise VerifyError(f"the axis of time is 0 or 1, got {axis}")
    valid = np.arange(data.shape[axis])[:, None] < valid_length[None]
    shown = (valid if axis == 0 else valid.T).reshape(*data.shape[:2], *[1] * (data.ndim - 2))
    return np.where(shown, data, mask_value).astype(data.dtype)


def searchsorted_ref(sorted_sequence: Array, values: Array, right: bool, out_dtype: str) -> Array:
    """Return where values would go into sorted rows: before equal ones, or to their ``right``."""
    side = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, values, side).astype(out_dtype)  # type: ignore[call-overload, no-any-return]
    made = np.empty(values.shape, out_dtype)
    for row in np.ndindex(*sorted_sequence.shape[:-1]):
        made[row] = np.searchsorted(sorted_sequence[row], values[row], side)  # type: ignore[call-overload]
    return made
