"""Change the unrolling limit, or the number of parallel jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.meta_schedule.column import Column
from tilewright.meta_schedule.mutator.base import Mutator, other_option
from tilewright.support.errors import TuneError
from tilewright.target import Target

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MutateUnroll(Mutator):
    """Change how many statements unrolling may produce."""

    name = "mutate-unroll"

    def applies(self, column: Column) -> bool:
        """Whether the decision is the root's unroll annotation."""
        return column.use == "unroll"


class MutateParallel(Mutator):
    """Change how many parallel jobs there may be: at most ``max_jobs_per_core``, if given."""

    name = "mutate-parallel"

    def __init__(self, max_jobs_per_core: int | None = None) -> None:
        if max_jobs_per_core is not None and max_jobs_per_core < 1:
            raise TuneError(f"max_jobs_per_core is positive, not {max_jobs_per_core}")
        self.max_jobs_per_core = max_jobs_per_core
        self.cores = 1

    def initialize(self, target: Target) -> None:
        """Learn the number of cores."""
        self.cores = 1 if target.kind == "cuda" else target.num_cores

    def mutate(
        self, column: Column, chosen: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return other numbers of jobs that are allowed; the same ones where there are none."""
        if self.max_jobs_per_core is None:
            return other_option(column, chosen, rng)
        allowed = np.flatnonzero(column.options[:, 0] <= self.max_jobs_per_core * self.cores)
        if not len(allowed):
            return chosen
        place = np.searchsorted(allowed, chosen)
        steps = rng.integers(1, max(2, len(allowed)), chosen.shape)  # to any other one
        made: NDArray[np.int64] = allowed[(place + steps) % len(allowed)]
        return made

    def applies(self, column: Column) -> bool:
        """Whether the decision is the root's parallel annotation."""
        return column.use == "parallel"


class MutateChoice(Mutator):
    """Change any other categorical decision (of custom rules)."""

    name = "mutate-choice"

    def applies(self, column: Column) -> bool:
        """Whether the decision is categorical and not an annotation of the default rules."""
        return column.use == "choice"
