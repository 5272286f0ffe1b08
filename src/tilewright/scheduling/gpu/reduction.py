"""Schedules of single reductions, by what is contiguous in memory.

- *rows*: the reduced axis is contiguous. The threads of a warp, or of a whole block, each reduce
  every 32nd (64th …) element of a row and then join their results; short rows share a block.
- *columns*: neighbouring results are contiguous. Threads along ``x`` have a result each, so that
  they read neighbours; where results are few, threads along ``y`` share the reduced axis.
- order matters (no registered reducer): a thread for each result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.scheduling.blocks import Axis, axes_of, loads_of, stride_of, work_of
from tilewright.scheduling.gpu.binding import (
    BLOCKS,
    THREADS,
    attach,
    bind_flat,
    bind_nest,
    fused,
    fused_results,
)
from tilewright.scheduling.gpu.limits import GPULimits, limits_of
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block
from tilewright.tir.analysis.update_order import threads_combine
from tilewright.tir.schedule import Schedule, others_after
from tilewright.tir.schedule.handles import BlockRV

ROWS_OF_THREADS = "threadIdx.y"
# Threads of a block, and elements of a row that each thread reduces, at least.
_THREADS, _OWN = 256, 4
# Columns side by side: the least that a warp reads as whole cache lines.
_COLUMNS = 32


@dataclass(frozen=True)
class Shape:
    """Threads that share a reduction, and results that a block computes."""

    sharing: int
    results: int


def schedule_reduction(sch: Schedule, rv: BlockRV, target: Target) -> str | None:
    """Bind a reduction; returns why only one thread runs it, if so."""
    limits, axes = limits_of(target), axes_of(sch, rv)
    if axes is None or all(axis.is_reduce is False for axis in axes):
        return bind_nest(sch, rv, limits)
    block = sch.get(rv)
    spatial = [axis for axis in axes if not axis.is_reduce]
    steps = [axis for axis in axes if axis.is_reduce]
    if threads_combine(block):
        rows = reads_rows(block, spatial, steps)
        for shape in shapes_of(sch, block.name, spatial, steps, rows, limits):
            attempt = sch.copy()
            try:
                bind_shared(attempt, rv, spatial, steps, shape, rows)
            except ScheduleError:
                continue
            sch.become(attempt)
            return None
    return bind_nest(sch, rv, limits)


def reads_rows(block: Block, spatial: Sequence[Axis], steps: Sequence[Axis]) -> bool:
    """Whether neighbours along a reduced axis are neighbours in memory, rather than results are."""
    for load in sorted(loads_of(block), key=lambda x: -len(x.indices)):
        for axes, answer in ((steps, True), (spatial, False)):
            near = [stride_of(load.indices, load.buffer, a.var) == 1 for a in axes if a.extent != 1]
            if any(near):
                return answer
    return True


def shapes_of(
    sch: Schedule,
    name: str,
    spatial: Sequence[Axis],
    steps: Sequence[Axis],
    rows: bool,
    limits: GPULimits,
) -> list[Shape]:
    """Shapes to try, the preferred one first."""
    length = None if any(axis.extent is None for axis in steps) else work_of(steps)
    results = None if any(axis.extent is None for axis in spatial) else work_of(spatial)
    made = _row_shape if rows else _column_shape
    usual = made(length, results, limits)
    options = [
        Shape(sharing, max(1, _THREADS // sharing)) if rows else Shape(sharing, _COLUMNS)
        for sharing in ((8, 32, 128, 256, 512, 1024) if rows else (1, 4, 8, 16, 32))
    ]
    fitting = [s for s in options if s.sharing * s.results <= limits.max_threads]
    return sch.choices.preferring(f"{name}.threads", others_after(usual, fitting))


def _row_shape(length: int | None, results: int | None, limits: GPULimits) -> Shape:
    """A warp for a short row; more threads for longer ones, or where rows are few."""
    block = min(_THREADS, limits.max_threads)
    if length is None:
        return Shape(block, 1)
    sharing = 1
    while sharing < limits.warp_size and sharing < length:
        sharing *= 2
    while 2 * sharing <= block and sharing * 8 * _OWN <= length:
        sharing *= 2
    most = limits.max_threads
    while (
        2 * sharing <= most
        and 2 * sharing * _OWN <= length
        and (results or 0) * sharing < limits.threads_to_fill
        and results is not None
    ):
        sharing *= 2
    together = max(1, block // sharing)
    return Shape(sharing, together if results is None else max(1, min(together, results)))


def _column_shape(length: int | None, results: int | None, limits: GPULimits) -> Shape:
    """A thread for each result where they are many; else several share the reduced axis."""
    columns = min(_COLUMNS, limits.max_threads)
    sharing, known = 1, results if results is not None else limits.threads_to_fill // 8
    while (
        2 * sharing * columns <= min(_THREADS * 4, limits.max_threads)
        and known * sharing < limits.threads_to_fill // 2
        and (length is None or 2 * sharing * _OWN <= length)
    ):
        sharing *= 2
    if sharing == 1:
        columns = min(_THREADS, limits.max_threads)
        while columns > limits.warp_size and -(-known // columns) < limits.processors:
            columns //= 2
    return Shape(sharing, columns)


def bind_shared(
    sch: Schedule,
    rv: BlockRV,
    spatial: Sequence[Axis],
    steps: Sequence[Axis],
    shape: Shape,
    rows: bool,
    consumers: Sequence[BlockRV] = (),
) -> None:
    """Let ``shape.sharing`` threads share the reduction of each result.

    ``consumers`` are computed for each result as soon as it is there. Raises ``ScheduleError``
    where the order of the loops matters.
    """
    block = sch.get(rv)
    outer = [axis.loop for axis in near_last(block, spatial)]
    inner = [axis.loop for axis in near_last(block, steps)]
    sch.reorder(*outer, *inner)
    reduced = fused(sch, inner)
    if not outer:
        outer = [sch.add_unit_loop(reduced)]
    result = fused_results(sch, outer)
    attach(sch, rv, consumers, result)
    if shape.sharing == 1:
        bind_flat(sch, [result], shape.results)
        return
    sharing, others = (THREADS, ROWS_OF_THREADS) if rows else (ROWS_OF_THREADS, THREADS)
    blocks = own = result
    if shape.results > 1:
        blocks, own = sch.split(result, [None, shape.results])
        sch.bind(own, others)
    sch.bind(blocks, BLOCKS)
    _, shared = sch.split(reduced, [None, shape.sharing])
    sch.bind(shared, sharing)


def near_last(block: Block, axes: Sequence[Axis]) -> list[Axis]:
    """Bring the axis along which an operand's elements are neighbours to the end."""
    near = [
        axis
        for axis in axes
        if axis.extent != 1
        and any(stride_of(x.indices, x.buffer, axis.var) == 1 for x in loads_of(block))
    ]
    return [axis for axis in axes if axis not in near[-1:]] + near[-1:]
