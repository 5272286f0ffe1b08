"""Give a reduction that has too few outputs more to do at once.

Splits the reduction and lets one part accumulate into elements of its own (``rfactor``): the inner
part becomes vector lanes where the reduction runs along memory, the outer part becomes parallel
where there are too few outputs for all cores.
"""

from __future__ import annotations

import logging
from math import prod
from typing import Any

from tilewright.ir import dtypes, uses_var
from tilewright.meta_schedule.schedule_rule.base import SCHEDULE_RULES, NotApplicable, ScheduleRule
from tilewright.meta_schedule.schedule_rule.multi_level_tiling import TILED
from tilewright.meta_schedule.schedule_rule.patterns import (
    Reduction,
    describe_reduction,
    lanes_for,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.schedule import BlockRV, Schedule
from tilewright.tir.schedule.sampling import divisors

logger = logging.getLogger("tilewright.meta_schedule")


class AddRFactor(ScheduleRule):
    """Fork a schedule with a factored reduction, where that may pay.

    ``max_jobs_per_core`` times the cores is how many outputs make a reduction wide enough;
    ``max_innermost_factor`` limits the inner part.
    """

    name = "add-rfactor"

    def __init__(self, *, max_jobs_per_core: int = 16, max_innermost_factor: int = 64) -> None:
        self.max_jobs_per_core = max_jobs_per_core
        self.max_innermost_factor = max_innermost_factor
        self.cores = 1
        self.vector_bits = 256

    def initialize(self, target: Target) -> None:
        """Learn cores and vector width."""
        self.cores = target.num_cores
        self.vector_bits = target.vector_bits

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Return the schedule as it is, and its forks."""
        if TILED in sch.get(block).annotations:
            return NotApplicable("tiled already")
        found = describe_reduction(sch, block)
        if found is None:
            return NotApplicable("not a reduction with plain loops of constant extents")
        length = prod(found.extents[axis] for axis in found.reduce)
        lanes = lanes_for(dtypes.bits_of(found.output.dtype), self.vector_bits)
        if length < 2 * lanes:
            return NotApplicable("the reduction is short")
        made = [sch]
        if self._along_memory(found):
            made += self._fork(sch, block, found, inner=True, lanes=lanes)
        outputs = prod(found.extents[axis] for axis in found.spatial)
        if self.cores > 1 and outputs < self.cores * self.max_jobs_per_core and length >= 256:
            made += self._fork(sch, block, found, inner=False, lanes=lanes)
        return made if len(made) > 1 else NotApplicable("there are outputs enough")

    @staticmethod
    def _along_memory(found: Reduction) -> bool:
        """Whether a reduction axis, and no spatial one, runs along the operands' memory."""
        if not found.operands:
            return False
        last = [operand.axes[-1] for operand in found.operands if operand.axes]
        reduce = set(found.reduce)
        return any(axes & reduce for axes in last) and not any(
            axes and axes & set(found.spatial) for axes in last
        )

    def _fork(
        self, sch: Schedule, block: BlockRV, found: Reduction, *, inner: bool, lanes: int
    ) -> list[Schedule]:
        fork = sch.copy(seed=sch.fork_seed())
        try:
            loops = fork.get_loops(block)
            reduction = [loops[axis] for axis in found.reduce]
            fused = reduction[0]
            if len(reduction) > 1:
                fused = fork.fuse(*reduction)
            length = prod(found.extents[axis] for axis in found.reduce)
            if inner and not any(
                d % lanes == 0 for d in divisors(length) if d <= self.max_innermost_factor
            ):
                parts = fork.split(fused, [None, lanes])
            else:
                limit = self.max_innermost_factor if inner else 0
                factors = fork.sample_perfect_tile(fused, 2, limit)
                parts = fork.split(fused, factors)
            partial = fork.rfactor(parts[1 if inner else 0], -1 if inner else 0)
            if inner:
                self._keep_in_registers(fork, block, partial)
        except ScheduleError as error:
            logger.debug("add-rfactor of %s: %s", block, error)
            return []
        return [fork]

    @staticmethod
    def _keep_in_registers(sch: Schedule, block: BlockRV, partial: BlockRV) -> None:
        """Compute the lanes of one output just before they are combined, in registers."""
        outer = [
            loop
            for loop, iter_var in zip(sch.get_loops(block), sch.get(block).iter_vars)
            if iter_var.kind == "spatial"
        ]
        sch.set_scope(partial, 0, "local")
        if outer:
            sch.compute_at(partial, outer[-1], preserve_unit_loops=True)
        # Lanes innermost, around them only what they combine with.
        realize = sch.state.get_block(partial)
        lane = realize.block.writes[0].region[-1].min
        binding: dict[Any, Any] = {
            item.var: v for item, v in zip(realize.block.iter_vars, realize.iter_values)
        }
        loops = sch.get_loops(partial)[len(outer) :]
        last = [loop for loop in loops if uses_var(binding[lane], {loop.var})]
        sch.reorder(*[loop for loop in loops if loop not in last], *last)


SCHEDULE_RULES.register("add-rfactor", AddRFactor)
