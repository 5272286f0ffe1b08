"""Transposed convolutions in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.topi.testing.convolution import Numbers, convolved
from tilewright.topi.testing.windows import Array, Padding, moved, pads_of, per_dimension, spread


def _transposed(
    x: Array, w: Array, stride: Numbers, padding: Padding, output_padding: Numbers, groups: int = 1
) -> Array:
    """Distribute each element of ``(N, I, ...)`` by weights ``(I, O / groups, ...)``."""
    kernel = w.shape[2:]
    strides = per_dimension(stride, len(kernel))
    extra = per_dimension(output_padding, len(kernel))
    if any(e >= s for e, s in zip(extra, strides)):
        raise VerifyError(f"output_padding {extra} must be less than the strides {strides}")
    if x.shape[1] != w.shape[0] or w.shape[0] % groups:
        raise VerifyError(f"weights {w.shape} in {groups} groups for {x.shape[1]} channels")
    apart = spread(x, (1, 1, *strides))
    pads = [
        (k - 1 - before, k - 1 - after + e)
        for k, (before, after), e in zip(kernel, pads_of(padding, kernel), extra)
    ]
    grouped = w.reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2)
    flipped = np.flip(grouped.reshape(-1, *grouped.shape[2:]), tuple(range(2, w.ndim)))
    cropped: list[Any] = [
        slice(max(-before, 0), size + min(after, 0))
        for size, (before, after) in zip(apart.shape[2:], pads)
    ]
    kept = [(max(before, 0), max(after, 0)) for before, after in pads]
    ones = (1,) * len(kernel)
    return convolved(apart[(slice(None), slice(None), *cropped)], flipped, ones, kept, groups)


def conv1d_transpose_ncw_python(
    a_np: Array, w_np: Array, stride: Numbers, padding: Padding, output_padding: Numbers
) -> Array:
    """Convolve ``(N, I, W)`` with ``(I, O, K)``, transposed."""
    return _transposed(a_np, w_np, stride, padding, output_padding)


def _in_groups(name: str, doc: str) -> Callable[..., Array]:
    def conv_transpose(
        a_np: Array,
        w_np: Array,
        stride: Numbers,
        padding: Padding,
        output_padding: Numbers,
        groups: int = 1,
    ) -> Array:
        return _transposed(a_np, w_np, stride, padding, output_padding, groups)

    return named(conv_transpose, name, doc)


group_conv1d_transpose_ncw_python = _in_groups(
    "group_conv1d_transpose_ncw_python",
    "Convolve ``(N, I, W)`` with ``(I, O / groups, K)``, transposed, each group for itself.",
)
conv2d_transpose_nchw_python = _in_groups(
    "conv2d_transpose_nchw_python",
    "Convolve ``(N, I, H, W)`` with ``(I, O / groups, KH, KW)``, transposed.",
)
conv3d_transpose_ncdhw_python = _in_groups(
    "conv3d_transpose_ncdhw_python",
    "Convolve ``(N, I, D, H, W)`` with ``(I, O / groups, KD, KH, KW)``, transposed.",
)


def conv2d_transpose_nhwc_python(
    a_nhwc: Array,
    weight: Array,
    weight_format: str,
    stride: Numbers,
    padding: Padding,
    output_padding: Numbers = (0, 0),
) -> Array:
    """Convolve ``(N, H, W, I)``, transposed, with weights of a format such as ``"HWIO"``."""
    x, w = moved(a_nhwc, "NHWC", "NCHW"), moved(weight, weight_format, "IOHW")
    return moved(_transposed(x, w, stride, padding, output_padding), "NCHW", "NHWC")
