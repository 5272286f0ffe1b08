"""Reductions whose operands are read as vectors: sums of rows, products of matrices with vectors.

Each thread of a group reduces vectors of a row, ``threads`` vectors apart, and the group joins what
its threads have. Where neighbouring results are contiguous instead, a thread has a vector of
results, and the threads that share the reduced axis stand behind each other. A few results that
use the same elements of the large operand (``reused``: a small batch) are summed side by side, so
that it is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from tilewright.ir import as_int, dtypes, uses_var
from tilewright.scheduling.blocks import Axis, loads_of, stride_of, work_of
from tilewright.scheduling.contraction import Contraction, depends
from tilewright.scheduling.gpu.binding import BLOCKS, THREADS, attach, fused, fused_results
from tilewright.scheduling.gpu.elementwise import VECTOR_BYTES
from tilewright.scheduling.gpu.limits import GPULimits
from tilewright.scheduling.gpu.reduction import ROWS_OF_THREADS, near_last
from tilewright.scheduling.gpu.simt_tile import can_vectorize_store
from tilewright.tir import Block, BufferLoad
from tilewright.tir.analysis import has_branch
from tilewright.tir.schedule import Schedule, others_after
from tilewright.tir.schedule.handles import BlockRV, LoopRV

_THREADS = 256
_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_LEAST_SHARING = 8
_COLUMNS = 16
"""Vectors of results side by side: whole cache lines of each row."""
_LEAST_STEPS = 2
"""Vectors that each thread reduces, at least: joining their results takes as long."""


@dataclass(frozen=True)
class VectorPlan:
    """Threads that share a reduction, results (or vectors of them) of a block, and their length."""

    along: str
    """``steps`` or ``results``: which axis the vectors are along."""
    sharing: int
    results: int
    lanes: int


def vector_plans(found: Contraction, reused: Sequence[Axis], limits: GPULimits) -> list[VectorPlan]:
    """Return the plans that are possible, the preferred one first; none if vectors aren't."""
    own = [axis for axis in found.spatial if axis not in reused]
    steps = list(found.steps)
    if has_branch(found.block) or not steps or any(axis.extent is None for axis in steps):
        return []
    length = work_of(steps)
    count = None if any(axis.extent is None for axis in own) else work_of(own)
    last = near_last(found.block, steps)[-1]
    if lanes := _lanes(found, last):
        return _along_steps(length // lanes, count, lanes, limits)
    if own and (lanes := _lanes(found, near_last(found.block, own)[-1])):
        return _along_results(length, count, lanes, limits)
    return []


def largest_operand(found: Contraction) -> BufferLoad:
    """The operand with the most elements: the one whose reading takes the time."""
    return max(found.loads, key=lambda x: work_of([a for a in found.axes if depends(x, a)]))


def _lanes(found: Contraction, axis: Axis) -> int:
    """Elements of vectors along an axis: at least two, 16 bytes of the widest operand; else 0."""
    moving = vector_operands(found.block, axis)
    large = largest_operand(found)
    if not axis.extent or not any(load is large for load in moving):
        return 0
    bits = max(dtypes.bits_of(load.buffer.dtype) for load in moving)
    lanes = gcd(8 * VECTOR_BYTES // max(8, bits), axis.extent)
    return lanes if lanes > 1 else 0


def vector_operands(block: Block, axis: Axis) -> list[BufferLoad]:
    """The operands that are contiguous along an axis, in rows that are whole numbers of vectors."""
    return [
        load
        for load in loads_of(block)
        if load.indices
        and load.indices[-1] is axis.var
        and stride_of(load.indices, load.buffer, axis.var) == 1
        and as_int(load.buffer.shape[-1]) == axis.extent
        and not load.buffer.strides
        and not any(uses_var(index, {axis.var}) for index in load.indices[:-1])
    ]


def _along_steps(
    vectors: int, count: int | None, lanes: int, limits: GPULimits
) -> list[VectorPlan]:
    """Plans by how many threads share the vectors of a row: each has as many of them."""
    options = [n for n in _POWERS if vectors % n == 0 and n <= limits.max_threads]
    enough = [n for n in options if n > 1 and n * _LEAST_STEPS <= vectors]
    if not enough:
        return []
    usual = max(n for n in enough if n <= limits.warp_size)
    if usual < _LEAST_SHARING and usual * _LEAST_SHARING <= vectors:
        return []  # vectors of so odd a number leave too few threads
    for n in enough:
        few = count is not None and count * usual < limits.threads_to_fill
        if n > usual and ((n * 8 <= vectors and n <= _THREADS) or few):
            usual = n
    block = min(_THREADS, limits.max_threads)
    return [
        VectorPlan("steps", n, _dividing(count, max(1, block // n)), lanes)
        for n in others_after(usual, [n for n in enough if n >= 8])
    ]


def _along_results(
    length: int, count: int | None, lanes: int, limits: GPULimits
) -> list[VectorPlan]:
    """Plans by how many threads stand behind each other, with a share of the reduced axis each.

    Where results are few, so are blocks: more threads share the axis then.
    """
    made, vectors = [], None if count is None else count // lanes
    few = vectors is not None and vectors < 2 * _COLUMNS * limits.processors
    for sharing in (128, 64, 32, 16, 8, 4, 2) if few else (16, 8, 32, 4, 2):
        fits = length % sharing == 0 and length >= _LEAST_STEPS * sharing
        columns = _COLUMNS // 2 if few or sharing > 16 else _COLUMNS
        if fits and sharing * columns <= limits.max_threads:
            made.append(VectorPlan("results", sharing, _dividing(vectors, columns), lanes))
    return made


def _dividing(count: int | None, most: int) -> int:
    """The largest number up to ``most`` that divides a count, so that no thread is idle.

    ``most`` itself where the count comes with the call, or only small numbers divide it.
    """
    if count is None:
        return most
    if count <= most:
        return count
    best = max(n for n in range(1, most + 1) if count % n == 0)
    return best if 2 * best >= most else most


def schedule_vector_sums(
    sch: Schedule, found: Contraction, reused: Sequence[Axis], plan: VectorPlan
) -> None:
    """Schedule a reduction and its epilogue; raises ``ScheduleError`` if a primitive refuses."""
    main = found.main
    block = sch.get(main)
    axis_of_loop = {axis.loop: axis for axis in found.axes}
    own = [a.loop for a in near_last(block, [a for a in found.spatial if a not in reused])]
    again = [axis.loop for axis in reused]
    steps = [a.loop for a in near_last(block, found.steps)]
    vector = axis_of_loop[(steps if plan.along == "steps" else own)[-1]]
    operands = [load.buffer.name for load in vector_operands(block, vector)]
    sch.reorder(*own, *again, *steps)
    step = fused(sch, steps)
    if not own:
        own = [sch.add_unit_loop(again[0] if again else step)]
    result = fused_results(sch, own)
    if plan.along == "steps":
        step = sch.split(step, [None, plan.lanes])[0]
    else:
        result = sch.split(result, [None, plan.lanes])[0]
    _, shared = sch.split(step, [None, plan.sharing])
    partial = sch.rfactor(shared, 0)
    sch.set_scope(partial, 0, "local")
    consumers = list(found.consumers)
    if plan.along == "results" and not consumers and len(block.writes) == 1:
        # A sum is stored as it is joined, one by one: from registers they leave as vectors.
        consumers = [sch.cache_write(main, 0, "local")]
        sch.reverse_compute_at(consumers[0], result)
    attach(sch, main, found.consumers, result)
    sch.compute_at(partial, result)
    blocks, group = sch.split(result, [None, plan.results])
    sharing, others = (
        (THREADS, ROWS_OF_THREADS) if plan.along == "steps" else (ROWS_OF_THREADS, THREADS)
    )
    sch.bind(blocks, BLOCKS)
    sch.bind(group, others)
    around = len(sch.state.loops_above(sch.get(group))) + 1
    _bind_partial(sch, partial, operands, around, sharing)
    inner = sch.get_loops(main)[around:]
    sch.bind(inner[-1], sharing)
    for loop in inner[:-1]:
        sch.unroll(loop)
    if plan.along == "results":
        for consumer in consumers:
            _write_vectors(sch, consumer, group)


def _write_vectors(sch: Schedule, consumer: BlockRV, group: LoopRV) -> None:
    """Write the results that a thread of a group has in registers as vectors."""
    loops = sch.get_loops(consumer)
    if not any(sch.get(loop) is sch.get(group) for loop in loops[:-1]):
        return  # a kernel of its own, or a single result
    block, loop = sch.get(consumer), sch.get(loops[-1])
    column = sch.state.get_block(consumer).iter_values[-1]
    extent = as_int(loop.extent)
    if extent is None or not uses_var(column, {loop.loop_var}):
        return
    bits = max(dtypes.bits_of(region.buffer.dtype) for region in block.writes)
    lanes = gcd(extent, 8 * VECTOR_BYTES // max(8, bits))
    if lanes > 1 and can_vectorize_store(block, lanes):
        sch.vectorize(sch.split(loops[-1], [None, lanes])[1])


def _bind_partial(
    sch: Schedule, partial: BlockRV, operands: Sequence[str], around: int, sharing: str
) -> None:
    """Order what each thread reduces: vectors of the operands are read, then used."""
    block = sch.get(partial)
    loops = sch.get_loops(partial)[around:]
    kinds = {}
    realize = sch.state.get_block(partial)
    for loop in loops:
        var = sch.get(loop).loop_var
        kinds[loop] = next(
            item.kind
            for item, value in zip(block.iter_vars, realize.iter_values)
            if uses_var(value, {var})
        )
    reduced = [loop for loop in loops if kinds[loop] == "reduce"]
    spatial = [loop for loop in loops if kinds[loop] != "reduce"]
    thread, rest = spatial[0], spatial[1:]
    sch.reorder(thread, reduced[0], *rest, *reduced[1:])
    sch.bind(thread, sharing)
    for name in operands:
        copy = sch.cache_read(partial, name, "local")
        sch.compute_at(copy, reduced[0])
        sch.vectorize(sch.get_loops(copy)[-1])
    for loop in (*rest, *reduced[1:]):
        sch.unroll(loop)
    sch.decompose_reduction(partial, reduced[0])
