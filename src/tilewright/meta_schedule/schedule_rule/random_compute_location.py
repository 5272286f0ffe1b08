"""Let the search choose where a block is computed: separately, in a consumer's loop, or inline."""

from __future__ import annotations

from tilewright.meta_schedule.schedule_rule.base import NotApplicable, ScheduleRule
from tilewright.meta_schedule.schedule_rule.patterns import (
    is_output,
    is_prepacking,
    is_spatial,
    own_loops,
)
from tilewright.support.errors import ScheduleError
from tilewright.tir.analysis import block_dependencies
from tilewright.tir.attrs import TILED
from tilewright.tir.schedule import BlockRV, Schedule


class RandomComputeLocation(ScheduleRule):
    """Sample a compute location for blocks in a nest of their own (mostly padding)."""

    name = "random-compute-location"

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Sample a location and move the block there."""
        realize = sch.state.get_block(block)
        if TILED in realize.block.annotations or not is_spatial(realize.block):
            return NotApplicable("not an elementwise block")
        if is_prepacking(realize.block):
            return NotApplicable("it runs before the program")
        if is_output(sch, block) or own_loops(sch, realize) is None:
            return NotApplicable("an output, or it has no loops of its own")
        graph = block_dependencies(sch.state.scope_block(realize))
        if not graph.consumers(realize.block.name):
            return NotApplicable("nothing consumes it")
        fork = sch.copy()
        try:
            location = fork.sample_compute_location(block)
            fork.compute_at(block, location, preserve_unit_loops=True)
        except ScheduleError:
            return NotApplicable("there is no other place for it")
        return [fork]
