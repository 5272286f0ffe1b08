"""Inline what is cheap to recompute, so that it needs no buffer and no pass over memory."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Call, IntImm, Op, as_int, collect
from tilewright.meta_schedule.schedule_rule.base import NotApplicable, ScheduleRule
from tilewright.meta_schedule.schedule_rule.patterns import (
    is_expensive,
    is_output,
    is_spatial,
    operations,
    reads_of,
    single_store,
)
from tilewright.support.errors import ScheduleError
from tilewright.tir import Block, BufferLoad
from tilewright.tir.analysis import block_dependencies, has_branch
from tilewright.tir.schedule import BlockRV, Schedule

_CHEAP = 8
"""Operations that a reduction may evaluate again for each of its steps."""
_MOST_OPERATIONS = 64
"""Operations that inlining may make of a block that is read at several points."""


class AutoInline(ScheduleRule):
    """Inline elementwise blocks into their consumers, or else into an elementwise producer.

    A block inlined into a reduction is recomputed at each of its steps. So blocks with branches
    (padding), expensive intrinsics or many operations are not inlined into reductions, nor are
    large ones that are read at many points, such as the transforms of a Winograd convolution: that
    would give programs of many thousand statements. ``RandomComputeLocation`` places them.

    Further blocks stay as they are on request: those that read nothing, without
    ``inline_const_tensor``; those with ``if_then_else``; those that read an element several times
    (``require_injective``) or along other axes than it is written (``require_ordered``); and those
    that call an operator of ``disallow_op``.
    """

    name = "auto-inline"

    def __init__(
        self,
        into_producer: bool = True,
        into_consumer: bool = True,
        inline_const_tensor: bool = True,
        disallow_if_then_else: bool = False,
        require_injective: bool = False,
        require_ordered: bool = False,
        disallow_op: Sequence[str] | None = None,
    ) -> None:
        self.into_producer = into_producer
        self.into_consumer = into_consumer
        self.inline_const_tensor = inline_const_tensor
        self.disallow_if_then_else = disallow_if_then_else
        self.require_injective = require_injective
        self.require_ordered = require_ordered
        self.disallow_op = [Op.get(name.rpartition(".")[2]).name for name in disallow_op or ()]

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Inline the block if a primitive accepts."""
        realize = sch.state.get_block(block)
        item = realize.block
        if not is_spatial(item) or single_store(item) is None:
            return NotApplicable("not a single elementwise store")
        if item.writes[0].buffer.scope != "global":
            return NotApplicable("it is a copy into a memory of its own")
        if (forbidden := self._forbidden(item)) is not None:
            return NotApplicable(forbidden)
        scope = sch.state.scope_block(realize)
        graph = block_dependencies(scope)
        if self.into_consumer and not is_output(sch, block):
            consumers = [graph.children[name].block for name in graph.consumers(item.name)]
            refused = _repeated(item, consumers)
            if refused is not None:
                return NotApplicable(refused)
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

    def _forbidden(self, item: Block) -> str | None:
        """Return which of the rule's options keeps a block, if one does."""
        called = {call.op.name for call in collect(item.body, Call)}
        if not self.inline_const_tensor and not item.reads:
            return "inline_const_tensor is off, and it reads nothing"
        if self.disallow_if_then_else and "if_then_else" in called:
            return "disallow_if_then_else, and it has one"
        banned = called & set(self.disallow_op)
        if banned:
            return f"disallow_op, and it calls {', '.join(sorted(banned))}"
        if not (self.require_injective or self.require_ordered):
            return None
        places = {axis.min: n for n, axis in enumerate(item.writes[0].region)}
        for load in collect(item.body, BufferLoad):
            read = [places.get(index) for index in load.indices if not isinstance(index, IntImm)]
            known = [place for place in read if place is not None]
            if self.require_injective and (len(known) < len(read) or len(set(known)) < len(known)):
                return f"require_injective, and it reads {load!r}"
            if self.require_ordered and known != sorted(known):
                return f"require_ordered, and it reads {load!r}"
        return None


def _repeated(item: Block, consumers: Sequence[Block]) -> str | None:
    """Return why inlining would evaluate a block too often, if so."""
    steps = operations(item)
    dear = is_expensive(item)
    reduced = any(not is_spatial(consumer) for consumer in consumers)
    if reduced and (dear or has_branch(item) or steps > _CHEAP):
        return "a reduction would evaluate it again and again"
    if len(consumers) > 1 and dear:
        return "several consumers would each evaluate it"
    points = max((reads_of(consumer, item.writes[0].buffer) for consumer in consumers), default=0)
    if points > 1 and points * steps > _MOST_OPERATIONS:
        return f"its {steps} operations would be there {points} times"
    return None


class InlineConstantScalars(ScheduleRule):
    """Inline blocks that only store one constant scalar."""

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
