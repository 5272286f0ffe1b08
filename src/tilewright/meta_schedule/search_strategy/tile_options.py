"""The tiles that a loop can have: lists of their factors, and how many there are."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from tilewright.tir.schedule.sampling import (
    Rng,
    count_factorizations,
    covering_pairs,
    divisors,
    is_tight,
    prime_factors,
    sample_covering,
    sample_perfect,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

MAX_OPTIONS = 20_000
"""A tile with more factorizations than this is represented by a sample of them."""


def _innermost(extent: int, max_innermost: int, multiple: int) -> list[int]:
    """List the last factors within limits, and multiples if possible."""
    limit = max_innermost if max_innermost > 0 else extent
    inner = [d for d in divisors(extent) if d <= limit] or [1]
    if multiple > 1:
        inner = [d for d in inner if d % multiple == 0] or inner
    return inner


def count_tiles(extent: int, length: int, max_innermost: int, multiple: int = 1) -> int:
    """Count the tiles of ``tile_options``, all of them."""
    if length == 1:
        return 1
    inner = _innermost(extent, max_innermost, multiple)
    return sum(count_factorizations(extent // d, length - 1) for d in inner)


def count_covering(extent: int, length: int, max_innermost: int) -> int:
    """Count the tiles of ``covering_options``, all of them."""
    if length == 1:
        return 1
    found = 0
    for innermost, outer in covering_pairs(extent, length, max_innermost):
        total = innermost * outer
        if length == 2:
            found += is_tight(extent, (outer, innermost))
            continue
        # Whether a tile is tight depends on its first factor only.
        found += sum(
            count_factorizations(outer // first, length - 2)
            for first in divisors(outer)
            if total - total // first < extent
        )
    return found


def tile_options(extent: int, length: int, max_innermost: int, multiple: int = 1) -> Rows:
    """List all perfect tiles whose last factor is within limits, and a multiple if possible."""
    if length == 1:
        return np.array([[extent]], dtype=np.int64)
    inner = _innermost(extent, max_innermost, multiple)
    if count_tiles(extent, length, max_innermost, multiple) > MAX_OPTIONS:
        rng, allowed = Rng(extent), set(inner)
        limit = max(inner)
        drawn = {
            tuple(row)
            for row in (sample_perfect(rng, extent, length, limit) for _ in range(MAX_OPTIONS))
            if row[-1] in allowed
        }
        return np.array(sorted(drawn), dtype=np.int64)
    rows = [(*outer, d) for d in inner for outer in factorizations(extent // d, length - 1)]
    return np.array(rows, dtype=np.int64)


def covering_options(extent: int, length: int, max_innermost: int) -> Rows:
    """List all tiles that cover an extent, as ``sample_tile`` draws them."""
    pairs = covering_pairs(extent, length, max_innermost)
    if sum(count_factorizations(outer, length - 1) for _, outer in pairs) > MAX_OPTIONS:
        rng = Rng(extent)
        drawn = (sample_covering(rng, extent, length, max_innermost) for _ in range(MAX_OPTIONS))
        return np.array(sorted(set(map(tuple, drawn))), dtype=np.int64)
    rows = [
        (*row, innermost)
        for innermost, outer in pairs
        for row in (factorizations(outer, length - 1) if length > 1 else [()])
        if is_tight(extent, (*row, innermost))
    ]
    return np.array(rows, dtype=np.int64)


def factorizations(number: int, length: int) -> list[tuple[int, ...]]:
    """List all ordered factorizations of ``number`` into ``length`` factors."""
    found: list[tuple[int, ...]] = [(1,) * length]
    for prime, exponent in prime_factors(number):
        shares = (
            [
                split
                for split in itertools.product(range(exponent + 1), repeat=length)
                if sum(split) == exponent
            ]
            if (exponent + 1) ** length <= 5000
            else list(_compositions(exponent, length))
        )
        powers = [tuple(prime**power for power in split) for split in shares]
        found = [tuple(a * b for a, b in zip(base, power)) for base in found for power in powers]
    return found


def _compositions(total: int, length: int) -> list[tuple[int, ...]]:
    if length == 1:
        return [(total,)]
    return [
        (first, *rest)
        for first in range(total + 1)
        for rest in _compositions(total - first, length - 1)
    ]
