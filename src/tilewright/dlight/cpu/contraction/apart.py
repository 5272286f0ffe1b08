"""Contractions among other blocks: of a function with several of them, or of a step of a loop."""

from __future__ import annotations

from tilewright.dlight.cpu.contraction.form import Form
from tilewright.dlight.cpu.contraction.matrix_vector import MatrixVector
from tilewright.dlight.cpu.contraction.tiled_reduction import TiledReduction
from tilewright.scheduling import (
    Contraction,
    NotApplicable,
    contraction_of,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

_FORMS: tuple[Form, ...] = (MatrixVector(), TiledReduction())


def tiled_apart(sch: Schedule, rv: BlockRV, target: Target) -> Schedule | None:
    """Schedule a contraction by itself, leaving all other blocks; ``None`` if it isn't one.

    Its consumers stay where they are: sums are written from registers to where these read them.
    """
    found = contraction_of(sch, rv)
    if isinstance(found, NotApplicable) or not _reuses(found):
        return None
    for form in _FORMS:
        attempt = sch.copy()
        try:
            if found.consumers:
                attempt.cache_write(rv, 0, "global")
            whole = contraction_of(attempt, rv)
            if isinstance(whole, NotApplicable):
                return None
            if not isinstance(form.tile(attempt, whole, target), NotApplicable):
                return attempt
        except ScheduleError:
            continue
    return None


def _reuses(found: Contraction) -> bool:
    """Whether several operands meet, each of which some axis of the result reuses."""
    operands = [load for load in found.loads if any(load in found.along(a) for a in found.steps)]
    return len({load.buffer for load in operands}) > 1 and any(
        found.reusing(load) for load in operands
    )
