"""Windows over images with channels in blocks (``NCHW16c``): depthwise convolution, pooling.

A block of channels is a vector, and each channel is reduced by itself: neighbouring columns of the
result are a tile of vectors in registers, over which the window is written out. What reaches beyond
the edge is padded some rows at a time, right before it is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.blocked_convolution import (
    check_epilogue,
    has_blocks,
    pad_rows,
    padding_of,
)
from tilewright.dlight.cpu.contraction.form import Form, Nest, sum_in_registers, unroll_steps
from tilewright.dlight.cpu.contraction.register_tile import even_size
from tilewright.ir import as_int, dtypes
from tilewright.scheduling import Contraction, NotApplicable, depends, stride
from tilewright.scheduling.cpu import Axis, fused_epilogue, parallelize, work_of
from tilewright.target import Target
from tilewright.tir import BufferLoad
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


class BlockedWindow(Form):
    """Applies to one reduction over a small window of each channel, and its epilogue."""

    def tile(self, sch: Schedule, found: Contraction, target: Target) -> set[str] | NotApplicable:
        """Tile columns, write the window out, pad rows where they are read, fuse the epilogue."""
        window = _window_of(found, target)
        if isinstance(window, NotApplicable):
            return window
        refusal = check_epilogue(sch, found)
        if refusal is not None:
            return refusal
        padding = padding_of(sch, found, window.data)
        epilogue = fused_epilogue(sch, found.main, found.consumers)
        _schedule(sch, found.main, epilogue, padding, window, target)
        return {rv.name for rv in padding}


def _window_of(found: Contraction, target: Target) -> _Window | NotApplicable:
    if len(found.loads) not in (1, 2) or not has_blocks(found):
        return NotApplicable("the result has no axis of blocks, or sizes are symbolic")
    batch, channel, row, column, lane = found.spatial
    moving = found.along(column)
    part = target.vector_lanes(dtypes.bits_of(found.store.buffer.dtype)) // 2
    if len(moving) != 1 or (lane.extent or 0) % part or work_of(found.steps) > _LARGEST_WINDOW:
        return NotApplicable("no small window moves along columns of blocks")
    side_by_side = all(stride(load, lane) == 1 for load in found.loads)
    filters = found.other_than(*moving)
    if not side_by_side or any(depends(load, a) for load in filters for a in (batch, row)):
        return NotApplicable("channels of a block are not reduced by themselves")
    return _Window(moving[0], batch, channel, row, column, lane, found.steps)


def _schedule(
    sch: Schedule,
    main: BlockRV,
    epilogue: BlockRV,
    padding: list[BlockRV],
    window: _Window,
    target: Target,
) -> None:
    steps = [axis.loop for axis in window.steps]
    columns = even_size(window.column.extent, _MOST_COLUMNS)
    work = 2 * work_of([window.batch, window.channel, window.row, window.column, *window.steps])
    group, row = sch.split(window.row.loop, [None, _rows(window, target)])
    tile, column = sch.split(window.column.loop, [None, columns])
    outer = [window.batch.loop, window.channel.loop, group]
    nest = Nest([*outer, row, tile], steps, [column, window.lane.loop])
    sum_in_registers(sch, main, epilogue, nest)
    unroll_steps(sch, window.steps[::-1], columns, _UNROLLED)
    for rv in padding:
        pad_rows(sch, rv, group, target)
    parallelize(sch, outer, target, work * (window.lane.extent or 1))


def _rows(window: _Window, target: Target) -> int:
    """Rows of a group whose input stays in a near cache."""
    height = window.row.extent or 1
    elements = math.prod(as_int(extent) or 1 for extent in window.data.buffer.shape[2:])
    size = elements * dtypes.bytes_of(window.data.buffer.dtype) / height
    fitting = max(1, int(_ROWS_SHARE * target.l2_bytes / size))
    divisors = [d for d in range(1, min(fitting, height) + 1) if height % d == 0]
    return divisors[-1] if 2 * divisors[-1] > min(fitting, height) else min(fitting, height)
