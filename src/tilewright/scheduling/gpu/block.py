"""A kernel of one block, whatever it computes."""

from __future__ import annotations

from tilewright.ir import pre_order
from tilewright.scheduling.blocks import axes_of, is_injective, leaf_blocks
from tilewright.scheduling.gpu.alone import calls_the_host
from tilewright.scheduling.gpu.binding import bind_nest, is_bound
from tilewright.scheduling.gpu.elementwise import schedule_injective
from tilewright.scheduling.gpu.limits import limits_of
from tilewright.scheduling.gpu.lowering import why_not_lowered
from tilewright.scheduling.gpu.reduction import schedule_reduction
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block, For, While
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

_HOST = "it calls a function of the host"


def schedule_rest(sch: Schedule, target: Target) -> dict[str, str]:
    """Make a kernel of each block that isn't bound yet.

    Returns why blocks run on one thread, by their names, or on the host.
    """
    alone: dict[str, str] = {}
    for name in [sch.get(rv).name for rv in leaf_blocks(sch)]:
        rv = sch.get_block(name)
        if is_bound(sch, rv):
            continue
        reason = _HOST if calls_the_host(sch.get(rv)) else schedule_block(sch, rv, target)
        if reason is not None:
            alone[name] = reason
    return alone


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
