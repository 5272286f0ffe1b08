"""Fourier transforms: one axis after another, in stages (``relax.ops.fourier``).

Those of sizes that only the call tells are NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr, TupleGetItem
from tilewright.relax.frontend.torch.converters.base import Context, Size, converts_complex
from tilewright.relax.frontend.torch.converters.complex_numbers import product
from tilewright.relax.frontend.torch.converters.library import by_library
from tilewright.relax.frontend.torch.pairs import Complex, join, split

Value = RelaxExpr | Complex


def _scale(size: int, normalization: int) -> float:
    """What PyTorch divides by: nothing, the root of the size, or the size."""
    return (1.0, size**-0.5, 1.0 / size)[normalization]


def _complex_of(ctx: Context, made: RelaxExpr) -> Complex:
    both = ctx.emit(made)
    return ctx.bind(Complex(TupleGetItem(both, 0), TupleGetItem(both, 1)))


def _map(ctx: Context, x: Value, function: Callable[[RelaxExpr], RelaxExpr]) -> Value:
    return ctx.bind(x.map(function)) if isinstance(x, Complex) else ctx.emit(function(x))


def _has_known(ctx: Context, sizes: Sequence[Size]) -> bool:
    return all((ctx.known(size) or 0) > 0 for size in sizes)


def _along(
    ctx: Context, x: Complex, axes: Sequence[int], normalization: int, *, inverse: bool
) -> Complex:
    for axis in reversed(axes):
        scale = _scale(ctx.int(x.shape[axis], "the size"), normalization)
        x = _complex_of(ctx, op.fft(x.real, x.imag, axis, inverse, scale))
    return x


@converts_complex("aten._fft_c2c.default")
def _c2c(
    ctx: Context, x: Complex, dim: Sequence[int], normalization: int, forward: bool
) -> Value | None:
    axes = [ctx.axis(axis, x.ndim) for axis in dim]
    if not _has_known(ctx, [x.shape[axis] for axis in axes]):
        return by_library(
            ctx, "fft", [x], dims=axes, forward=forward, normalization=normalization
        )[0]  # fmt: skip
    return _along(ctx, x, axes, normalization, inverse=not forward)


@converts_complex("aten._fft_r2c.default")
def _r2c(
    ctx: Context, x: RelaxExpr, dim: Sequence[int], normalization: int, onesided: bool
) -> Value | None:
    axes = [ctx.axis(axis, x.ndim) for axis in dim]
    if not _has_known(ctx, [x.shape[axis] for axis in axes]):
        if onesided:
            return by_library(ctx, "fft_to_half", [x], dims=axes, normalization=normalization)[0]
        return by_library(
            ctx, "fft", [x], dims=axes, forward=True, normalization=normalization
        )[0]  # fmt: skip
    last = axes[-1]
    size = ctx.int(x.shape[last], "the size")
    made = _complex_of(ctx, op.rfft(x, last, _scale(size, normalization)))
    if not onesided:
        made = ctx.bind(_with_conjugates(made, last, size))
    return _along(ctx, made, axes[:-1], normalization, inverse=False)


def _with_conjugates(half: Complex, axis: int, size: int) -> Complex:
    """All frequencies of real numbers: the others are conjugates, in the opposite order."""

    def mirrored(part: RelaxExpr) -> RelaxExpr:
        cut = op.strided_slice(part, (axis,), (1,), (size - size // 2,))
        made: RelaxExpr = op.flip(cut, axis)
        return made

    return Complex(
        op.concat([half.real, mirrored(half.real)], axis),
        op.concat([half.imag, op.negative(mirrored(half.imag))], axis),
    )


@converts_complex("aten._fft_c2r.default")
def _c2r(
    ctx: Context, x: Complex, dim: Sequence[int], normalization: int, last_dim_size: Size
) -> Value | None:
    axes = [ctx.axis(axis, x.ndim) for axis in dim]
    if not _has_known(ctx, [*(x.shape[axis] for axis in axes), last_dim_size]):
        operands = [x, last_dim_size]
        return by_library(ctx, "fft_to_real", operands, dims=axes, normalization=normalization)[0]
    size = ctx.int(last_dim_size, "the size")
    x = _along(ctx, x, axes[:-1], normalization, inverse=True)
    made: RelaxExpr = op.irfft(x.real, x.imag, size, axes[-1], _scale(size, normalization))
    return made


# ---- frames of signals ---------------------------------------------------------------------------


class _Frames(NamedTuple):
    """Sizes of frames, and how long zeros around windows are."""

    size: int
    hop: int
    width: int

    @staticmethod
    def of(ctx: Context, n_fft: Size, hop: Size | None, width: Size | None) -> _Frames:
        size = ctx.int(n_fft, "n_fft")
        return _Frames(
            size,
            size // 4 if hop is None else ctx.int(hop, "hop_length"),
            size if width is None else ctx.int(width, "win_length"),
        )

    def padded(self, x: RelaxExpr) -> RelaxExpr:
        """Zeros around the last axis, so many as a window has too little."""
        rest = self.size - self.width
        widths = (*(0, 0) * (x.ndim - 1), rest // 2, rest - rest // 2)
        made: RelaxExpr = op.nn.pad(x, widths) if rest else x
        return made

    def window(self, ctx: Context, given: Value | None, dtype: str) -> Value:
        """A window as long as frames."""
        window = op.ones((self.width,), dtype) if given is None else given
        return _map(ctx, window, self.padded)


@converts_complex("aten.stft.default")
def _stft(
    ctx: Context, x: Value, n_fft: int, hop_length: int | None = None,
    win_length: int | None = None, window: Value | None = None, normalized: bool = False,
    onesided: bool | None = None, return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Value:  # fmt: skip
    frames = _Frames.of(ctx, n_fft, hop_length, win_length)
    window = frames.window(ctx, window, x.dtype)
    if align_to_window:
        x = _map(ctx, x, frames.padded)
    if isinstance(x, Complex) or isinstance(window, Complex):
        made = _of_complex(ctx, x, window, frames, normalized)
        return made if return_complex else join(made)
    found = ctx.emit(op.stft(x, window, frames.hop, normalized, onesided is not False))
    return split(found) if return_complex else found


def _of_complex(ctx: Context, x: Value, window: Value, sizes: _Frames, normalized: bool) -> Complex:
    """Frames of complex numbers: they are cut, weighed and transformed."""
    samples, (size, hop, _) = x.shape[-1], sizes
    count = (samples - size) // hop + 1
    batch, strides = ((), ()) if x.ndim == 1 else ((x.shape[0],), (samples,))

    def cut(part: RelaxExpr) -> RelaxExpr:
        made: RelaxExpr = op.as_strided(part, (*batch, count, size), (*strides, hop, 1))
        return made

    frames = ctx.bind(product(op.multiply, _map(ctx, x, cut), window))
    made = _along(ctx, frames, [x.ndim], int(normalized), inverse=False)
    order = [*range(len(batch)), len(batch) + 1, len(batch)]
    return made.map(lambda part: op.permute_dims(part, order))


@converts_complex("aten.istft.default")
def _istft(
    ctx: Context, x: Complex, n_fft: int, hop_length: int | None = None,
    win_length: int | None = None, window: Value | None = None, center: bool = True,
    normalized: bool = False, onesided: bool | None = None, length: int | None = None,
    return_complex: bool = False,
) -> Value:  # fmt: skip
    """Signals of frames; where no window reaches, PyTorch fails, and there is no number here."""
    frames = _Frames.of(ctx, n_fft, hop_length, win_length)
    weights = frames.window(ctx, window, x.dtype)
    if isinstance(weights, Complex):
        raise ctx.error("complex windows are not supported")
    order = [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]
    x = ctx.bind(x.map(lambda part: op.permute_dims(part, order)))
    count, scale = x.shape[-2], _scale(frames.size, 1 if normalized else 2)
    squares = op.broadcast_to(op.square(weights), (count, frames.size))
    envelope = ctx.emit(op.overlap_add(squares, frames.hop))
    begin = frames.size // 2 if center else 0
    # What there is, and what is wanted: PyTorch fills up with zeros.
    rest = begin + ctx.shape[-1] - ((count - 1) * frames.hop + frames.size)

    def added(part: RelaxExpr) -> RelaxExpr:
        weighed = op.overlap_add(op.multiply(part, weights), frames.hop)
        whole = op.divide(weighed, envelope)
        known = ctx.known(ctx.shape[-1])
        end = begin + (ctx.shape[-1] if known is None else known)
        if (ctx.known(rest) or 0) > 0:
            whole = op.nn.pad(whole, (*(0, 0) * (part.ndim - 2), 0, ctx.int(rest, "the length")))
        made: RelaxExpr = op.strided_slice(whole, (part.ndim - 2,), (begin,), (end,))
        return made

    if return_complex:
        return _map(ctx, _complex_of(ctx, op.fft(x.real, x.imag, -1, True, scale)), added)
    return added(ctx.emit(op.irfft(x.real, x.imag, frames.size, -1, scale)))
