"""Random search: sketches with random decisions."""

from __future__ import annotations

from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.search_strategy.base import (
    SearchStrategy,
    candidate_of,
)


class ReplayTrace(SearchStrategy):
    """Draw candidates uniformly, first the variant, then its decisions; for comparison.

    Gives up after ``max_fail_count`` consecutive draws that were already known or refused.
    """

    name = "replay-trace"

    def __init__(self, max_fail_count: int = 100, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.max_fail_count = max_fail_count

    def generate_measure_candidates(
        self, count: int | None = None
    ) -> list[MeasureCandidate] | None:
        """Return random candidates that were not measured yet."""
        count = self._wanted(count)
        made: list[MeasureCandidate] = []
        failed = 0
        while len(made) < count and failed < self.max_fail_count and self.variants:
            number = int(self.rng.integers(len(self.variants)))
            variant = self.variants[number]
            row = variant.draw(1, self.rng)[0]
            candidate = None
            if (number, row.tobytes()) not in self.times:
                evaluation = variant.evaluate(row[None, :])
                if evaluation.valid[0] or failed > self.max_fail_count // 2:
                    candidate = self._finish(number, row, candidate_of(evaluation, 0))
            if candidate is None:
                failed += 1
            else:
                failed = 0
                made.append(candidate)
        return made or None
