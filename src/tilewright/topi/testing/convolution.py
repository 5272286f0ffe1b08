"""Convolutions in NumPy: what ``topi.nn``'s must agree with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.topi.testing.windows import (
    Array,
    Padding,
    Pads,
    channels_first,
    moved,
    pads_of,
    per_dimension,
    spread,
    wide,
    windows,
)

Numbers = int | Sequence[int]


def convolved(x: Array, w: Array, strides: Sequence[int], pads: Pads, groups: int = 1) -> Array:
    """Convolve ``(N, C, ...)`` with ``(O, C / groups, ...)``, over any number of dimensions."""
    kernel = w.shape[2:]
    if x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise VerifyError(
            f"{groups} groups of weights {w.shape} don't fit an input with {x.shape[1]} channels"
        )
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    parts = windows(padded, kernel, strides)
    space = parts.shape[2 : 2 + len(kernel)]
    parts = parts.reshape(x.shape[0], groups, w.shape[1], *parts.shape[2:])
    weights = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    at, taps = "hij"[: len(kernel)], "xyz"[: len(kernel)]
    made = np.einsum(f"ngc{at}{taps},goc{taps}->ngo{at}", wide(parts), wide(weights), optimize=True)
    return np.asarray(made.reshape(x.shape[0], w.shape[0], *space), x.dtype)


def _direct(
    x: Array, w: Array, stride: Numbers, padding: Padding, dilation: Numbers = 1, groups: int = 1
) -> Array:
    count = w.ndim - 2
    w = spread(w, (1, 1, *per_dimension(dilation, count)))
    pads = pads_of(padding, w.shape[2:])
    return convolved(x, w, per_dimension(stride, count), pads, groups)


def conv1d_ncw_python(
    a_np: Array, w_np: Array, stride: Numbers, padding: Padding, dilation: Numbers
) -> Array:
    """Convolve ``(N, C, W)`` with ``(O, C, K)``."""
    return _direct(a_np, w_np, stride, padding, dilation)


def group_conv1d_ncw_python(
    a_np: Array, w_np: Array, stride: Numbers, padding: Padding, dilation: Numbers, groups: int
) -> Array:
    """Convolve ``(N, C, W)`` with ``(O, C / groups, K)``, each group of channels for itself."""
    return _direct(a_np, w_np, stride, padding, dilation, groups)


def _in_layout(layout: str, filters: str, doc: str) -> Callable[..., Array]:
    """A convolution of images and filters of these layouts, in groups."""
    first, filters_first = channels_first(layout), "OI" + filters.replace("O", "").replace("I", "")

    def conv(a_np: Array, w_np: Array, stride: Numbers, padding: Padding, groups: int = 1) -> Array:
        x, w = moved(a_np, layout, first), moved(w_np, filters, filters_first)
        return moved(_direct(x, w, stride, padding, 1, groups), first, layout)

    return named(conv, f"conv{len(layout) - 2}d_{layout.lower()}_python", doc)


conv2d_nchw_python = _in_layout(
    "NCHW", "OIHW", "Convolve ``(N, C, H, W)`` with ``(O, C / groups, KH, KW)``."
)
conv2d_nhwc_python = _in_layout(
    "NHWC", "HWIO", "Convolve ``(N, H, W, C)`` with ``(KH, KW, C / groups, O)``."
)
conv3d_ncdhw_python = _in_layout(
    "NCDHW", "OIDHW", "Convolve ``(N, C, D, H, W)`` with ``(O, C / groups, KD, KH, KW)``."
)
conv3d_ndhwc_python = _in_layout(
    "NDHWC", "DHWIO", "Convolve ``(N, D, H, W, C)`` with ``(KD, KH, KW, C / groups, O)``."
)


def conv2d_hwcn_python(a_np: Array, w_np: Array, stride: Numbers, padding: Padding) -> Array:
    """Convolve ``(H, W, C, N)`` with ``(KH, KW, C, O)``."""
    x, w = moved(a_np, "HWCN", "NCHW"), moved(w_np, "HWIO", "OIHW")
    return moved(_direct(x, w, stride, padding), "NCHW", "HWCN")


def depthwise_conv2d_python_nchw(
    input_np: Array, filter_np: Array, stride: Numbers, padding: Padding
) -> Array:
    """Convolve each channel of ``(N, C, H, W)`` with its own filters ``(C, M, KH, KW)``."""
    channels, multiplier, *kernel = filter_np.shape
    w = filter_np.reshape(channels * multiplier, 1, *kernel)
    return _direct(input_np, w, stride, padding, 1, channels)


def depthwise_conv2d_python_nhwc(
    input_np: Array, filter_np: Array, stride: Numbers, padding: Padding
) -> Array:
    """Convolve each channel of ``(N, H, W, C)`` with its own filters ``(KH, KW, C, M)``."""
    x, w = moved(input_np, "NHWC", "NCHW"), filter_np.transpose(2, 3, 0, 1)
    return moved(depthwise_conv2d_python_nchw(x, w, stride, padding), "NCHW", "NHWC")


def depthwise_conv2d_python_nchwc(
    input_np: Array, filter_np: Array, stride: Numbers, padding: Padding
) -> Array:
    """Convolve ``(N, C', H, W, c)`` with ``(O', 1, KH, KW, 1, o)``: channels in blocks."""
    n, outer, height, width, inner = input_np.shape
    x = input_np.transpose(0, 1, 4, 2, 3).reshape(n, outer * inner, height, width)
    blocks, _, rows, columns, _, block = filter_np.shape
    if blocks * block % x.shape[1]:
        raise VerifyError(f"{blocks * block} filters for {x.shape[1]} channels")
    w = filter_np.transpose(0, 1, 4, 5, 2, 3).reshape(x.shape[1], -1, rows, columns)
    made = depthwise_conv2d_python_nchw(x, w, stride, padding)
    return made.reshape(n, blocks, block, *made.shape[2:]).transpose(0, 1, 3, 4, 2)


def conv2d_backward_weight_python(
    dy_np: Array,
    x_np: Array,
    kernel_size: Numbers,
    stride: Numbers,
    padding: Padding,
    layout: str = "NCHW",
    groups: int = 1,
    channels: int | None = None,
) -> Array:
    """Return the gradient of a convolution's weights, given that of its result.

    They are ``(O, C / groups, KH, KW)``, or ``(O, KH, KW, C / groups)`` in layout NHWC.
    """
    if layout not in ("NCHW", "NHWC"):
        raise VerifyError(f"layouts are NCHW and NHWC, got {layout}")
    dy, x = moved(dy_np, layout, "NCHW"), moved(x_np, layout, "NCHW")
    if channels not in (None, dy.shape[1]) or x.shape[1] % groups or dy.shape[1] % groups:
        raise VerifyError(f"{dy.shape[1]} channels of results: not {channels} in {groups} groups")
    kernel, strides = per_dimension(kernel_size, 2), per_dimension(stride, 2)
    padded = np.pad(x, [(0, 0), (0, 0), *pads_of(padding, kernel)])
    parts = windows(padded, kernel, strides)[:, :, : dy.shape[2], : dy.shape[3]]
    parts = parts.reshape(x.shape[0], groups, -1, *parts.shape[2:])
    dy = dy.reshape(x.shape[0], groups, -1, *dy.shape[2:])
    made = np.einsum("ngohw,ngchwxy->gocxy", wide(dy), wide(parts), optimize=True)
    made = made.reshape(-1, *made.shape[2:]).astype(x_np.dtype)
    return moved(made, "NCHW", layout)
