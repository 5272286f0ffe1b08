"""Bind the loops of blocks that no other rule has bound to a GPU's blocks and threads."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.meta_schedule.schedule_rule.base import NotApplicable, ScheduleRule
from tilewright.meta_schedule.schedule_rule.binding import bind_blocks_and_threads
from tilewright.scheduling.gpu import limits_of
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.schedule import BlockRV, ExprRV, Schedule
from tilewright.tir.walk import child_blocks

_EXTENTS = (32, 64, 128, 256, 512, 1024)


class AutoBind(ScheduleRule):
    """Fuse the outer loops, and divide them among blocks and threads.

    ``thread_extents`` are the choices for the threads of a block, those that the target allows.
    With more work than ``max_threadblocks`` full blocks, threads have several elements each.
    """

    name = "auto-bind"

    def __init__(
        self,
        max_threadblocks: int = 256,
        thread_extents: Sequence[int] | None = None,
        max_threads_per_block: int = -1,
    ) -> None:
        self.max_threadblocks = max_threadblocks
        self.thread_extents = _EXTENTS if thread_extents is None else tuple(thread_extents)
        self.max_threads_per_block = max_threads_per_block
        self._limit(Target("cuda"))

    def _limit(self, target: Target) -> None:
        stated = self.max_threads_per_block
        self.max_threads = stated if stated > 0 else limits_of(target).max_threads

    def initialize(self, target: Target) -> None:
        """Learn how many threads a block may have."""
        self._limit(target)

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Bind the loops of a block that holds no others."""
        realize = sch.state.get_block(block)
        if child_blocks(realize.block):
            return NotApplicable("the block holds others")
        extents = [n for n in self.thread_extents if n <= self.max_threads] or [self.max_threads]

        def choose(extent: int) -> int | ExprRV:
            # More threads than there is work would only wait.
            useful = [n for n in extents if n <= extent] or extents[:1]
            if len(useful) == 1:
                return useful[0]
            return fork.sample_categorical(useful, [1.0 / len(useful)] * len(useful))

        fork = sch.copy(seed=sch.fork_seed())
        try:
            bound = bind_blocks_and_threads(
                fork, block, self.max_threadblocks, self.max_threads, choose
            )
        except ScheduleError as error:
            return NotApplicable(error.message)
        return [fork] if bound else NotApplicable("it is bound already")
