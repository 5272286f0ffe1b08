"""Resized images: tables of positions, and rows that are blended just before they are used.

The tables are small and computed first. A row of the result then gathers the elements that the
tables name from one row, which for linear interpolation is blended from two and stays in the L1
cache. Neighbours in the result come from near neighbours: such vectors are shuffled from two loaded
vectors instead of gathered element by element (``codegen/llvm/near_gather.py``).
"""

from __future__ import annotations

from tilewright.ir import as_int, collect, uses_var
from tilewright.scheduling import CPUScheduleRule, NotApplicable
from tilewright.scheduling.cpu import (
    SEPARATE,
    Axis,
    axes_of,
    inline_injective,
    is_injective,
    leaf_blocks,
    loads_of,
    parallelize,
    schedule_injective,
    stores_of,
    stream_if_large,
    stride_of,
    vector_extent,
    work_of,
)
from tilewright.target import Target
from tilewright.tir import Block, BufferLoad
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV
from tilewright.topi.image import RESIZE

# A pixel costs some instructions even if it is only moved.
_WORK = 4
# Rows that are so many times longer have the elements of a vector in two vectors.
_NEAR = 2


class Resize(CPUScheduleRule):
    """Applies to resized images with contiguous rows, and their epilogues."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Rows in parallel, pixels as vectors."""
        stages = [rv for rv in leaf_blocks(sch) if RESIZE in sch.get(rv).annotations]
        if not stages:
            return NotApplicable("no image is resized")
        for rv in stages:
            sch.annotate(rv, SEPARATE, 1)
        inline_injective(sch)
        others = [rv for rv in leaf_blocks(sch) if RESIZE not in sch.get(rv).annotations]
        rows = [rv for rv in stages if sch.get(rv).annotations[RESIZE] == "rows"]
        if len(others) != 1 or len(rows) > 1 or not is_injective(sch, others[0]):
            return NotApplicable("not one block of pixels")
        pixels = others[0]
        axes = axes_of(sch, pixels)
        if axes is None or len(axes) < 2 or not _goes_along_rows(sch.get(pixels), axes[-1]):
            return NotApplicable("pixels of a row don't lie side by side")
        if not rows and _skips(sch.get(pixels), axes[-1]):
            return NotApplicable("neighbours don't come from neighbours")
        _schedule_pixels(sch, pixels, axes, rows, target)
        for rv in stages:
            if sch.get(rv).annotations[RESIZE] != "rows":
                schedule_injective(sch, rv, target)
        return sch


def _goes_along_rows(block: Block, last: Axis) -> bool:
    """Whether neighbours along an axis are adjacent in memory, directly or through tables."""
    looked_up = False
    for load in loads_of(block):
        places = [place for index in load.indices for place in collect(index, BufferLoad)]
        if any(uses_var(place, {last.var}) for place in places):
            looked_up = True
        elif stride_of(load.indices, load.buffer, last.var) not in (0, 1):
            return False
    stores = stores_of(block)
    return looked_up and all(stride_of(x.indices, x.buffer, last.var) == 1 for x in stores)


def _skips(block: Block, last: Axis) -> bool:
    """Whether the elements of a vector span more than two vectors."""
    rows = [
        as_int(load.buffer.shape[-1])
        for load in loads_of(block)
        if any(uses_var(x, {last.var}) for x in collect(load.indices[-1], BufferLoad))
    ]
    return last.extent is None or any(n is None or n > _NEAR * last.extent for n in rows)


def _schedule_pixels(
    sch: Schedule, pixels: BlockRV, axes: list[Axis], rows: list[BlockRV], target: Target
) -> None:
    outer, last = [axis.loop for axis in axes[:-1]], axes[-1]
    for rv in rows:
        sch.compute_at(rv, outer[-1])
        schedule_injective(sch, rv, target, skip=len(outer))
    lanes = target.vector_lanes(32)
    size = vector_extent(last.extent, lanes, lanes)
    if size is not None:
        inner = last.loop
        if size != last.extent:
            _, inner = sch.split(last.loop, [None, size])
        sch.vectorize(inner)
    stream_if_large(sch, pixels, target, 1)
    parallelize(sch, outer, target, _WORK * work_of(axes))
