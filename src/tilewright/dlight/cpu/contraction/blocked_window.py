"""Windows over images with channels in blocks (``NCHW16c``): depthwise convolution, pooling.

A block of channels is a vector, and each channel is reduced by itself: neighbouring columns of the
result are a tile of vectors in registers, over which the window is written out. What reaches beyond
the edge is padded some rows at a time, right before it is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.blocked_convolution import (
    has_axes,
    has_same_axes,
    pad_rows,
    pads,
)
from tilewright.ir import as_int, dtypes, uses_var
from tilewright.scheduling import NotApplicable, ScheduleRule
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    fused_epilogue,
    loads_of,
    parallelize,
    schedule_injective,
    sole_reduction,
    stores_of,
    stride_of,
    vectorize_tile,
    work_of,
)
from tilewright.target import Target
from tilewright.tir import SPATIAL, BufferLoad
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

# Larger windows are left to rules that reduce in loops; steps of vectors that are written out.
_LARGEST_WINDOW, _UNROLLED = 64, 160
# Vectors of a tile.
_MOST_COLUMNS = 14
# Share of the second-level cache that rows of the padded input may take up.
_ROWS_SHARE = 0.1


@dataclass(frozen=True)
class _Window:
    """Axes of the result, and those of the window, the one along columns last."""

    data: BufferLoad
    batch: Axis
    channel: Axis
    row: Axis
    column: Axis
    lane: Axis
    steps: tuple[Axis, ...]


class BlockedWindow(ScheduleRule):
    """Applies to one reduction over a small window of each channel, and its epilogue."""

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Tile columns, write the window out, pad rows where they are read, fuse the epilogue."""
        opening = sole_reduction(sch)
        if isinstance(opening, NotApplicable):
            return opening
        main, blocks = opening
        consumers = sch.get_consumers(main)
        if len(consumers) > 1 or any(sch.get_consumers(rv) for rv in consumers):
            return NotApplicable("what follows is more than an epilogue")
        window = _window_of(sch, main, target)
        if isinstance(window, NotApplicable):
            return window
        if consumers and not has_same_axes(sch.get(main), sch.get(consumers[0])):
            return NotApplicable("the epilogue has other axes than the reduction")
        padding = [rv for rv in sch.get_producers(main) if pads(sch, rv, window.data)]
        taken = {rv.name for rv in (main, *consumers, *padding)}
        for rv in blocks:
            if rv.name not in taken:
                schedule_injective(sch, rv, target)
        epilogue = fused_epilogue(sch, main, consumers)
        _schedule(sch, main, epilogue, padding, window, target)
        return sch


def _window_of(sch: Schedule, main: BlockRV, target: Target) -> _Window | NotApplicable:
    block, axes = sch.get(main), axes_of(sch, main)
    stores, loads = stores_of(block), loads_of(block)
    if axes is None or block.init is None or len(stores) != 1 or len(loads) not in (1, 2):
        return NotApplicable("no reduction over the block's axes")
    spatial = [axis for axis in axes if not axis.is_reduce]
    steps = tuple(axis for axis in axes if axis.is_reduce)
    places = [item for item in block.iter_vars if item.kind == SPATIAL]
    if len(spatial) != 5 or not steps or not has_axes(stores[0].indices, places):
        return NotApplicable("the result has no axis of blocks")
    if any(axis.extent is None for axis in (*spatial[1:], *steps)):
        return NotApplicable("sizes are symbolic")
    batch, channel, row, column, lane = spatial
    moving = [load for load in loads if uses_var(load, {column.var})]
    lanes = target.vector_lanes(dtypes.bits_of(stores[0].buffer.dtype))
    if len(moving) != 1 or (lane.extent or 0) % (lanes // 2) or work_of(steps) > _LARGEST_WINDOW:
        return NotApplicable("no small window moves along columns of blocks")
    side_by_side = all(stride_of(load.indices, load.buffer, lane.var) == 1 for load in loads)
    filters = [load for load in loads if load is not moving[0]]
    if not side_by_side or any(
        uses_var(load, {axis.var}) for load in filters for axis in (batch, row)
    ):
        return NotApplicable("channels of a block are not reduced by themselves")
    return _Window(moving[0], batch, channel, row, column, lane, steps)


def _schedule(
    sch: Schedule,
    main: BlockRV,
    epilogue: BlockRV,
    padding: list[BlockRV],
    window: _Window,
    target: Target,
) -> None:
    steps = [axis.loop for axis in window.steps]
    columns = _columns(window.column.extent or 1)
    work = 2 * work_of([window.batch, window.channel, window.row, window.column, *window.steps])
    group, row = sch.split(window.row.loop, [None, _rows(window, target)])
    tile, column = sch.split(window.column.loop, [None, columns])
    outer = [window.batch.loop, window.channel.loop, group]
    sch.reorder(*outer, row, tile, *steps, column, window.lane.loop)
    sch.reverse_compute_at(epilogue, tile)
    init = sch.decompose_reduction(main, steps[0])
    for rv, skip in ((main, 5 + len(steps)), (init, 5), (epilogue, 5)):
        vectorize_tile(sch, sch.get_loops(rv)[skip:])
    count = columns
    for axis in reversed(window.steps):
        count *= axis.extent or 1
        if count > _UNROLLED:
            break
        sch.unroll(axis.loop)
    for rv in padding:
        pad_rows(sch, rv, group, target)
    parallelize(sch, outer, target, work * (window.lane.extent or 1))


def _columns(extent: int) -> int:
    """Columns of a tile: as many as registers hold, and so that the last tile is least empty."""
    sizes = range(max(1, _MOST_COLUMNS // 2), min(_MOST_COLUMNS, extent) + 1) or (extent,)
    return min(reversed(sizes), key=lambda size: -(-extent // size) * size)


def _rows(window: _Window, target: Target) -> int:
    """Rows of a group whose input stays in a near cache."""
    height = window.row.extent or 1
    elements = math.prod(as_int(extent) or 1 for extent in window.data.buffer.shape[2:])
    size = elements * dtypes.bytes_of(window.data.buffer.dtype) / height
    fitting = max(1, int(_ROWS_SHARE * target.l2_bytes / size))
    divisors = [d for d in range(1, min(fitting, height) + 1) if height % d == 0]
    return divisors[-1] if 2 * divisors[-1] > min(fitting, height) else min(fitting, height)
