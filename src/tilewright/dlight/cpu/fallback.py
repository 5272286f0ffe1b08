"""The fallback: every block separately, parallel over its outer loops and vectorised.

Contractions are tiled by the forms that leave the other blocks alone. Other reductions share loops
if they are over the same elements, of which they compute the same (``schedule_siblings``), or of
the same rows, where one needs the other's result: it finds each row in the L1 cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dlight.cpu.contraction import Form, MatrixVector, TiledReduction
from tilewright.scheduling import (
    Contraction,
    CPUScheduleRule,
    NotApplicable,
    contraction_of,
    warn_of_unscheduled,
)
from tilewright.scheduling.cpu import (
    axes_of,
    column_axis,
    come_from_afar,
    element_bits,
    inline_injective,
    is_injective,
    leaf_blocks,
    parallelize,
    schedule_injective,
    schedule_reduction,
    schedule_siblings,
    stores_of,
    work_of,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.attrs import PREFETCH_NEXT
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

_NOT_AXES = "its loops are not its axes: each spatial or reduction axis needs one loop of its own"
_NO_STORES = "it stores nothing itself: what a function that it calls does isn't known"

# Forms that leave all blocks but their own.
_FORMS: tuple[Form, ...] = (MatrixVector(), TiledReduction())


class Fallback(CPUScheduleRule):
    """Schedules each block separately; a block that can't be scheduled stays a serial nest."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Always apply; warn of blocks that stay unscheduled."""
        inline_injective(sch)
        warn_of_unscheduled(sch, schedule_apart(sch, leaf_blocks(sch), target))
        return sch


def schedule_apart(sch: Schedule, blocks: Sequence[BlockRV], target: Target) -> dict[str, str]:
    """Schedule each block by itself; return why some could not be, by name."""
    names = [sch.get(rv).name for rv in blocks]
    done = schedule_siblings(sch, [rv for rv in blocks if not _is_tiled(sch, rv)], target)
    unscheduled: dict[str, str] = {}
    for name in reversed(names):
        if name in done:
            continue
        attempt = sch.copy()
        rv = attempt.get_block(name)
        if attempt.get_loops(rv) and axes_of(attempt, rv) is None:
            unscheduled[name] = _NOT_AXES
            continue
        if not stores_of(attempt.get(rv)):
            unscheduled[name] = _NO_STORES
            continue
        try:
            if is_injective(attempt, rv):
                schedule_injective(attempt, rv, target)
            elif (first := _same_rows(attempt, rv)) is not None:
                done.add(attempt.get(first).name)
                _schedule_together(attempt, first, rv, target)
            elif (tiled := _tiled(attempt, rv, target)) is not None:
                attempt = tiled
            else:
                schedule_reduction(attempt, rv, target)
        except ScheduleError as error:
            unscheduled[name] = error.summary
            continue
        sch.become(attempt)
    return unscheduled


def _same_rows(sch: Schedule, rv: BlockRV) -> BlockRV | None:
    """The reduction over the same rows of the same buffer that only this one needs."""
    axes = axes_of(sch, rv)
    if axes is None or _is_columns(sch, rv):
        return None
    rows = [axis.extent for axis in axes if not axis.is_reduce]
    read = {region.buffer for region in sch.get(rv).reads}
    producers: list[BlockRV] = sch.get_producers(rv)
    for other in producers:
        theirs = axes_of(sch, other)
        if is_injective(sch, other) or theirs is None or _is_columns(sch, other):
            continue
        same = rows == [axis.extent for axis in theirs if not axis.is_reduce]
        shared = any(region.buffer in read for region in sch.get(other).reads)
        if rows and None not in rows and same and shared:
            return other
    return None


def _is_columns(sch: Schedule, rv: BlockRV) -> bool:
    """Whether neighbouring results are the lanes of vectors, so that no row is read alone."""
    spatial = [axis for axis in axes_of(sch, rv) or () if not axis.is_reduce]
    return column_axis(sch.get(rv), spatial) is not None


def _schedule_together(sch: Schedule, first: BlockRV, rv: BlockRV, target: Target) -> None:
    """Move the second under the rows of the first, whose result others may also need."""
    axes = axes_of(sch, first) or []
    rows = [axis.loop for axis in axes if not axis.is_reduce]
    sch.reorder(*rows, *(axis.loop for axis in axes if axis.is_reduce))
    row = rows[0] if len(rows) == 1 else sch.fuse(*rows)
    sch.reverse_compute_at(rv, row)
    width = work_of([axis for axis in axes if axis.is_reduce]) * element_bits(sch.get(first)) // 8
    # Long rows would push each other out of the nearest cache.
    fetched = 2 * width <= target.l1_bytes and come_from_afar(sch, (first, rv), target)
    for block in (first, rv):
        schedule_reduction(sch, block, target, skip=1)
    parallelize(sch, [row], target, 2 * work_of(axes))
    if fetched:
        sch.annotate(row, PREFETCH_NEXT, 1)


def _is_tiled(sch: Schedule, rv: BlockRV) -> bool:
    """Whether a block is a contraction, which gets a tile of its own."""
    found = contraction_of(sch, rv)
    return isinstance(found, Contraction) and _reuses(found)


def _tiled(sch: Schedule, rv: BlockRV, target: Target) -> Schedule | None:
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
