"""Random search by making the design space anew for each candidate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir import structural_hash
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.search_strategy.base import SearchStrategy
from tilewright.meta_schedule.search_strategy.design import Variant
from tilewright.tir.schedule import Schedule


class ReplayFunc(SearchStrategy):
    """Run the space generator again, with another seed, for each candidate.

    So a function that schedules may decide in Python what depends on its own samples, which no
    sketch can show. Gives up after ``max_fail_count`` consecutive programs that were already known
    or refused.
    """

    name = "replay-func"

    def __init__(self, *, max_fail_count: int = 64, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.max_fail_count = max_fail_count

    def _variants(self, spaces: Sequence[Schedule]) -> list[Variant]:
        """Return none: what was generated before is of no use here."""
        return []

    def generate_measure_candidates(
        self, count: int | None = None
    ) -> list[MeasureCandidate] | None:
        """Return random candidates that were not measured yet."""
        generator = self.context.space_generator.clone()

        def draw(_: int) -> MeasureCandidate | None:
            generator.seed = int(self.rng.integers(1 << 31))
            spaces = generator.generate_design_space(self.context.mod)
            return self._candidate(spaces) if spaces else None

        return self._drawn(count, self.max_fail_count, draw)

    def _candidate(self, spaces: Sequence[Schedule]) -> MeasureCandidate | None:
        """Complete one of the schedules; ``None`` if it is refused or known."""
        sch = spaces[int(self.rng.integers(len(spaces)))]
        if self._complete(sch) is not None:
            return None
        program = structural_hash(sch.mod)
        if program in self._programs:
            return None
        self._programs.add(program)
        candidate = MeasureCandidate(sch, self.context.args_info)
        key = (-1, program.encode())
        self.times[key] = np.inf
        self._issue(candidate, key)
        return candidate
