"""Coordinate descent: change one decision of the best candidate at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.search_strategy.base import SearchStrategy, candidate_of


class CoordinateDescent(SearchStrategy):
    """Start from ``starts`` random candidates; then measure neighbours of the best ``centres``.

    A neighbour differs in one decision: a tile by one prime factor that another of its loops has, a
    choice by one place. When all neighbours of the best ones were tried, it starts again from
    random candidates. Records of a database are starting points, too.
    """

    name = "coordinate-descent"

    def __init__(
        self, *, starts: int = 8, centres: int = 2, max_fail_count: int = 256, seed: int = 0
    ) -> None:
        super().__init__(seed=seed)
        self.starts = starts
        self.centres = centres
        self.max_fail_count = max_fail_count

    def generate_measure_candidates(
        self, count: int | None = None
    ) -> list[MeasureCandidate] | None:
        """Return untried neighbours of the best candidates, those with the best score first."""
        count = self._wanted(count)
        made: list[MeasureCandidate] = []
        known = [(seconds, key) for key, seconds in self.times.items() if np.isfinite(seconds)]
        if len(known) >= min(self.starts, count):
            for _, (number, data) in sorted(known)[: self.centres]:
                centre = np.frombuffer(data, dtype=np.int64)
                self._take(number, self._neighbours(number, centre), made, count)
        failed = 0
        while len(made) < count and failed < self.max_fail_count and self.variants:
            number = int(self.rng.integers(len(self.variants)))
            before = len(made)
            self._take(number, self.variants[number].draw(1, self.rng), made, count)
            failed = 0 if len(made) > before else failed + 1
        return made or None

    def _take(self, number: int, rows: Any, made: list[MeasureCandidate], count: int) -> None:
        """Complete untried rows of a variant, by score, until there are ``count`` candidates."""
        new = [row for row in rows if (number, row.tobytes()) not in self.times]
        if not new or len(made) >= count:
            return
        evaluation = self.variants[number].evaluate(np.stack(new))
        scores = np.zeros(len(new))
        if self.cost_model is not None:
            scores = np.asarray(self.cost_model.score(self.context.hash, evaluation))
        for place in np.argsort(-scores, kind="stable"):
            if len(made) >= count:
                return
            candidate = self._finish(number, new[place], candidate_of(evaluation, int(place)))
            if candidate is not None:
                made.append(candidate)

    def _neighbours(self, number: int, centre: object) -> list[Any]:
        return list(_neighbours(self.variants[number].columns, centre))


def _neighbours(columns: Any, centre: Any) -> Iterator[Any]:
    """Yield the rows that differ from ``centre`` in one decision, by one step."""
    for place, column in enumerate(columns):
        own = int(centre[place])
        if column.use == "tile":
            options = _steps_of_tile(column, own)
        else:
            options = [n for n in (own - 1, own + 1) if 0 <= n < len(column.options)]
        for option in options:
            row = centre.copy()
            row[place] = option
            yield row


def _steps_of_tile(column: Any, own: int) -> list[int]:
    """Return the options with a prime factor moved from one loop to another."""
    tile = column.options[own]
    ratios = column.options / tile
    # Two loops differ, one by the inverse of the other; both by a prime.
    changed = (ratios != 1).sum(axis=1)
    found = []
    for option in np.flatnonzero(changed == 2):
        factor = ratios[option].max()
        balanced = np.isclose(ratios[option].min() * factor, 1.0)
        if balanced and float(factor).is_integer() and _is_prime(int(factor)):
            found.append(int(option))
    return found


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, int(number**0.5) + 1))
