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
    window_size: int | None = None,
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
            behind = np.arange(rows)[:, None] + offset - np.arange(columns)
            seen = (behind >= 0) & (behind < (window_size or np.inf))
            scores = np.where(seen, scores, -np.inf)
        top = scores.max(-1, keepdims=True, initial=-np.inf)
        powers = np.exp(scores - np.where(top == -np.inf, 0.0, top))
        total = powers.sum(-1, keepdims=True)
        made = powers / np.where(total == 0.0, 1.0, total) @ v
    return made if layouts[3] == "BHSD" else made.swapaxes(1, 2)


def paged_attention(
    query: np.ndarray,
    pages: np.ndarray,
    table: np.ndarray,
    lengths: np.ndarray,
    *,
    window_size: int | None = None,
) -> np.ndarray:
    """Attention of the last positions of each sequence, whose keys and values are in pages."""
    made = []
    table = table.clip(0, len(pages) - 1)
    lengths = lengths.clip(0, table.shape[1] * pages.shape[3])
    for rows, own, length in zip(query, table, lengths):
        found = pages[own[: -(-length // pages.shape[3])]]
        cache = found.transpose(1, 2, 0, 3, 4).reshape(2, pages.shape[2], -1, pages.shape[4])
        key, value = cache[:, None, :, :length]
        options = {"causal_mask": "BottomRight", "window_size": window_size}
        heads = attention(rows[None].swapaxes(1, 2), key, value, **options)
        made.append(heads[0].swapaxes(0, 1))
    return np.stack(made)


def paged_operands(
    rng: np.random.Generator,
    lengths: Sequence[int],
    queries: int,
    heads: tuple[int, int],
    page_size: int,
    most: int,
    depth: int,
) -> list[np.ndarray]:
    """Queries, pages in any order, their table and lengths; nothing beyond a length may be read."""
    batch = len(lengths)
    count = batch * most + 3
    query = rng.standard_normal((batch, queries, heads[0], depth), dtype="float32")
    pages = rng.standard_normal((count, 2, heads[1], page_size, depth), dtype="float32")
    table = rng.permutation(count)[: batch * most].reshape(batch, most).astype("int32")
    pages[sorted(set(range(count)) - set(table.ravel()))] = np.nan
    for own, length in zip(table, lengths):
        own[-(-length // page_size) :] = -(1 << 20)
        if length % page_size:
            pages[own[length // page_size], :, :, length % page_size :] = np.nan
    return [query, pages, table, np.array(lengths, "int32")]


def paged_hostile(rng: np.random.Generator, page_size: int, depth: int) -> list[np.ndarray]:
    """As ``paged_operands``, but tables and lengths name what isn't there."""
    arrays = paged_operands(rng, [4 * page_size] * 4, 2, (4, 2), page_size, 4, depth)
    _, pages, table, lengths = arrays
    np.nan_to_num(pages, copy=False)
    table[0] = [-1, len(pages), -(1 << 31), (1 << 31) - 1]
    table[2, 1] = len(pages) + 5
    lengths[1:] = [4 * page_size + 1, (1 << 31) - 1, -(1 << 31)]
    return arrays


def append_paged_kv(
    key: np.ndarray,
    value: np.ndarray,
    pages: np.ndarray,
    table: np.ndarray,
    lengths: np.ndarray,
    counts: np.ndarray | None = None,
) -> np.ndarray:
    """Pages with new positions, one after the other; what has no place is left out."""
    made = pages.copy()
    new, page_size = key.shape[1], pages.shape[3]
    for b, length in enumerate(map(int, lengths)):
        count = new if counts is None else int(counts[b])
        for row in range(max(new - count, 0), new):
            at = length - new + row
            if 0 <= at < table.shape[1] * page_size and 0 <= table[b, at // page_size] < len(pages):
                page = made[table[b, at // page_size]]
                page[0, :, at % page_size] = key[b, row]
                page[1, :, at % page_size] = value[b, row]
    return made


def append_operands(
    rng: np.random.Generator,
    lengths: Sequence[int],
    new: int,
    heads: int,
    page_size: int,
    most: int,
    depth: int,
    counts: Sequence[int] | None = None,
    dtype: str = "float32",
) -> list[np.ndarray]:
    """Keys and values of ``new`` positions, pages of their own for each sequence, their table."""
    batch, spare = len(lengths), 3
    number = batch * most + spare
    rows = [rng.standard_normal((batch, new, heads, depth)).astype(dtype) for _ in range(2)]
    pages = rng.standard_normal((number, 2, heads, page_size, depth)).astype(dtype)
    table = rng.permutation(number)[: batch * most].reshape(batch, most).astype("int32")
    more = [] if counts is None else [np.array(counts, "int32")]
    return [*rows, pages, table, np.array(lengths, "int32"), *more]
