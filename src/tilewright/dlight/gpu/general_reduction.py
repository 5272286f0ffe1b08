"""Softmax, norms and other chains of reductions over the same rows: one kernel, a row per group."""

from __future__ import annotations

from functools import partial

from tilewright.scheduling import (
    GPUScheduleRule,
    NotApplicable,
    arrange_axes,
    shared_rows,
    stages_before_elements,
)
from tilewright.scheduling.blocks import (
    axes_of,
    is_injective,
    work_of,
)
from tilewright.scheduling.gpu import (
    first_lowered,
    limits_of,
    row_plans,
    schedule_rows,
)
from tilewright.target import Target
from tilewright.tir.analysis.update_order import threads_combine
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV


class GeneralReduction(GPUScheduleRule):
    """Applies where a last, injective block shares leading axes with every reduction before it."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Compute all stages of a row by one group of threads."""
        blocks = stages_before_elements(sch)
        if isinstance(blocks, NotApplicable):
            return blocks
        reductions, last = [rv for rv in blocks if not is_injective(sch, rv)], blocks[-1]
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
        ways = (
            (plan, partial(schedule_rows, last=last, rows=rows, plan=plan))
            for plan in sch.choices.preferring("rows.plan", plans)
        )
        return first_lowered(sch, ways, target, "no plan for the rows")

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
