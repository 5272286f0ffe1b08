"""Fourier transforms and windows: ``dft``, ``stft``, ``hamming_window``.

Transforms of known lengths are made in stages (``fourier.py``; ``fourier_chirps.py`` if there are
large prime factors; ``fourier_frames.py`` for frames of a signal), others are products with
matrices (``fourier_products.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright import te
from tilewright.ir import (
    EQ,
    Expr,
    ExprLike,
    and_,
    as_expr,
    as_int,
    call,
    compare,
    const,
    dtypes,
    if_then_else,
    product,
    select,
)
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require, require_equal, with_conditions
from tilewright.topi.fourier import Transform, of_parts
from tilewright.topi.fourier_chirps import transform_any
from tilewright.topi.fourier_frames import Frames, factors_of_frames, transform_frames
from tilewright.topi.fourier_products import circle, matrices, product_of_rows
from tilewright.topi.transform import reshape
from tilewright.topi.utils import rounded, sum_dtype

_WIDE = "float64"
_DIRECT = 128
"""Up to this length frames with large prime factors are faster as products of matrices."""


@with_conditions
def dft(re_data: Tensor, im_data: Tensor, inverse: ExprLike | bool) -> list[Tensor]:
    """Return real and imaginary parts of the Fourier transform along the last axis.

    ``inverse`` is known: a number or a constant. Inverse transforms are divided by the length.

    Raises ``VerifyError`` if shapes or dtypes of the parts differ, or aren't of floats.
    """
    what = "dft"
    if re_data.ndim == 0 or re_data.ndim != im_data.ndim or re_data.dtype != im_data.dtype:
        raise VerifyError(
            f"{what}: both parts need one shape and dtype, they have {list(re_data.shape)} of "
            f"{re_data.dtype} and {list(im_data.shape)} of {im_data.dtype}"
        )
    for axis, (a, b) in enumerate(zip(re_data.shape, im_data.shape)):
        require_equal(f"{what}: extent of axis {axis} of the parts", a, b)
    _require_float(what, re_data)
    sign = 1.0 if _known(f"{what}: inverse", inverse) else -1.0
    length, rows, wide = re_data.shape[-1], re_data.shape[:-1], sum_dtype(re_data.dtype)
    known = as_int(length)
    if known:
        how = Transform((), sign, wide, 1 / known if sign > 0 else 1.0, result=re_data.dtype)
        return list(transform_any(of_parts((re_data, im_data), wide), rows, known, how))
    parts = [reshape(x, (product(rows), length)) for x in (re_data, im_data)]
    made = product_of_rows((parts[0], parts[1]), length, sign)
    scale = const(1.0, _WIDE) / cast_expr(length, _WIDE) if sign > 0 else None
    return [_finished(x, re_data, scale) for x in made]


def _finished(x: Tensor, like: Tensor, scale: Expr | None) -> Tensor:
    """Scale and round, in the original shape."""
    flat = reshape(x, like.shape)

    def element(*i: Expr) -> Expr:
        value = flat(*i)
        return cast_expr(value if scale is None else value * cast_expr(scale, x.dtype), like.dtype)

    made: Tensor = compute(like.shape, element, name="dft", tag="elemwise")
    return made


@with_conditions
def stft(
    data: Tensor,
    n_fft: int,
    hop_length: int,
    win_length: int,
    window: Tensor,
    normalized: ExprLike | bool,
    onesided: ExprLike | bool,
    output_shape: Sequence[ExprLike],
) -> Tensor:
    """Return the Fourier transforms of parts of a signal, one each ``hop_length`` samples.

    ``data``: ``[batch, samples]`` or ``[samples]``; ``window``, of ``win_length``, is in the middle
    of each part of ``n_fft`` samples. The result is ``[batch, frequencies, parts, 2]``, its last
    axis real and imaginary part; there are ``n_fft // 2 + 1`` frequencies if ``onesided``, else
    ``n_fft``. ``normalized`` divides by the root of ``n_fft``.

    Raises ``VerifyError`` if ``output_shape`` isn't that, or the window isn't in a part.
    """
    what = "stft"
    n_fft, hop, width = (
        _known(f"{what}: {name}", number)
        for name, number in (
            ("n_fft", n_fft),
            ("hop_length", hop_length),
            ("win_length", win_length),
        )
    )
    _require_float(what, data)
    if data.ndim not in (1, 2) or window.ndim != 1 or hop < 1 or not 1 <= width <= n_fft:
        raise VerifyError(
            f"{what}: takes a signal of 1 or 2 dimensions, a window of 1, a hop of at least 1 and "
            f"a window of 1 to n_fft samples; got {data.ndim}, {window.ndim}, {hop} and {width} of "
            f"{n_fft}"
        )
    require_equal(f"{what}: the length of the window", window.shape[0], width)
    samples = data.shape[-1]
    require(samples >= n_fft, f"{what}: a part has {n_fft} samples, the signal ", samples)
    frequencies = n_fft // 2 + 1 if _known(f"{what}: onesided", onesided) else n_fft
    parts = (samples - n_fft) // hop + 1
    shape = (*data.shape[:-1], as_expr(frequencies), parts, as_expr(2))
    if len(output_shape) != len(shape):
        raise VerifyError(f"{what}: output_shape needs {len(shape)} extents, got {output_shape!r}")
    for axis, (given, extent) in enumerate(zip(output_shape, shape)):
        require_equal(f"{what}: extent {axis} of output_shape", as_expr(given), extent)
    scale = 1 / math.sqrt(n_fft) if _known(f"{what}: normalized", normalized) else 1.0
    if factors_of_frames(n_fft) is None and n_fft <= _DIRECT:
        return _stft(data, window, shape, (n_fft, hop, width), scale)
    return transform_frames(Frames(data, window, n_fft, hop, as_expr(parts)), frequencies, scale)


def _stft(
    data: Tensor, window: Tensor, shape: Sequence[Expr], sizes: tuple[int, int, int], scale: float
) -> Tensor:
    """Cut and weigh parts ``[batch, parts, n_fft]``, then multiply by cosines and sines."""
    n_fft, hop, width = sizes
    wide = sum_dtype(data.dtype)
    batch, (frequencies, parts, _) = shape[:-3], shape[-3:]
    left = (n_fft - width) // 2

    def weighted(*i: Expr) -> Expr:
        sample = i[-1] - left
        value = data(*i[:-2], i[-2] * hop + i[-1])
        made = cast_expr(value, wide) * cast_expr(window(sample), wide)
        inside = and_(sample >= 0, sample < width)
        return made if width == n_fft else if_then_else(inside, made, const(0.0, wide))

    frames = compute((*batch, parts, n_fft), weighted, name="stft_parts", tag="injective")
    tables = matrices(circle(n_fft, -1.0, wide), frequencies)

    def total(matrix: Tensor) -> Tensor:
        k = te.reduce_axis((0, n_fft), "k")
        made: Tensor = compute(
            (*batch, parts, frequencies),
            lambda *i: te.sum(frames(*i[:-1], k.var) * matrix(k.var, i[-1]), axis=k),
            name="stft_product",
            tag="comm_reduce",
        )
        return made

    re, im = map(total, tables)

    def element(*i: Expr) -> Expr:
        place = (*i[:-3], i[-2], i[-3])
        value = select(compare(EQ, i[-1], 0), re(*place), im(*place))
        return cast_expr(value * const(scale, wide), data.dtype)

    made: Tensor = compute(tuple(shape), element, name="stft", tag="injective")
    return made


def hamming_window(
    window_size: ExprLike, periodic: ExprLike | bool, alpha: ExprLike, beta: ExprLike, dtype: str
) -> Tensor:
    """Return ``alpha - beta * cos(2 pi n / N)`` for ``n`` below ``window_size``; 1 if that is 1.

    ``N`` is ``window_size`` if ``periodic``, else one less, so that the window is symmetric.
    """
    size = as_expr(window_size)
    last = size if _known("hamming_window: periodic", periodic) else size - 1
    above, below = (cast_expr(const(x, _WIDE), _WIDE) for x in (alpha, beta))

    def element(n: Expr) -> Expr:
        angle = cast_expr(n, _WIDE) * const(2 * math.pi, _WIDE) / cast_expr(last, _WIDE)
        value = above - below * call("cos", angle)
        return cast_expr(select(size > 1, value, const(1.0, _WIDE)), dtype)

    made: Tensor = compute((size,), element, name="hamming_window", tag="injective")
    return rounded(made, dtype)


def _known(what: str, value: ExprLike | bool) -> int:
    """An option as a number.

    Raises ``VerifyError`` if it isn't known.
    """
    made = as_int(as_expr(value))
    if made is None:
        raise VerifyError(f"{what} must be a constant, got {value!r}")
    return int(made)


def _require_float(what: str, data: Tensor) -> None:
    if not dtypes.is_float(data.dtype):
        raise VerifyError(f"{what} takes floating-point numbers, got {data.dtype}")
