"""Transpositions: tiles go through shared memory, so that reads and writes are both of neighbours.

Rows of the tile in shared memory are one element longer than the tile is wide: the threads of a
warp, which write a row and read a column, then meet different banks.
"""

from __future__ import annotations

from tilewright.scheduling import GPUScheduleRule, NotApplicable
from tilewright.scheduling.blocks import (
    Axis,
    axes_of,
    inline_injective,
    is_injective,
    leaf_blocks,
    loads_of,
    stores_of,
    stride_of,
)
from tilewright.scheduling.gpu import (
    BLOCKS,
    ROWS_OF_THREADS,
    THREADS,
    fused,
    limits_of,
    place_scratch,
    schedule_rest,
    why_not_lowered,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block, BufferLoad
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

_TILES = ((32, 8), (32, 16), (16, 16), (64, 4))
"""Elements of a side of the tile, and rows of it that the threads move at once."""
_FAR = 8


class Transpose(GPUScheduleRule):
    """Applies to functions of one elementwise step with an operand whose neighbours are far apart.

    Such an operand is contiguous along another axis of the result, which has enough elements.
    """

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Read tiles of the operand along its rows, write them along the result's."""
        inline_injective(sch)
        blocks = leaf_blocks(sch)
        if len(blocks) != 1 or not is_injective(sch, blocks[0]):
            return NotApplicable("it isn't one elementwise step")
        axes = axes_of(sch, blocks[0])
        found = None if axes is None else _turned(sch.get(blocks[0]), axes)
        if found is None:
            return NotApplicable("no operand is contiguous along another axis than the result")
        load, written, read = found
        why = "no tile fits"
        limits = limits_of(target)
        for side, rows in sch.choices.preferring("transpose.tile", _TILES):
            if side * rows > limits.max_threads:
                continue
            attempt = sch.copy()
            try:
                _schedule(attempt, blocks[0], load, written, read, side, rows)
            except ScheduleError as error:
                why = error.summary
                continue
            why = why_not_lowered(attempt, target) or ""
            if not why:
                schedule_rest(attempt, target)
                place_scratch(attempt)
                return attempt
        return NotApplicable(why)


def _turned(block: Block, axes: list[Axis]) -> tuple[BufferLoad, Axis, Axis] | None:
    """The operand to transpose, the axis that is contiguous in the result and the one in it."""
    stores, loads = stores_of(block), loads_of(block)
    if len(stores) != 1:
        return None
    store = stores[0]
    long = [axis for axis in axes if axis.extent is None or axis.extent >= _FAR]
    written = [a for a in long if stride_of(store.indices, store.buffer, a.var) == 1]
    if not written:
        return None
    for load in loads:
        if stride_of(load.indices, load.buffer, written[-1].var) in (0, 1):
            continue
        read = [a for a in long if stride_of(load.indices, load.buffer, a.var) == 1]
        once = sum(other.buffer is load.buffer for other in loads) == 1
        if read and once:
            return load, written[-1], read[-1]
    return None


def _schedule(
    sch: Schedule, rv: BlockRV, load: BufferLoad, written: Axis, read: Axis, side: int, rows: int
) -> None:
    position = [region.buffer for region in sch.get(rv).reads].index(load.buffer)
    others = [a.loop for a in axes_of(sch, rv) or [] if a.var not in (written.var, read.var)]
    loops = {a.var: a.loop for a in axes_of(sch, rv) or []}
    along_read, along_written = loops[read.var], loops[written.var]
    tile = sch.cache_read(rv, position, "shared")
    outer_read, inner_read = sch.split(along_read, [None, side])
    outer_written, inner_written = sch.split(along_written, [None, side])
    sch.reorder(*others, outer_read, outer_written, inner_read, inner_written)
    block = sch.fuse(*others, outer_read, outer_written)
    sch.compute_at(tile, block)
    sch.bind(block, BLOCKS)
    _bind(sch, inner_read, inner_written, rows)
    around = len(sch.state.loops_above(sch.get(block))) + 1
    copied = axes_of(sch, tile, around) or []
    (source,) = loads_of(sch.get(tile))
    near = [a for a in copied if stride_of(source.indices, source.buffer, a.var) == 1]
    rest = [axis.loop for axis in copied if axis is not near[-1]]
    sch.reorder(*rest, near[-1].loop)
    _bind(sch, fused(sch, rest), near[-1].loop, rows)
    sch.storage_align(tile, 0, -2, 2, 1)


def _bind(sch: Schedule, along_y: LoopRV, along_x: LoopRV, rows: int) -> None:
    step, thread = sch.split(along_y, [None, rows])
    sch.bind(thread, ROWS_OF_THREADS)
    sch.bind(along_x, THREADS)
    sch.unroll(step)
