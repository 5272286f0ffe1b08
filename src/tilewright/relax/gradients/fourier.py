"""Gradients of Fourier transforms: transforms with the opposite exponent, and the same scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import as_expr, as_int, product
from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar, TupleGetItem
from tilewright.relax.gradients.registry import differentiate_as, register_gradient
from tilewright.relax.gradients.reverse import filled
from tilewright.relax.values import const


def _real_and_imaginary(made: RelaxCall, ctx: BlockBuilder) -> list[RelaxExpr]:
    var = ctx.emit(made)
    return [ctx.emit(TupleGetItem(var, number)) for number in range(2)]


def _gradients_of_parts(var: RelaxVar, grad: Any, ctx: BlockBuilder) -> list[RelaxExpr]:
    """Gradients of both parts, zeros where nothing flows back."""
    return [ctx.emit(part) for part in filled(grad, var.struct_info).fields]


def _weights(length: int, inner: float, axis: int, ndim: int, dtype: str) -> RelaxExpr:
    """``inner`` for frequencies that have a conjugate elsewhere, 1 for others."""
    made = np.ones(length // 2 + 1, dtype)
    made[1 : (length + 1) // 2] = inner
    return const(made.reshape([-1 if n == axis % ndim else 1 for n in range(ndim)]), dtype)


@register_gradient("fft")
def _fft(var: RelaxVar, call: RelaxCall, grad: Any, ctx: BlockBuilder) -> list[RelaxExpr | None]:
    axis, inverse, scale = (call.attrs[name] for name in ("axis", "inverse", "scale"))
    re, im = _gradients_of_parts(var, grad, ctx)
    return [*_real_and_imaginary(op.fft(re, im, axis, not inverse, scale), ctx)]


@register_gradient("rfft")
def _rfft(var: RelaxVar, call: RelaxCall, grad: Any, ctx: BlockBuilder) -> list[RelaxExpr | None]:
    x, axis = call.args[0], call.attrs["axis"]
    length = as_int(x.shape[axis]) or 0
    weights = _weights(length, 0.5, axis, x.ndim, x.dtype)
    re, im = (ctx.emit(op.multiply(part, weights)) for part in _gradients_of_parts(var, grad, ctx))
    return [op.irfft(re, im, length, axis, call.attrs["scale"])]


@register_gradient("irfft_pairs")
def _irfft(var: RelaxVar, call: RelaxCall, grad: Any, ctx: BlockBuilder) -> list[RelaxExpr | None]:
    length, axis, scale = (call.attrs[name] for name in ("length", "axis", "scale"))
    x = call.args[0]
    weights = _weights(length, 2.0, axis, x.ndim, x.dtype)
    if length % 2 == 0:
        at = axis % x.ndim
        grad = ctx.emit(op.reshape(grad, (*x.shape[:at], length, *x.shape[at + 1 :])))
    rest = (as_int(x.shape[axis]) or 0) - length // 2 - 1

    def flowing(part: RelaxExpr) -> RelaxExpr:
        made: RelaxExpr = op.multiply(part, weights)
        if rest == 0:
            return made
        unread = [(0, rest if n == axis % x.ndim else 0) for n in range(x.ndim)]
        return op.nn.pad(made, tuple(width for pair in unread for width in pair))

    return [flowing(part) for part in _real_and_imaginary(op.rfft(grad, axis, scale), ctx)]


@register_gradient("overlap_rows")
def _overlap_add(
    var: RelaxVar, call: RelaxCall, grad: Any, ctx: BlockBuilder
) -> list[RelaxExpr | None]:
    """Each element of a frame is where it was added."""
    frames, hop = call.args[0], call.attrs["hop_length"]
    *batch, count, width = frames.shape
    samples = grad.shape[-2] * hop
    outer = op.reshape(grad, (product(batch), samples))
    strides = (samples, as_expr(hop), as_expr(1))
    made = op.as_strided(outer, (product(batch), count, width), strides)
    return [op.reshape(made, frames.shape)]


@differentiate_as("stft")
def _as_frames(call: RelaxCall) -> RelaxExpr:
    """Frames are taken, weighed and transformed."""
    data, window = call.args
    hop, normalized, onesided = (
        call.attrs[name] for name in ("hop_length", "normalized", "onesided")
    )
    width = as_int(window.shape[0]) or 0
    samples = data.shape[-1]
    frames = (samples - width) // hop + 1
    batch, strides = ((), ()) if data.ndim == 1 else ((data.shape[0],), (samples,))
    rows = op.multiply(op.as_strided(data, (*batch, frames, width), (*strides, hop, 1)), window)
    scale = width**-0.5 if normalized else 1.0
    if onesided:
        made = op.rfft(rows, -1, scale)
    else:
        made = op.fft(rows, op.zeros(rows.shape, rows.dtype), -1, False, scale)
    found: RelaxExpr = op.stack([TupleGetItem(made, number) for number in range(2)], rows.ndim)
    order = [*range(len(batch)), len(batch) + 1, len(batch), len(batch) + 2]
    return op.permute_dims(found, order)
