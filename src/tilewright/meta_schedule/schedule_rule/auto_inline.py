"""Inline what costs little to compute again, so that it needs no buffer and no pass over memory."""

from __future__ import annotations

from tilewright.ir import as_int
from tilewright.meta_schedule.schedule_rule.base import SCHEDULE_RULES, NotApplicable, ScheduleRule
from tilewright.meta_schedule.schedule_rule.patterns import (
    has_branch,
    is_expensive,
    is_output,
    is_spatial,
    single_store,
)
from tilewright.support.errors import ScheduleError
from tilewright.tir.analysis import block_dependencies
from tilewright.tir.schedule import BlockRV, Schedule


class AutoInline(ScheduleRule):
    """Inline elementwise blocks into their consumers, or else into an elementwise producer.

    What a reduction reads is computed anew for each of its steps. So blocks with branches
    (padding) or expensive intrinsics are not inlined into reductions; ``RandomComputeLocation``
    finds a place for them.
    """

    name = "auto-inline"

    def __init__(self, *, into_producer: bool = True, into_consumer: bool = True) -> None:
        self.into_producer = into_producer
        self.into_consumer = into_consumer

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Inline the block if a primitive agrees."""
        realize = sch.state.get_block(block)
        item = realize.block
        if not is_spatial(item) or single_store(item) is None:
            return NotApplicable("not a single elementwise store")
        scope = sch.state.scope_block(realize)
        graph = block_dependencies(scope)
        if self.into_consumer and not is_output(sch, block):
            consumers = [graph.children[name].block for name in graph.consumers(item.name)]
            repeated = any(not is_spatial(consumer) for consumer in consumers)
            if repeated and (has_branch(item) or is_expensive(item)):
                return NotApplicable("a reduction would evaluate it again and again")
            if len(consumers) > 1 and is_expensive(item):
                return NotApplicable("several consumers would each evaluate it")
            try:
                sch.compute_inline(block)
            except ScheduleError:
                pass  # The primitive says no; the other direction may still do.
            else:
                return [sch]
        if self.into_producer:
            producers = [graph.children[name].block for name in graph.producers(item.name)]
            if len(producers) == 1 and is_spatial(producers[0]):
                try:
                    sch.reverse_compute_inline(block)
                except ScheduleError:
                    return NotApplicable("not invertible")
                return [sch]
        return NotApplicable("no primitive can inline it")


class InlineConstantScalars(ScheduleRule):
    """Inline blocks that only store one scalar that depends on nothing."""

    name = "inline-constant-scalars"

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Inline the block if it holds a constant scalar."""
        realize = sch.state.get_block(block)
        item = realize.block
        if item.reads or single_store(item) is None or item.init is not None:
            return NotApplicable("not a constant")
        if any(as_int(size) != 1 for region in item.writes for size in region.buffer.shape):
            return NotApplicable("not a scalar")
        try:
            sch.compute_inline(block)
        except ScheduleError:
            return NotApplicable("it is an output, or something writes it again")
        return [sch]


SCHEDULE_RULES.register("auto-inline", AutoInline)
SCHEDULE_RULES.register("inline-constant-scalars", InlineConstantScalars)
