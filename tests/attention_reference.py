"""Attention in float64 with NumPy, for tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    mask: np.ndarray | None = None,
    *,
    scale: float | None = None,
    causal_mask: str | None = None,
    layout: str | Sequence[str] = "BHSD",
) -> np.ndarray:
    """``softmax(query @ keyᵀ * scale + mask) @ value``; zeros for a query that sees no key."""
    layouts = [layout] * 4 if isinstance(layout, str) else list(layout)
    wide = [array.astype(np.float64) for array in (query, key, value)]
    q, k, v = (x if item == "BHSD" else x.swapaxes(1, 2) for x, item in zip(wide, layouts))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    with np.errstate(all="ignore"):
        scores = q @ k.swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        if mask is not None:
            if mask.dtype == bool:
                scores = np.where(mask, scores, -np.inf)
            else:
                scores = scores + mask.astype(np.float64)
        if causal_mask is not None:
            rows, columns = scores.shape[-2:]
            offset = 0 if causal_mask == "TopLeft" else columns - rows
            scores = np.where(np.tril(np.ones((rows, columns), bool), offset), scores, -np.inf)
        top = scores.max(-1, keepdims=True)
        powers = np.exp(scores - np.where(top == -np.inf, 0.0, top))
        total = powers.sum(-1, keepdims=True)
        made = powers / np.where(total == 0.0, 1.0, total) @ v
    return made if layouts[3] == "BHSD" else made.swapaxes(1, 2)
