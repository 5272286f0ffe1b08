"""Attention: ONNX's own, and those of ``com.microsoft``; all end in our attention kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.arith import simplify
from tilewright.ir import Expr, as_int
from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import (
    DEFINED,
    Context,
    Result,
    Tensor,
    Value,
    converts,
)
from tilewright.relax.struct_info import prove_equal
from tilewright.relax.values import const


def _heads(ctx: Context, x: Tensor, count: int) -> Tensor:
    """``[B, S, heads * depth]`` as ``[B, heads, S, depth]``."""
    (width,) = ctx.ints([x.shape[2]], "the hidden size")
    ctx.require(count > 0 and width % count == 0, f"{width} doesn't divide into {count} heads")
    split = op.reshape(x, (x.shape[0], x.shape[1], count, width // count))
    return op.permute_dims(split, (0, 2, 1, 3))


def _joined(x: Tensor) -> Tensor:
    """``[B, heads, S, depth]`` as ``[B, S, heads * depth]``."""
    b, h, s, d = x.shape
    return op.reshape(op.permute_dims(x, (0, 2, 1, 3)), (b, s, simplify(h * d)))


@dataclass(frozen=True, eq=False)
class _Past:
    """Keys and values of earlier calls, ``[B, heads, S, depth]``."""

    key: Tensor | None = None
    value: Tensor | None = None

    def joined(self, ctx: Context, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """These, then the new ones."""
        return _after(ctx, self.key, k), _after(ctx, self.value, v)


def _after(ctx: Context, past: Tensor | None, new: Tensor) -> Tensor:
    return new if past is None else ctx.emit(op.concat([past, new], 2))


def _scale(ctx: Context, q: Tensor, scale: float | None) -> float:
    if scale:
        return scale
    (depth,) = ctx.ints([q.shape[3]], "the depth of heads")
    return 1 / math.sqrt(depth)


@dataclass(frozen=True, kw_only=True)
class _Attributes:
    """The attributes of ONNX's attention."""

    is_causal: int = 0
    kv_num_heads: int | None = None
    left_window_size: int = -1
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    right_window_size: int = -1
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None


@converts("Attention")
def _attention(
    ctx: Context, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, past: _Past,
    lengths: Value = None, *, attrs: _Attributes,
) -> Result:  # fmt: skip
    flat = q.ndim == 3
    if flat:
        heads, groups = attrs.q_num_heads, attrs.kv_num_heads
        if heads is None or groups is None:
            raise ctx.error("inputs of three dimensions need q_num_heads and kv_num_heads")
        q, k, v = _heads(ctx, q, heads), _heads(ctx, k, groups), _heads(ctx, v, groups)
    ours = (
        not ctx.uses(3) and attrs.softcap == 0 and lengths is None
        and attrs.left_window_size < 0 and attrs.right_window_size < 0
        and not (attrs.is_causal and past.key is not None)
        and q.dtype in ("float32", "float16", "bfloat16")
        and _heads_divide(q, k)
        and q.dtype == v.dtype
    )  # fmt: skip
    if not ours:
        return DEFINED
    k, v = past.joined(ctx, k, v)
    if mask is not None and not _fits(mask, q, k):
        return DEFINED
    made = op.nn.scaled_dot_product_attention(
        q, k, v, mask, _scale(ctx, q, attrs.scale), "TopLeft" if attrs.is_causal else None
    )
    return (_joined(made) if flat else made), k, v


def _fits(mask: Tensor, q: Tensor, k: Tensor) -> bool:
    """Whether a mask has a column for each key, and is such as our kernels add."""
    return mask.dtype in ("bool", q.dtype) and prove_equal(mask.shape[-1], k.shape[2])


def _heads_divide(q: Tensor, k: Tensor) -> bool:
    have, groups = as_int(q.shape[1]), as_int(k.shape[1])
    return have is not None and groups is not None and groups > 0 and have % groups == 0


# ---- com.microsoft -------------------------------------------------------------------------------


def _padding_mask(ctx: Context, mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Which keys are seen, ``[B, 1, 1 or queries, keys]``, by counts or by a mask of numbers."""
    keys = k.shape[2]
    if mask.ndim == 1:
        places = op.arange(0, keys, 1, "int64")
        counts = op.reshape(ctx.cast(mask, "int64"), (mask.shape[0], 1, 1, 1))
        return op.less(places, counts)
    seen = op.not_equal(mask, const(0, mask.dtype))
    if mask.ndim == 2:
        return op.reshape(seen, (mask.shape[0], 1, 1, mask.shape[1]))
    ctx.require(mask.ndim == 3, f"masks of {mask.ndim} dimensions are not supported")
    return op.expand_dims(seen, 1)


@dataclass(frozen=True, eq=False)
class _Mask:
    """What queries see of the keys, ``[B, heads, queries, keys]`` or broadcast to that."""

    seen: Tensor | None = None
    """Whether a key is seen."""
    bias: Tensor | None = None
    """What is added to scores."""
    causal: bool = False
    """Only keys up to the query's own, if the last query's own is the last key."""


def _attend(
    ctx: Context, q: Tensor, k: Tensor, v: Tensor, mask: _Mask, scale: float, softcap: float = 0.0
) -> Tensor:
    """Attention over ``[B, H, S, D]``."""
    seen, bias = mask.seen, mask.bias
    if softcap == 0:
        both = bias if seen is None else seen
        if seen is not None and bias is not None:
            both = op.where(seen, bias, ctx.scalar(_least(bias), bias))
        return op.nn.scaled_dot_product_attention(
            q, k, v, both, scale, "BottomRight" if mask.causal else None
        )
    heads, groups = as_int(q.shape[1]), as_int(k.shape[1])
    ctx.require(heads is not None and groups, "the numbers of heads must be known")
    assert heads is not None and groups is not None
    if heads != groups:
        k, v = (op.repeat(x, heads // groups, 1) for x in (k, v))
    scores = op.multiply(op.matmul(q, op.permute_dims(k, (0, 1, 3, 2))), ctx.scalar(scale, q))
    cap = ctx.scalar(softcap, q)
    scores = op.multiply(op.tanh(op.divide(scores, cap)), cap)
    if bias is not None:
        scores = op.add(scores, bias)
    least = ctx.scalar(_least(q), q)
    if seen is not None:
        scores = op.where(seen, scores, least)
    if mask.causal:
        scores = op.where(_causal(q, k), scores, least)
    return op.matmul(op.nn.softmax(scores, -1), v)


def _least(scores: Tensor) -> float:
    """The score of a key that isn't seen."""
    return -6e4 if scores.dtype == "float16" else -1e30


def _causal(q: Tensor, k: Tensor) -> Tensor:
    queries, keys = q.shape[2], k.shape[2]
    first = op.reshape(op.arange(keys - queries, keys, 1, "int64"), (queries, 1))
    return op.less_equal(op.arange(0, keys, 1, "int64"), first)


@dataclass(frozen=True, eq=False)
class _Projection:
    """A product that makes queries, keys and values of a tensor."""

    weights: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class _HeadAttributes:
    """The attributes that ``Attention`` and ``MultiHeadAttention`` have in common."""

    num_heads: int
    unidirectional: int = 0
    scale: float = 0.0
    mask_filter_value: float = -10000.0


@dataclass(frozen=True, kw_only=True)
class _PackedAttributes(_HeadAttributes):
    qkv_hidden_sizes: tuple[int, ...] | None = None
    do_rotary: int = 0
    past_present_share_buffer: int = 0


@converts("com.microsoft.Attention")
def _packed_attention(
    ctx: Context, x: Tensor, projection: _Projection, mask_index: Tensor | None = None,
    past: Tensor | None = None, attention_bias: Tensor | None = None, past_length: Value = None,
    *, attrs: _PackedAttributes,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    ctx.require(
        not attrs.do_rotary and not attrs.past_present_share_buffer and past_length is None,
        "rotary embeddings and shared buffers are not supported here",
    )
    product: Tensor = op.matmul(x, projection.weights)
    made = ctx.emit(product if projection.bias is None else op.add(product, projection.bias))
    (width,) = ctx.ints([made.shape[2]], "the hidden size")
    sizes = attrs.qkv_hidden_sizes or (width // 3,) * 3
    ctx.require(sum(sizes) == width and len(sizes) == 3, f"{sizes} don't add up to {width}")
    parts, start = [], 0
    for size in sizes:
        part = op.strided_slice(made, [2], [start], [start + size])
        parts.append(ctx.emit(_heads(ctx, part, attrs.num_heads)))
        start += size
    q, k, v = parts
    if past is not None:
        old_k, old_v = (op.squeeze(op.strided_slice(past, [0], [n], [n + 1]), 0) for n in range(2))
        k, v = _Past(old_k, old_v).joined(ctx, k, v)
    seen = None if mask_index is None else _padding_mask(ctx, mask_index, q, k)
    mask = _Mask(seen, attention_bias, bool(attrs.unidirectional))
    result = ctx.emit(_attend(ctx, q, k, v, mask, _scale(ctx, q, attrs.scale)))
    return _joined(result), (op.stack([k, v], 0) if ctx.uses(1) else None)


@dataclass(frozen=True, eq=False)
class _Operands:
    """Queries, and keys and values unless they are packed with these or each other."""

    query: Tensor
    key: Tensor | None = None
    value: Tensor | None = None


@converts("com.microsoft.MultiHeadAttention")
def _multi_head_attention(
    ctx: Context, given: _Operands, bias: Tensor | None, key_padding_mask: Tensor | None,
    attention_bias: Tensor | None, past: _Past, *, attrs: _HeadAttributes,
) -> tuple[Tensor, ...]:  # fmt: skip
    ctx.require(attrs.num_heads > 0, "num_heads must be positive")
    q, k, v = _with_heads(ctx, given, bias, attrs.num_heads)
    k, v = past.joined(ctx, ctx.emit(k), ctx.emit(v))
    seen = None if key_padding_mask is None else _padding_mask(ctx, key_padding_mask, q, k)
    mask = _Mask(seen, attention_bias, bool(attrs.unidirectional))
    made = _attend(ctx, q, k, v, mask, _scale(ctx, q, attrs.scale))
    return _joined(ctx.emit(made)), k, v


def _with_heads(
    ctx: Context, given: _Operands, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as ``[B, heads, S, depth]``."""
    query, key, value = given.query, given.key, given.value
    if query.ndim == 5:  # [B, S, heads, 3, depth]
        ctx.require(key is None and value is None, "a packed query has keys and values")
        parts = [
            op.permute_dims(op.squeeze(op.strided_slice(query, [3], [n], [n + 1]), 3), (0, 2, 1, 3))
            for n in range(3)
        ]
        ctx.require(bias is None, "a packed query with a bias is not supported")
        q, k, v = map(ctx.emit, parts)
        return q, k, v
    if key is None:
        raise ctx.error("key is missing")
    if key.ndim == 5:  # [B, L, heads, 2, depth]
        ctx.require(bias is None, "packed keys and values with a bias are not supported")
        k, v = (
            op.permute_dims(op.squeeze(op.strided_slice(key, [3], [n], [n + 1]), 3), (0, 2, 1, 3))
            for n in range(2)
        )
        return _heads(ctx, query, heads), k, v
    if value is None:
        raise ctx.error("value is missing")
    return _with_bias(ctx, query, key, value, bias, heads)


def _with_bias(
    ctx: Context, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    items = [query, key, value]
    if bias is not None:
        start = 0
        for number, item in enumerate(items):
            if item.ndim == 3:
                (width,) = ctx.ints([item.shape[2]], "the hidden size")
                own = op.strided_slice(bias, [0], [start], [start + width])
                items[number] = op.add(item, own)
                start += width
    q, k, v = (item if item.ndim == 4 else _heads(ctx, item, heads) for item in items)
    return q, k, v


@dataclass(frozen=True, kw_only=True)
class _RotaryAttributes:
    interleaved: int = 0
    num_heads: int = 0
    rotary_embedding_dim: int = 0
    scale: float = 1.0
    is_packed_batching: int = 0


@converts("com.microsoft.RotaryEmbedding")
def _rotary_embedding(
    ctx: Context, x: Tensor, position_ids: Tensor, cos_cache: Tensor, sin_cache: Tensor,
    *, attrs: _RotaryAttributes,
) -> Tensor:  # fmt: skip
    ctx.require(not attrs.is_packed_batching, "packed batches are not supported")
    interleaved = bool(attrs.interleaved)
    if x.ndim == 4:
        return rotated(ctx, x, position_ids, cos_cache, sin_cache, interleaved)
    (width,) = ctx.ints([x.shape[2]], "the hidden size")
    (half,) = ctx.ints([cos_cache.shape[1]], "the width of cos_cache")
    depth = width // attrs.num_heads if attrs.num_heads else 2 * half
    ctx.require(depth > 0 and width % depth == 0, f"{width} doesn't divide into heads of {depth}")
    heads = ctx.emit(_heads(ctx, x, width // depth))
    return _joined(ctx.emit(rotated(ctx, heads, position_ids, cos_cache, sin_cache, interleaved)))


def rotated(
    ctx: Context, x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, interleaved: bool
) -> Tensor:
    """Turn pairs of ``[B, H, S, D]`` by angles of their positions: one, or ``[B, S]``."""
    batch, _, length, _ = x.shape
    (half,) = ctx.ints([cos.shape[1]], "the width of cos_cache")
    (depth,) = ctx.ints([x.shape[3]], "the depth of heads")
    ctx.require(0 < 2 * half <= depth, f"rotations of {2 * half} don't fit a depth of {depth}")
    if positions.ndim == 2:
        places: Tensor = positions
    else:
        start = op.reshape(ctx.cast(positions, "int64"), ())
        row = op.add(op.arange(0, length, 1, "int64"), start)
        places = op.broadcast_to(op.reshape(row, (1, length)), (batch, length))
    c, s = (
        ctx.emit(op.expand_dims(ctx.cast(op.take(table, places, 0), x.dtype), 1))
        for table in (cos, sin)
    )
    turned = op.strided_slice(x, [3], [0], [2 * half])
    if interleaved:
        first = op.strided_slice(turned, [3], [0], [2 * half], [2])
        second = op.strided_slice(turned, [3], [1], [2 * half], [2])
    else:
        first = op.strided_slice(turned, [3], [0], [half])
        second = op.strided_slice(turned, [3], [half], [2 * half])
    a = op.subtract(op.multiply(first, c), op.multiply(second, s))
    b = op.add(op.multiply(second, c), op.multiply(first, s))
    if interleaved:
        made: Tensor = op.reshape(op.stack([a, b], 4), turned.shape)
    else:
        made = op.concat([a, b], 3)
    if 2 * half == depth:
        return made
    return op.concat([made, op.strided_slice(x, [3], [2 * half], [depth])], 3)


@dataclass(frozen=True, eq=False)
class _Lengths:
    """How many keys there are: less 1 for each sequence, and of the longest."""

    seqlens_k: Tensor
    total_sequence_length: Tensor


@dataclass(frozen=True, eq=False)
class _Rotations:
    """Tables of cosines and sines, ``[positions, depth / 2]``, and the positions of queries."""

    cos_cache: Tensor | None = None
    sin_cache: Tensor | None = None
    position_ids: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class _GroupAttributes:
    num_heads: int
    kv_num_heads: int
    scale: float = 0.0
    do_rotary: int = 0
    rotary_interleaved: int = 0
    local_window_size: int = -1
    softcap: float = 0.0
    smooth_softmax: int = 0


@converts("com.microsoft.GroupQueryAttention")
def _group_query_attention(
    ctx: Context, given: _Operands, past: _Past, lengths: _Lengths, rotations: _Rotations,
    attention_bias: Tensor | None = None, head_sink: Tensor | None = None,
    *, attrs: _GroupAttributes,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Keys and values are appended to those of the past, of which all are filled."""
    ctx.require(not attrs.smooth_softmax and head_sink is None, "smooth softmax is not supported")
    ctx.require(
        attrs.num_heads > 0 and attrs.kv_num_heads > 0, "the numbers of heads must be positive"
    )
    q, k, v = _grouped_heads(ctx, given, attrs.num_heads, attrs.kv_num_heads)
    length = q.shape[2]
    if attrs.do_rotary:
        cos, sin, places = rotations.cos_cache, rotations.sin_cache, rotations.position_ids
        if cos is None or sin is None:
            raise ctx.error("do_rotary needs cos_cache and sin_cache")
        if places is None:
            before: Expr | int = 0 if past.key is None else past.key.shape[2]
            row = op.arange(before, simplify(length + before), 1, "int64")
            places = op.broadcast_to(op.reshape(row, (1, length)), (q.shape[0], length))
        interleaved = bool(attrs.rotary_interleaved)
        q, k = (ctx.emit(rotated(ctx, x, places, cos, sin, interleaved)) for x in (q, k))
    k, v = past.joined(ctx, k, v)
    keys = k.shape[2]
    own = op.arange(0, keys, 1, "int64")
    last = op.reshape(ctx.cast(lengths.seqlens_k, "int64"), (q.shape[0], 1, 1, 1))
    seen: Tensor = op.less_equal(own, last)
    if attrs.local_window_size > 0:
        first = op.reshape(op.arange(keys - length, keys, 1, "int64"), (length, 1))
        oldest = op.subtract(first, const(attrs.local_window_size, "int64"))
        seen = op.logical_and(seen, op.greater(own, oldest))
    mask = _Mask(ctx.emit(seen), attention_bias, causal=True)
    made = _attend(ctx, q, k, v, mask, _scale(ctx, q, attrs.scale), attrs.softcap)
    return _joined(ctx.emit(made)), k, v


def _grouped_heads(
    ctx: Context, given: _Operands, heads: int, groups: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of ``heads``, keys and values of ``groups``, as ``[B, heads, S, depth]``."""
    query, key, value = given.query, given.key, given.value
    if key is None or value is None:
        (width,) = ctx.ints([query.shape[2]], "the hidden size")
        depth = width // (heads + 2 * groups)
        ends = [heads * depth, (heads + groups) * depth, width]
        packed, starts = query, [0, *ends[:2]]
        query, key, value = (op.strided_slice(packed, [2], [a], [b]) for a, b in zip(starts, ends))
    q = ctx.emit(_heads(ctx, query, heads))
    k, v = (ctx.emit(_heads(ctx, item, groups)) for item in (key, value))
    return q, k, v
