"""Compute a block somewhere else."""

from __future__ import annotations

from tilewright.meta_schedule.column import Column
from tilewright.meta_schedule.mutator.base import Mutator


class MutateComputeLocation(Mutator):
    """Move candidates to a variant of their sketch with another compute location."""

    name = "mutate-compute-location"
    structural = True

    def applies(self, column: Column) -> bool:
        """Never: compute locations are not columns; each has its own variant."""
        return False
