"""Fourier transforms along an axis, those of frames of a signal, and signals of frames.

Complex numbers are two tensors, the real and the imaginary parts. Lengths are known.
"""

from __future__ import annotations

from tilewright import te, topi
from tilewright.ir import Expr, ExprLike, and_, as_expr, as_int, const, dtypes, if_then_else
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.ops.manipulate import reshape, strided_slice
from tilewright.relax.registry import Tensor, builder, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor as Expression
from tilewright.topi.fourier_axes import (
    transform_axis,
    transform_real_axis,
    transform_to_real_axis,
)
from tilewright.topi.utils import normal_axis


def _resized(x: TensorStructInfo, axis: int, *extents: int) -> TensorStructInfo:
    at = normal_axis(axis, x.ndim)
    return TensorStructInfo((*x.shape[:at], *extents, *x.shape[at + 1 :]), x.dtype)


def _length(x: TensorStructInfo, axis: int) -> int:
    _require_floats(x)
    found = as_int(x.shape[normal_axis(axis, x.ndim)])
    if found is None or found < 1:
        raise VerifyError(
            f"the extent of axis {axis} must be known and not 0, the shape is {list(x.shape)}"
        )
    return found


def _require_floats(x: TensorStructInfo) -> None:
    if not dtypes.is_float(x.dtype):
        raise VerifyError(f"needs floating-point numbers, got {x.dtype}")


def _require_parts(re: TensorStructInfo, im: TensorStructInfo) -> None:
    if re.ndim != im.ndim or re.dtype != im.dtype:
        raise VerifyError(
            f"the parts need one shape and dtype, they have {list(re.shape)} of {re.dtype} and "
            f"{list(im.shape)} of {im.dtype}"
        )


def _fft_stages(
    re: Expression, im: Expression, axis: int, inverse: bool, scale: float
) -> list[Expression]:
    length = as_int(re.shape[axis]) or 0
    return list(transform_axis((re, im), axis, length, 1.0 if inverse else -1.0, scale))


@operator("fft", legalize=_fft_stages)
def fft(
    re: Tensor, im: Tensor, axis: int = -1, inverse: bool = False, scale: float = 1.0
) -> StructInfo:
    """Fourier transform of complex numbers along an axis, times ``scale``: both parts.

    ``inverse`` is the sign of the exponent only.

    Raises ``VerifyError`` if the extent of the axis isn't known.
    """
    _require_parts(re, im)
    _length(re, axis)
    made = TensorStructInfo(re.shape, re.dtype)
    return TupleStructInfo((made, made))


def _rfft_stages(x: Expression, axis: int, scale: float) -> list[Expression]:
    return list(transform_real_axis(x, axis, as_int(x.shape[axis]) or 0, scale))


@operator("rfft", legalize=_rfft_stages)
def rfft(x: Tensor, axis: int = -1, scale: float = 1.0) -> StructInfo:
    """Fourier transform of ``n`` real numbers along an axis, times ``scale``: both parts.

    These are the first ``n // 2 + 1`` elements; the others are their conjugates.

    Raises ``VerifyError`` if the extent of the axis isn't known.
    """
    made = _resized(x, axis, _length(x, axis) // 2 + 1)
    return TupleStructInfo((made, made))


def _irfft_stages(
    re: Expression, im: Expression, length: int, axis: int, scale: float
) -> Expression:
    return transform_to_real_axis((re, im), axis, length, scale)


@operator("irfft_pairs", legalize=_irfft_stages)
def irfft_pairs(
    re: Tensor, im: Tensor, length: int, axis: int = -1, scale: float = 1.0
) -> StructInfo:
    """Real numbers of half a spectrum; an even length is two axes, ``length // 2`` and 2."""
    _require_parts(re, im)
    if length < 1 or _length(re, axis) < length // 2 + 1:
        raise VerifyError(
            f"{length} real numbers have {length // 2 + 1} frequencies, there are "
            f"{_length(re, axis)}"
        )
    return _resized(re, axis, *((length,) if length % 2 else (length // 2, 2)))


@builder("irfft")
def irfft(
    re: RelaxExpr, im: RelaxExpr, length: int, axis: int = -1, scale: float = 1.0
) -> RelaxExpr:
    """``length`` real numbers of their first ``length // 2 + 1`` frequencies, times ``scale``.

    Imaginary parts of frequencies that are their own conjugates don't count.

    Raises ``VerifyError`` if there are fewer frequencies, or the extent of the axis isn't known.
    """
    made: RelaxExpr = irfft_pairs(re, im, length, axis, scale)
    if length % 2:
        return made
    at = normal_axis(axis, re.ndim)
    joined: RelaxExpr = reshape(made, (*re.shape[:at], length, *re.shape[at + 1 :]))
    return joined


def _stft_stages(
    data: Expression, window: Expression, hop_length: int, normalized: bool, onesided: bool
) -> Expression:
    width = as_int(window.shape[0]) or 0
    frames = (data.shape[-1] - width) // hop_length + 1
    count = width // 2 + 1 if onesided else width
    shape: tuple[ExprLike, ...] = (*data.shape[:-1], count, frames, 2)
    return topi.stft(data, width, hop_length, width, window, normalized, onesided, shape)


@operator("stft", legalize=_stft_stages)
def stft(
    data: Tensor, window: Tensor, hop_length: int, normalized: bool = False, onesided: bool = True
) -> StructInfo:
    """Fourier transforms of frames of a signal times a window, one each ``hop_length`` samples.

    ``data``: ``[batch, samples]`` or ``[samples]``; a frame is as long as the window. The result is
    ``[batch, frequencies, frames, 2]``, its last axis real and imaginary part; there are
    ``n // 2 + 1`` frequencies if ``onesided``, else ``n``. ``normalized`` divides by the root of
    ``n``.

    Raises ``VerifyError`` if the window's length isn't known, or the signal is shorter.
    """
    _require_floats(data)
    width = _length(window, 0)
    if data.ndim not in (1, 2) or window.ndim != 1 or hop_length < 1:
        raise VerifyError(
            f"takes a signal of 1 or 2 dimensions, a window of 1 and a hop of at least 1; got "
            f"{data.ndim}, {window.ndim} and {hop_length}"
        )
    samples = as_int(data.shape[-1])
    if samples is not None and samples < width:
        raise VerifyError(f"a frame has {width} samples, the signal {samples}")
    frames = (data.shape[-1] - width) // hop_length + 1
    count = width // 2 + 1 if onesided else width
    return TensorStructInfo((*data.shape[:-1], count, frames, 2), data.dtype)


def _added_frames(frames: Expression, hop_length: int) -> Expression:
    """``[..., rows, hop_length]``: row ``q`` has part ``k`` of frame ``q - k``, for each ``k``."""
    *batch, count, width = frames.shape
    size = as_int(width) or 0
    parts = -(-size // hop_length)

    def element(*i: Expr) -> Expr:
        row, place = i[-2] - k.var, k.var * hop_length + i[-1]
        inside = [row >= 0, row < count]
        if size % hop_length:
            inside.append(place < size)
        value = frames(*i[:-2], row, place)
        part = if_then_else(and_(*inside), value, const(0.0, frames.dtype))
        total: Expr = te.sum(part, axis=k)
        return total

    k = te.reduce_axis((0, parts), "k")
    shape = (*batch, count + (parts - 1), as_expr(hop_length))
    made: Expression = te.compute(shape, element, name="overlap_add", tag="comm_reduce")
    return made


@operator("overlap_rows", legalize=_added_frames)
def overlap_rows(frames: Tensor, hop_length: int) -> StructInfo:
    """Sums of overlapping frames, in rows of ``hop_length``; zeros where there is no frame."""
    parts = -(-_length(frames, -1) // hop_length)
    *batch, count, _ = frames.shape
    return TensorStructInfo((*batch, count + (parts - 1), as_expr(hop_length)), frames.dtype)


@builder("overlap_add")
def overlap_add(frames: RelaxExpr, hop_length: int) -> RelaxExpr:
    """Sum frames ``[..., n, width]`` that begin ``hop_length`` samples after one another.

    The result is ``[..., (n - 1) * hop_length + width]``, zeros where there is no frame.

    Raises ``VerifyError`` if the width isn't known.
    """
    if hop_length < 1:
        raise VerifyError(f"overlap_add: needs a hop of at least 1, got {hop_length}")
    made: RelaxExpr = overlap_rows(frames, hop_length)
    *batch, rows, _ = made.shape
    flat = reshape(made, (*batch, rows * hop_length))
    count, width = frames.shape[-2:]
    last = flat.ndim - 1
    end = (count - 1) * hop_length + width
    known = as_int(end)
    cut: RelaxExpr = strided_slice(flat, (last,), (0,), (end if known is None else known,))
    return cut
