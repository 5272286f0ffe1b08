"""The fallback: every block is a kernel of its own, with as many threads as its form allows.

Elementwise blocks and reductions have good forms of their own. Of any other nest the loops that
may run at once are bound; what has none, and what is outside of blocks, runs on one thread.
"""

from __future__ import annotations

from tilewright.ir import pre_order
from tilewright.scheduling import NotApplicable, ScheduleRule, warn_of_unscheduled
from tilewright.scheduling.blocks import axes_of, inline_injective, is_injective, leaf_blocks
from tilewright.scheduling.gpu import (
    bind_nest,
    calls_the_host,
    is_bound,
    limits_of,
    place_scratch,
    run_rest_alone,
    schedule_injective,
    schedule_reduction,
    why_not_lowered,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block, For, While
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

_OUTSIDE = "it isn't in blocks"
_HOST = "it calls a function of the host"


class Fallback(ScheduleRule):
    """Schedules each block separately; warns of what runs on one thread."""

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Always apply."""
        inline_injective(sch)
        alone: dict[str, str] = {}
        if run_rest_alone(sch):
            alone["root"] = _OUTSIDE
        for name in [sch.get(rv).name for rv in leaf_blocks(sch)]:
            rv = sch.get_block(name)
            if is_bound(sch, rv):
                continue
            if calls_the_host(sch.get(rv)):
                alone[name] = _HOST
                continue
            reason = schedule_block(sch, rv, target)
            if reason is not None:
                alone[name] = reason
        place_scratch(sch)
        warn_of_unscheduled(sch, alone)
        return sch


def schedule_block(sch: Schedule, rv: BlockRV, target: Target) -> str | None:
    """Make a kernel of the nest of a block; returns why only one thread runs it, if so."""
    attempt = sch.copy()
    try:
        if axes_of(attempt, rv) is not None and _is_simple(attempt, rv):
            schedule = schedule_injective if is_injective(attempt, rv) else schedule_reduction
            reason = schedule(attempt, rv, target)
            sch.become(attempt)
            return reason
    except ScheduleError:
        pass  # it is a nest like any other
    return bind_nest(sch, rv, limits_of(target), lambda made: why_not_lowered(made, target) is None)


def _is_simple(sch: Schedule, rv: BlockRV) -> bool:
    """Whether a block is one formula: such blocks are lowered whatever threads they have."""
    return not any(isinstance(item, (Block, While, For)) for item in pre_order(sch.get(rv).body))
