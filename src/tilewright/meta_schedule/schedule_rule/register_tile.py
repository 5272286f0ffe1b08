"""Tile contractions as the rules do, by each of their best plans.

The rules (``dlight.cpu``) rank plans by an estimate: which axis is vectorised, whether its operand
is read in place or packed, in the call or beforehand, padded or not, and how large tiles are. Here
the best few become sketches without open tile decisions, to be compared by measurement. The
schedule without such a tile goes on to the following rules.
"""

from __future__ import annotations

import logging

from tilewright.dlight.cpu import rank_plans, schedule_plan
from tilewright.meta_schedule.schedule_rule.base import NotApplicable, ScheduleRule
from tilewright.meta_schedule.schedule_rule.patterns import (
    elementwise_consumer,
    has_reduction,
    single_store,
)
from tilewright.scheduling import Reduction, reduction_of
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.attrs import TILED
from tilewright.tir.schedule import BlockRV, Schedule

logger = logging.getLogger("tilewright.meta_schedule")

STRUCTURE = "register-tile"
"""What ``TILED`` says of blocks that this rule has tiled."""


class RegisterTile(ScheduleRule):
    """Fork over plans for register tiles; see the module's docstring.

    ``widths`` is how many tile widths are tried for each axis and way of packing, ``max_forks``
    limits the number of forks of one schedule.
    """

    name = "register-tile"

    def __init__(self, *, widths: int = 3, max_forks: int = 6) -> None:
        self.widths = widths
        self.max_forks = max_forks
        self.target: Target | None = None

    def initialize(self, target: Target) -> None:
        """Learn the target."""
        self.target = target

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Return the schedule without a plan, and one for each plan."""
        if self.target is None or block.func != "main":
            return NotApplicable("the target is not known, or the function is not the task's")
        item = sch.get(block)
        if TILED in item.annotations or not has_reduction(item) or single_store(item) is None:
            return NotApplicable("tiled already, or not a reduction")
        consumers = sch.get_consumers(block)
        if consumers and elementwise_consumer(sch, block) is None:
            return NotApplicable("what follows is not an epilogue")
        found = reduction_of(sch, block)
        if not isinstance(found, Reduction):
            return NotApplicable(found.reason)
        plans = rank_plans(found, self.target, widths=self.widths)
        made = []
        for plan in plans:
            fork = sch.copy(seed=sch.fork_seed())
            try:
                fork.annotate(block, TILED, STRUCTURE)
                schedule_plan(fork, block, plan, self.target)
            except ScheduleError as error:
                logger.debug("register-tile of %s by %s: %s", block, plan, error)
                continue
            made.append(fork)
            if len(made) == self.max_forks:
                break
        if not made:
            return NotApplicable("no operand is reused along an axis that can be vectorised")
        return [sch, *made]
