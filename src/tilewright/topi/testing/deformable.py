"""Deformable convolutions and correlations in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.topi.testing.convolution import Numbers
from tilewright.topi.testing.sampling import sampled
from tilewright.topi.testing.windows import Array, Padding, moved, pads_of, per_dimension, wide


def _deformable(
    arrays: tuple[Array, Array, Array], windows: tuple[Numbers, Padding, Numbers],
    deformable_groups: int, groups: int,
) -> Array:  # fmt: skip
    """Convolve an image, given offsets and weights; windows have strides, padding and dilation."""
    (a_np, offset_np, w_np), (stride, padding, dilation) = arrays, windows
    n, channels, height, width = a_np.shape
    filters, fan, rows, columns = w_np.shape
    if channels != fan * groups or channels % deformable_groups:
        raise VerifyError(f"{channels} channels for {groups} groups of weights {w_np.shape}")
    (step, across), (down, right) = per_dimension(stride, 2), per_dimension(dilation, 2)
    (top, _), (left, _) = pads_of(padding, ((rows - 1) * down + 1, (columns - 1) * right + 1))
    offsets = offset_np.reshape(n, deformable_groups, rows, columns, 2, *offset_np.shape[2:])
    ys = np.arange(offset_np.shape[2])[:, None] * step - top
    xs = np.arange(offset_np.shape[3])[None] * across - left
    taps = np.empty((n, channels, rows, columns, *offset_np.shape[2:]))
    share = channels // deformable_groups
    for image, group, i, j in np.ndindex(n, deformable_groups, rows, columns):
        dy, dx = offsets[image, group, i, j].astype("float64")
        own = slice(group * share, (group + 1) * share)
        y, x = ys + i * down + dy, xs + j * right + dx
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        taps[image, own, i, j] = np.where(inside, sampled(a_np[image, own], (y, x)), 0)
    taps = taps.reshape(n, groups, fan, *taps.shape[2:])
    weights = w_np.reshape(groups, filters // groups, *w_np.shape[1:])
    made = np.einsum("ngcijhw,gocij->ngohw", taps, wide(weights), optimize=True)
    return np.asarray(made.reshape(n, filters, *made.shape[3:]), a_np.dtype)


def _deformable_in(layout: str, filters: str, doc: str) -> Callable[..., Array]:
    def deformable_conv2d(
        a_np: Array,
        offset_np: Array,
        w_np: Array,
        stride: Numbers,
        padding: Padding,
        dilation: Numbers,
        deformable_groups: int,
        groups: int,
    ) -> Array:
        x, offsets = moved(a_np, layout, "NCHW"), moved(offset_np, layout, "NCHW")
        arrays = x, offsets, moved(w_np, filters, "OIHW")
        made = _deformable(arrays, (stride, padding, dilation), deformable_groups, groups)
        return moved(made, "NCHW", layout)

    return named(deformable_conv2d, f"deformable_conv2d_{layout.lower()}_python", doc)


deformable_conv2d_nchw_python = _deformable_in(
    "NCHW",
    "OIHW",
    """Convolve ``(N, C, H, W)`` with ``(O, C / groups, KH, KW)``, each tap moved by an offset.

    Offsets ``(N, deformable_groups * KH * KW * 2, OH, OW)`` are down and right, in pixels; between
    pixels the input is interpolated linearly; it is zero before the first ones, and fades behind
    the last.
    """,
)
deformable_conv2d_nhwc_python = _deformable_in(
    "NHWC",
    "HWIO",
    "Do as ``deformable_conv2d_nchw_python`` with channels last and weights ``(KH, KW, C, O)``.",
)


def correlation_nchw_python(
    data1: Array,
    data2: Array,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: Padding,
    is_multiply: bool,
) -> Array:
    """Compare patches of one image with displaced ones of another (FlowNet's layer).

    A channel of the result is a displacement (in steps of ``stride2``, at most
    ``max_displacement``); its value is the mean product, or absolute difference, of two patches.
    """
    n, channels, _, _ = data1.shape
    first, second = (
        np.pad(wide(data), [(0, 0), (0, 0), *pads_of(padding, (kernel_size, kernel_size))])
        for data in (data1, data2)
    )
    height, width = first.shape[2:]
    border = max_displacement + (kernel_size - 1) // 2
    out = [-(-(size - 2 * border) // stride1) for size in (height, width)]
    reach = max_displacement // stride2
    steps = range(-reach * stride2, reach * stride2 + 1, stride2)
    made = np.zeros((n, len(steps) ** 2, *out))
    for at, (dy, dx) in enumerate((dy, dx) for dy in steps for dx in steps):
        for y, x in np.ndindex(*out):
            top, left = y * stride1 + max_displacement, x * stride1 + max_displacement
            here = first[:, :, top : top + kernel_size, left : left + kernel_size]
            top, left = top + dy, left + dx
            there = second[:, :, top : top + kernel_size, left : left + kernel_size]
            compared = here * there if is_multiply else np.abs(here - there)
            made[:, at, y, x] = compared.sum((1, 2, 3))
    return np.asarray(made / (kernel_size**2 * channels), data1.dtype)
