"""Reduce with the threads of a GPU's block, where there are too few outputs for all threads."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.meta_schedule.schedule_rule.base import NotApplicable, ScheduleRule
from tilewright.meta_schedule.schedule_rule.patterns import describe_reduction
from tilewright.scheduling.gpu import limits_of
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.attrs import TILED
from tilewright.tir.schedule import BlockRV, ExprRV, Schedule

STRUCTURE = "cross-thread-reduction"
"""What ``TILED`` says of blocks that this rule has bound."""


class CrossThreadReduction(ScheduleRule):
    """Fork a schedule in which a block of threads computes each output.

    ``thread_extents`` are the choices for how many threads, those that the target allows. Where
    operands are reused and there are more outputs than steps, tiling does better.
    """

    name = "cross-thread-reduction"

    def __init__(self, thread_extents: Sequence[int] = (4, 8, 16, 32, 64, 128, 256, 512)) -> None:
        self.thread_extents = tuple(thread_extents)
        self._learn(Target("cuda"))

    def initialize(self, target: Target) -> None:
        """Learn how many threads a block may have."""
        self._learn(target)

    def _learn(self, target: Target) -> None:
        limits = limits_of(target)
        self.max_threads_per_block = limits.max_threads
        self.warp_size = limits.warp_size

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Return the unchanged schedule and its fork."""
        found = describe_reduction(sch, block)
        if isinstance(found, NotApplicable):
            return found
        length = prod(found.extents[axis] for axis in found.reduce)
        outputs = prod(found.extents[axis] for axis in found.spatial)
        if found.reused() and outputs >= length:
            return NotApplicable("there are outputs enough for all threads")
        useful = [n for n in self.thread_extents if n <= min(length, self.max_threads_per_block)]
        if not useful:
            return NotApplicable("the reduction is short")
        fork = sch.copy(seed=sch.fork_seed())
        try:
            self._bind(fork, block, found.spatial, found.reduce, useful)
        except ScheduleError as error:
            return NotApplicable(error.message)
        return [sch, fork]

    @staticmethod
    def _bind(
        sch: Schedule,
        block: BlockRV,
        spatial: Sequence[int],
        reduce: Sequence[int],
        extents: Sequence[int],
    ) -> None:
        loops = sch.get_loops(block)
        outer, inner = [loops[n] for n in spatial], [loops[n] for n in reduce]
        sch.reorder(*outer, *inner)
        fused = sch.fuse(*inner) if len(inner) > 1 else inner[0]
        threads: int | ExprRV = extents[0]
        if len(extents) > 1:
            threads = sch.sample_categorical(list(extents), [1.0 / len(extents)] * len(extents))
        _, own = sch.split(fused, [None, threads])
        sch.bind(own, "threadIdx.x")
        if not outer:
            outer = [sch.add_unit_loop(sch.get_loops(block)[0])]
        sch.bind(sch.fuse(*outer) if len(outer) > 1 else outer[0], "blockIdx.x")
        sch.annotate(block, TILED, STRUCTURE)
