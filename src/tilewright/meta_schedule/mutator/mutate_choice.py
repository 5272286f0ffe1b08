"""Choose another limit of unrolling, or another number of parallel jobs."""

from __future__ import annotations

from tilewright.meta_schedule.column import Column
from tilewright.meta_schedule.mutator.base import Mutator


class MutateUnroll(Mutator):
    """Change how many statements unrolling may make."""

    name = "mutate-unroll"

    def applies(self, column: Column) -> bool:
        """The choice that the root's unroll annotation takes."""
        return column.use == "unroll"


class MutateParallel(Mutator):
    """Change how many parallel jobs there may be."""

    name = "mutate-parallel"

    def applies(self, column: Column) -> bool:
        """The choice that the root's parallel annotation takes."""
        return column.use == "parallel"


class MutateChoice(Mutator):
    """Change any other categorical decision (of custom rules)."""

    name = "mutate-choice"

    def applies(self, column: Column) -> bool:
        """Categorical decisions that no annotation of the default rules takes."""
        return column.use == "choice"
