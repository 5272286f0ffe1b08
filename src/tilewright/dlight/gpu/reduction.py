"""One reduction: threads share rows or stand side by side along columns, the epilogue included."""

from __future__ import annotations

from tilewright.dlight.gpu.gemv import sums_of_vectors
from tilewright.scheduling import Contraction, GPUScheduleRule, NotApplicable, describe
from tilewright.scheduling.blocks import axes_of, is_injective
from tilewright.scheduling.gpu import (
    bind_shared,
    limits_of,
    place_scratch,
    reads_rows,
    schedule_rest,
    shapes_of,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block
from tilewright.tir.analysis.update_order import threads_combine
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV


class Reduction(GPUScheduleRule):
    """Applies to functions that are one reduction, followed by at most one step per result.

    The steps before it have been inlined. The results stay in registers until the step that
    follows has been computed.
    """

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Divide results among blocks, and each reduction among threads."""
        found = describe(sch)
        if isinstance(found, NotApplicable):
            return found
        if found.others or not found.has_one_epilogue:
            return NotApplicable("other steps come before or after the reduction and its epilogue")
        if not threads_combine(found.block):
            return NotApplicable("the order of its updates matters, or nobody registered its law")
        if not found.steps:
            return NotApplicable("it reduces over nothing")
        vectors = sums_of_vectors(sch, found, [], target)
        return vectors if isinstance(vectors, Schedule) else _first_that_fits(sch, found, target)


def _first_that_fits(sch: Schedule, found: Contraction, target: Target) -> Schedule | NotApplicable:
    spatial, steps, limits = found.spatial, found.steps, limits_of(target)
    rows = reads_rows(found.block, spatial, steps)
    why = "no shape of threads fits"
    for shape in shapes_of(sch, found.block.name, spatial, steps, rows, limits):
        attempt = sch.copy()
        if not all(_is_alike(found, attempt, consumer) for consumer in found.consumers):
            return NotApplicable("the step after it is no step for each result")
        try:
            bind_shared(attempt, found.main, spatial, steps, shape, rows, found.consumers)
        except ScheduleError as error:
            why = error.summary
            continue
        schedule_rest(attempt, target)
        place_scratch(attempt)
        return attempt
    return NotApplicable(why)


def _is_alike(found: Contraction, sch: Schedule, consumer: BlockRV) -> bool:
    """Whether a step is computed once for each result of the reduction."""
    block: Block = sch.get(consumer)
    axes = axes_of(sch, consumer)
    return (
        is_injective(sch, consumer)
        and axes is not None
        and sorted(repr(a.dom.extent) for a in block.iter_vars)
        == sorted(repr(a.dom.extent) for a in found.block.iter_vars if a.kind != "reduce")
        and len(found.block.writes) == 1
    )
