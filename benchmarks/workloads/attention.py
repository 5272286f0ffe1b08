"""Attention: prefill, causal prefill, decode with a cache. Names are heads x queries x width."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Array, Workload, data
from tilewright import topi
from tilewright.runtime import numpy_dtype


def _reference(causal: bool, q: Array, k: Array, v: Array) -> Array:
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
    if causal:
        ahead = np.triu(np.ones(scores.shape[-2:], bool), 1)
        scores = np.where(ahead, q.dtype.type(-np.inf), scores)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray((e / e.sum(-1, keepdims=True)) @ v)


def _plain(g: Any, causal: bool, groups: int, kind: str, q: str, k: str, v: str) -> str:
    """The operator as exporters write it: products, a mask, a softmax."""
    heads, length, width = g.shape(k)[1:]
    number = numpy_dtype(kind).type
    if groups > 1:
        for_all = g.integers([1, heads, groups, length, width])
        flat = g.integers([1, heads * groups, length, width])
        one = g.integers([2])
        k, v = (
            g.op("Reshape", g.op("Expand", g.op("Unsqueeze", x, one), for_all), flat)
            for x in (k, v)
        )
    turned = g.op("Transpose", k, perm=[0, 1, 3, 2])
    scores = g.op("Mul", g.op("MatMul", q, turned), g.constant(number(width**-0.5)))
    if causal:
        mask = np.triu(np.full((length, length), -np.inf, number), 1)
        scores = g.op("Add", scores, g.constant(mask))
    return str(g.op("MatMul", g.op("Softmax", scores, axis=-1), v, dtype=kind))


def _attention(
    name: str,
    heads: int,
    queries: int,
    keys: int,
    width: int,
    groups: int = 1,
    causal: bool = False,
    kind: str = "float32",
) -> Workload:
    share = 0.5 * (1 + 1 / queries) if causal else 1.0
    return Workload(
        f"attention {name}",
        "attention",
        (
            data(1, heads, queries, width, dtype=kind),
            data(1, heads // groups, keys, width, dtype=kind),
            data(1, heads // groups, keys, width, dtype=kind),
        ),
        lambda q, k, v: topi.nn.scaled_dot_product_attention(
            q, k, v, causal_mask="TopLeft" if causal else None
        ),
        lambda q, k, v: _reference(causal, q, k, v),
        lambda torch, F, q, k, v: F.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=groups > 1
        ),
        (
            lambda g, q, k, v: g.op("Attention", q, k, v, is_causal=int(causal), dtype=kind),
            lambda g, q, k, v: _plain(g, causal, groups, kind, q, k, v),
        ),
        4.0 * heads * queries * keys * width * share,
        kind="bfloat16" if kind == "bfloat16" else "float32",
        out_dtype=kind,
        needs=("nn.scaled_dot_product_attention",),
    )


WORKLOADS = (
    _attention("12x128x64", 12, 128, 128, 64),
    _attention("16x1024x64 causal", 16, 1024, 1024, 64, causal=True),
    _attention("16x1x64, 2048 cached", 16, 1, 2048, 64),
    _attention("32x1x128, 8 heads of 2048 cached", 32, 1, 2048, 128, groups=4),
    _attention("bf16 12x128x64", 12, 128, 128, 64, kind="bfloat16"),
    _attention("bf16 16x1024x64 causal", 16, 1024, 1024, 64, causal=True, kind="bfloat16"),
    _attention(
        "bf16 32x1x128, 8 heads of 2048 cached", 32, 1, 2048, 128, groups=4, kind="bfloat16"
    ),
    _attention("fp16 12x128x64", 12, 128, 128, 64, kind="float16"),
    _attention("fp16 32x1x128, 8 heads of 2048 cached", 32, 1, 2048, 128, groups=4, kind="float16"),
)
