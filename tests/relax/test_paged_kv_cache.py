"""The memory of a paged cache: what fails changes nothing, and no pages are in use twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.relax.execution.paged_kv_cache import PagedAttentionKVCache, Rope
from tilewright.support.errors import RunError

NONE = Rope(0, 1.0, 10000.0, 0)


def made(*sizes: int, rope: Rope = NONE, dim: int = 8) -> PagedAttentionKVCache:
    return PagedAttentionKVCache(sizes, 1, 1, dim, rope, "float32")


def state(cache: PagedAttentionKVCache) -> Any:
    held = {number: (item.length, *item.pages) for number, item in cache.sequences.items()}
    return held, list(cache.free)


def test_a_forward_for_which_pages_are_missing_changes_nothing() -> None:
    cache = made(2, 8, 100, 2)
    cache.add(0)
    cache.add(1)
    before = state(cache)
    with pytest.raises(RunError, match="5 free pages, 8 are needed"):
        cache.begin([0, 1], [8, 8])
    with pytest.raises(RunError, match="no sequence 2"):
        cache.begin([0, 2], [1, 1])
    assert state(cache) == before


def test_a_fork_for_which_pages_are_missing_changes_nothing() -> None:
    cache = made(2, 8, 8, 2)
    cache.add(0)
    cache.begin([0], [6])
    before = state(cache)
    with pytest.raises(RunError, match="2 free pages, 3 are needed"):
        cache.fork(0, 1)
    assert state(cache) == before
    cache.fork(0, 1, 4)
    assert cache.sequences[1].length == 4 and not cache.free


@pytest.mark.parametrize("change", ["remove", "pop", "clear"])
def test_pages_that_go_are_not_written_by_a_forward_that_is_not_over(change: str) -> None:
    cache = made(2, 8, 8, 2)
    cache.add(0)
    cache.begin([0], [2])
    arguments = {"remove": (0,), "pop": (0, 1), "clear": ()}[change]
    getattr(cache, change)(*arguments)
    qkv, out = np.ones((2, 3, 8), "float32"), np.zeros((2, 1, 8), "float32")
    with pytest.raises(RunError, match="promised 0 rows, got 2"):
        cache.attention(0, 1.0, qkv, out)
    assert not cache.memory.any()


@pytest.mark.parametrize(
    ("qkv", "out"),
    [
        ((2, 3, 8), (2, 4, 8)),  # NumPy would repeat the one head
        ((2, 6, 8), (2, 1, 8)),
        ((2, 3, 1), (2, 1, 1)),
        ((2, 3, 8), (1, 1, 8)),
    ],
)
def test_heads_that_do_not_fit_are_refused(qkv: Any, out: Any) -> None:
    cache = made(1, 8, 8, 2)
    cache.add(0)
    cache.begin([0], [2])
    with pytest.raises(RunError, match="more heads each of keys and values, of 8 numbers"):
        cache.attention(0, 1.0, np.ones(qkv, "float32"), np.zeros(out, "float32"))


@pytest.mark.parametrize("dim", [7, 16, 0, -2])
def test_rotary_embeddings_are_of_pairs_in_a_head(dim: int) -> None:
    with pytest.raises(RunError, match=f"rotary_dim {dim}"):
        made(1, 8, 8, 2, rope=Rope(1, 1.0, 10000.0, dim))
    assert made(1, 8, 8, 2, rope=Rope(1, 1.0, 10000.0, 6)).rope.dim == 6


@pytest.mark.parametrize("sizes", [(0, 8, 8, 2), (1, -8, 8, 2), (1, 8, 8, 0)])
def test_sizes_are_positive(sizes: Any) -> None:
    with pytest.raises(RunError, match="positive"):
        made(*sizes)
    with pytest.raises(RunError, match="positive"):
        made(1, 8, 8, 2, dim=-1)
