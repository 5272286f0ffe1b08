"""The random generator of schedules, and drawing tile sizes.

The state of the generator (SplitMix64) is one 64-bit number, so copying it is free, and its stream
is the same on every machine and version of Python.

Tiles are drawn uniformly: every way to write an extent as an ordered product of ``n`` factors
(within the limit on the innermost one) is equally likely. The counts that this needs are tabulated
once per extent.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import comb, prod

_MASK = (1 << 64) - 1


class Rng:
    """A seeded stream of integers."""

    __slots__ = ("state",)

    def __init__(self, seed: int | None = None) -> None:
        if seed is None:
            seed = random.SystemRandom().getrandbits(63)
        self.state = seed & _MASK

    def next(self) -> int:
        """Return the next 64 random bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, limit: int) -> int:
        """Return an integer in ``[0, limit)``; the bias is below ``limit / 2**64``."""
        return (self.next() * limit) >> 64

    def pick(self, cumulative: Sequence[int | float]) -> int:
        """Return an index with probability proportional to the steps of ``cumulative``."""
        total = cumulative[-1]
        if isinstance(total, int):
            return bisect_right(cumulative, self.below(total))
        return min(bisect_right(cumulative, self.next() / 2**64 * total), len(cumulative) - 1)

    def copy(self) -> Rng:
        """Return a generator that continues the same stream."""
        return Rng(self.state)

    def fork(self) -> int:
        """Draw a seed for an independent generator."""
        return self.next() >> 1


@lru_cache(maxsize=4096)
def prime_factors(number: int) -> tuple[tuple[int, int], ...]:
    """Return ``(prime, exponent)`` pairs."""
    found, divisor = [], 2
    while divisor * divisor <= number:
        exponent = 0
        while number % divisor == 0:
            number //= divisor
            exponent += 1
        if exponent:
            found.append((divisor, exponent))
        divisor += 1 if divisor == 2 else 2
    if number > 1:
        found.append((number, 1))
    return tuple(found)


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """Return all divisors in ascending order."""
    found = [1]
    for prime, exponent in prime_factors(number):
        found = [value * prime**power for value in found for power in range(exponent + 1)]
    return tuple(sorted(found))


def count_factorizations(number: int, length: int) -> int:
    """Count the ordered products of ``length`` factors that give ``number``."""
    if length == 0:
        return 1 if number == 1 else 0
    return prod(comb(exponent + length - 1, length - 1) for _, exponent in prime_factors(number))


@lru_cache(maxsize=4096)
def _innermost_table(
    extent: int, length: int, max_innermost: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    choices = tuple(d for d in divisors(extent) if max_innermost <= 0 or d <= max_innermost)
    weights = [count_factorizations(extent // d, length - 1) for d in choices]
    return choices, tuple(accumulate(weights))


def sample_factorization(rng: Rng, number: int, length: int) -> list[int]:
    """Draw uniformly from the ordered factorizations of ``number`` into ``length`` factors."""
    factors = [1] * length
    for prime, exponent in prime_factors(number):
        # Stars and bars: a uniform choice of length-1 bars among exponent+length-1 places.
        bars, places = length - 1, exponent + length - 1
        slot = 0
        for place in range(places):
            if bars and rng.below(places - place) < bars:
                bars -= 1
                slot += 1
            else:
                factors[slot] *= prime
    return factors


def sample_perfect(rng: Rng, extent: int, length: int, max_innermost: int) -> list[int]:
    """Draw a perfect tile uniformly; ``max_innermost`` of 0 or less sets no limit."""
    if length == 1:
        return [extent]
    choices, cumulative = _innermost_table(extent, length, max_innermost)
    innermost = choices[rng.pick(cumulative)]
    return [*sample_factorization(rng, extent // innermost, length - 1), innermost]


@lru_cache(maxsize=4096)
def _partition_table(
    extent: int, length: int, position: int, inner: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    choices = tuple(d for d in divisors(extent) if d % inner == 0)
    weights = [
        count_factorizations(extent // d, position) * count_factorizations(d, length - position)
        for d in choices
    ]
    return choices, tuple(accumulate(weights))


def sample_partitioned(rng: Rng, extent: int, length: int, position: int, inner: int) -> list[int]:
    """Draw a tile whose factors from ``position`` on have a product divisible by ``inner``."""
    choices, cumulative = _partition_table(extent, length, position, inner)
    product = choices[rng.pick(cumulative)]
    return [
        *sample_factorization(rng, extent // product, position),
        *sample_factorization(rng, product, length - position),
    ]


MAX_WASTE = 4
"""A covering tile has at most one in so many iterations more than the loop."""


@lru_cache(maxsize=4096)
def covering_pairs(extent: int, length: int, max_innermost: int) -> tuple[tuple[int, int], ...]:
    """List the pairs (innermost factor, product of the others) that tiles of ``sample_tile`` have.

    The innermost factor divides the extent or is a multiple of 4 (whole vectors); the others
    multiply to the number of inner tiles, or to it rounded up to a multiple of 2, 4 or 8.
    """
    if length == 1:
        return ((extent, 1),)
    limit = max_innermost if max_innermost > 0 else extent
    inner = {d for d in divisors(extent) if d <= limit}
    inner.update(range(4, min(limit, extent + 3) + 1, 4))
    pairs = []
    for innermost in sorted(inner):
        count = -(-extent // innermost)
        rounded = {count, *(-(-count // step) * step for step in (2, 4, 8) if length > 2)}
        for outer in sorted(rounded):
            if (innermost * outer - extent) * MAX_WASTE <= extent:
                pairs.append((innermost, outer))
    return tuple(pairs)


def is_tight(extent: int, factors: Sequence[int]) -> bool:
    """Whether factors cover an extent and the first one is minimal."""
    total = prod(factors)
    return total >= extent > total - total // factors[0]


@lru_cache(maxsize=4096)
def _covering_weights(extent: int, length: int, max_innermost: int) -> tuple[int, ...]:
    pairs = covering_pairs(extent, length, max_innermost)
    return tuple(accumulate(count_factorizations(outer, length - 1) for _, outer in pairs))


def sample_covering(rng: Rng, extent: int, length: int, max_innermost: int) -> list[int]:
    """Draw uniformly from the tiles that cover an extent with little waste; see above."""
    pairs = covering_pairs(extent, length, max_innermost)
    cumulative = _covering_weights(extent, length, max_innermost)
    while True:
        # Where nothing is rounded up the tile is always tight, so this ends soon.
        innermost, outer = pairs[rng.pick(cumulative)]
        factors = [*sample_factorization(rng, outer, length - 1), innermost]
        if is_tight(extent, factors):
            return factors
