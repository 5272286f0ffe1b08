"""Windows that slide over the rows of a channel: depthwise convolution, pooling.

Nothing but the window itself is reused, so a tile of neighbouring results, some rows high, is kept
in registers while the unrolled window passes over it: rows that overlap are loaded once. The padded
input is made channel by channel, right before it is used, so that it stays in the nearest cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dlight.base import NotApplicable, ScheduleRule
from tilewright.dlight.cpu.common import (
    Axis,
    axes_of,
    element_bits,
    inline_injective,
    is_injective,
    leaf_blocks,
    loads_of,
    parallelize,
    schedule_injective,
    stores_of,
    stride_of,
    vector_extent,
    work_of,
)
from tilewright.ir import Var, uses_var
from tilewright.target import Target
from tilewright.tir import Block, BufferLoad
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

# Larger windows are left to rules that reduce in loops.
_LARGEST_WINDOW = 128
# Steps of the window that are written out; larger windows keep their outer loop.
_UNROLLED = 32
# Vectors of results that a tile holds.
_ACCUMULATORS = 16


class SlidingWindow(ScheduleRule):
    """Applies to one reduction over a small window that moves with the last axis of the result."""

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Tile rows and columns, unroll the window, prepare the input channel by channel."""
        inline_injective(sch)
        blocks = leaf_blocks(sch)
        reductions = [rv for rv in blocks if not is_injective(sch, rv)]
        if len(reductions) != 1:
            return NotApplicable(f"{len(reductions)} reductions, one is expected")
        main = reductions[0]
        consumers = sch.get_consumers(main)
        axes = axes_of(sch, main)
        if len(consumers) > 1 or axes is None:
            return NotApplicable("the reduction has several consumers or unusual loops")
        found = window_of(sch.get(main), axes)
        if found is None:
            return NotApplicable("no small window moves along the last axis of the result")
        data, column, row = found
        producers = [rv for rv in blocks if rv != main and rv not in consumers]
        _schedule(sch, main, consumers, producers, axes, (data, column, row), target)
        return sch


def window_of(block: Block, axes: Sequence[Axis]) -> tuple[BufferLoad, Axis, Axis | None] | None:
    """Return what is read through the window, the axis it slides along, and the one across."""
    stores, loads = stores_of(block), loads_of(block)
    spatial = [axis for axis in axes if not axis.is_reduce and axis.extent != 1]
    reduce = [axis for axis in axes if axis.is_reduce]
    if len(stores) != 1 or not spatial or any(axis.extent is None for axis in reduce):
        return None
    column = spatial[-1]
    if (
        work_of(reduce) > _LARGEST_WINDOW
        or column.extent is None
        or stride_of(stores[0].indices, stores[0].buffer, column.var) != 1
    ):
        return None
    window = {axis.var for axis in reduce if axis.extent != 1}
    slides = [load for load in loads if _moves(load, column, window)]
    if len(slides) != 1 or stride_of(slides[0].indices, slides[0].buffer, column.var) is None:
        return None
    others = [load for load in loads if load is not slides[0]]
    if any(uses_var(i, {column.var}) for load in others for i in load.indices):
        return None
    row = next((axis for axis in reversed(spatial[:-1]) if _moves(slides[0], axis, window)), None)
    return slides[0], column, row


def _moves(load: BufferLoad, axis: Axis, window: set[Var]) -> bool:
    return any(uses_var(index, {axis.var}) and uses_var(index, window) for index in load.indices)


def _schedule(
    sch: Schedule,
    main: BlockRV,
    consumers: Sequence[BlockRV],
    producers: Sequence[BlockRV],
    axes: Sequence[Axis],
    found: tuple[BufferLoad, Axis, Axis | None],
    target: Target,
) -> None:
    data, column, row = found
    block = sch.get(main)
    lanes = target.vector_lanes(max(16, element_bits(block)))
    filler = next((rv for rv in producers if data.buffer in _written(sch, rv)), None)
    if consumers:
        epilogue = consumers[0]
        sch.set_scope(main, 0, "local")
    else:
        epilogue = sch.cache_write(main, 0, "local")
    width = vector_extent(column.extent, lanes, 4 * lanes) or 1
    vectors = -(-width // lanes)
    channels = [axis.loop for axis in axes if not axis.is_reduce and axis not in (row, column)]
    window = [axis for axis in axes if axis.is_reduce]
    column_outer, column_inner = sch.split(column.loop, [None, width])
    places, tile = [column_outer], [column_inner]
    if row is not None:
        height = _height(row.extent, _ACCUMULATORS // vectors)
        row_outer, row_inner = sch.split(row.loop, [None, height])
        places, tile = [row_outer, column_outer], [row_inner, column_inner]
    steps = [axis.loop for axis in window]
    sch.reorder(*channels, *places, *steps, *tile)
    sch.reverse_compute_at(epilogue, places[-1])
    depth = len(channels) + len(places)
    init = sch.decompose_reduction(main, steps[0])
    for rv, skip in ((main, depth + len(steps)), (init, depth), (epilogue, depth)):
        loops = sch.get_loops(rv)[skip:]
        sch.vectorize(loops[-1])
        for loop in loops[:-1]:
            sch.unroll(loop)
    unrolled = 1
    for axis in reversed(window):
        unrolled *= axis.extent or 1
        if unrolled > _UNROLLED:
            break
        sch.unroll(axis.loop)
    fused = parallelize(sch, channels, target, work_of(axes)) if channels else None
    for rv in producers:
        inside = rv == filler and fused is not None
        if inside:
            sch.compute_at(rv, fused)
        schedule_injective(sch, rv, target, skip=1 if inside else 0)


def _written(sch: Schedule, rv: BlockRV) -> list[object]:
    return [region.buffer for region in sch.get(rv).writes]


def _height(extent: int | None, limit: int) -> int:
    """Rows of a tile: the most that divide the extent, else as many as fit."""
    if extent is None:
        return min(4, limit)
    best = max(size for size in range(1, limit + 1) if extent % size == 0)
    return best if best > 1 or extent == 1 else min(4, limit, extent)
