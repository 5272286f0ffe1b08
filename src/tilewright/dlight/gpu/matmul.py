"""Products of matrices: tiles in shared memory and registers, fetched one step ahead.

Operands may be stored either way, padded, or decoded where they are fetched (weights of fewer
bits); what follows for each result is computed as results are written.
"""

from __future__ import annotations

from tilewright.ir import dtypes
from tilewright.scheduling import Contraction, NotApplicable, ScheduleRule, describe, dimensions_of
from tilewright.scheduling.gpu import (
    MatrixForm,
    bring_into_form,
    extents_of,
    limits_of,
    matrix_form_of,
    place_scratch,
    rank_tiles,
    schedule_rest,
    schedule_tiles,
    why_not_lowered,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

_ATTEMPTS = 3
"""Tiles that are tried: what refuses one mostly refuses all."""


class Matmul(ScheduleRule):
    """Applies to sums of products of two operands, each with axes of its own.

    The tile is chosen by estimate (``rank_tiles``).
    """

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Bring the product into the form of matrices, and tile it."""
        found = describe(sch)
        if isinstance(found, NotApplicable):
            return found
        form = matrix_form_of(sch, found)
        if isinstance(form, NotApplicable):
            return form
        if refused := self.refuses(found):
            return NotApplicable(refused)
        return tiled(sch, found, form, target)

    def refuses(self, found: Contraction) -> str:
        """Say why a contraction is none of this rule's."""
        if has_windows(found):
            return "it is a convolution"
        if not all(found.reusing(load) for load in found.loads):
            return "it is the product of a matrix with a vector"
        return ""


def has_windows(found: Contraction) -> bool:
    """Whether an operand is read at the sum of an axis of results and a reduced one."""
    return any(
        set(dimensions_of(load, result)) & set(dimensions_of(load, step))
        for load in found.loads
        for result in found.spatial
        for step in found.steps
    )


def tiled(
    sch: Schedule, found: Contraction, form: MatrixForm, target: Target
) -> Schedule | NotApplicable:
    """Schedule a contraction as a product of matrices, in the first tile that it may have."""
    limits = limits_of(target)
    m, n, batch = (extents_of(found.block, form, role) for role in "mnb")
    size = max(dtypes.bytes_of(load.buffer.dtype) for load in found.loads)
    tiles = rank_tiles(m, n, batch, limits, size)
    name = found.block.name
    why = "no tile fits the GPU"
    for tile in sch.choices.preferring(f"{name}.tile", tiles)[:_ATTEMPTS]:
        for staged in sch.choices.preferring(f"{name}.staged", (True, False)):
            attempt = sch.copy()
            try:
                bring_into_form(attempt, found.main, form)
                schedule_tiles(attempt, found.main, tile, limits, staged)
                schedule_rest(attempt, target)
            except ScheduleError as error:
                why = error.summary
                continue
            refused = why_not_lowered(attempt, target)
            if refused is None:
                place_scratch(attempt)
                return attempt
            why = refused
    return NotApplicable(why)
