"""Matrix times vector: each element of the matrix is used once, so it is memory-bound.

The matrix must be read sequentially in long runs, all of it, with few other loads:

- if its rows are along the reduction (``[N, K]``), some rows at a time are multiplied by the vector
  and summed in lanes, which are combined at the end of the row;
- if they are across it (``[K, N]``), some rows at a time, each times one element of the vector, are
  added to the result, which stays in the L1 cache. The following rows are prefetched: each is a
  separate stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.form import Form, sum_up
from tilewright.scheduling import (
    Contraction,
    NotApplicable,
    dimension_of,
    stride,
)
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    element_bits,
    loads_at_times,
    parallelize,
    schedule_injective,
    stores_of,
    work_of,
)
from tilewright.target import Target
from tilewright.tir import BufferLoad
from tilewright.tir.attrs import PREFETCH_NEXT
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Rows at a time along the reduction and across it, the best first: enough streams for the memory,
# few enough for the registers.
_ROWS_ALONG, _ROWS_ACROSS = (4, 3, 2), (8, 6, 4, 3, 2)
# Vectors of a row at a time, if the row has several times as many.
_VECTORS, _STEPS = 2, 4


@dataclass(frozen=True)
class _Product:
    """The matrix, the reduction axis, and the matrix's other axis, which the vector lacks."""

    matrix: BufferLoad
    reduce: Axis
    row: Axis
    is_along: bool


class MatrixVector(Form):
    """Applies to functions with one reduction that uses each element of an operand once."""

    def tile(self, sch: Schedule, found: Contraction, target: Target) -> tuple[()] | NotApplicable:
        """Stream the matrix, some rows at a time."""
        product = _product_of(found)
        if product is None:
            return NotApplicable("no operand is a matrix whose elements are used once")
        if product.matrix.buffer in found.constants and not _reads_rows_best(product, target):
            return NotApplicable("the matrix is constant: packed, it is read from first to last")
        if any(load is product.matrix for load in loads_at_times(found.block)):
            return NotApplicable("a condition leaves out parts of the matrix, so rows are no runs")
        schedule = _along_rows if product.is_along else _across_rows
        if not schedule(sch, found, product, target):
            return NotApplicable("whole vectors and rows don't divide the matrix")
        for rv in found.consumers:
            schedule_injective(sch, rv, target)
        return ()


def _reads_rows_best(product: _Product, target: Target) -> bool:
    """Whether rows of a constant matrix are read in place, though it could be packed.

    A Zen 3 reads 1.4 times as fast from several rows as from one panel after the other, fetched
    ahead or not. With AVX-512 (Zen 5, Emerald Rapids) panels that are fetched ahead are as fast.
    """
    whole = (product.row.extent or 1) % _ROWS_ALONG[0] == 0
    measured = product.is_along and product.matrix.buffer.dtype == "float32"
    return measured and whole and not target.has("avx512f")


def _product_of(found: Contraction) -> _Product | None:
    """Recognise ``result[n] += matrix[n, k] * vector[k]``, with any batch axes before."""
    used = [axis for axis in found.axes if axis.extent != 1]
    matrices = [
        load for load in found.loads if all(dimension_of(load, axis) is not None for axis in used)
    ]
    if len({load.buffer for load in found.loads}) != 2 or len(matrices) != 1:
        return None
    (matrix,) = matrices
    vectors = found.other_than(matrix)
    rows = found.reusing(*vectors)
    steps = [axis for axis in used if axis.is_reduce]
    if any(load.buffer is matrix.buffer for load in vectors) or len(rows) != 1 or len(steps) != 1:
        return None
    (row,), (step,) = rows, steps
    if step.extent is None:
        return None
    if stride(matrix, step) == 1 and all(stride(load, step) == 1 for load in vectors):
        return _Product(matrix, step, row, True)
    if stride(matrix, row) == 1 and found.is_contiguous(row):
        return _Product(matrix, step, row, False)
    return None


def _renewed(
    sch: Schedule, rv: BlockRV, found: Contraction, row: Axis
) -> tuple[list[LoopRV], LoopRV, list[LoopRV]]:
    """Loops of a block that has the spatial axes of another one: outer ones, rows, reduction."""
    place = found.spatial.index(row)
    made = axes_of(sch, rv) or []
    spatial = [axis.loop for axis in made if not axis.is_reduce]
    reduce = [axis.loop for axis in made if axis.is_reduce]
    return spatial[:place] + spatial[place + 1 :], spatial[place], reduce


def _along_rows(sch: Schedule, found: Contraction, product: _Product, target: Target) -> bool:
    """Sum some rows at a time, each in lanes; combine the lanes."""
    main, lanes = found.main, _lanes(found, target)
    extent = product.reduce.extent or 1
    whole = extent % (_VECTORS * lanes) == 0 and extent >= _STEPS * _VECTORS * lanes
    width = sch.choices.choose(
        "matrix_vector.width", (_VECTORS * lanes, lanes) if whole else (lanes,)
    )
    if extent % width or extent == width:
        return False
    _, lane = sch.split(product.reduce.loop, [None, width])
    partial = sch.rfactor(lane, len(sch.get(main).writes[0].region))
    outer, row, reduce = _renewed(sch, main, found, product.row)
    rows = _first_divisor(
        product.row.extent, sch.choices.preferring("matrix_vector.rows", _ROWS_ALONG)
    )
    row_outer, row_inner = sch.split(row, [None, rows])
    sch.reorder(*outer, row_outer, row_inner, *reduce)
    sch.compute_at(partial, row_outer)
    sch.set_scope(partial, 0, "local")
    _sums_in_registers(sch, partial, len(outer) + 1)
    sch.unroll(row_inner)
    parallelize(sch, [*outer, row_outer], target, work_of(found.axes))
    return True


def _sums_in_registers(sch: Schedule, partial: BlockRV, depth: int) -> LoopRV:
    """Move the reduction loop outside the sums; return it."""
    inner = axes_of(sch, partial, depth) or []
    (steps,) = [axis.loop for axis in inner if axis.is_reduce]
    last = stores_of(sch.get(partial))[0].indices[-1]
    sums = [axis.loop for axis in inner if not axis.is_reduce and axis.var is not last]
    lanes = [axis.loop for axis in inner if axis.var is last]
    sch.reorder(steps, *sums, *lanes)
    sum_up(sch, partial, [steps], depth)
    return steps


def _across_rows(sch: Schedule, found: Contraction, product: _Product, target: Target) -> bool:
    """Add some rows at a time to the result."""
    main, lanes, work = found.main, _lanes(found, target), work_of(found.axes)
    rows = _first_divisor(
        product.reduce.extent, sch.choices.preferring("matrix_vector.rows", _ROWS_ACROSS)
    )
    if rows == 1 or (product.row.extent or lanes) < lanes:
        return False
    steps, _ = sch.split(product.reduce.loop, [None, rows])
    partial = sch.rfactor(steps, 0)
    outer, column, reduce = _renewed(sch, main, found, product.row)
    share = _share(product.row.extent, lanes, target, work)
    if share is not None:
        task, column = sch.split(column, [None, share])
        outer.append(task)
    column_outer, column_inner = sch.split(column, [None, lanes])
    sch.reorder(*outer, *reduce, column_outer, column_inner)
    init = sch.decompose_reduction(main, reduce[0])
    sch.compute_at(partial, column_outer)
    sch.set_scope(partial, 0, "local")
    sch.unroll(_sums_in_registers(sch, partial, len(outer) + 2))
    for loop in (column_inner, sch.get_loops(init)[-1]):
        sch.vectorize(loop)
    if sch.choices.choose("matrix_vector.prefetch", (True, False)):
        sch.annotate(reduce[0], PREFETCH_NEXT, 1)
    if outer:
        parallelize(sch, outer, target, work)
    return True


def _lanes(found: Contraction, target: Target) -> int:
    return target.vector_lanes(max(8, element_bits(found.block)))


def _share(extent: int | None, lanes: int, target: Target, work: int) -> int | None:
    """Columns of one thread; ``None`` if one thread does all."""
    cores, least = target.num_cores, target.costs.parallel_work
    if cores == 1 or work < least or extent is None or extent % (cores * lanes):
        return None
    return extent // cores


def _first_divisor(extent: int | None, sizes: Sequence[int]) -> int:
    """The first of some sizes that divides an extent; 1 if none does or it is unknown."""
    return next((size for size in sizes if extent is not None and extent % size == 0), 1)
