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
        return self._drawn(count, self.max_fail_count, self._draw) if self.variants else None

    def _draw(self, failed: int) -> MeasureCandidate | None:
        """Complete random decisions of a random variant; ``None`` if refused or known."""
        number = int(self.rng.integers(len(self.variants)))
        variant = self.variants[number]
        row = variant.draw(1, self.rng)[0]
        if (number, row.tobytes()) in self.times:
            return None
        evaluation = variant.evaluate(row[None, :])
        if not evaluation.valid[0] and failed <= self.max_fail_count // 2:
            return None
        return self._finish(number, row, candidate_of(evaluation, 0))
