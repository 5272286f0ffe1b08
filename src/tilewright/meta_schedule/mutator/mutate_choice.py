"""Change the unrolling limit, or the number of parallel jobs."""

from __future__ import annotations

from tilewright.meta_schedule.column import Column
from tilewright.meta_schedule.mutator.base import Mutator


class MutateUnroll(Mutator):
    """Change how many statements unrolling may produce."""

    name = "mutate-unroll"

    def applies(self, column: Column) -> bool:
        """Whether the decision is the root's unroll annotation."""
        return column.use == "unroll"


class MutateParallel(Mutator):
    """Change how many parallel jobs there may be."""

    name = "mutate-parallel"

    def applies(self, column: Column) -> bool:
        """Whether the decision is the root's parallel annotation."""
        return column.use == "parallel"


class MutateChoice(Mutator):
    """Change any other categorical decision (of custom rules)."""

    name = "mutate-choice"

    def applies(self, column: Column) -> bool:
        """Whether the decision is categorical and not an annotation of the default rules."""
        return column.use == "choice"
