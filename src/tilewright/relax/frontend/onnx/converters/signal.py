"""Fourier transforms: along an axis, and of frames of a signal (``relax.ops.fourier``)."""

from __future__ import annotations

from tilewright.relax import ops as op
from tilewright.relax.expr import TupleGetItem
from tilewright.relax.frontend.onnx.converters.base import Context, Shape, Tensor, converts


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
    (have,) = ctx.ints([x.shape[at]], "the extent that is transformed")
    length = 2 * (have - 1) if inverse and onesided else have
    if dft_length is not None:
        (length,) = ctx.ints(dft_length, "dft_length")
    ctx.require(length > 0, f"lengths are at least 1, got {length}")
    used = length // 2 + 1 if inverse and onesided else length
    parts = [_fitted(part, at, have, used) for part in _real_and_imaginary(ctx, x)]
    if inverse and onesided:
        im = parts[1] if len(parts) > 1 else op.zeros(parts[0].shape, x.dtype)
        return op.expand_dims(op.irfft(parts[0], im, length, at, 1 / length), x.ndim - 1)
    scale = 1 / length if inverse else 1.0
    if len(parts) == 1 and onesided:
        return _joined(op.rfft(parts[0], at, scale))
    im = parts[1] if len(parts) > 1 else op.zeros(parts[0].shape, x.dtype)
    found = _joined(op.fft(parts[0], im, at, bool(inverse), scale))
    return op.strided_slice(found, [at], [0], [length // 2 + 1]) if onesided else found


def _real_and_imaginary(ctx: Context, x: Tensor) -> list[Tensor]:
    """The real part, and the imaginary one if there is one."""
    last = x.ndim - 1
    (count,) = ctx.ints([x.shape[last]], "the parts of numbers")
    ctx.require(count in (1, 2), f"numbers have one or two parts, got {count}")
    return [
        op.squeeze(op.strided_slice(x, [last], [number], [number + 1]), last)
        for number in range(count)
    ]


def _joined(made: Tensor) -> Tensor:
    both = [TupleGetItem(made, number) for number in range(2)]
    return op.stack(both, both[0].ndim)


def _fitted(x: Tensor, axis: int, have: int, wanted: int) -> Tensor:
    """Cut off, or fill up with zeros."""
    if have > wanted:
        return op.strided_slice(x, [axis], [0], [wanted])
    if have == wanted:
        return x
    return op.nn.pad(x, [n for i in range(x.ndim) for n in (0, wanted - have if i == axis else 0)])


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
    ctx.require(step > 0 and size > 0, f"there are no frames of {size} by {step}")
    weights = op.ones((size,), x.dtype) if window is None else window
    signal = x if x.ndim == 3 else op.expand_dims(x, 2)
    parts = _real_and_imaginary(ctx, signal)
    if len(parts) == 1:
        return op.permute_dims(
            op.stft(parts[0], weights, step, False, bool(onesided)), (0, 2, 1, 3)
        )
    samples = signal.shape[1]
    shape = (x.shape[0], (samples - size) // step + 1, size)
    rows: list[Tensor] = [
        op.multiply(op.as_strided(p, shape, (samples, step, 1)), weights) for p in parts
    ]
    whole = _joined(op.fft(*rows))
    return op.strided_slice(whole, [2], [0], [size // 2 + 1]) if onesided else whole
