"""Schedules of single reductions.

Four forms, by what is contiguous:

- *columns*: neighbouring results are the lanes. Few columns stay in registers for all rows; many
  are summed into memory, some rows at a time, so that rows are read contiguously.
- *rows*: the reduction axis is contiguous, and every lane of several vectors reduces separate
  elements (``rfactor``), which hides the latency of the operation; the lanes are combined at the
  end. Contiguous axes are fused to one row. Short rows are processed together: their vectors hide
  the latency, and one tree of shuffles combines the lanes of all (``JoinLanes``).
- *windows*: a few elements of the same rows, or where data tell: vectors of results, which gather.
- otherwise serial loops.

If there are fewer results than threads, each thread reduces a subset of the elements.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tilewright.ir import as_int, collect, const, dtypes, uses_var
from tilewright.scheduling.blocks import (
    Axis,
    are_side_by_side,
    axes_of,
    can_vectorize,
    element_bits,
    is_costly,
    loads_of,
    reads_along,
    size_of,
    stores_of,
    stride_of,
    work_of,
)
from tilewright.scheduling.cpu.elementwise import schedule_injective
from tilewright.scheduling.cpu.loops import parallelize
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block, BufferLoad
from tilewright.tir.attrs import KEEP_WHOLE
from tilewright.tir.schedule import Schedule, others_after
from tilewright.tir.schedule.handles import BlockRV, LoopRV

logger = logging.getLogger("tilewright.scheduling")

# Vectors of columns that are kept in registers for all rows, and that are summed at a time.
_MOST_COLUMNS, _COLUMN_VECTORS = 16, 8
# The latter if the number of columns comes with the call.
_UNKNOWN_COLUMN_VECTORS = 2
# Rows that are summed before the sum goes back to memory.
_ROWS_AT_A_TIME = 8
# Vectors of partial results of a row, and how many elements each lane must get to be worth it.
_ROW_VECTORS = (8, 4, 2, 1)
_PER_LANE = 4
# Vectors of a short row that are written out; a quarter of that if they cost more than to load.
_UNROLLED = 64
# Short rows that are reduced together, by the most vectors that they have: as whole vectors, and
# where the last one is cut off. The lanes of longer rows are joined seldom enough.
_TOGETHER = ((1, 16, 16), (4, 16, 4))
# The same of rows whose length comes with the call.
_UNKNOWN_TOGETHER = 4
# Steps of windows whose elements are gathered, which are written out, and the fewest results.
_WINDOW, _LEAST_RESULTS = 16, 8
# Elements of operands that are so far apart are close to each other.
_NEAR = 8
# Rows of so many elements need not be joined to longer ones.
_LONG_ROW = 1024


def schedule_reduction(
    sch: Schedule,
    rv: BlockRV,
    target: Target,
    skip: int = 0,
    producer: BlockRV | None = None,
    vectors: int | None = None,
) -> bool:
    """Vectorise a reduction over whichever axis is contiguous; see the module's docstring.

    With ``skip == 0`` the outer loops run in parallel; otherwise that many loops are left alone.
    ``producer`` comes right before and computes the reduced elements: if rows are reduced, it is
    scheduled in the same loop. Returns whether it was. ``vectors`` is the number of partial results
    per row, if given.
    """
    axes = axes_of(sch, rv, skip)
    if not axes:
        return False
    spatial = [axis for axis in axes if not axis.is_reduce]
    reduce = [axis for axis in axes if axis.is_reduce]
    if not reduce:
        schedule_injective(sch, rv, target, skip)
        return False
    if skip == 0 and _share_among_threads(sch, rv, spatial, reduce, target):
        return False
    if producer is not None and _fits(sch, producer, rv, axes, skip):
        attempt = sch.copy()
        try:
            _vectorize(attempt, rv, spatial, reduce, target, skip, producer, vectors)
            sch.become(attempt)
            return True
        except ScheduleError as error:
            logger.debug("%s is computed apart: %s", producer, error.summary)
    outer = _vectorize(sch, rv, spatial, reduce, target, skip, vectors=vectors)
    if skip == 0:
        parallelize(sch, outer, target, work_of(axes))
    return False


def _fits(sch: Schedule, producer: BlockRV, rv: BlockRV, axes: Sequence[Axis], skip: int) -> bool:
    """Whether the loops of a producer equal those of a reduction, below the first ``skip``."""
    theirs = axes_of(sch, producer, skip) or []
    return [axis.extent for axis in theirs] == [axis.extent for axis in axes]


def _vectorize(
    sch: Schedule,
    rv: BlockRV,
    spatial: Sequence[Axis],
    reduce: Sequence[Axis],
    target: Target,
    skip: int,
    producer: BlockRV | None = None,
    vectors: int | None = None,
) -> list[LoopRV]:
    """Choose the form and schedule accordingly; return the loops that may run in parallel."""
    block = sch.get(rv)
    lanes = target.vector_lanes(max(8, element_bits(block)))
    vector = column_axis(block, spatial)
    if vector is not None:
        return _columns(sch, rv, spatial, reduce, vector, lanes, target)
    outer = [axis.loop for axis in spatial]
    sch.reorder(*outer, *(axis.loop for axis in reduce))
    reduce = _joined_axes(sch, rv, reduce)
    if _is_row(block, reduce[-1], lanes):
        return _row(sch, rv, spatial, reduce, lanes, skip, producer, vectors)
    if (lane := _near_axis(block, spatial, reduce)) is not None:
        return _windows(sch, rv, spatial, reduce, lane, target)
    sch.decompose_reduction(rv, reduce[0].loop)
    return outer


def column_axis(block: Block, spatial: Sequence[Axis]) -> Axis | None:
    """The axis of a reduction's results whose neighbours are the lanes, if its columns are."""
    able = (a for a in reversed(spatial) if a.extent != 1 and can_vectorize(block, a))
    vector = next(able, None)
    return vector if vector is not None and reads_along(block, vector) else None


def come_from_afar(sch: Schedule, blocks: Sequence[BlockRV], target: Target) -> bool:
    """Whether rows come from beyond the near caches, so that prefetching may pay off."""
    given = {region.buffer for rv in blocks for region in sch.get(rv).reads}
    sizes = (size_of(buffer) for buffer in given & set(sch.mod["main"].buffers))
    # What is written takes as much of the cache as what is read.
    return any(size is not None and 4 * size >= target.l2_bytes for size in sizes)


# ---- columns --------------------------------------------------------------------------------


def _columns(
    sch: Schedule,
    rv: BlockRV,
    spatial: Sequence[Axis],
    reduce: Sequence[Axis],
    vector: Axis,
    lanes: int,
    target: Target,
) -> list[LoopRV]:
    """Make neighbouring results the lanes of vectors; return the loops that may run in parallel."""
    outer = [axis.loop for axis in spatial if axis is not vector]
    steps = [axis.loop for axis in reduce]
    if vector.extent is not None and vector.extent <= _MOST_COLUMNS * lanes:
        inner = vector.loop
        place = [] if outer else [sch.add_unit_loop(sch.get_loops(rv)[0])]
        if len(sch.get(rv).writes) == 1:
            copy = sch.cache_write(rv, 0, "local")
            sch.reorder(*outer, *place, *steps, inner)
            sch.reverse_compute_at(copy, [*outer, *place][-1])
            sch.vectorize(sch.get_loops(copy)[-1])
        else:
            sch.reorder(*outer, *place, *steps, inner)
    else:
        chunk, inner = sch.split(vector.loop, [None, _column_width(vector.extent, lanes)])
        rows = _rows_at_a_time(reduce[-1].extent)
        if not outer and target.num_cores > 1:
            panel, chunk = sch.split(chunk, [target.num_cores, None])
            outer.append(panel)
        if rows is None:
            outer.append(chunk)
        else:
            blocks, row = sch.split(steps[-1], [None, rows])
            steps = [*steps[:-1], blocks, chunk, row]
        sch.reorder(*outer, *steps, inner)
    init = sch.decompose_reduction(rv, steps[0])
    sch.vectorize(inner)
    sch.vectorize(sch.get_loops(init)[-1])
    return outer


def _column_width(extent: int | None, lanes: int) -> int:
    """The number of columns summed at a time."""
    if extent is None:
        return _UNKNOWN_COLUMN_VECTORS * lanes
    for vectors in range(_COLUMN_VECTORS, _COLUMN_VECTORS // 2, -1):
        if extent % (vectors * lanes) == 0:
            return vectors * lanes
    return _COLUMN_VECTORS * lanes


def _rows_at_a_time(extent: int | None) -> int | None:
    """The number of rows for which sums stay in registers; ``None`` for all of them."""
    if extent is None:
        return _ROWS_AT_A_TIME
    if extent < 2 * _ROWS_AT_A_TIME:
        return None
    for rows in range(_ROWS_AT_A_TIME, 2 * _ROWS_AT_A_TIME + 1):
        if extent % rows == 0:
            return rows
    return _ROWS_AT_A_TIME


# ---- windows --------------------------------------------------------------------------------


def _near_axis(block: Block, spatial: Sequence[Axis], reduce: Sequence[Axis]) -> Axis | None:
    """The axis along which results are neighbours, and come from the same rows of operands."""
    last = next((axis for axis in reversed(spatial) if axis.extent != 1), None)
    few = all(axis.extent is not None for axis in reduce) and work_of(reduce) <= _WINDOW
    if last is None or last.extent is None or not few or len(block.writes) != 1:
        return None
    if any(stride_of(x.indices, x.buffer, last.var) != 1 for x in stores_of(block)):
        return None
    able = all(_is_in_row(load, last) or _is_looked_up(load) for load in loads_of(block))
    return last if able and last.extent >= _LEAST_RESULTS else None


def _is_in_row(load: BufferLoad, axis: Axis) -> bool:
    """Whether neighbours along an axis lie in one row, or close to each other."""
    apart = stride_of(load.indices, load.buffer, axis.var)
    if apart is not None and abs(apart) <= _NEAR:
        return True
    return not any(uses_var(index, {axis.var}) for index in load.indices[:-1])


def _is_looked_up(load: BufferLoad) -> bool:
    """Whether data tell where an element is."""
    return any(collect(index, BufferLoad) for index in load.indices)


def _windows(
    sch: Schedule,
    rv: BlockRV,
    spatial: Sequence[Axis],
    reduce: Sequence[Axis],
    lane: Axis,
    target: Target,
) -> list[LoopRV]:
    """Compute vectors of results, whose elements are gathered; write the steps out."""
    result = dtypes.bits_of(sch.get(rv).writes[0].buffer.dtype)
    outer, inner = sch.split(lane.loop, [None, target.vector_lanes(max(8, result))])
    around = [outer if axis is lane else axis.loop for axis in spatial]
    steps = [axis.loop for axis in reduce]
    sch.reorder(*around, *steps, inner)
    init = sch.decompose_reduction(rv, steps[0])
    for loop in (inner, sch.get_loops(init)[-1]):
        sch.vectorize(loop)
    for loop in steps:
        sch.unroll(loop)
    return around


# ---- rows -----------------------------------------------------------------------------------


def _is_row(block: Block, last: Axis, lanes: int) -> bool:
    """Whether the last axis is read contiguously, and long enough to be divided among lanes."""
    strides = {stride_of(x.indices, x.buffer, last.var) for x in loads_of(block)}
    return 1 in strides and strides <= {0, 1} and (last.extent is None or last.extent > lanes // 4)


def _joined_axes(sch: Schedule, rv: BlockRV, reduce: Sequence[Axis]) -> list[Axis]:
    """Fuse the last axes of a reduction as far as their operands are contiguous."""
    axes, loads = list(reduce), loads_of(sch.get(rv))
    whole = {item.var: item.dom.extent for item in sch.get(rv).iter_vars}
    while len(axes) > 1:
        outer, last = axes[-2:]
        if last.extent is None and len(axes) != len(reduce):
            break  # what was joined already is no dimension
        if last.extent is not None and last.extent >= _LONG_ROW:
            break
        width = whole[last.var] if last.extent is None else const(last.extent)
        if not all(are_side_by_side(load, outer.var, last.var, width) for load in loads):
            break
        known = outer.extent is not None and last.extent is not None
        extent = work_of([outer, last]) if known else None
        axes[-2:] = [Axis(sch.fuse(outer.loop, last.loop), last.var, last.kind, extent)]
    return axes


def _row(
    sch: Schedule,
    rv: BlockRV,
    spatial: Sequence[Axis],
    reduce: Sequence[Axis],
    lanes: int,
    skip: int,
    producer: BlockRV | None = None,
    vectors: int | None = None,
) -> list[LoopRV]:
    """Reduce every ``width``-th element in a lane of its own, then the lanes.

    Several rows are processed together, so that the lanes of all are combined in one tree. Returns
    the loops that may run in parallel.
    """
    outer = [axis.loop for axis in spatial]
    buffers, extent = len(sch.get(rv).writes), reduce[-1].extent
    rows = _rows_together(sch, rv, spatial, reduce, lanes)
    if vectors is None:
        vectors = _row_width(extent, work_of(reduce), buffers * rows, lanes) // lanes
    width = lanes * sch.choices.choose(f"{rv.name}.vectors", others_after(vectors, _ROW_VECTORS))
    members: list[LoopRV] = []
    if rows > 1:
        if rows != spatial[-1].extent:
            outer[-1], row = sch.split(outer[-1], [None, rows])
        else:
            row = outer.pop()
        members = [row]
    _, lane = sch.split(reduce[-1].loop, [None, width])
    while True:
        partial = sch.rfactor(lane, len(sch.get(rv).writes[0].region))
        around: list[LoopRV] = sch.get_loops(partial)[: skip + len(outer)]
        outer = around[skip:]
        if around and all(around[-1].var is not loop.var for loop in sch.get_loops(rv)):
            sch.reverse_compute_at(rv, around[-1])
        _partial_results(sch, partial, skip + len(outer), len(members), width // lanes, producer)
        if buffers == 1 or width <= lanes:
            break
        # Tuples have no operation that joins the lanes of a vector: first the vectors are joined.
        _, lane = sch.split(sch.get_loops(rv)[-1], [None, lanes])
        width = lanes
    if buffers > 1:
        sch.decompose_reduction(rv, sch.get_loops(rv)[-1])
    elif members:
        row, lane = sch.get_loops(rv)[skip + len(outer) :]
        sch.reorder(lane, row)
        init = sch.decompose_reduction(rv, lane)
        sch.vectorize(row)
        sch.vectorize(sch.get_loops(init)[-1])
    return outer


def _partial_results(
    sch: Schedule,
    partial: BlockRV,
    outer: int,
    members: int,
    vectors: int,
    producer: BlockRV | None,
) -> None:
    """Vectorise the block that reduces the elements of each lane, below ``outer`` loops."""
    inner = axes_of(sch, partial, outer) or []
    steps = [axis.loop for axis in inner if axis.is_reduce]
    sch.reorder(*steps, *(axis.loop for axis in inner if not axis.is_reduce))
    blocks = [partial]
    if producer is not None:
        *rows, columns = sch.get_loops(producer)[outer:]
        width = sch.get(sch.get_loops(partial)[-1]).extent
        chunk, _ = sch.split(columns, [None, as_int(width)])
        sch.reorder(chunk, *rows)
        steps = [sch.merge(chunk, *steps)]
        blocks.append(producer)
    blocks.append(sch.decompose_reduction(partial, sch.get_loops(partial)[outer]))
    for rv in blocks:
        loops = sch.get_loops(rv)
        sch.vectorize(loops[-1])
        if members:
            sch.unroll(loops[-2])
    extents = [as_int(sch.get(loop).extent) for loop in steps[-1:]]
    most = _UNROLLED // 4 if any(is_costly(sch.get(rv)) for rv in blocks) else _UNROLLED
    if extents and extents[0] is not None and extents[0] * max(1, members) * vectors <= most:
        if producer is None:
            sch.unroll(steps[-1])
        # The end of a row that fills no vector is a step like the others, under a mask.
        sch.annotate(steps[-1], KEEP_WHOLE, 1)


def _rows_together(
    sch: Schedule, rv: BlockRV, spatial: Sequence[Axis], reduce: Sequence[Axis], lanes: int
) -> int:
    """How many adjacent rows to reduce at once; 1 if they are long, or not adjacent."""
    block, extent = sch.get(rv), reduce[-1].extent
    if not spatial or len(block.writes) > 1 or spatial[-1].extent is None:
        return 1
    store = stores_of(block)[0]
    if stride_of(store.indices, store.buffer, spatial[-1].var) != 1:
        return 1
    if extent is None:
        most = _UNKNOWN_TOGETHER
    else:
        work = work_of(reduce)
        vectors = -(-work // lanes)
        options = next((rows for limit, *rows in _TOGETHER if vectors <= limit), [1, 1])
        most = options[work % lanes > 0]
    most = sch.choices.choose(f"{rv.name}.rows", others_after(most, (1, 4, 8)))
    most = min(most, lanes, spatial[-1].extent)
    while most > 1 and spatial[-1].extent % most:
        most //= 2
    return most


def _row_width(extent: int | None, work: int, together: int, lanes: int) -> int:
    """Partial results of a row: more hide the latency better, but cost more to combine."""
    if extent is None:
        return min(_ROW_VECTORS[1], _ROW_VECTORS[0] // together) * lanes
    for vectors in _ROW_VECTORS:
        if vectors * together > _ROW_VECTORS[0] and vectors > 1:
            continue  # several rows or buffers have as many each
        width = vectors * lanes
        if work >= _PER_LANE * width and extent >= width:
            return width
    return lanes


# ---- threads --------------------------------------------------------------------------------


def has_idle_threads(
    block: Block, spatial: Sequence[Axis], reduce: Sequence[Axis], target: Target
) -> bool:
    """Whether there are too few results for the threads, but terms enough."""
    cores = target.num_cores
    terms = reduce[0].extent
    if cores == 1 or terms is None or terms < 4 * cores:
        return False
    if any(axis.extent is None for axis in spatial):
        return False
    lanes = target.vector_lanes(max(8, element_bits(block)))
    columns = column_axis(block, spatial)
    # Columns that stay in registers are the work of one thread.
    few = columns is not None and (columns.extent or 0) <= _MOST_COLUMNS * lanes
    tasks = [axis for axis in spatial if not (few and axis is columns)]
    enough = work_of(spatial) * work_of(reduce) >= target.costs.parallel_work
    return enough and work_of(tasks) < cores


def _share_among_threads(
    sch: Schedule, rv: BlockRV, spatial: Sequence[Axis], reduce: Sequence[Axis], target: Target
) -> bool:
    """Make each thread reduce a subset, if there are too few results for the threads."""
    if not has_idle_threads(sch.get(rv), spatial, reduce, target):
        return False
    first = reduce[0]
    part, _ = sch.split(first.loop, [target.num_cores, None])
    partial = sch.rfactor(part, 0)
    axes = axes_of(sch, partial) or []
    mine = next((axis for axis in axes if not axis.is_reduce and axis.loop == part), None)
    if mine is None:
        mine = next(axis for axis in axes if not axis.is_reduce)
    sch.reorder(mine.loop)
    sch.reorder(mine.loop, *(axis.loop for axis in axes if axis is not mine))
    inner = axes_of(sch, partial, 1)
    if inner is not None:
        _vectorize(
            sch,
            partial,
            [axis for axis in inner if not axis.is_reduce],
            [axis for axis in inner if axis.is_reduce],
            target,
            1,
        )
    sch.parallel(sch.get_loops(partial)[0])
    return True
