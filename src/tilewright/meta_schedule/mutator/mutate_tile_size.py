"""Move a factor from one loop of a tile to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.meta_schedule.column import Column
from tilewright.meta_schedule.mutator.base import Mutator, other_option
from tilewright.tir.schedule.sampling import prime_factors

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MutateTileSize(Mutator):
    """Divide one factor of a tile by a prime (or a product of two) and multiply another by it.

    A step outside the options (too large an innermost factor) becomes a jump to a random option.
    """

    name = "mutate-tile-size"

    def applies(self, column: Column) -> bool:
        """Tiles only."""
        return column.use == "tile" and len(column.options) > 1

    def mutate(
        self, column: Column, chosen: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return neighbours of the chosen tiles."""
        rows = column.options[chosen].copy()
        count, parts = rows.shape
        primes = np.array([prime for prime, _ in prime_factors(column.extent)], dtype=np.int64)
        if parts < 2 or not len(primes):
            return other_option(column, chosen, rng)
        source = rng.integers(0, parts, count)
        target = (source + rng.integers(1, parts, count)) % parts
        step = primes[rng.integers(0, len(primes), count)]
        twice = rng.random(count) < 0.3
        step = np.where(twice, step * primes[rng.integers(0, len(primes), count)], step)
        every = np.arange(count)
        possible = rows[every, source] % step == 0
        rows[every, source] //= np.where(possible, step, 1)
        rows[every, target] *= np.where(possible, step, 1)
        found = column.find(rows)
        moved = possible & (found >= 0)
        return np.where(moved, found, other_option(column, chosen, rng))
