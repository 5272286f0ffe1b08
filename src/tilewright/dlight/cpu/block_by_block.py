"""The fallback: every block on its own, parallel over its outer loops and vectorised."""

from __future__ import annotations

import logging

from tilewright.dlight.base import NotApplicable, ScheduleRule
from tilewright.dlight.cpu.common import (
    inline_injective,
    is_injective,
    leaf_blocks,
    schedule_injective,
    schedule_reduction,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

logger = logging.getLogger("tilewright.dlight")


class BlockByBlock(ScheduleRule):
    """Schedules each block separately; a block that resists stays a plain loop nest."""

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Never refuses."""
        inline_injective(sch)
        names = [sch.get(rv).name for rv in leaf_blocks(sch)]
        for name in names:
            attempt = sch.copy()
            rv = attempt.get_block(name)
            try:
                if is_injective(attempt, rv):
                    schedule_injective(attempt, rv, target)
                else:
                    schedule_reduction(attempt, rv, target)
            except ScheduleError as error:
                logger.debug("block %s stays as it is: %s", name, str(error).split("\n")[0])
                continue
            sch = attempt
        return sch
