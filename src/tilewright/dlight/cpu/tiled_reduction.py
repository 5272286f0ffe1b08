"""Contractions with reuse: matrix products and convolutions.

A tile of the result is kept in registers while the reduction runs: ``rows`` elements of an axis
that one operand doesn't depend on, times some vectors along another axis. Each step of the
reduction loads ``rows`` scalars and the vectors, and does ``rows`` times as many multiply-adds, so
that arithmetic, not loading, is the limit.

The vectors may lie along any axis of the result:

- along its contiguous axis, reading an operand that is contiguous there as it is;
- along any axis that indexes one dimension of an operand, if that operand is packed into panels
  (``[N / width][...][width]``), so that the reduction reads it from first to last. A constant
  operand is packed when the program is built (``layout_free_buffers``), another one in the call.
  If the axis isn't the result's contiguous one (the channels of a convolution), the tile goes
  through a small buffer, from which it is written in the result's order.

Which axis, and the tile's size, follow from an estimate: registers, loads per multiply-add, cut-off
tiles, and what the epilogue costs.
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
from tilewright.dlight.cpu.sliding_window import window_of
from tilewright.ir import as_int, dtypes, uses_var
from tilewright.target import Target
from tilewright.tir import Block, Buffer, BufferLoad, PrimFunc
from tilewright.tir.layout_rewrite import LAYOUT_REWRITE, layout_free_positions
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Share of the time that a tile is worth when the last one of an axis is cut off: the remainder has
# code of its own, which is compiled and runs at lower occupancy.
_REMAINDER = 0.8
# With fewer rows than this, packing an operand in the call costs more than it saves.
_ROWS_TO_PACK = 8
# Neighbours at small distances (strided convolutions) are loaded one by one; long ones are packed.
_SMALL_STRIDE = 4
_ELEMENT_WISE = 0.35
# Bytes between steps of a reduction, number of steps, and rows from which an operand that could be
# read as it is gets packed all the same.
_FAR_APART = 1024
_DEEP = 128
_ROWS_TO_COPY = 192
# Steps of the reduction that writing one element of the tile through a buffer takes.
_TRANSPOSE_STEPS = 16
# Uses of an element that copying it costs, if it is packed in the call: side by side, and across.
_COPY_USES, _TRANSPOSE_USES = 24, 64


@dataclass(frozen=True)
class Tile:
    """Extents of the register tile along the row and the vector axis, and what it promises."""

    rows: int
    columns: int
    score: float = 0.0


@dataclass(frozen=True)
class Plan:
    """Which axes make the tile, and what must be done with operand and result for that."""

    row: Axis | None
    vector: Axis
    tile: Tile
    packed: BufferLoad | None
    constant: bool
    transposed: bool


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
        plan = choose_plan(sch.mod["main"], sch.get(main), axes, target)
        if plan is None:
            return NotApplicable("no operand is reused along an axis that can be vectorised")
        if plan.row is None and window_of(sch.get(main), axes) is not None:
            return NotApplicable("only a window is reused")
        producers = [rv for rv in blocks if rv != main and rv not in consumers]
        if plan.packed is not None:
            _pack(sch, main, plan, target)
        _schedule_tile(sch, main, consumers, axes, plan, target)
        for rv in producers:
            schedule_injective(sch, rv, target)
        return sch


# ---- choosing -------------------------------------------------------------------------------


def choose_plan(func: PrimFunc, block: Block, axes: Sequence[Axis], target: Target) -> Plan | None:
    """Return the best way to tile a reduction; ``None`` if no axis will do."""
    stores, loads = stores_of(block), loads_of(block)
    if len(stores) != 1 or len({load.buffer for load in loads}) < 2:
        return None
    constants = {func.buffer_map.get(func.params[p]) for p in layout_free_positions(func)}
    lanes = target.vector_lanes(max(16, element_bits(block)))
    spatial = [axis for axis in axes if not axis.is_reduce and axis.extent != 1]
    reduce = [axis for axis in axes if axis.is_reduce]
    plans = []
    for vector in spatial:
        step = stride_of(stores[0].indices, stores[0].buffer, vector.var)
        made = _plan_along(vector, spatial, loads, constants, step == 1, reduce, lanes, target)
        if made is not None:
            plans.append(made)
    # The contiguous axis, which is last, wins a tie.
    return max(reversed(plans), key=lambda plan: plan.tile.score, default=None)


def _plan_along(
    vector: Axis,
    spatial: Sequence[Axis],
    loads: Sequence[BufferLoad],
    constants: set[Buffer | None],
    contiguous: bool,
    reduce: Sequence[Axis],
    lanes: int,
    target: Target,
) -> Plan | None:
    moving = [load for load in loads if any(uses_var(i, {vector.var}) for i in load.indices)]
    if not moving or len(moving) == len(loads):
        return None
    strides = [stride_of(load.indices, load.buffer, vector.var) for load in moving]
    rows = [
        axis
        for axis in spatial
        if axis is not vector
        and not any(uses_var(i, {axis.var}) for load in moving for i in load.indices)
    ]
    packed = moving[0] if len(moving) == 1 and _is_packable(moving[0], vector) else None
    constant = packed is not None and packed.buffer in constants
    if not constant:
        far = any(stride is None or abs(stride) > _SMALL_STRIDE for stride in strides)
        if contiguous and not far:
            if packed is not None and not _thrashes(packed, rows, reduce):
                packed = None  # it is read as it is
        elif packed is None or work_of(rows) < _ROWS_TO_PACK:
            return None
    if contiguous:
        row = max(rows, key=lambda axis: axis.extent or 64, default=None)
    else:
        # The tile's rows are written side by side: they are the axis that is stored that way.
        row = rows[-1] if rows else None
        if row is None:
            return None
    tile = choose_tile(row, vector, lanes, target.vector_registers)
    score = tile.score
    if packed is None and any(s != 1 for s in strides):
        score *= _ELEMENT_WISE
    if packed is not None and not constant:
        uses = work_of(rows)
        score *= uses / (uses + (_COPY_USES if strides[0] == 1 else _TRANSPOSE_USES))
    if not contiguous:
        steps = work_of(reduce)
        score *= steps / (steps + _TRANSPOSE_STEPS)
    tile = Tile(tile.rows, tile.columns, score)
    return Plan(row, vector, tile, packed, constant, not contiguous)


def _thrashes(operand: BufferLoad, rows: Sequence[Axis], reduce: Sequence[Axis]) -> bool:
    """Whether reading an operand as it is costs more than copying it.

    Steps of the reduction that are far apart in memory share few cache sets and touch many pages.
    """
    pitch = max(abs(stride_of(operand.indices, operand.buffer, a.var) or 0) for a in reduce)
    return (
        pitch * dtypes.bytes_of(operand.buffer.dtype) >= _FAR_APART
        and work_of(reduce) >= _DEEP
        and work_of(rows) >= _ROWS_TO_COPY
    )


def _is_packable(load: BufferLoad, vector: Axis) -> bool:
    """Whether an axis is one dimension of an operand, by itself."""
    using = [index for index in load.indices if uses_var(index, {vector.var})]
    return len(using) == 1 and using[0] is vector.var and vector.extent is not None


def choose_tile(row: Axis | None, vector: Axis, lanes: int, registers: int) -> Tile:
    """Choose the tile with the best ratio of multiply-adds to loads that the registers hold."""
    best = Tile(1, lanes)
    # Without rows, only more vectors keep the multiply-add units busy.
    widest = (4 if row is not None else 8) * lanes
    columns = set(range(lanes, widest + 1, lanes))
    if vector.extent is not None:
        columns = {c for c in columns if c <= max(vector.extent, lanes)}
        if vector.extent <= widest:
            columns.add(vector.extent)
        columns |= {c for c in range(8, widest, 4) if vector.extent % c == 0}
    limit = 1 if row is None else min(row.extent or 14, 14)
    for width in sorted(columns):
        # What is left of a whole number of vectors is cut into powers of two.
        vectors = width // lanes + bin(width % lanes).count("1")
        for height in range(1, limit + 1):
            if height * vectors + vectors + 1 > registers:
                continue
            reuse = height * vectors / (height + vectors)
            # At least eight accumulators are needed to keep two multiply-add units busy.
            busy = min(1.0, height * vectors / 8)
            score = (reuse / (reuse + 0.5)) * busy
            score *= _fit(vector.extent, width) * (width / (vectors * lanes))
            score *= 1.0 if row is None else _fit(row.extent, height)
            if score > best.score + 1e-9:
                best = Tile(height, width, score)
    return best


def _fit(extent: int | None, size: int) -> float:
    """Share of useful work when an axis is cut into tiles."""
    if extent is None or extent % size == 0:
        return 1.0
    return _REMAINDER * extent / (-(-extent // size) * size)


# ---- scheduling -----------------------------------------------------------------------------


def _schedule_tile(
    sch: Schedule,
    main: BlockRV,
    consumers: Sequence[BlockRV],
    axes: Sequence[Axis],
    plan: Plan,
    target: Target,
) -> None:
    row, vector, tile = plan.row, plan.vector, plan.tile
    # The epilogue, or a copy where there is none, takes the tile from the registers.
    copy = None
    if plan.transposed:
        epilogue = consumers[0] if consumers else sch.cache_write(main, 0, "global")
        copy = sch.cache_write(main, 0, "local")
        _lay_columns_last(sch, main, copy, vector)
    elif consumers:
        epilogue = consumers[0]
        sch.set_scope(main, 0, "local")
    else:
        epilogue = sch.cache_write(main, 0, "local")
    outer = [axis.loop for axis in axes if not axis.is_reduce and axis not in (row, vector)]
    reduce = [axis.loop for axis in axes if axis.is_reduce]
    inner: list[LoopRV] = []
    column_outer, column_inner = sch.split(vector.loop, [None, tile.columns])
    if plan.packed is not None and not _depends_on(plan.packed, axes, outer):
        outer.insert(0, column_outer)  # a panel stays in the cache for all rows
    else:
        outer.append(column_outer)
    if row is not None:
        row_outer, row_inner = sch.split(row.loop, [None, tile.rows])
        outer.append(row_outer)
        inner.append(row_inner)
    sch.reorder(*outer, *reduce, *inner, column_inner)
    at = outer[-1]
    if copy is not None:
        sch.reverse_compute_at(copy, at)
        _columns_innermost(sch, copy, len(outer))
    sch.reverse_compute_at(epilogue, at)
    init = sch.decompose_reduction(main, reduce[0])
    depth = len(outer)
    for rv, skip in ((main, depth + len(reduce)), (init, depth)):
        _in_registers(sch, sch.get_loops(rv)[skip:])
    if copy is None:
        _in_registers(sch, sch.get_loops(epilogue)[depth:])
    else:
        _in_registers(sch, sch.get_loops(copy)[depth:])
        sch.vectorize(sch.get_loops(epilogue)[-1])
    parallelize(sch, outer, target, 2 * work_of(axes))


def _in_registers(sch: Schedule, loops: Sequence[LoopRV]) -> None:
    """Vectorise the last loop of a tile and unroll the others."""
    if loops:
        sch.vectorize(loops[-1])
    for loop in loops[:-1]:
        sch.unroll(loop)


def _depends_on(load: BufferLoad, axes: Sequence[Axis], loops: Sequence[LoopRV]) -> bool:
    variables = {axis.var for axis in axes if axis.loop in loops}
    return any(uses_var(index, variables) for index in load.indices)


def _lay_columns_last(sch: Schedule, main: BlockRV, copy: BlockRV, vector: Axis) -> None:
    """Keep the vector axis last in the registers and in the buffer that they are copied to."""
    store = stores_of(sch.get(main))[0]
    dim = next(d for d, index in enumerate(store.indices) if uses_var(index, {vector.var}))
    for rv in (main, copy):
        sch.transform_layout(rv, ("write", 0), lambda *i: (*i[:dim], *i[dim + 1 :], i[dim]))


def _columns_innermost(sch: Schedule, copy: BlockRV, skip: int) -> None:
    """Let the loop over the last index of what a block writes run innermost."""
    last = stores_of(sch.get(copy))[0].indices[-1]
    axes = axes_of(sch, copy, skip) or []
    columns = [axis.loop for axis in axes if axis.var is last]
    sch.reorder(*(axis.loop for axis in axes if axis.loop not in columns), *columns)


def _pack(sch: Schedule, main: BlockRV, plan: Plan, target: Target) -> None:
    """Copy an operand into panels, so that what the tiles read one after the other lies together.

    The dimension that follows the vector axis is cut into tiles: their number becomes the first
    dimension, what is within a tile the last.
    """
    operand, vector, width = plan.packed, plan.vector, plan.tile.columns
    assert operand is not None and vector.extent is not None
    block = sch.get(main)
    dim = next(d for d, index in enumerate(operand.indices) if index is vector.var)
    buffers = [region.buffer for region in block.reads]
    copy = sch.cache_read(main, buffers.index(operand.buffer), "global")
    sch.transform_layout(
        copy,
        ("write", 0),
        lambda *i: (i[dim] // width, *i[:dim], *i[dim + 1 :], i[dim] % width),
    )
    sch.annotate(copy, LAYOUT_REWRITE, True)
    if vector.extent % width == 0:
        loops = sch.get_loops(copy)
        outer, inner = sch.split(loops[dim], [None, width])
        rest = [loop for d, loop in enumerate(loops) if d != dim]
        if dim == len(loops) - 1:
            sch.reorder(outer, *rest, inner)
            sch.vectorize(inner)
        else:
            # A line of the operand at a time, so that what is read stays in the cache.
            line, element = sch.split(rest.pop(), [None, _line_of(operand, target)])
            sch.reorder(outer, *rest, line, inner, element)
        parallelize(sch, [outer], target, vector.extent * 1024)


def _line_of(operand: BufferLoad, target: Target) -> int:
    """Elements of a cache line, or the most below that divide the last dimension."""
    extent = as_int(operand.buffer.shape[-1]) or 1
    most = target.vector_lanes(dtypes.bits_of(operand.buffer.dtype))
    return max(size for size in range(1, most + 1) if extent % size == 0)
