"""Pools and their gradients in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.support.errors import VerifyError
from tilewright.topi.testing.convolution import Numbers
from tilewright.topi.testing.windows import (
    Array,
    channels_first,
    every,
    moved,
    per_dimension,
    wide,
    windows,
)


def _check_type(pool_type: str) -> None:
    if pool_type not in ("avg", "max"):
        raise VerifyError(f'pool_type is "avg" or "max", got "{pool_type}"')


def _padded(
    x: Array, kernel: Sequence[int], strides: Sequence[int], before: Sequence[int],
    after: Sequence[int], ceil_mode: bool, value: float,
) -> Array:  # fmt: skip
    """Pad an array, with ``ceil_mode`` so that each window that begins is whole."""
    added = []
    for size, k, s, low, high in zip(x.shape[2:], kernel, strides, before, after):
        rest = (size + low + high - k) % s
        added.append(s - rest if ceil_mode and rest else 0)
    pads = [(low, high + more) for low, high, more in zip(before, after, added)]
    return np.pad(x, [(0, 0), (0, 0), *pads], constant_values=value)


def poolnd_python(
    np_data: Array,
    kernel: Numbers,
    strides: Numbers,
    dilation: Numbers,
    padding_before: Numbers,
    padding_after: Numbers,
    pool_type: str,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    dtype: str = "float32",
    layout: str | None = None,
) -> Array:
    """Pool windows of one, two or three dimensions; channels come first without a ``layout``.

    With ``ceil_mode`` a last window may reach over the end; what it has there isn't counted.
    """
    _check_type(pool_type)
    count = np_data.ndim - 2
    layout = layout or ("NCW", "NCHW", "NCDHW")[count - 1]
    first = channels_first(layout)
    x = wide(moved(np_data, layout, first))
    extents, steps, apart, before, after = (
        per_dimension(v, count) for v in (kernel, strides, dilation, padding_before, padding_after)
    )
    reach = [(k - 1) * d + 1 for k, d in zip(extents, apart)]
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    value = low if pool_type == "max" else 0

    def parts(array: Array, filler: float) -> Array:
        padded = _padded(array, reach, steps, before, after, ceil_mode, filler)
        found = windows(padded, reach, steps)
        return np.asarray(found[every(apart)])

    taps = tuple(range(-count, 0))
    if pool_type == "max":
        made = parts(x, value).max(taps)
    else:
        ones = np.ones(x.shape, "int64")
        if count_include_pad:
            ones = np.pad(ones, [(0, 0), (0, 0), *zip(before, after)], constant_values=1)
            padded = _padded(ones, reach, steps, (0,) * count, (0,) * count, ceil_mode, 0)
            found = windows(padded, reach, steps)
            counted = found[every(apart)].sum(taps)
        else:
            counted = parts(ones, 0).sum(taps)
        made = parts(x, 0).sum(taps) / np.maximum(counted, 1)
    return moved(made.astype(dtype), first, layout)


def pool_grad_nchw(
    a_np: Array,
    out_grad_np: Array,
    pool_size: Numbers,
    strides: Numbers,
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool,
    count_include_pad: bool = True,
) -> Array:
    """Return the gradient of a pool's input ``(N, C, H, W)``, given that of its result.

    ``padding`` is top, left, bottom, right. Of equal largest elements the first takes it all.
    """
    _check_type(pool_type)
    kernel, steps = per_dimension(pool_size, 2), per_dimension(strides, 2)
    before, after = tuple(padding[:2]), tuple(padding[2:])
    value = -np.inf if pool_type == "max" else 0.0
    x = _padded(a_np.astype("float64"), kernel, steps, before, after, ceil_mode, value)
    ones = np.ones((1, 1, *a_np.shape[2:]))
    real = _padded(ones, kernel, steps, before, after, ceil_mode, 0)
    top, left = before
    if count_include_pad:
        height, width = (a_np.shape[d + 2] + before[d] + after[d] for d in range(2))
        real[..., :height, :width] = 1
    made = np.zeros(x.shape)
    for i, j in np.ndindex(*out_grad_np.shape[2:]):
        at = (..., slice(i * steps[0], i * steps[0] + kernel[0]),
              slice(j * steps[1], j * steps[1] + kernel[1]))  # fmt: skip
        given = out_grad_np[:, :, i, j].astype("float64")
        if pool_type == "avg":
            made[at] += given[..., None, None] / max(real[at].sum(), 1)
            continue
        flat = x[at].reshape(*x.shape[:2], -1)
        chosen = np.arange(flat.shape[-1]) == flat.argmax(-1)[..., None]
        made[at] += (chosen * given[..., None]).reshape(x[at].shape)
    height, width = a_np.shape[2:]
    return made[:, :, top : top + height, left : left + width].astype(a_np.dtype)


def adaptive_pool(np_data: Array, out_size: Numbers, pool_type: str, layout: str) -> Array:
    """Pool to a size: window ``i`` begins at ``floor(i * in / out)`` and ends where the next does.

    More exactly it ends before ``ceil((i + 1) * in / out)``, so windows may overlap.
    """
    _check_type(pool_type)
    first = channels_first(layout)
    x = wide(moved(np_data, layout, first))
    out = per_dimension(out_size, x.ndim - 2)
    made = np.empty((*x.shape[:2], *out))
    for at in np.ndindex(*out):
        places = zip(at, x.shape[2:], out)
        window = tuple(slice(i * size // o, -(-(i + 1) * size // o)) for i, size, o in places)
        axes = tuple(range(2, x.ndim))
        part = x[(slice(None), slice(None), *window)]
        made[(..., *at)] = part.max(axes) if pool_type == "max" else part.mean(axes)
    return moved(made.astype(np_data.dtype), first, layout)
