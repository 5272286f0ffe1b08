"""Matrix times vector: each element of the matrix is used once, so memory is the limit.

The matrix has to be read from first to last in long runs, with little else to do for the loads:

- if its rows lie along the reduction (``[N, K]``), some rows at a time are multiplied by the vector
  and summed in lanes, which are joined at the end of the row;
- if they lie across (``[K, N]``), some rows at a time, each times one element of the vector, are
  added to the result, which stays in the nearest cache. The rows that follow are asked for ahead:
  each is a stream of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import uses_var
from tilewright.scheduling import NotApplicable, ScheduleRule, choose, preferring
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    element_bits,
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
from tilewright.tir import Block, BufferLoad
from tilewright.tir.attrs import PREFETCH_NEXT
from tilewright.tir.layout_rewrite import layout_free_positions
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Rows at a time along the reduction and across it, the best first: enough streams for the memory,
# few enough for the registers.
_ROWS_ALONG, _ROWS_ACROSS = (4, 3, 2), (8, 6, 4, 3, 2)
# Vectors of a row at a time, if the row has several times as many.
_VECTORS, _STEPS = 2, 4


@dataclass(frozen=True)
class _Product:
    """The matrix, the reduction axis, the other axis of the matrix, which the vector lacks."""

    matrix: BufferLoad
    reduce: Axis
    row: Axis
    is_along: bool


class MatrixVector(ScheduleRule):
    """Applies to functions with one reduction that uses each element of an operand once."""

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Stream the matrix, some rows at a time; other blocks one by one."""
        opening = sole_reduction(sch)
        if isinstance(opening, NotApplicable):
            return opening
        main, blocks = opening
        axes = axes_of(sch, main)
        product = None if axes is None else _product_of(sch.get(main), axes)
        if axes is None or product is None:
            return NotApplicable("no operand is a matrix whose elements are used once")
        func = sch.mod["main"]
        constants = [func.buffer_map.get(func.params[p]) for p in layout_free_positions(func)]
        if product.matrix.buffer in constants:
            return NotApplicable("the matrix is constant: packed, it is read from first to last")
        lanes = target.vector_lanes(max(8, element_bits(sch.get(main))))
        schedule = _along_rows if product.is_along else _across_rows
        if not schedule(sch, main, axes, product, lanes, target):
            return NotApplicable("whole vectors and rows don't divide the matrix")
        for rv in blocks:
            if rv != main:
                schedule_injective(sch, rv, target)
        return sch


def _product_of(block: Block, axes: Sequence[Axis]) -> _Product | None:
    """Recognise ``result[n] += matrix[n, k] * vector[k]``, with any batch axes before."""
    stores, loads = stores_of(block), loads_of(block)
    if len(stores) != 1 or len({load.buffer for load in loads}) != 2:
        return None
    used = [axis for axis in axes if axis.extent != 1]
    matrices = [load for load in loads if all(_is_index(load, axis) for axis in used)]
    if len(matrices) != 1 or sum(load.buffer is matrices[0].buffer for load in loads) != 1:
        return None
    matrix = matrices[0]
    vectors = [load for load in loads if load is not matrix]
    rows = [
        axis
        for axis in used
        if not axis.is_reduce and not any(uses_var(load, {axis.var}) for load in vectors)
    ]
    reduce = [axis for axis in used if axis.is_reduce]
    if len(rows) != 1 or len(reduce) != 1 or reduce[0].extent is None:
        return None
    strides = {
        axis.var: stride_of(matrix.indices, matrix.buffer, axis.var) for axis in (*rows, *reduce)
    }
    contiguous = all(stride_of(load.indices, load.buffer, reduce[0].var) == 1 for load in vectors)
    if strides[reduce[0].var] == 1 and contiguous:
        return _Product(matrix, reduce[0], rows[0], True)
    store = stores[0]
    if strides[rows[0].var] == 1 and stride_of(store.indices, store.buffer, rows[0].var) == 1:
        return _Product(matrix, reduce[0], rows[0], False)
    return None


def _is_index(load: BufferLoad, axis: Axis) -> bool:
    """Whether an axis is one dimension of an operand, by itself."""
    using = [index for index in load.indices if uses_var(index, {axis.var})]
    return len(using) == 1 and using[0] is axis.var


def _renewed(
    sch: Schedule, rv: BlockRV, axes: Sequence[Axis], row: Axis
) -> tuple[list[LoopRV], LoopRV, list[LoopRV]]:
    """Loops of a block that has the spatial axes of another one: outer ones, rows, reduction."""
    place = [axis.var for axis in axes if not axis.is_reduce].index(row.var)
    made = axes_of(sch, rv) or []
    spatial = [axis.loop for axis in made if not axis.is_reduce]
    reduce = [axis.loop for axis in made if axis.is_reduce]
    return spatial[:place] + spatial[place + 1 :], spatial[place], reduce


def _along_rows(
    sch: Schedule,
    main: BlockRV,
    axes: Sequence[Axis],
    product: _Product,
    lanes: int,
    target: Target,
) -> bool:
    """Sum some rows at a time, each in lanes; join the lanes."""
    extent = product.reduce.extent or 1
    whole = extent % (_VECTORS * lanes) == 0 and extent >= _STEPS * _VECTORS * lanes
    width = choose("matrix_vector.width", (_VECTORS * lanes, lanes) if whole else (lanes,))
    if extent % width or extent == width:
        return False
    _, lane = sch.split(product.reduce.loop, [None, width])
    partial = sch.rfactor(lane, len(sch.get(main).writes[0].region))
    outer, row, reduce = _renewed(sch, main, axes, product.row)
    rows = _first_divisor(product.row.extent, preferring("matrix_vector.rows", _ROWS_ALONG))
    row_outer, row_inner = sch.split(row, [None, rows])
    sch.reorder(*outer, row_outer, row_inner, *reduce)
    sch.compute_at(partial, row_outer)
    sch.set_scope(partial, 0, "local")
    steps = _sums_in_registers(sch, partial, len(outer) + 1)
    init = sch.decompose_reduction(partial, steps)
    for rv, skip in ((partial, len(outer) + 2), (init, len(outer) + 1)):
        vectorize_tile(sch, sch.get_loops(rv)[skip:])
    sch.unroll(row_inner)
    parallelize(sch, [*outer, row_outer], target, work_of(axes))
    return True


def _sums_in_registers(sch: Schedule, partial: BlockRV, depth: int) -> LoopRV:
    """Let the reduction run outside of what is summed; return its loop."""
    inner = axes_of(sch, partial, depth) or []
    (steps,) = [axis.loop for axis in inner if axis.is_reduce]
    last = stores_of(sch.get(partial))[0].indices[-1]
    sums = [axis.loop for axis in inner if not axis.is_reduce and axis.var is not last]
    lanes = [axis.loop for axis in inner if axis.var is last]
    sch.reorder(steps, *sums, *lanes)
    return steps


def _across_rows(
    sch: Schedule,
    main: BlockRV,
    axes: Sequence[Axis],
    product: _Product,
    lanes: int,
    target: Target,
) -> bool:
    """Add some rows at a time to the result."""
    rows = _first_divisor(product.reduce.extent, preferring("matrix_vector.rows", _ROWS_ACROSS))
    if rows == 1 or (product.row.extent or lanes) < lanes:
        return False
    steps, _ = sch.split(product.reduce.loop, [None, rows])
    partial = sch.rfactor(steps, 0)
    outer, column, reduce = _renewed(sch, main, axes, product.row)
    share = _share(product.row.extent, lanes, target, work_of(axes))
    if share is not None:
        task, column = sch.split(column, [None, share])
        outer.append(task)
    column_outer, column_inner = sch.split(column, [None, lanes])
    sch.reorder(*outer, *reduce, column_outer, column_inner)
    init = sch.decompose_reduction(main, reduce[0])
    sch.compute_at(partial, column_outer)
    sch.set_scope(partial, 0, "local")
    depth = len(outer) + 2
    inner = axes_of(sch, partial, depth) or []
    terms = [axis.loop for axis in inner if axis.is_reduce]
    vector = [axis.loop for axis in inner if not axis.is_reduce]
    sch.reorder(*terms, *vector)
    first = sch.decompose_reduction(partial, terms[0])
    for loop in (*vector, *sch.get_loops(first)[depth:], column_inner, sch.get_loops(init)[-1]):
        sch.vectorize(loop)
    sch.unroll(terms[0])
    if choose("matrix_vector.prefetch", (True, False)):
        sch.annotate(reduce[0], PREFETCH_NEXT, 1)
    if outer:
        parallelize(sch, outer, target, work_of(axes))
    return True


def _share(extent: int | None, lanes: int, target: Target, work: int) -> int | None:
    """Columns of one thread; ``None`` if one thread does all."""
    cores, least = target.num_cores, target.costs.parallel_work
    if cores == 1 or work < least or extent is None or extent % (cores * lanes):
        return None
    return extent // cores


def _first_divisor(extent: int | None, sizes: Sequence[int]) -> int:
    """The first of some sizes that divides an extent; 1 if none does or it isn't known."""
    return next((size for size in sizes if extent is not None and extent % size == 0), 1)
