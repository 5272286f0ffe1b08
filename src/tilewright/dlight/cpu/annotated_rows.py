"""Rows of which ``topi`` says how they are made: one element after another, or in stages.

Running sums, sorts and recurrences are one block, whose rows are shared out to threads. Fourier
transforms have stages: the numbers of a row stay in the nearest cache between two of them. Each
stage has the elements along its last axis in the lanes of vectors; if a row has only one,
neighbouring rows.
"""

from __future__ import annotations

import math

from tilewright.dlight.cpu.fallback import schedule_apart
from tilewright.ir import as_int
from tilewright.scheduling import CPUScheduleRule, NotApplicable, warn_of_unscheduled
from tilewright.scheduling.blocks import work_inside
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    element_bits,
    inline_injective,
    leaf_blocks,
    parallelize,
)
from tilewright.target import Target
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.topi.fourier import STAGE
from tilewright.topi.nn.recurrent import RECURRENCE
from tilewright.topi.scan import SCAN
from tilewright.topi.sort import SORT

# An extent that isn't known counts as that much.
_UNKNOWN = 64
_ROWS = {SCAN, SORT, RECURRENCE}


class Scan(CPUScheduleRule):
    """Applies to functions that are one scan, sort or recurrence."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Divide rows among threads."""
        blocks = leaf_blocks(sch)
        if len(blocks) != 1 or not _ROWS & set(sch.get(blocks[0]).annotations):
            return NotApplicable("the function is not one scan, sort or recurrence")
        buffers = sch.mod["main"].buffers
        if not buffers:
            return NotApplicable("it isn't of an argument")
        shape = buffers[0].shape
        work = math.prod(_UNKNOWN if (n := as_int(extent)) is None else n for extent in shape)
        parallelize(sch, sch.get_loops(blocks[0]), target, work)
        return sch


class RowStages(CPUScheduleRule):
    """Applies to functions with blocks that are stages of rows, one after another."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Run the stages under one loop over rows; other blocks before it, each by itself."""
        inline_injective(sch)
        blocks = leaf_blocks(sch)
        stages = [rv for rv in blocks if STAGE in sch.get(rv).annotations]
        if not stages:
            return NotApplicable("no block is a stage of rows")
        last = stages[-1]
        count = _rows_of(sch, last)
        axes = axes_of(sch, last)
        if axes is None:
            return NotApplicable("the last stage's loops are not its axes")
        together = [rv for rv in stages if _rows_of(sch, rv) == count]
        work = work_inside(sch.get(sch.get_loops(last)[0]))
        rows = [axis.loop for axis in axes[:count]]
        if rows and all(axis.extent == 1 for axis in axes[count:]):
            rows = self._rows_in_lanes(sch, last, axes[:count], target)
        else:
            for rv in reversed(together[:-1] if rows else []):
                sch.compute_at(rv, rows[-1])
            for rv in stages:
                own = axes_of(sch, rv, count if rv in together else 0) or []
                _in_lanes(sch, rv, own[-1:], target)
        parallelize(sch, rows, target, len(together) * work)
        apart = schedule_apart(sch, [rv for rv in blocks if rv not in stages], target)
        warn_of_unscheduled(sch, apart)
        return sch

    def _rows_in_lanes(
        self, sch: Schedule, rv: BlockRV, rows: list[Axis], target: Target
    ) -> list[LoopRV]:
        """Make neighbouring rows the lanes of vectors; return the loops around them."""
        lanes = target.vector_lanes(element_bits(sch.get(rv)))
        outer, inner = sch.split(rows[-1].loop, [None, lanes])
        sch.vectorize(inner)
        return [*(axis.loop for axis in rows[:-1]), outer]


def _rows_of(sch: Schedule, rv: BlockRV) -> int:
    """How many of the first axes of a stage are those of rows."""
    return int(sch.get(rv).annotations[STAGE])


def _in_lanes(sch: Schedule, rv: BlockRV, axes: list[Axis], target: Target) -> None:
    """Vectorise along an axis, without masks: what doesn't fill a vector is in shorter ones."""
    lanes = target.vector_lanes(element_bits(sch.get(rv)))
    for axis in axes:
        inner = axis.loop
        if axis.extent is not None and axis.extent > lanes and axis.extent % lanes == 0:
            _, inner = sch.split(axis.loop, [None, lanes])
        sch.vectorize(inner)
