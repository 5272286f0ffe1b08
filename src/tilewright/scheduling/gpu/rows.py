"""Stages over the same rows in one kernel: threads share each row from the first stage to the last.

Rows that fit into registers are read once, as vectors, and each thread keeps its elements for all
stages. Longer rows, and those whose length comes with the call, are read again by each stage, the
second time from a cache; what lies between stages is computed again rather than stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Expr, as_int, dtypes
from tilewright.scheduling.blocks import (
    Axis,
    axes_of,
    is_injective,
    leaf_blocks,
    loads_of,
    stride_of,
    work_of,
)
from tilewright.scheduling.gpu.binding import BLOCKS, THREADS, fused
from tilewright.scheduling.gpu.elementwise import VECTOR_BYTES
from tilewright.scheduling.gpu.limits import GPULimits
from tilewright.scheduling.gpu.reduction import ROWS_OF_THREADS
from tilewright.support.errors import ScheduleError
from tilewright.tir import Block, Buffer
from tilewright.tir.analysis import has_branch
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

_KEPT = 32
"""Elements of a row that a thread keeps in registers, of each operand."""
_OWN = 16
"""Elements of a row that a thread has, so that joining their results is the smaller part."""
_THREADS = 256


@dataclass(frozen=True)
class RowPlan:
    """Threads that share a row, rows of a block, elements of vectors, and whether rows are kept."""

    threads: int
    together: int
    lanes: int
    kept: bool


def row_plans(
    sch: Schedule,
    blocks: Sequence[BlockRV],
    rows: Sequence[Axis],
    width: int | None,
    limits: GPULimits,
) -> list[RowPlan]:
    """Return the plans for stages over rows of so many elements, the preferred one first."""
    count = None if any(axis.extent is None for axis in rows) else work_of(rows)
    if width is None:
        return [RowPlan(min(_THREADS, limits.max_threads), 1, 1, False)]
    lanes = _lanes(sch, blocks, width)
    usual = limits.warp_size
    while usual < min(limits.max_threads, 1024) and usual * _OWN < width:
        usual *= 2
    while usual > 1 and usual // 2 * lanes >= width:
        usual //= 2
    plans = []
    for threads in (usual, 2 * usual, 4 * usual, usual // 2):
        if not 1 <= threads <= limits.max_threads:
            continue
        together = max(1, min(_THREADS, limits.max_threads) // threads)
        together = min(together, count) if count else together
        kept = -(-width // (threads * lanes)) * lanes <= _KEPT
        plans += [RowPlan(threads, together, lanes, True)] if kept else []
        plans.append(RowPlan(threads, together, 1, False))
    return list(dict.fromkeys(plans))


def _lanes(sch: Schedule, blocks: Sequence[BlockRV], width: int) -> int:
    """Elements of a row that one load of 16 bytes brings, if rows are whole numbers of these."""
    bits = [
        dtypes.bits_of(region.buffer.dtype)
        for rv in blocks
        for region in (*sch.get(rv).reads, *sch.get(rv).writes)
        if region.buffer.shape and as_int(region.buffer.shape[-1]) == width
    ]
    lanes = 8 * VECTOR_BYTES // max([8, *bits])
    while lanes > 1 and width % lanes:
        lanes //= 2
    return lanes


def schedule_rows(sch: Schedule, last: BlockRV, rows: int, plan: RowPlan) -> None:
    """Compute all blocks of a function under the rows of the last one.

    ``rows`` are the leading axes that all have in common. Raises ``ScheduleError`` if a stage can't
    be computed there.
    """
    if not plan.kept:
        _compute_again(sch, last, rows)
    blocks = leaf_blocks(sch)
    row = fused(sch, sch.get_loops(last)[:rows])
    own = row
    if plan.together > 1:
        row, own = sch.split(row, [None, plan.together])
    for rv in reversed(blocks[:-1]):
        sch.compute_at(rv, own)
    if plan.kept:
        blocks = [*_kept_operands(sch, blocks, own, rows), *blocks]
    sch.bind(row, BLOCKS)
    around = 1
    if own is not row:
        sch.bind(own, ROWS_OF_THREADS)
        around = 2
    outputs = set(sch.mod["main"].buffers)
    for rv in blocks:
        _bind_stage(sch, rv, around, plan)
        for position, region in enumerate(sch.get(rv).writes):
            if region.buffer not in outputs and (plan.kept or _is_of_rows(sch, rv)):
                sch.set_scope(rv, position, "local")
                if plan.kept and len(region.buffer.shape) > rows:
                    _own_elements_together(sch, rv, position, plan)


def _own_elements_together(sch: Schedule, rv: BlockRV, position: int, plan: RowPlan) -> None:
    """Lay a row out so that the elements of a thread are a part of it, which is all it needs."""
    step, lanes, threads = plan.threads * plan.lanes, plan.lanes, plan.threads

    def parts(*i: Expr) -> tuple[Expr, ...]:
        return (*i[:-1], i[-1] // step, i[-1] // lanes % threads, i[-1] % lanes)

    sch.transform_layout(rv, ("write", position), parts)


def _compute_again(sch: Schedule, last: BlockRV, rows: int) -> None:
    """Inline stages that have an element for each of a row's: they would have to be stored."""
    for rv in leaf_blocks(sch):
        if rv.name == last.name or not is_injective(sch, rv):
            continue
        if len(axes_of(sch, rv) or ()) > rows and sch.get_consumers(rv):
            try:
                sch.compute_inline(rv)
            except ScheduleError:
                continue  # it stays in global memory, between barriers


def _is_of_rows(sch: Schedule, rv: BlockRV) -> bool:
    """Whether a stage makes one value of a row, which each thread keeps."""
    return not is_injective(sch, rv) or all(
        as_int(sch.get(loop).extent) == 1 or sch.get(loop).thread in (BLOCKS, ROWS_OF_THREADS)
        for loop in sch.get_loops(rv)
    )


def _kept_operands(
    sch: Schedule, blocks: Sequence[BlockRV], own: LoopRV, rows: int
) -> list[BlockRV]:
    """Read what several stages use of a row, or reduce, into registers before the first of them."""
    params, made = set(sch.mod["main"].buffers), []
    users: dict[Buffer, list[BlockRV]] = {}
    for rv in blocks:
        block = sch.get(rv)
        for region in block.reads:
            if region.buffer in params and _is_read_along(block, region.buffer):
                users.setdefault(region.buffer, []).append(rv)
    for buffer, readers in users.items():
        if len(readers) == 1 and is_injective(sch, readers[0]):
            continue  # it is read as vectors where it is used
        block = sch.get(readers[0])
        position = next(n for n, r in enumerate(block.reads) if r.buffer is buffer)
        copy = sch.cache_read(readers[0], position, "local", readers)
        sch.compute_at(copy, own)
        made.append(copy)
    return made


def _is_read_along(block: Block, buffer: Buffer) -> bool:
    """Whether a block reads a buffer in one way, along a row, without a condition."""
    loads = [load for load in loads_of(block) if load.buffer is buffer]
    if has_branch(block) or len(loads) < 1 or len(block.iter_vars) < 2:
        return False
    last = block.iter_vars[-1].var
    return all(stride_of(load.indices, load.buffer, last) == 1 for load in loads)


def _bind_stage(sch: Schedule, rv: BlockRV, around: int, plan: RowPlan) -> None:
    """Divide a row among its threads, as all stages do."""
    loops = sch.get_loops(rv)[around:]
    if not loops:
        return
    whole, reduces = fused(sch, loops), not is_injective(sch, rv)
    lane = None
    if plan.lanes > 1 and (as_int(sch.get(whole).extent) or 1) % plan.lanes == 0:
        whole, lane = sch.split(whole, [None, plan.lanes])
    step, thread = sch.split(whole, [None, plan.threads])
    sch.bind(thread, THREADS)
    if plan.kept:
        sch.unroll(step)
    if lane is not None:
        (sch.unroll if reduces else sch.vectorize)(lane)
