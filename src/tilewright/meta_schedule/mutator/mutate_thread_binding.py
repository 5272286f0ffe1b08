"""Change how many threads of a GPU a loop is divided among."""

from __future__ import annotations

from tilewright.meta_schedule.column import Column
from tilewright.meta_schedule.mutator.base import Mutator


class MutateThreadBinding(Mutator):
    """Change the number of threads that ``AutoBind`` or ``CrossThreadReduction`` sampled."""

    name = "mutate-thread-binding"

    def applies(self, column: Column) -> bool:
        """Whether the decision is the extent of a loop bound to threads."""
        return column.use == "thread"
