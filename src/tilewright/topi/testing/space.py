"""Rearrangements of space, batch and channels in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.support.errors import VerifyError
from tilewright.topi.testing.windows import Array, spread


def dilate_python(
    input_np: Array,
    strides: Sequence[int],
    dilation_value: float = 0.0,
    out_dtype: str | None = None,
) -> Array:
    """Put ``stride - 1`` elements of a value between any two along each axis."""
    if len(strides) != input_np.ndim:
        raise VerifyError(f"{len(strides)} strides for {input_np.ndim} axes")
    return spread(input_np.astype(out_dtype or input_np.dtype), strides, dilation_value)


def space_to_batch_nd_python(
    data: Array,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: float = 0,
) -> Array:
    """Pad, and move each place within a block of space to the batch, where it varies slowest."""
    count = len(block_shape)
    rest = [(0, 0)] * (data.ndim - 1 - count)
    pads = [(0, 0), *zip(pad_before, pad_after), *rest]
    padded = np.pad(data, pads, constant_values=pad_value)
    outer = [size // block for size, block in zip(padded.shape[1:], block_shape)]
    pairs = [extent for pair in zip(outer, block_shape) for extent in pair]
    kept = padded.shape[1 + count :]
    parts = padded.reshape(padded.shape[0], *pairs, *kept)
    within = [2 + 2 * d for d in range(count)]
    between = [1 + 2 * d for d in range(count)]
    last = range(1 + 2 * count, parts.ndim)
    return parts.transpose(*within, 0, *between, *last).reshape(-1, *outer, *kept)


def batch_to_space_nd_python(
    data: Array,
    block_shape: Sequence[int],
    crop_begin_list: Sequence[int],
    crop_end_list: Sequence[int],
) -> Array:
    """Undo ``space_to_batch_nd_python``, and crop."""
    count = len(block_shape)
    batch = data.shape[0] // int(np.prod(block_shape))
    parts = data.reshape(*block_shape, batch, *data.shape[1:])
    pairs = [axis for d in range(count) for axis in (count + 1 + d, d)]
    moved = parts.transpose(count, *pairs, *range(2 * count + 1, parts.ndim))
    sizes = [size * block for size, block in zip(data.shape[1:], block_shape)]
    made = moved.reshape(batch, *sizes, *data.shape[1 + count :])
    kept = tuple(
        slice(begin, size - end) for begin, end, size in zip(crop_begin_list, crop_end_list, sizes)
    )
    return np.asarray(made[(slice(None), *kept)])


def depth_to_space_python(data: Array, block_size: int, mode: str = "DCR") -> Array:
    """Move channels of ``(N, C, H, W)`` into blocks of space.

    They are depth, column and row of a block in the order of ``mode``: DCR has the place within a
    block first, CRD the remaining channel.
    """
    if mode not in ("DCR", "CRD"):
        raise VerifyError(f"mode is DCR or CRD, got {mode}")
    n, channels, height, width = data.shape
    depth = channels // block_size**2
    if mode == "DCR":
        parts = data.reshape(n, block_size, block_size, depth, height, width)
        parts = parts.transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = data.reshape(n, depth, block_size, block_size, height, width)
        parts = parts.transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, depth, height * block_size, width * block_size)


def space_to_depth_python(data: Array, block_size: int) -> Array:
    """Move blocks of space of ``(N, C, H, W)`` to channels, where the place comes first."""
    n, channels, height, width = data.shape
    rows, columns = height // block_size, width // block_size
    parts = data.reshape(n, channels, rows, block_size, columns, block_size)
    return parts.transpose(0, 3, 5, 1, 2, 4).reshape(n, -1, rows, columns)


def reorg_python(a_np: Array, stride: int) -> Array:
    """Rearrange ``(N, C, H, W)`` to ``(N, C * stride**2, H / stride, W / stride)`` as Darknet does.

    Its layer reads memory as if the image had ``C / stride**2`` channels of ``stride`` times the
    height and width, and takes apart its blocks; the result has the shape above.
    """
    n, channels, height, width = a_np.shape
    if channels % stride**2 or height % stride or width % stride:
        raise VerifyError(f"{a_np.shape} isn't divisible by blocks of {stride}")
    few = channels // stride**2
    parts = a_np.reshape(n, few, height, stride, width, stride)
    return parts.transpose(0, 3, 5, 1, 2, 4).reshape(
        n, channels * stride**2, height // stride, width // stride
    )
