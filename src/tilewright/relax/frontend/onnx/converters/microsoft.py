"""Fused operators of ``com.microsoft``: activations, norms and products, as ONNX Runtime writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import topi
from tilewright.relax import ops as op
from tilewright.relax.expr import const
from tilewright.relax.frontend.onnx.converters.base import (
    Context,
    Tensor,
    converts,
)
from tilewright.relax.frontend.onnx.converters.convolution import (
    add_bias,
    conv,
    kernel_size,
    window_of,
)


def _optional_add(x: Tensor, other: Tensor | None) -> Tensor:
    return x if other is None else op.add(x, other)


# ---- activation functions ------------------------------------------------------------------------


@converts("com.microsoft.Gelu")
def _gelu(ctx: Context, x: Tensor) -> Tensor:
    return op.nn.gelu(x)


@converts("com.microsoft.BiasGelu")
def _bias_gelu(ctx: Context, x: Tensor, bias: Tensor) -> Tensor:
    return op.nn.gelu(op.add(x, bias))


@converts("com.microsoft.FastGelu")
def _fast_gelu(ctx: Context, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return op.nn.gelu_tanh(_optional_add(x, bias))


@converts("com.microsoft.QuickGelu")
def _quick_gelu(ctx: Context, x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return op.multiply(x, op.sigmoid(op.multiply(x, ctx.scalar(alpha, x))))


_ACTIVATIONS: dict[str, Callable[[Tensor, tuple[float, ...]], Tensor]] = {
    "Relu": lambda x, p: op.nn.relu(x),
    "Tanh": lambda x, p: op.tanh(x),
    "Sigmoid": lambda x, p: op.sigmoid(x),
    "LeakyRelu": lambda x, p: op.nn.leaky_relu(x, p[0] if p else 0.01),
    "Clip": lambda x, p: op.clip(x, p[0], p[1]),
    "HardSigmoid": lambda x, p: op.clip(
        op.add(op.multiply(x, const(p[0], x.dtype)), const(p[1], x.dtype)), 0, 1
    ),
}


# ---- products ------------------------------------------------------------------------------------


@converts("com.microsoft.FusedMatMul", "com.microsoft.TransposeMatMul")
def _fused_matmul(
    ctx: Context, a: Tensor, b: Tensor,
    *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0,
) -> Tensor:  # fmt: skip
    ctx.require(not (transBatchA or transBatchB), "transposed batches are not supported")
    made = op.matmul(_turned(a) if transA else a, _turned(b) if transB else b)
    return made if alpha == 1 else op.multiply(made, ctx.scalar(alpha, made))


def _turned(x: Tensor) -> Tensor:
    if x.ndim < 2:
        return x
    return op.permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@converts("com.microsoft.FusedConv")
def _fused_conv(
    ctx: Context, x: Tensor, weight: Tensor, bias: Tensor | None = None,
    residual: Tensor | None = None,
    *, activation: str | None = None, activation_params: tuple[float, ...] = (),
    auto_pad: str = "NOTSET", dilations: tuple[int, ...] | None = None, group: int = 1,
    kernel_shape: tuple[int, ...] | None = None, pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:  # fmt: skip
    size = kernel_size(ctx, weight, kernel_shape)
    window = window_of(ctx, x, size, strides, pads, dilations, auto_pad)
    made = _optional_add(add_bias(conv(x, weight, window, group), bias), residual)
    if activation is None:
        return made
    ctx.choice("activation", activation, tuple(_ACTIVATIONS))
    return _ACTIVATIONS[activation](made, activation_params)


@converts("com.microsoft.MatMulNBits")
def _matmul_n_bits(
    ctx: Context, a: Tensor, b: Tensor, scales: Tensor, zero_points: Tensor | None = None,
    g_idx: Tensor | None = None, bias: Tensor | None = None,
    *, K: int, N: int, bits: int = 4, block_size: int, accuracy_level: int = 0,
) -> Tensor:  # fmt: skip
    ctx.require(g_idx is None, "g_idx is not supported")
    ctx.require(bits in (4, 8), f"bits must be 4 or 8, got {bits}")
    ctx.require(K > 0 and N > 0 and block_size >= 16, "K, N and block_size are too small")
    blocks = -(-K // block_size)
    packed = op.reshape(b, (N, blocks * block_size * bits // 8))
    scale = op.reshape(scales, (N, blocks))
    zero = None if zero_points is None else _zero_points(ctx, zero_points, N, blocks, bits)
    by_kernel = bits == 4 and K % block_size == 0 and (zero is None or zero.dtype == "uint8")
    if by_kernel:
        args = (a, packed, scale, zero, bias)
        return ctx.te(topi.nn.dense_int4, *args, name="dense_int4")
    numbers = _unpacked(packed, bits)
    kind = a.dtype
    if zero is None:
        zero = const(1 << (bits - 1), kind)
    else:
        zero = op.reshape(ctx.cast(zero, kind), (N, blocks, 1))
    grouped = op.reshape(op.astype(numbers, kind), (N, blocks, block_size))
    weight = op.multiply(
        op.subtract(grouped, zero), op.reshape(ctx.cast(scale, kind), (N, blocks, 1))
    )
    weight = op.reshape(weight, (N, blocks * block_size))
    if blocks * block_size > K:
        weight = op.strided_slice(weight, [1], [0], [K])
    return _optional_add(op.matmul(a, op.permute_dims(weight, (1, 0))), bias)


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    """Numbers of 4 bits from bytes ``[N, bytes]``, low halves first."""
    if bits == 8:
        return packed
    low = op.bitwise_and(packed, const(15, "uint8"))
    high = op.right_shift(packed, const(4, "uint8"))
    both = op.stack([low, high], 2)
    return op.reshape(both, (packed.shape[0], -1))


def _zero_points(ctx: Context, zero: Tensor, n: int, blocks: int, bits: int) -> Tensor:
    if zero.dtype != "uint8":
        return op.reshape(zero, (n, blocks))
    rows = op.reshape(zero, (n, -(-blocks * bits // 8)))
    numbers = _unpacked(rows, bits)
    return op.strided_slice(numbers, [1], [0], [blocks]) if bits == 4 else numbers


# ---- norms ---------------------------------------------------------------------------------------


def _layer_norm(
    ctx: Context, x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised tensor, and mean and inverse deviation, which are used seldom."""
    made = op.nn.layer_norm(x, gamma, beta, -1, epsilon)
    if not (ctx.uses(1) or ctx.uses(2)):
        return made, made, made
    data = ctx.cast(x, "float32")
    mean = ctx.emit(op.mean(data, -1, True))
    spread = op.mean(op.square(op.subtract(data, mean)), -1, True)
    return made, mean, op.rsqrt(op.add(spread, const(epsilon, "float32")))


@converts("com.microsoft.SkipLayerNormalization")
def _skip_layer_norm(
    ctx: Context, x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None = None,
    bias: Tensor | None = None, *, epsilon: float = 1e-12,
) -> tuple[Tensor, ...]:  # fmt: skip
    total = ctx.emit(_optional_add(op.add(x, skip), bias))
    return (*_layer_norm(ctx, total, gamma, beta, epsilon), total)


@converts("com.microsoft.SkipSimplifiedLayerNormalization")
def _skip_rms_norm(
    ctx: Context, x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None,
    *, epsilon: float = 1e-12,
) -> tuple[Tensor, ...]:  # fmt: skip
    ctx.require(not (ctx.uses(1) or ctx.uses(2)), "mean and deviation are not supported")
    total = ctx.emit(_optional_add(op.add(x, skip), bias))
    made = op.nn.rms_norm(total, gamma, -1, epsilon)
    return made, made, made, total


@converts("SimplifiedLayerNormalization", "com.microsoft.SimplifiedLayerNormalization")
def _rms_norm(
    ctx: Context, x: Tensor, scale: Tensor,
    *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
) -> Tensor:  # fmt: skip
    axes = tuple(range(ctx.axis(axis, x.ndim), x.ndim))
    return op.nn.rms_norm(x, scale, axes, epsilon)


@converts("com.microsoft.EmbedLayerNormalization")
def _embed_layer_norm(
    ctx: Context, input_ids: Tensor, segment_ids: Tensor | None, words: Tensor,
    positions: Tensor, segments: Tensor | None = None, gamma: Tensor | None = None,
    beta: Tensor | None = None, mask: Tensor | None = None, position_ids: Tensor | None = None,
    *, epsilon: float = 1e-12, mask_index_type: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    total: Tensor = op.take(words, input_ids, 0)
    length = input_ids.shape[1]
    if position_ids is None:
        where: Any = op.arange(0, length, 1, "int64")
        total = op.add(total, op.take(positions, where, 0))
    else:
        total = op.add(total, op.take(positions, position_ids, 0))
    if segment_ids is not None and segments is not None:
        total = op.add(total, op.take(segments, segment_ids, 0))
    total = ctx.emit(total)
    ctx.require(gamma is not None, "gamma is missing")
    made = op.nn.layer_norm(total, gamma, beta, -1, epsilon)
    if mask is None:
        counts: Any = op.zeros((input_ids.shape[0],), "int32")
    else:
        counts = op.sum(op.astype(mask, "int32"), 1)
    return made, counts, total


@converts("com.microsoft.BiasSoftmax")
def _bias_softmax(
    ctx: Context, x: Tensor, bias: Tensor, *, axis: int = 1, is_inner_broadcast: int = 1
) -> Tensor:
    ctx.require(
        is_inner_broadcast and ctx.axis(axis, x.ndim) == x.ndim - 1,
        "only softmax over the last axis is supported",
    )
    return op.nn.softmax(op.add(x, bias), -1)


@converts("com.microsoft.GroupNorm")
def _group_norm(
    ctx: Context, x: Tensor, gamma: Tensor, beta: Tensor,
    *, activation: int, channels_last: int = 1, epsilon: float = 1e-5, groups: int,
) -> Tensor:  # fmt: skip
    last = x.ndim - 1
    data = op.permute_dims(x, (0, last, *range(1, last))) if channels_last else x
    kind = x.dtype
    made: Tensor = op.nn.group_norm(
        data, ctx.cast(gamma, kind), ctx.cast(beta, kind), groups, epsilon
    )
    made = op.nn.silu(ctx.emit(made)) if activation else made
    return op.permute_dims(made, (0, *range(2, x.ndim), 1)) if channels_last else made
