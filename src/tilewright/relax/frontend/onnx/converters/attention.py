"""Attention: ONNX's own, and those of ``com.microsoft``; all end in our attention kernels."""

from __future__ import annotations

import math
from typing import Any

from tilewright.arith import simplify
from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import const
from tilewright.relax.frontend.onnx.converters.base import (
    DEFINED,
    Context,
    Tensor,
    Value,
    converts,
)
from tilewright.relax.struct_info import prove_equal


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


def _with_past(ctx: Context, past: Tensor | None, new: Tensor) -> Tensor:
    return new if past is None else ctx.emit(op.concat([past, new], 2))


def _scale(ctx: Context, q: Tensor, scale: float | None) -> float:
    if scale:
        return scale
    (depth,) = ctx.ints([q.shape[3]], "the depth of heads")
    return 1 / math.sqrt(depth)


@converts("Attention")
def _attention(
    ctx: Context, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
    past_key: Tensor | None = None, past_value: Tensor | None = None, lengths: Value = None,
    *, is_causal: int = 0, kv_num_heads: int | None = None, left_window_size: int = -1,
    q_num_heads: int | None = None, qk_matmul_output_mode: int = 0, right_window_size: int = -1,
    scale: float | None = None, softcap: float = 0.0, softmax_precision: int | None = None,
) -> Any:  # fmt: skip
    flat = q.ndim == 3
    if flat:
        if q_num_heads is None or kv_num_heads is None:
            raise ctx.error("inputs of three dimensions need q_num_heads and kv_num_heads")
        q, k, v = (_heads(ctx, x, n) for x, n in zip((q, k, v), (q_num_heads, *[kv_num_heads] * 2)))
    ours = (
        not ctx.uses(3) and softcap == 0 and lengths is None
        and left_window_size < 0 and right_window_size < 0
        and not (is_causal and past_key is not None)
        and q.dtype in ("float32", "float16", "bfloat16")
        and _heads_divide(q, k)
        and q.dtype == v.dtype
    )  # fmt: skip
    if not ours:
        return DEFINED
    k, v = _with_past(ctx, past_key, k), _with_past(ctx, past_value, v)
    if mask is not None and not _fits(mask, q, k):
        return DEFINED
    made = op.nn.scaled_dot_product_attention(
        q, k, v, mask, _scale(ctx, q, scale), "TopLeft" if is_causal else None
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


def _attend(
    ctx: Context, q: Tensor, k: Tensor, v: Tensor, scale: float, *, causal: bool = False,
    seen: Tensor | None = None, bias: Tensor | None = None, softcap: float = 0.0,
) -> Tensor:  # fmt: skip
    """Attention over ``[B, H, S, D]``; causal masks are aligned with the last key."""
    if softcap == 0:
        mask = bias
        if seen is not None:
            mask = seen
            if bias is not None:
                mask = op.where(
                    seen, bias, const(-1e30 if bias.dtype != "float16" else -6e4, bias.dtype)
                )
        return op.nn.scaled_dot_product_attention(
            q, k, v, mask, scale, "BottomRight" if causal else None
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
    least = ctx.scalar(-6e4 if q.dtype == "float16" else -1e30, q)
    if seen is not None:
        scores = op.where(seen, scores, least)
    if causal:
        scores = op.where(_causal(q, k), scores, least)
    return op.matmul(op.nn.softmax(scores, -1), v)


def _causal(q: Tensor, k: Tensor) -> Tensor:
    queries, keys = q.shape[2], k.shape[2]
    first = op.reshape(op.arange(keys - queries, keys, 1, "int64"), (queries, 1))
    return op.less_equal(op.arange(0, keys, 1, "int64"), first)


@converts("com.microsoft.Attention")
def _packed_attention(
    ctx: Context, x: Tensor, weights: Tensor, bias: Tensor | None = None,
    mask_index: Tensor | None = None, past: Tensor | None = None,
    attention_bias: Tensor | None = None, past_length: Value = None,
    *, num_heads: int, unidirectional: int = 0, scale: float = 0.0,
    qkv_hidden_sizes: tuple[int, ...] | None = None, mask_filter_value: float = -10000.0,
    do_rotary: int = 0, past_present_share_buffer: int = 0,
) -> tuple[Any, ...]:  # fmt: skip
    ctx.require(
        not do_rotary and not past_present_share_buffer and past_length is None,
        "rotary embeddings and shared buffers are not supported here",
    )
    product: Tensor = op.matmul(x, weights)
    made = ctx.emit(product if bias is None else op.add(product, bias))
    (width,) = ctx.ints([made.shape[2]], "the hidden size")
    sizes = qkv_hidden_sizes or (width // 3,) * 3
    ctx.require(sum(sizes) == width and len(sizes) == 3, f"{sizes} don't add up to {width}")
    parts, start = [], 0
    for size in sizes:
        part = op.strided_slice(made, [2], [start], [start + size])
        parts.append(ctx.emit(_heads(ctx, part, num_heads)))
        start += size
    q, k, v = parts
    if past is not None:
        old_k, old_v = (op.squeeze(op.strided_slice(past, [0], [n], [n + 1]), 0) for n in range(2))
        k, v = _with_past(ctx, old_k, k), _with_past(ctx, old_v, v)
    seen = None if mask_index is None else _padding_mask(ctx, mask_index, q, k)
    result = _joined(
        ctx.emit(
            _attend(
                ctx, q, k, v, _scale(ctx, q, scale), causal=bool(unidirectional), seen=seen,
                bias=attention_bias,
            )
        )
    )  # fmt: skip
    return result, (op.stack([k, v], 0) if ctx.uses(1) else None)


@converts("com.microsoft.MultiHeadAttention")
def _multi_head_attention(
    ctx: Context, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
    bias: Tensor | None = None, key_padding_mask: Tensor | None = None,
    attention_bias: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *, num_heads: int, scale: float = 0.0, unidirectional: int = 0,
    mask_filter_value: float = -10000.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    ctx.require(num_heads > 0, "num_heads must be positive")
    if query.ndim == 5:  # [B, S, heads, 3, depth]
        ctx.require(key is None and value is None, "a packed query has keys and values")
        parts = [
            op.permute_dims(op.squeeze(op.strided_slice(query, [3], [n], [n + 1]), 3), (0, 2, 1, 3))
            for n in range(3)
        ]
        q, k, v = map(ctx.emit, parts)
        ctx.require(bias is None, "a packed query with a bias is not supported")
    else:
        if key is None:
            raise ctx.error("key is missing")
        if key.ndim == 5:  # [B, L, heads, 2, depth]
            value = op.squeeze(op.strided_slice(key, [3], [1], [2]), 3)
            key = op.squeeze(op.strided_slice(key, [3], [0], [1]), 3)
            k, v = (op.permute_dims(item, (0, 2, 1, 3)) for item in (key, value))
            ctx.require(bias is None, "packed keys and values with a bias are not supported")
            q = _heads(ctx, query, num_heads)
        else:
            if value is None:
                raise ctx.error("value is missing")
            q, k, v = _with_bias(ctx, query, key, value, bias, num_heads)
    k, v = _with_past(ctx, past_key, ctx.emit(k)), _with_past(ctx, past_value, ctx.emit(v))
    seen = None if key_padding_mask is None else _padding_mask(ctx, key_padding_mask, q, k)
    made = _attend(
        ctx, q, k, v, _scale(ctx, q, scale), causal=bool(unidirectional), seen=seen,
        bias=attention_bias,
    )  # fmt: skip
    return _joined(ctx.emit(made)), k, v


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


@converts("com.microsoft.RotaryEmbedding")
def _rotary_embedding(
    ctx: Context, x: Tensor, position_ids: Tensor, cos_cache: Tensor, sin_cache: Tensor,
    *, interleaved: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0,
    is_packed_batching: int = 0,
) -> Tensor:  # fmt: skip
    ctx.require(not is_packed_batching, "packed batches are not supported")
    if x.ndim == 4:
        return rotated(ctx, x, position_ids, cos_cache, sin_cache, bool(interleaved))
    (width,) = ctx.ints([x.shape[2]], "the hidden size")
    (half,) = ctx.ints([cos_cache.shape[1]], "the width of cos_cache")
    depth = width // num_heads if num_heads else 2 * half
    ctx.require(depth > 0 and width % depth == 0, f"{width} doesn't divide into heads of {depth}")
    heads = ctx.emit(_heads(ctx, x, width // depth))
    return _joined(
        ctx.emit(rotated(ctx, heads, position_ids, cos_cache, sin_cache, bool(interleaved)))
    )


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


@converts("com.microsoft.GroupQueryAttention")
def _group_query_attention(
    ctx: Context, query: Tensor, key: Tensor | None, value: Tensor | None,
    past_key: Tensor | None, past_value: Tensor | None, seqlens_k: Tensor,
    total_sequence_length: Tensor, cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None, position_ids: Tensor | None = None,
    attention_bias: Tensor | None = None, head_sink: Tensor | None = None,
    *, num_heads: int, kv_num_heads: int, scale: float = 0.0, do_rotary: int = 0,
    rotary_interleaved: int = 0, local_window_size: int = -1, softcap: float = 0.0,
    smooth_softmax: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Keys and values are appended to those of the past, of which all are filled."""
    ctx.require(not smooth_softmax and head_sink is None, "smooth softmax is not supported")
    ctx.require(num_heads > 0 and kv_num_heads > 0, "the numbers of heads must be positive")
    if key is None or value is None:
        (width,) = ctx.ints([query.shape[2]], "the hidden size")
        depth = width // (num_heads + 2 * kv_num_heads)
        ends = [num_heads * depth, (num_heads + kv_num_heads) * depth, width]
        packed, starts = query, [0, *ends[:2]]
        query, key, value = (op.strided_slice(packed, [2], [a], [b]) for a, b in zip(starts, ends))
    q = ctx.emit(_heads(ctx, query, num_heads))
    k, v = (ctx.emit(_heads(ctx, item, kv_num_heads)) for item in (key, value))
    length = q.shape[2]
    before: Any = 0 if past_key is None else past_key.shape[2]
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ctx.error("do_rotary needs cos_cache and sin_cache")
        places: Tensor
        if position_ids is not None:
            places = position_ids
        else:
            row = op.arange(before, simplify(length + before), 1, "int64")
            places = op.broadcast_to(op.reshape(row, (1, length)), (q.shape[0], length))
        turned = [
            ctx.emit(rotated(ctx, x, places, cos_cache, sin_cache, bool(rotary_interleaved)))
            for x in (q, k)
        ]
        q, k = turned
    k, v = _with_past(ctx, past_key, k), _with_past(ctx, past_value, v)
    keys = k.shape[2]
    own = op.arange(0, keys, 1, "int64")
    last = op.reshape(ctx.cast(seqlens_k, "int64"), (q.shape[0], 1, 1, 1))
    seen: Tensor = op.less_equal(own, last)
    if local_window_size > 0:
        first = op.reshape(op.arange(keys - length, keys, 1, "int64"), (length, 1))
        oldest = op.subtract(first, const(local_window_size, "int64"))
        seen = op.logical_and(seen, op.greater(own, oldest))
    made = _attend(
        ctx, q, k, v, _scale(ctx, q, scale), causal=True, seen=ctx.emit(seen),
        bias=attention_bias, softcap=softcap,
    )  # fmt: skip
    return _joined(ctx.emit(made)), k, v
