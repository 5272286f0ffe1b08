"""Softmax, norms and other chains of reductions over the same rows: one kernel, a row per group."""

from __future__ import annotations

from tilewright.scheduling import GPUScheduleRule, NotApplicable, arrange_axes, shared_rows
from tilewright.scheduling.blocks import (
    axes_of,
    inline_injective,
    is_injective,
    leaf_blocks,
    work_of,
)
from tilewright.scheduling.gpu import (
    limits_of,
    place_scratch,
    row_plans,
    schedule_rows,
    why_not_lowered,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.analysis.update_order import threads_combine
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV


class GeneralReduction(GPUScheduleRule):
    """Applies where a last, injective block shares leading axes with every reduction before it."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Compute all stages of a row by one group of threads."""
        inline_injective(sch)
        blocks = leaf_blocks(sch)
        reductions = [rv for rv in blocks if not is_injective(sch, rv)]
        last = blocks[-1]
        if not reductions or not is_injective(sch, last):
            return NotApplicable("there is no reduction followed by an element-wise stage")
        if not all(threads_combine(sch.get(rv)) for rv in reductions):
            return NotApplicable("the order of a reduction's updates matters")
        if refused := self.refuses(sch, reductions):
            return NotApplicable(refused)
        arrange_axes(sch, last)
        axes = axes_of(sch, last)
        if not axes:
            return NotApplicable("the last stage's loops are not its axes, or it has none")
        rows = shared_rows(sch, blocks, axes)
        if rows is None:
            return NotApplicable("the stages do not share leading axes")
        limits, width = limits_of(target), _width(sch, blocks, rows)
        plans = row_plans(sch, blocks, axes[:rows], width, limits)
        why = "no plan for the rows"
        for plan in sch.choices.preferring("rows.plan", plans):
            attempt = sch.copy()
            try:
                schedule_rows(attempt, last, rows, plan)
            except ScheduleError as error:
                why = error.summary
                continue
            why = why_not_lowered(attempt, target) or ""
            if not why:
                place_scratch(attempt)
                return attempt
        return NotApplicable(why)

    def refuses(self, sch: Schedule, reductions: list[BlockRV]) -> str:
        """Say why functions of a more special kind are meant, if this is none."""
        return ""


def _width(sch: Schedule, blocks: list[BlockRV], rows: int) -> int | None:
    """Elements of the longest row that a stage has; ``None`` if unknown."""
    widths = []
    for rv in blocks:
        inner = (axes_of(sch, rv) or [])[rows:]
        if any(axis.extent is None for axis in inner):
            return None
        widths.append(work_of(inner))
    return max(widths)
