"""Add parallelism to a reduction with too few outputs.

Splits the reduction loop and factors one of the resulting loops (``rfactor``): the inner loop
becomes vector lanes where the reduction runs along memory, the outer one becomes parallel where
there are too few outputs for all cores.
"""

from __future__ import annotations

import logging
from math import prod

from tilewright.ir import dtypes, uses_var
from tilewright.meta_schedule.schedule_rule.base import NotApplicable, ScheduleRule
from tilewright.meta_schedule.schedule_rule.patterns import (
    Reduction,
    describe_reduction,
    lanes_for,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import REDUCE
from tilewright.tir.schedule import BlockRV, Schedule
from tilewright.tir.schedule.sampling import divisors

logger = logging.getLogger("tilewright.meta_schedule")


class AddRFactor(ScheduleRule):
    """Fork a schedule with a factored reduction, where that may pay off.

    A reduction with at least ``max_jobs_per_core`` outputs per core is wide enough;
    ``max_innermost_factor`` limits the inner loop.
    """

    name = "add-rfactor"

    def __init__(self, max_jobs_per_core: int = 16, max_innermost_factor: int = 64) -> None:
        self.max_jobs_per_core = max_jobs_per_core
        self.max_innermost_factor = max_innermost_factor
        self.cores = 1
        self.vector_bits = 256

    def initialize(self, target: Target) -> None:
        """Learn cores and vector width."""
        self.cores = target.num_cores
        self.vector_bits = target.vector_bits

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Return the unchanged schedule and its forks."""
        found = describe_reduction(sch, block)
        if isinstance(found, NotApplicable):
            return found
        length = prod(found.extents[axis] for axis in found.reduce)
        lanes = lanes_for(dtypes.bits_of(found.output.dtype), self.vector_bits)
        if length < 2 * lanes:
            return NotApplicable("the reduction is short")
        made = [sch]
        if self._along_memory(found):
            made += self._fork(sch, block, found, inner=True)
            if not any(d % lanes == 0 for d in divisors(length) if d <= self.max_innermost_factor):
                made += self._fork(sch, block, found, inner=True, lanes=lanes)
        outputs = prod(found.extents[axis] for axis in found.spatial)
        if self.cores > 1 and outputs < self.cores * self.max_jobs_per_core and length >= 256:
            made += self._fork(sch, block, found, inner=False)
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
        self,
        sch: Schedule,
        block: BlockRV,
        found: Reduction,
        *,
        inner: bool,
        lanes: int | None = None,
    ) -> list[Schedule]:
        """Factor the inner or outer loop, of sampled size or of ``lanes`` (need not divide)."""
        fork = sch.copy(seed=sch.fork_seed())
        try:
            loops = fork.get_loops(block)
            reduction = [loops[axis] for axis in found.reduce]
            fused = fork.fuse(*reduction) if len(reduction) > 1 else reduction[0]
            if lanes is None:
                limit = self.max_innermost_factor if inner else 0
                parts = fork.split(fused, fork.sample_perfect_tile(fused, 2, limit))
            else:
                parts = fork.split(fused, [None, lanes])
            partial = fork.rfactor(parts[1 if inner else 0], -1 if inner else 0)
            if inner:
                self._keep_in_registers(fork, block, partial)
        except ScheduleError as error:
            logger.debug("add-rfactor of %s: %s", block, error)
            return []
        return [fork]

    @staticmethod
    def _keep_in_registers(sch: Schedule, block: BlockRV, partial: BlockRV) -> None:
        """Combine the lanes of an output as soon as they are computed, from registers."""
        sch.set_scope(partial, 0, "local")
        realize = sch.state.get_block(partial)
        lane = realize.block.writes[0].region[-1].min
        loops = sch.get_loops(partial)
        outer, inner, lanes = [], [], []
        for loop in loops:
            used = [
                iter_var
                for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
                if uses_var(value, {sch.get(loop).loop_var})
            ]
            if any(iter_var.var is lane for iter_var in used):
                lanes.append(loop)
            elif any(iter_var.kind == REDUCE for iter_var in used):
                inner.append(loop)
            else:
                outer.append(loop)
        sch.reorder(*outer, *inner, *lanes)
        if outer:
            sch.reverse_compute_at(block, outer[-1], preserve_unit_loops=True)
