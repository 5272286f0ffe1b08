"""Annotate the root block with limits for parallelising, vectorising and unrolling loops.

The postproc ``rewrite-parallel-vectorize-unroll`` applies them once all tiles are known.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.meta_schedule.schedule_rule.base import NotApplicable, ScheduleRule
from tilewright.target import Target
from tilewright.tir.attrs import PARALLEL_KEY, UNROLL_KEY, VECTORIZE_KEY
from tilewright.tir.schedule import BlockRV, ExprRV, Schedule


class ParallelizeVectorizeUnroll(ScheduleRule):
    """Annotate the root block.

    ``max_jobs_per_core`` are the choices for the number of parallel jobs (none with one core),
    ``max_vectorize_extent`` the longest vector loop, ``unroll_max_steps`` the choices for how many
    statements unrolling may produce.
    """

    name = "parallelize-vectorize-unroll"

    def __init__(
        self,
        max_jobs_per_core: Sequence[int] = (1, 2, 4, 16),
        max_vectorize_extent: int = 64,
        unroll_max_steps: Sequence[int] = (0, 16, 64, 256),
    ) -> None:
        self.max_jobs_per_core = tuple(max_jobs_per_core)
        self.max_vectorize_extent = max_vectorize_extent
        self.unroll_max_steps = tuple(unroll_max_steps)
        self.cores = 1
        self.on_gpu = False

    def initialize(self, target: Target) -> None:
        """Learn the number of cores; a GPU's threads are bound by other rules."""
        self.on_gpu = target.kind == "cuda"
        self.cores = 1 if self.on_gpu else target.num_cores

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Annotate, if the block is the root."""
        if sch.state.parent(sch.state.get_block(block)) is not None:
            return NotApplicable("not the root block")
        if self.cores > 1 and self.max_jobs_per_core:
            choices = [self.cores * jobs for jobs in self.max_jobs_per_core]
            sch.annotate(block, PARALLEL_KEY, _choose(sch, choices))
        if self.max_vectorize_extent > 1 and not self.on_gpu:
            sch.annotate(block, VECTORIZE_KEY, self.max_vectorize_extent)
        if self.unroll_max_steps:
            sch.annotate(block, UNROLL_KEY, _choose(sch, self.unroll_max_steps))
        return [sch]


def _choose(sch: Schedule, choices: Sequence[int]) -> int | ExprRV:
    if len(choices) == 1:
        return choices[0]
    return sch.sample_categorical(list(choices), [1.0 / len(choices)] * len(choices))
