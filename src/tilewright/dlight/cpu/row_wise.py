"""Softmax, norms and the like: several stages over the same rows, run row by row.

All stages move under the outer loops that they share, so that a row is read from memory once and
intermediate results stay in the L1 cache. Short rows are processed several at a time: alone, each
stage would wait for the previous one's result. If rows come from beyond the near caches, the next
ones are prefetched.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dlight.cpu.row_pipeline import RowPipeline, pipeline_rows, plan_row_pipeline
from tilewright.scheduling import (
    CPUScheduleRule,
    NotApplicable,
    arrange_axes,
    others_after,
    shared_rows,
)
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    come_from_afar,
    element_bits,
    inline_injective,
    is_injective,
    leaf_blocks,
    parallelize,
    schedule_injective,
    schedule_reduction,
    work_of,
)
from tilewright.target import Target
from tilewright.tir.attrs import PREFETCH_NEXT
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Rows that go together, by the most vectors that they have.
_TOGETHER = ((8, 4), (64, 2))


class RowWise(CPUScheduleRule):
    """Applies where a last, injective block shares leading axes with every reduction before it."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Fuse the rows, compute every stage under them, vectorise within."""
        inline_injective(sch)
        blocks = leaf_blocks(sch)
        reductions = [rv for rv in blocks if not is_injective(sch, rv)]
        last = blocks[-1]
        if not reductions or not is_injective(sch, last):
            return NotApplicable("there is no reduction followed by an element-wise stage")
        arrange_axes(sch, last)
        axes = axes_of(sch, last)
        if axes is None:
            return NotApplicable("the last stage's loops are not its axes")
        rows = shared_rows(sch, blocks, axes)
        if rows is None:
            return NotApplicable("the stages do not share leading axes")
        if rows == len(axes):
            return NotApplicable("nothing is left within a row")
        outer = [axis.loop for axis in axes[:rows]]
        together = self._together(sch, blocks, axes[:rows], axes[rows:], target)
        if together > 1:
            outer[-1], _ = sch.split(outer[-1], [None, together])
        elif rows > 1:
            outer = [sch.fuse(*outer)]
        plan = None
        if together == 1:
            plan = plan_row_pipeline(sch, blocks, axes[:rows], axes[rows:], target)
        if plan is not None and sch.choices.choose("row_wise.pipeline", (True, False)):
            attempt = sch.copy()
            if self._in_pipeline(attempt, blocks, outer[0], plan, target):
                return attempt
        for rv in reversed(blocks[:-1]):
            sch.compute_at(rv, outer[-1])
        work, afar = work_of(axes), come_from_afar(sch, blocks, target)
        self._stages(sch, blocks, target, len(outer), together > 1)
        row = parallelize(sch, sch.get_loops(last)[: len(outer)], target, 4 * work)
        if row is not None and sch.choices.choose("row_wise.prefetch", (afar, not afar)):
            sch.annotate(row, PREFETCH_NEXT, 1)
        return sch

    def _in_pipeline(
        self, sch: Schedule, blocks: list[BlockRV], row: LoopRV, plan: RowPipeline, target: Target
    ) -> bool:
        """Run the stages of different rows in one loop; return whether that is possible."""
        outer = [row]
        if plan.chunks > 1:
            outer = sch.split(row, [plan.chunks, None])
        for rv in reversed(blocks[:-1]):
            sch.compute_at(rv, outer[-1])
        self._stages(sch, blocks, target, len(outer), False, plan.vectors)
        if plan.chunks > 1:
            sch.parallel(outer[0])
        return pipeline_rows(sch, outer[-1], target)

    def _stages(
        self,
        sch: Schedule,
        blocks: Sequence[BlockRV],
        target: Target,
        outer: int,
        several: bool,
        vectors: int | None = None,
    ) -> None:
        """Vectorise each stage below the loops over rows, with ``vectors`` per step if given."""
        waiting: BlockRV | None = None
        for rv in blocks:
            if is_injective(sch, rv):
                if waiting is not None:
                    self._elements(sch, waiting, target, outer, several)
                waiting = rv
                continue
            # Rows alone are longer: what was made would have left the registers, if not the cache.
            done = schedule_reduction(sch, rv, target, outer, None if several else waiting, vectors)
            if waiting is not None and not done:
                self._elements(sch, waiting, target, outer, several)
            waiting = None
        self._elements(sch, blocks[-1], target, outer, several, vectors)

    def _together(
        self,
        sch: Schedule,
        blocks: list[BlockRV],
        rows: list[Axis],
        columns: list[Axis],
        target: Target,
    ) -> int:
        """How many rows to process at once: single short ones would wait for their own results."""
        extent, width = rows[-1].extent, work_of(columns)
        if extent is None or any(axis.extent is None for axis in columns):
            return 1
        bits = max(element_bits(sch.get(rv)) for rv in blocks)
        vectors = -(-width // target.vector_lanes(bits))
        most = next((count for limit, count in _TOGETHER if vectors <= limit), 1)
        most = sch.choices.choose("row_wise.together", others_after(most, (1, 2, 4)))
        while most > 1 and extent % most:
            most //= 2
        return most

    def _elements(
        self,
        sch: Schedule,
        rv: BlockRV,
        target: Target,
        outer: int,
        several: bool,
        vectors: int | None = None,
    ) -> None:
        count = 1 if several else vectors or 4
        schedule_injective(sch, rv, target, skip=outer, vectors=count)
        loops = sch.get_loops(rv)[outer:]
        if several and len(loops) > 2:
            sch.reorder(*loops[1:-1], loops[0])
        if several:
            sch.unroll(loops[0])
