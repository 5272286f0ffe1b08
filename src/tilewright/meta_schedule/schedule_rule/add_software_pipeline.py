"""Fetch the next tiles of operands while the present ones are multiplied."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.meta_schedule.schedule_rule.base import NotApplicable, ScheduleRule
from tilewright.support.errors import TuneError
from tilewright.tir import For, SeqStmt
from tilewright.tir.attrs import COOPERATIVE_FETCH, PIPELINE_ORDER, PIPELINE_STAGE, TILED
from tilewright.tir.schedule import BlockRV, LoopRV, Schedule
from tilewright.tir.walk import child_blocks


class AddSoftwarePipeline(ScheduleRule):
    """Fork a schedule in which the loop that fetches a block's tiles is software-pipelined.

    The copies that threads share are ``distance`` iterations ahead of what reads them, one fork for
    each of ``distances``. Shared memory is multiplied accordingly.
    """

    name = "add-software-pipeline"

    def __init__(self, distances: Sequence[int] = (1,)) -> None:
        if not distances or any(distance < 1 for distance in distances):
            raise TuneError(f"distances are positive numbers of iterations, got {list(distances)}")
        self.distances = tuple(distances)

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Return the unchanged schedule and its forks."""
        if TILED not in sch.get(block).annotations:
            return NotApplicable("no rule has tiled the block")
        found = _fetching_loop(sch, block)
        if found is None:
            return NotApplicable("no loop around it fetches its operands")
        loop, is_fetch = found
        made = [sch]
        for distance in self.distances:
            fork = sch.copy(seed=sch.fork_seed())
            stages = [0 if fetch else distance for fetch in is_fetch]
            fork.annotate(loop, PIPELINE_STAGE, stages)
            fork.annotate(loop, PIPELINE_ORDER, list(range(len(stages))))
            made.append(fork)
        return made


def _fetching_loop(sch: Schedule, block: BlockRV) -> tuple[LoopRV, list[bool]] | None:
    """Return the loop in which operands are fetched, and which of its statements do so."""
    for rv in sch.get_loops(block):
        loop = sch.get(rv)
        if type(loop) is not For or type(loop.body) is not SeqStmt:
            continue
        fetches = [
            all(COOPERATIVE_FETCH in realize.block.annotations for realize in child_blocks(part))
            for part in loop.body.stmts
        ]
        # What is fetched comes first, and something reads it.
        if any(fetches) and not fetches[-1] and fetches == sorted(fetches, reverse=True):
            return rv, fetches
    return None
