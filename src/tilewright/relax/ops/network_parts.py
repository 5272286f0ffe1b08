"""Operators of networks that are a few others: builders without an operator of their own."""

from __future__ import annotations

from tilewright.ir import as_int
from tilewright.relax.expr import RelaxCall, RelaxExpr
from tilewright.relax.ops.attention import attention
from tilewright.relax.ops.manipulate import permute_dims, reshape
from tilewright.relax.ops.unary import leaky_relu
from tilewright.relax.registry import builder
from tilewright.support.errors import VerifyError


@builder("nn.leakyrelu")
def leakyrelu(data: RelaxExpr, alpha: float = 0.01) -> RelaxCall:
    """X, and ``alpha * x`` below zero."""
    return leaky_relu(data, alpha)


@builder("nn.attention_bias")
def attention_bias(
    query: RelaxExpr,
    key: RelaxExpr,
    value: RelaxExpr,
    bias: RelaxExpr | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> RelaxCall:
    """``nn.attention`` with a bias that is added to the scores."""
    return attention(query, key, value, bias, scale, causal_mask, window_size)


@builder("nn.batch_flatten")
def batch_flatten(data: RelaxExpr) -> RelaxExpr:
    """Join all axes after the first one.

    Raises ``VerifyError`` for less than two axes.
    """
    if data.ndim < 2:
        raise VerifyError(f"batch_flatten: needs at least two dimensions, got {data.ndim}")
    return reshape(data, (data.shape[0], -1))


@builder("nn.pixel_shuffle")
def pixel_shuffle(data: RelaxExpr, upscale_factor: int) -> RelaxExpr:
    """Move channels to pixels: ``[..., C * r * r, H, W]`` to ``[..., C, H * r, W * r]``.

    Raises ``VerifyError`` if the channels don't divide.
    """
    r = upscale_factor
    if data.ndim < 3 or r < 1:
        raise VerifyError(f"pixel_shuffle: {data!r} has no channels to move by {r}")
    *outer, channels, height, width = data.shape
    if (as_int(channels) or 0) % (r * r):
        raise VerifyError(f"pixel_shuffle: {channels!r} channels do not divide by {r * r}")
    n = len(outer)
    parts = reshape(data, (*outer, channels // (r * r), r, r, height, width))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return reshape(permute_dims(parts, order), (*outer, channels // (r * r), height * r, width * r))
