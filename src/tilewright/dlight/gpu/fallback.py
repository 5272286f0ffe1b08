"""The fallback: every block is a kernel of its own, with as many threads as its form allows.

Elementwise blocks and reductions have good forms of their own. Of any other nest the loops that
may run at once are bound; what has none, and what is outside of blocks, runs on one thread.
"""

from __future__ import annotations

from tilewright.scheduling import GPUScheduleRule, NotApplicable, warn_of_unscheduled
from tilewright.scheduling.blocks import inline_injective
from tilewright.scheduling.gpu import place_scratch, run_rest_alone, schedule_rest
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

_OUTSIDE = "it isn't in blocks"


class Fallback(GPUScheduleRule):
    """Schedules each block separately; warns of what runs on one thread."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Always apply."""
        inline_injective(sch)
        alone = {"root": _OUTSIDE} if run_rest_alone(sch) else {}
        alone |= schedule_rest(sch, target)
        place_scratch(sch)
        warn_of_unscheduled(sch, alone)
        return sch
