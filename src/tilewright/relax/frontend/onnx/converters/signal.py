"""Fourier transforms, as products with constant matrices."""

from __future__ import annotations

import numpy as np

from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import Context, Shape, Tensor, converts
from tilewright.relax.values import const, numpy_dtype

#: Elements of an axis that is transformed; the matrix has their square.
_LONGEST = 4096
#: Numbers in the frames of a signal.
_MOST_IN_FRAMES = 1 << 26


@converts("DFT")
def _dft(
    ctx: Context, x: Tensor, dft_length: Shape | None = None, axis: Shape | None = None,
    *, axis_: int = 1, inverse: int = 0, onesided: int = 0,
) -> Tensor:  # fmt: skip
    where = axis_ if ctx.opset < 20 else -2
    if axis is not None:
        where = ctx.ints(axis, "axis")[0]
    at = ctx.axis(where, x.ndim)
    ctx.require(at != x.ndim - 1, "the last axis is that of real and imaginary parts")
    length = None if dft_length is None else ctx.ints(dft_length, "dft_length")[0]
    order = [n for n in range(x.ndim) if n not in (at, x.ndim - 1)] + [x.ndim - 1, at]
    rows = op.permute_dims(x, order)
    made = transform(ctx, rows, length, bool(inverse), bool(onesided))
    back = [order.index(n) for n in range(x.ndim)]
    return op.permute_dims(made, back)


def transform(ctx: Context, x: Tensor, length: int | None, inverse: bool, onesided: bool) -> Tensor:
    """Transform the last axis of ``[…, 1 or 2, n]``: real, or real and imaginary parts."""
    (have,) = ctx.ints([x.shape[-1]], "the extent that is transformed")
    (parts,) = ctx.ints([x.shape[-2]], "the parts of numbers")
    count = have if length is None else length
    if inverse and onesided and length is None:
        count = 2 * (have - 1)
    ctx.require(0 < count <= _LONGEST, f"lengths are from 1 to {_LONGEST}, got {count}")
    ctx.require(parts in (1, 2), f"numbers have one or two parts, got {parts}")
    last = x.ndim - 1
    used = min(have, count)
    if used < have:
        x = op.strided_slice(x, [last], [0], [used])
    outputs = count // 2 + 1 if onesided and not inverse else count
    places = np.outer(np.arange(used), np.arange(outputs)) % count
    angles = places * (2 * np.pi / count) * (1 if inverse else -1)
    scale = 1 / count if inverse else 1.0
    weight = np.ones(used)
    if inverse and onesided:
        # The other half is the conjugate of this one.
        weight[1 : (count + 1) // 2] = 2
    cosine, sine = (f(angles) * scale * weight[:, None] for f in (np.cos, np.sin))
    kind = numpy_dtype(x.dtype)
    real = op.strided_slice(x, [last - 1], [0], [1])
    if parts == 1:
        both = np.stack([cosine, sine]).astype(kind)
        made = [op.matmul(real, const(np.ascontiguousarray(item))) for item in both]
    else:
        joined = op.reshape(x, (*x.shape[:-2], 1, parts * used))
        tables = [np.concatenate([cosine, -sine]), np.concatenate([sine, cosine])]
        made = [op.matmul(joined, const(table.astype(kind))) for table in tables]
    if inverse and onesided:
        return made[0]
    return op.concat(made, last - 1)


@converts("STFT")
def _stft(
    ctx: Context, x: Tensor, frame_step: Shape, window: Tensor | None = None,
    frame_length: Shape | None = None, *, onesided: int = 1,
) -> Tensor:  # fmt: skip
    (step,) = ctx.ints(frame_step, "frame_step")
    if frame_length is not None:
        (size,) = ctx.ints(frame_length, "frame_length")
    else:
        ctx.require(window is not None, "there is neither a window nor a frame_length")
        assert window is not None
        (size,) = ctx.ints(window.shape, "the window's extent")
    (extent,) = ctx.ints([x.shape[1]], "the signal's extent")
    ctx.require(step > 0 and 0 < size <= extent, f"frames of {size} by {step} don't fit {extent}")
    signal = x if x.ndim == 3 else op.expand_dims(x, 2)
    frames = (extent - size) // step + 1
    ctx.require(frames * size <= _MOST_IN_FRAMES, f"{frames} frames of {size} are too many")
    places = np.arange(frames)[:, None] * step + np.arange(size)
    taken = op.take(signal, const(places.reshape(-1)), 1, "fast")
    (parts,) = ctx.ints([signal.shape[2]], "the parts of numbers")
    rows = op.reshape(taken, (x.shape[0], frames, size, parts))
    rows = op.permute_dims(rows, (0, 1, 3, 2))
    if window is not None:
        rows = op.multiply(rows, window)
    made = transform(ctx, rows, size, False, bool(onesided))
    return op.permute_dims(made, (0, 1, 3, 2))
