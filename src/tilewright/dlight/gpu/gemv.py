"""Products of matrices with vectors, and with a few vectors at once: as fast as memory is read.

Each element of the matrix is used once (or once for each vector of a small batch), so nothing is
gained by tiles: threads read vectors of the matrix side by side and join their sums.
"""

from __future__ import annotations

from functools import partial

from tilewright.scheduling import Contraction, GPUScheduleRule, NotApplicable, describe
from tilewright.scheduling.blocks import Axis, work_of
from tilewright.scheduling.gpu import (
    VectorPlan,
    first_lowered,
    largest_operand,
    limits_of,
    schedule_rest,
    schedule_vector_sums,
    vector_plans,
)
from tilewright.target import Target
from tilewright.tir.analysis import match_reduction
from tilewright.tir.schedule import Schedule

_MOST_TOGETHER = 8
"""Vectors that are multiplied at once: so many sums a thread has, for each of its results."""


class GEMV(GPUScheduleRule):
    """Applies to sums of products where each element of the largest operand is used once."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Share each row (or vector of columns) of the matrix among threads."""
        found = describe(sch)
        if isinstance(found, NotApplicable):
            return found
        if (refused := _no_product(found)) is not None:
            return NotApplicable(refused)
        reused = found.reusing(largest_operand(found))
        if refused := self.refuses(reused):
            return NotApplicable(refused)
        return sums_of_vectors(sch, found, reused, target)

    def refuses(self, reused: list[Axis]) -> str:
        """Say why a product is none of this rule's, whose matrix is reused along some axes."""
        return "elements of the largest operand are used more than once" if reused else ""


class LowBatchGEMV(GEMV):
    """Applies to products of a matrix with up to eight vectors."""

    def refuses(self, reused: list[Axis]) -> str:
        """Say why a product is none of a few vectors."""
        if not reused:
            return "each element of the largest operand is used once"
        if any(axis.extent is None for axis in reused) or work_of(reused) > _MOST_TOGETHER:
            return f"elements of the largest operand are used more than {_MOST_TOGETHER} times"
        return ""


def _no_product(found: Contraction) -> str | None:
    reduction = match_reduction(found.block)
    if reduction is None or reduction.name != "sum" or len(reduction.targets) != 1:
        return "it is no sum"
    if len(found.loads) < 2:
        return "it has one operand"
    if not found.has_one_epilogue:
        return "several steps follow the sum"
    return None


def sums_of_vectors(
    sch: Schedule, found: Contraction, reused: list[Axis], target: Target
) -> Schedule | NotApplicable:
    """Schedule a reduction by the first plan with vectors that it may have."""

    def schedule(attempt: Schedule, plan: VectorPlan) -> None:
        schedule_vector_sums(attempt, found, reused, plan)
        schedule_rest(attempt, target)

    plans = vector_plans(found, reused, limits_of(target))
    chosen = sch.choices.preferring(f"{found.block.name}.plan", plans)
    ways = ((plan, partial(schedule, plan=plan)) for plan in chosen)
    why = "its operands are in no rows that are whole numbers of vectors"
    return first_lowered(sch, ways, target, why)
