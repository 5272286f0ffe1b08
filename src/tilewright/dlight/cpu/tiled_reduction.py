"""Contractions with reuse: matrix products and convolutions.

A tile of the result is kept in registers while the reduction runs: ``rows`` elements of an axis
that one operand doesn't depend on, times some vectors along the contiguous axis of the result. Each
step of the reduction loads ``rows`` scalars and the vectors, and does ``rows`` times as many
multiply-adds, so that arithmetic, not loading, is the limit. The tile's size follows from the
number of vector registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    work_of,
)
from tilewright.target import Target
from tilewright.tir import Block, BufferLoad
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

# Share of the time that a tile is worth when the last one of an axis is cut off: the remainder has
# code of its own, which is compiled and runs at lower occupancy.
_REMAINDER = 0.8
# With fewer rows than this, packing an operand costs more than it saves.
_ROWS_TO_PACK = 8


@dataclass(frozen=True)
class Tile:
    """Extents of the register tile along the row and the vector axis."""

    rows: int
    columns: int


class TiledReduction(ScheduleRule):
    """Applies to functions with one reduction block that reuses its operands."""

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Tile for registers, vectorise, run tiles in parallel; the rest block by block."""
        inline_injective(sch)
        blocks = leaf_blocks(sch)
        reductions = [rv for rv in blocks if not is_injective(sch, rv)]
        if len(reductions) != 1:
            return NotApplicable(f"{len(reductions)} reductions, one is expected")
        main = reductions[0]
        consumers = sch.get_consumers(main)
        if len(consumers) > 1:
            return NotApplicable("the reduction has several consumers")
        axes = axes_of(sch, main)
        if axes is None:
            return NotApplicable("the loops are not the axes")
        block = sch.get(main)
        chosen = _choose_axes(block, axes)
        if chosen is None:
            return NotApplicable("no operand is reused along a contiguous axis")
        row, vector, packed = chosen
        lanes = target.vector_lanes(max(16, element_bits(block)))
        tile = choose_tile(row, vector, lanes, target.vector_registers)
        producers = [rv for rv in blocks if rv != main and rv not in consumers]
        if packed is not None and not _pack(sch, main, packed, vector, tile, target):
            return NotApplicable("an operand is not contiguous along the result's last axis")
        _schedule_tile(sch, main, consumers, axes, row, vector, tile, target)
        for rv in producers:
            schedule_injective(sch, rv, target)
        return sch


def _choose_axes(
    block: Block, axes: Sequence[Axis]
) -> tuple[Axis | None, Axis, BufferLoad | None] | None:
    """Return the row axis, the vector axis, and the operand that must be packed, if one must.

    The vector axis is contiguous in the result. The row axis is a spatial one that the operand
    read along the vector axis doesn't depend on; without one (matrix times vector) the tile is one
    row high.
    """
    stores = stores_of(block)
    loads = loads_of(block)
    if len(stores) != 1 or len({load.buffer for load in loads}) < 2:
        return None
    store = stores[0]
    spatial = [axis for axis in axes if not axis.is_reduce and axis.extent != 1]
    vector = next(
        (a for a in reversed(spatial) if stride_of(store.indices, store.buffer, a.var) == 1), None
    )
    if vector is None:
        return None
    along = [(load, stride_of(load.indices, load.buffer, vector.var)) for load in loads]
    if any(stride is None for _, stride in along):
        return None
    # Small steps (strided convolutions) are gathered; long ones are worth a packed copy.
    strided = [load for load, stride in along if abs(stride or 0) > 4]
    moving = [load for load, stride in along if stride != 0]
    if len(strided) > 1 or not moving or len(moving) == len(loads):
        return None
    rows = [
        axis
        for axis in spatial
        if axis is not vector
        and all(stride_of(load.indices, load.buffer, axis.var) == 0 for load in moving)
    ]
    row = max(rows, key=lambda axis: axis.extent or 64, default=None)
    if strided and (row is None or (row.extent is not None and row.extent < _ROWS_TO_PACK)):
        return None
    return row, vector, strided[0] if strided else None


def choose_tile(row: Axis | None, vector: Axis, lanes: int, registers: int) -> Tile:
    """Choose the tile with the best ratio of multiply-adds to loads that the registers hold."""
    best, best_score = Tile(1, lanes), 0.0
    columns = {n * lanes for n in (1, 2, 3, 4)}
    if vector.extent is not None:
        columns = {c for c in columns if c <= max(vector.extent, lanes)}
        if vector.extent <= 4 * lanes:
            columns.add(vector.extent)
    limit = 1 if row is None else min(row.extent or 14, 14)
    for width in sorted(columns):
        vectors = -(-width // lanes)
        for height in range(1, limit + 1):
            if height * vectors + vectors + 1 > registers:
                continue
            reuse = height * vectors / (height + vectors)
            # At least eight accumulators are needed to keep two multiply-add units busy.
            busy = min(1.0, height * vectors / 8)
            score = (reuse / (reuse + 0.5)) * busy
            score *= _fit(vector.extent, width) * (width / (vectors * lanes))
            score *= 1.0 if row is None else _fit(row.extent, height)
            if score > best_score + 1e-9:
                best, best_score = Tile(height, width), score
    return best


def _fit(extent: int | None, size: int) -> float:
    """Share of useful work when an axis is cut into tiles."""
    if extent is None or extent % size == 0:
        return 1.0
    return _REMAINDER * extent / (-(-extent // size) * size)


def _schedule_tile(
    sch: Schedule,
    main: BlockRV,
    consumers: Sequence[BlockRV],
    axes: Sequence[Axis],
    row: Axis | None,
    vector: Axis,
    tile: Tile,
    target: Target,
) -> None:
    # The epilogue, or a copy where there is none, takes the tile from the registers.
    if consumers:
        epilogue = consumers[0]
        sch.set_scope(main, 0, "local")
    else:
        epilogue = sch.cache_write(main, 0, "local")
    outer = [axis.loop for axis in axes if not axis.is_reduce and axis not in (row, vector)]
    reduce = [axis.loop for axis in axes if axis.is_reduce]
    inner = []
    column_outer, column_inner = sch.split(vector.loop, [None, tile.columns])
    outer.append(column_outer)
    if row is not None:
        row_outer, row_inner = sch.split(row.loop, [None, tile.rows])
        outer.append(row_outer)
        inner.append(row_inner)
    sch.reorder(*outer, *reduce, *inner, column_inner)
    sch.reverse_compute_at(epilogue, outer[-1])
    init = sch.decompose_reduction(main, reduce[0])
    for rv in (main, init, epilogue):
        loops = sch.get_loops(rv)[len(outer) :]
        if rv is main:
            loops = loops[len(reduce) :]
        if loops:
            sch.vectorize(loops[-1])
        for loop in loops[:-1]:
            sch.unroll(loop)
    parallelize(sch, outer, target, 2 * work_of(axes))


def _pack(
    sch: Schedule, main: BlockRV, operand: BufferLoad, vector: Axis, tile: Tile, target: Target
) -> bool:
    """Copy an operand so that what a tile reads in one step lies together.

    The dimension that follows the vector axis is cut into tiles whose inner part becomes the last
    dimension. Returns whether that could be done.
    """
    block = sch.get(main)
    dims = [d for d, index in enumerate(operand.indices) if index is vector.var]
    if len(dims) != 1 or vector.extent is None or vector.extent % tile.columns:
        return False
    dim, width = dims[0], tile.columns
    buffers = [region.buffer for region in block.reads]
    copy = sch.cache_read(main, buffers.index(operand.buffer), "global")
    sch.transform_layout(
        copy,
        ("write", 0),
        lambda *i: (*i[:dim], i[dim] // width, *i[dim + 1 :], i[dim] % width),
    )
    loops = sch.get_loops(copy)
    outer, inner = sch.split(loops[dim], [None, width])
    rest = [loop for d, loop in enumerate(loops) if d != dim]
    sch.reorder(outer, *rest, inner)
    parallelize(sch, [outer], target, vector.extent * 1024)
    return True
