"""All candidates of a small design space, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.search_strategy.base import SearchStrategy, candidate_of
from tilewright.meta_schedule.search_strategy.design import Variant
from tilewright.support.errors import TuneError
from tilewright.tir.schedule import Schedule

_AT_ONCE = 64


class Exhaustive(SearchStrategy):
    """Measure every candidate once: first those of the first variant, its last decision fastest.

    Raises ``TuneError`` in ``pre_tuning`` if there are more than ``max_candidates``.
    """

    name = "exhaustive"

    def __init__(self, *, max_candidates: int = 10_000, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.max_candidates = max_candidates
        self._rows: Iterator[tuple[int, Any]] = iter(())

    def _variants(self, spaces: Sequence[Schedule]) -> list[Variant]:
        made = super()._variants(spaces)
        size = sum(variant.size for variant in made)
        if size > self.max_candidates or any(variant.is_sampled for variant in made):
            raise TuneError(
                f"the design space of task {self.context.task_name} has {size} candidates, an "
                f"exhaustive search takes up to {self.max_candidates}; raise max_candidates, or "
                "take the strategy 'evolutionary'"
            )
        self._rows = _all_rows(made)
        return made

    def generate_measure_candidates(
        self, count: int | None = None
    ) -> list[MeasureCandidate] | None:
        """Return the next candidates that were not measured yet."""
        count = self._wanted(count)
        made: list[MeasureCandidate] = []
        while len(made) < count:
            following = next(self._rows, None)
            if following is None:
                break
            number, row = following
            if (number, row.tobytes()) in self.times:
                continue
            # Estimates only tell the cost model what it sees: no candidate is left out by them.
            evaluation = self.variants[number].evaluate(row[None, :])
            candidate = self._finish(number, row, candidate_of(evaluation, 0))
            if candidate is not None:
                made.append(candidate)
        return made or None

    def post_tuning(self) -> None:
        """Release the task."""
        super().post_tuning()
        self._rows = iter(())


def _all_rows(variants: Sequence[Variant]) -> Iterator[tuple[int, Any]]:
    """Yield the number of each variant with each of its rows."""
    for number, variant in enumerate(variants):
        shape = tuple(len(column.options) for column in variant.columns)
        for start in range(0, variant.size, _AT_ONCE):
            places = np.arange(start, min(start + _AT_ONCE, variant.size))
            if not shape:
                yield number, np.zeros(0, dtype=np.int64)
                continue
            for row in np.stack(np.unravel_index(places, shape), axis=1).astype(np.int64):
                yield number, row
