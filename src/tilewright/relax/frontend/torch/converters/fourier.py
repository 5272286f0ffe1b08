"""Discrete Fourier transforms, as products with constant matrices.

A size ``n = a * b`` is transformed in two steps (the four-step algorithm of Bailey, 1990)::

    x[b * i + j]  as rows j:   y[j, p] = sum_i x[b * i + j] w_a^(i p)    a product
                               z[p, j] = y[j, p] * w_n^(j p)             turned and transposed
                               r[p, q] = sum_j z[p, j] w_b^(j q)         a product, or both again
    result[a * q + p] = r[p, q]

A product of complex rows is one of real rows, the real before the imaginary parts. Sizes that only
the call tells, or with a large prime factor, are NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import Context, Size, converts_complex
from tilewright.relax.frontend.torch.converters.complex_numbers import product
from tilewright.relax.frontend.torch.converters.library import by_library, leave_to_pytorch
from tilewright.relax.frontend.torch.pairs import Complex
from tilewright.relax.values import const

Value = RelaxExpr | Complex

#: The largest size that one product transforms.
_WHOLE = 256
#: What a further step costs, in terms of a sum, as measured: it reads and writes everything twice.
_STEP = 100


@cache
def _factors(size: int) -> tuple[int, ...] | None:
    """Sizes of products that are cheapest together; ``None`` for too large a prime factor."""
    best: tuple[int, ...] | None = (size,) if size <= _WHOLE else None
    for factor in range(2, min(_WHOLE, math.isqrt(size)) + 1):
        if size % factor == 0:
            rest = _factors(size // factor)
            if rest is not None and (best is None or _cost((factor, *rest)) < _cost(best)):
                best = (factor, *rest)
    return best


def _cost(factors: Sequence[int]) -> int:
    return sum(factors) + _STEP * len(factors)


def _waves(rows: int, columns: int, size: int, sign: int) -> NDArray[Any]:
    """``exp(sign * 2 pi i * row * column / size)``."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % size
    made: NDArray[Any] = np.exp(sign * 2j * np.pi / size * turns)
    return made


class _Transform:
    """Transforms of last axes in one direction: ``sign`` -1 is forward."""

    def __init__(self, ctx: Context, sign: int, scale: float) -> None:
        self.ctx = ctx
        self.sign = sign
        self.scale = scale

    def along(self, x: Value, factors: Sequence[int], *, real: bool = False) -> Value:
        """Transform the last axis, whose size is the product of ``factors``.

        With ``real`` only the real parts of the result are wanted.
        """
        first, *others = factors
        if not others:
            return self.whole(x, first, real=real)
        size, second = math.prod(factors), math.prod(others)
        batch = x.shape[:-1]
        rows = _map(x, lambda part: _swapped(op.reshape(part, (*batch, first, second))))
        step = _Transform(self.ctx, self.sign, 1.0)
        made = step.whole(rows, first)
        assert isinstance(made, Complex), "all of the result is wanted"
        waves = _constant(_waves(second, first, size, self.sign), x.dtype)
        turned = self.ctx.bind(product(op.multiply, made, waves)).map(_swapped)
        result = self.along(self.ctx.bind(turned), others, real=real)
        joined: Value = _map(result, lambda part: op.reshape(_swapped(part), (*batch, size)))
        return joined

    def whole(self, x: Value, size: int, *, real: bool = False, rows: int | None = None) -> Value:
        """Transform by one product, which sums over the first ``rows`` waves."""
        waves = _waves(size if rows is None else rows, size, size, self.sign) * self.scale
        if rows is not None:  # of half a spectrum, whose other half is its mirror image
            waves[1 : size - rows + 1] *= 2
        return self.multiplied(x, waves, real=real)

    def multiplied(self, x: Value, waves: NDArray[Any], *, real: bool) -> Value:
        """The product of rows with a complex matrix."""
        matrix = np.concatenate([waves.real, waves.imag], 1)
        if isinstance(x, Complex):
            below = np.concatenate([-waves.imag, waves.real], 1)
            matrix = np.concatenate([matrix, below], 0)
            x = op.concat([x.real, x.imag], x.ndim - 1)
        count = waves.shape[1]
        if real:
            matrix = matrix[:, :count]
        made = self.ctx.emit(op.matmul(x, const(np.ascontiguousarray(matrix), x.dtype)))
        if real:
            return made
        return self.ctx.bind(Complex(_part(made, 0, count), _part(made, count, 2 * count)))


def _map(x: Value, function: Any) -> Any:
    return x.map(function) if isinstance(x, Complex) else function(x)


def _swapped(x: RelaxExpr) -> RelaxExpr:
    axes = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    made: RelaxExpr = op.permute_dims(x, axes)
    return made


def _part(x: RelaxExpr, start: int, stop: int) -> RelaxExpr:
    made: RelaxExpr = op.strided_slice(x, (x.ndim - 1,), (start,), (stop,))
    return made


def _constant(waves: NDArray[Any], dtype: str) -> Complex:
    real, imag = (np.ascontiguousarray(part) for part in (waves.real, waves.imag))
    return Complex(const(real, dtype), const(imag, dtype))


# ---- operators -----------------------------------------------------------------------------------


def _scale(size: int, normalization: int) -> float:
    """What PyTorch divides by: nothing, the root of the size, or the size."""
    return (1.0, size**-0.5, 1.0 / size)[normalization]


def _planned(ctx: Context, sizes: Sequence[Size]) -> list[tuple[int, ...]] | None:
    """Factors of all sizes, if all have some; for a whole model, whose libraries are NumPy's."""
    leave_to_pytorch(ctx)
    known = [ctx.known(size) for size in sizes]
    made = [None if size is None else _factors(size) for size in known]
    return None if None in made else made  # type: ignore[return-value]  # none is None


def _with_axis_last(x: Value, axis: int, function: Any) -> Any:
    """Apply a function that works on the last axis."""
    order = [*(number for number in range(x.ndim) if number != axis), axis]
    if axis == x.ndim - 1:
        return function(x)
    inverse = [order.index(number) for number in range(x.ndim)]
    made = function(_map(x, lambda part: op.permute_dims(part, order)))
    return _map(made, lambda part: op.permute_dims(part, inverse))


def _transformed(
    ctx: Context, x: Value, axes: Sequence[int], plans: Sequence[Sequence[int]], sign: int,
    normalization: int,
) -> Any:  # fmt: skip
    for axis, factors in zip(reversed(axes), reversed(plans)):
        transform = _Transform(ctx, sign, _scale(math.prod(factors), normalization))
        x = _with_axis_last(x, axis, partial(transform.along, factors=factors))
        x = ctx.bind(x) if isinstance(x, Complex) else ctx.emit(x)
    return x


@converts_complex("aten._fft_c2c.default")
def _c2c(
    ctx: Context, x: Complex, dim: Sequence[int], normalization: int, forward: bool
) -> Value | None:
    axes = [ctx.axis(axis, x.ndim) for axis in dim]
    sizes = [x.shape[axis] for axis in axes]
    plans = _planned(ctx, sizes)
    if plans is None:
        return by_library(ctx, "fft", [x], dims=axes, forward=forward, normalization=normalization)[
            0
        ]
    made: Complex = _transformed(ctx, x, axes, plans, -1 if forward else 1, normalization)
    return made


@converts_complex("aten._fft_r2c.default")
def _r2c(
    ctx: Context, x: RelaxExpr, dim: Sequence[int], normalization: int, onesided: bool
) -> Value | None:
    axes = [ctx.axis(axis, x.ndim) for axis in dim]
    plans = _planned(ctx, [x.shape[axis] for axis in axes])
    if plans is None:
        if onesided:
            return by_library(ctx, "fft_to_half", [x], dims=axes, normalization=normalization)[0]
        return by_library(ctx, "fft", [x], dims=axes, forward=True, normalization=normalization)[0]
    last, size = axes[-1], math.prod(plans[-1])
    made = _transformed(ctx, x, axes[-1:], plans[-1:], -1, normalization)
    if onesided:
        half = size // 2 + 1
        made = ctx.bind(made.map(lambda part: op.strided_slice(part, (last,), (0,), (half,))))
    rest: Complex = _transformed(ctx, made, axes[:-1], plans[:-1], -1, normalization)
    return rest


@converts_complex("aten._fft_c2r.default")
def _c2r(
    ctx: Context, x: Complex, dim: Sequence[int], normalization: int, last_dim_size: Size
) -> Value | None:
    axes = [ctx.axis(axis, x.ndim) for axis in dim]
    plans = _planned(ctx, [*(x.shape[axis] for axis in axes[:-1]), last_dim_size])
    if plans is None:
        operands = [x, last_dim_size]
        return by_library(ctx, "fft_to_real", operands, dims=axes, normalization=normalization)[0]
    x = _transformed(ctx, x, axes[:-1], plans[:-1], 1, normalization)
    size = math.prod(plans[-1])
    transform = _Transform(ctx, 1, _scale(size, normalization))

    def rows(half: Complex) -> Value:
        count = size // 2 + 1
        half = ctx.bind(half.map(lambda part: _part(part, 0, count)))
        if len(plans[-1]) == 1:
            return transform.whole(half, size, real=True, rows=count)
        axis = half.ndim - 1
        mirrored = half.map(lambda part: op.flip(_part(part, 1, size - count + 1), axis))
        whole = Complex(
            op.concat([half.real, mirrored.real], axis),
            op.concat([half.imag, op.negative(mirrored.imag)], axis),
        )
        return transform.along(ctx.bind(whole), plans[-1], real=True)

    made: RelaxExpr = _with_axis_last(x, axes[-1], rows)
    return made
