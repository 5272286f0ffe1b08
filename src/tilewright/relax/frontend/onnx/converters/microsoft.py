"""Fused operators of ``com.microsoft``: activations, norms and products, as ONNX Runtime writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright import topi
from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import (
    Context,
    Tensor,
    converts,
)
from tilewright.relax.frontend.onnx.converters.convolution import Convolving, add_bias, conv
from tilewright.relax.values import const


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


@dataclass(frozen=True, kw_only=True)
class _FusedConvolving(Convolving):
    activation: str | None = None
    activation_params: tuple[float, ...] = ()


@converts("com.microsoft.FusedConv")
def _fused_conv(
    ctx: Context, x: Tensor, weight: Tensor, bias: Tensor | None = None,
    residual: Tensor | None = None, *, attrs: _FusedConvolving,
) -> Tensor:  # fmt: skip
    made = conv(x, weight, attrs.window(ctx, x, weight), attrs.group)
    made = _optional_add(add_bias(made, bias), residual)
    if attrs.activation is None:
        return made
    ctx.choice("activation", attrs.activation, tuple(_ACTIVATIONS))
    return _ACTIVATIONS[attrs.activation](made, attrs.activation_params)


@dataclass(frozen=True, kw_only=True)
class _BitsAttributes:
    """The weight is ``[N, K]``, of numbers of ``bits``; ``block_size`` of a row have a scale."""

    K: int
    N: int
    bits: int = 4
    block_size: int
    accuracy_level: int = 0


@converts("com.microsoft.MatMulNBits")
def _matmul_n_bits(
    ctx: Context, a: Tensor, b: Tensor, scales: Tensor, zero_points: Tensor | None = None,
    g_idx: Tensor | None = None, bias: Tensor | None = None, *, attrs: _BitsAttributes,
) -> Tensor:  # fmt: skip
    K, N, bits, block_size = attrs.K, attrs.N, attrs.bits, attrs.block_size
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


@dataclass(frozen=True, eq=False)
class _Scale:
    """What a normalised tensor is multiplied by, and what is added to it."""

    gamma: Tensor
    beta: Tensor | None = None


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


@dataclass(frozen=True, eq=False)
class _Ids:
    """Numbers of words and segments, ``[B, S]``."""

    words: Tensor
    segments: Tensor | None


@dataclass(frozen=True, eq=False)
class _Tables:
    """A row for each word, position and segment."""

    words: Tensor
    positions: Tensor
    segments: Tensor | None = None


@converts("com.microsoft.EmbedLayerNormalization")
def _embed_layer_norm(
    ctx: Context, ids: _Ids, tables: _Tables, scale: _Scale, mask: Tensor | None = None,
    position_ids: Tensor | None = None, *, epsilon: float = 1e-12, mask_index_type: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    total: Tensor = op.take(tables.words, ids.words, 0)
    batch, length = ids.words.shape
    places = op.arange(0, length, 1, "int64") if position_ids is None else position_ids
    total = op.add(total, op.take(tables.positions, places, 0))
    if ids.segments is not None and tables.segments is not None:
        total = op.add(total, op.take(tables.segments, ids.segments, 0))
    total = ctx.emit(total)
    made = op.nn.layer_norm(total, scale.gamma, scale.beta, -1, epsilon)
    if mask is None:
        return made, op.zeros((batch,), "int32"), total
    return made, op.sum(op.astype(mask, "int32"), 1), total


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
        data, ctx.cast(gamma, kind), ctx.cast(beta, kind), groups, 1, range(2, x.ndim), epsilon
    )
    made = op.nn.silu(ctx.emit(made)) if activation else made
    return op.permute_dims(made, (0, *range(2, x.ndim), 1)) if channels_last else made
