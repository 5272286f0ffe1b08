"""Schedules of single blocks without reductions: vectors along the last axis, or transposed.

Vectors need contiguous elements. Where the last axis has none, tiles are transposed, a few channels
are processed together, or lanes are shuffled from whole vectors, in the original axes or in split
ones (``cut_axes``). Otherwise elements are processed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.ir import as_int, collect, dtypes
from tilewright.scheduling.blocks import (
    Axis,
    accesses_of,
    axes_of,
    can_vectorize,
    exceeds,
    is_costly,
    is_flat,
    leaf_blocks,
    loads_of,
    stores_of,
    stride_of,
    work_inside,
    work_of,
)
from tilewright.scheduling.cpu.concat import (
    Segments,
    schedule_segments,
    segments_of,
    wrapped_segments,
)
from tilewright.scheduling.cpu.cut_axes import schedule_turns, turn_of, with_cut_axes
from tilewright.scheduling.cpu.gather import prefetch_gathered_rows, schedule_gather, shared_gather
from tilewright.scheduling.cpu.joined import join_neighbours
from tilewright.scheduling.cpu.loops import parallelize, vector_extent
from tilewright.scheduling.cpu.shared_work import sharing_of
from tilewright.scheduling.cpu.transpose import (
    Transposition,
    channels_of,
    schedule_channels,
    schedule_transposition,
    transposition_of,
)
from tilewright.target import Target
from tilewright.tir import Block, BufferLoad, BufferStore, For
from tilewright.tir.attrs import STREAMING_STORES
from tilewright.tir.schedule import Choices, Schedule, others_after
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Vectors that one step computes: enough to hide latencies, few enough for the registers.
_VECTORS = 4
# Chunks of the work for each thread, so that the load is balanced.
_CHUNKS_PER_THREAD = 16
# Distances at which lanes are picked from whole vectors: a reversed row, every second element …
_NEAR = (-1, 0, 1, 2, 3, 4, 5, 6, 7, 8)
# Neighbours that make a vector worthwhile.
_LEAST_BYTES = 16
# Elements that data say, mixed into one result.
_LEAST_GATHERED = 4
# Bytes of a cache line.
_LINE = 64
# Results that are computed side by side, vectors and operations of all of them, and the shortest
# rows of them.
_MOST_CASES, _CASES, _MOST_OPERATIONS, _LEAST_ROW = 16, 8, 1 << 11, 256


def schedule_injective(
    sch: Schedule, rv: BlockRV, target: Target, skip: int = 0, vectors: int = _VECTORS
) -> None:
    """Vectorise along the innermost loop, up to ``vectors`` vectors per step.

    With ``skip == 0`` the outer loops run in parallel; otherwise that many loops are unchanged.
    """
    axes = axes_of(sch, rv, skip)
    if not axes:
        return
    if skip == 0:
        axes = _best_axes(sch, rv, join_neighbours(sch, rv, axes), target)
    block = sch.get(rv)
    work = work_of(axes) * work_inside(block.body) * (8 if is_costly(block) else 1)
    vectors = sch.choices.choose(f"{block.name}.vectors", others_after(vectors, (1, 2, 4, 8)))
    lanes = target.vector_lanes(max(8, _moving_bits(block, axes[-1])))
    task = _Task(sch, rv, axes, target, lanes, vectors, whole=skip == 0)
    made = (_way(block, axes, target, whole=skip == 0) or _without_neighbours)(task)
    for part in made.blocks:
        stream_if_large(sch, part, target, made.streaming)
    if skip == 0:
        parallelize(sch, _enough(sch, made.outer, target), target, work)
        prefetch_gathered_rows(sch, rv, target)


@dataclass(frozen=True)
class _Task:
    """A block to vectorise, with its loops; ``whole`` if all of them may be changed."""

    sch: Schedule
    rv: BlockRV
    axes: Sequence[Axis]
    target: Target
    lanes: int
    vectors: int
    whole: bool

    @property
    def block(self) -> Block:
        """The block as it is now."""
        block: Block = self.sch.get(self.rv)
        return block

    def loops_but(self, *axes: Axis) -> list[LoopRV]:
        """The loops of the other axes."""
        return [axis.loop for axis in self.axes if not any(axis is other for other in axes)]

    def done(
        self,
        outer: list[LoopRV],
        blocks: Sequence[BlockRV] | None = None,
        streaming: int = 1,
    ) -> _Done:
        """What came of it."""
        return _Done(outer, [self.rv] if blocks is None else blocks, streaming)


@dataclass(frozen=True)
class _Done:
    """Loops that may run in parallel, the blocks inside, how ``stream_if_large`` takes these."""

    outer: list[LoopRV]
    blocks: Sequence[BlockRV]
    streaming: int


_Way = Callable[[_Task], _Done]
"""One way to vectorise a block."""


def _in_vectors(task: _Task) -> _Done:
    """Vectors along the last axis, or along all of them."""
    sch, axes, last = task.sch, task.axes, task.axes[-1]
    limit, outer = task.vectors * task.lanes, task.loops_but(last)
    if task.whole and is_flat(task.block, axes):
        chunk, inner = sch.split(
            sch.fuse(*(axis.loop for axis in axes)),
            [None, _flat_vector(axes, task.lanes, task.vectors)],
        )
        sch.vectorize(inner)
        return task.done([chunk])
    size = vector_extent(last.extent, task.lanes, limit)
    if size is None:
        return task.done(outer)
    cases = _cases(sch.choices, task.block, axes, task.target) if task.whole else None
    if cases is not None:
        size = min(size, max(1, _CASES // (cases.extent or 1)) * task.lanes)
        outer = task.loops_but(last, cases)
    inner = last.loop
    if size != last.extent:
        chunk, inner = sch.split(last.loop, [None, size])
        outer.append(chunk)
    if cases is not None:
        sch.reorder(*outer, cases.loop, inner)
        sch.unroll(cases.loop)
    sch.vectorize(inner)
    return task.done(outer)


def _in_segments(segments: Segments, task: _Task) -> _Done:
    limit = task.vectors * task.lanes
    blocks = schedule_segments(task.sch, task.axes, segments, task.lanes, limit)
    return task.done(task.loops_but(task.axes[-1]), blocks)


def _transposed(plan: Transposition, task: _Task) -> _Done:
    outer = schedule_transposition(task.sch, task.rv, task.axes, plan, task.target)
    return task.done(outer, streaming=2)


def _gathered(rows: Axis, task: _Task) -> _Done:
    return task.done(schedule_gather(task.sch, task.axes, rows))


def _by_channels(turns: tuple[Axis, Axis], task: _Task) -> _Done:
    return task.done(schedule_channels(task.sch, task.axes, turns, task.lanes))


def _without_neighbours(task: _Task) -> _Done:
    """Turns, vectors of elements evenly apart, or one element after the other."""
    sch, axes, lanes = task.sch, task.axes, task.lanes
    if task.whole and (turn := turn_of(task.block, axes[-1])) is not None:
        return task.done(*schedule_turns(sch, axes, turn, lanes))
    inside = work_inside(task.block.body)
    if inside > 1 and (apart := _even_axis(task.block, axes, lanes)) is not None:
        outer = task.loops_but(apart)
        size = vector_extent(apart.extent, lanes, task.vectors * lanes)
        chunk, inner = sch.split(apart.loop, [None, size])
        outer.append(chunk)
        sch.reorder(*outer, inner)
        sch.vectorize(inner)
        return task.done(outer)
    if len(axes) == 1 or inside > 1:
        return task.done(task.loops_but())  # else nothing would be left to share, or too little
    return task.done(task.loops_but(axes[-1]))


def _way(block: Block, axes: Sequence[Axis], target: Target, *, whole: bool) -> _Way | None:
    """How to vectorise; ``whole`` if all loops of the block may be changed."""
    last, turns = axes[-1], channels_of(block, axes)
    vectors = can_vectorize(block, last)
    if vectors and (turns is None or is_flat(block, axes)):
        segments = segments_of(block, last) if whole else None
        return _in_vectors if segments is None else partial(_in_segments, segments)
    if whole and not vectors:
        if (wrapped := wrapped_segments(block, last)) is not None:
            return partial(_in_segments, wrapped)
        if (plan := transposition_of(block, axes, target)) is not None:
            return partial(_transposed, plan)
        if (rows := shared_gather(block, axes)) is not None:
            return partial(_gathered, rows)
    if turns is not None:
        return partial(_by_channels, turns)
    if _is_near(block, last) or (whole and _mixes_gathered(block, last)):
        return _in_vectors
    return None


def _mixes_gathered(block: Block, last: Axis) -> bool:
    """Whether neighbouring results are mixed from several elements each, wherever data say.

    Gathered by vectors, they cost no more than one by one, and the arithmetic is saved.
    """
    if not isinstance(block.body, BufferStore):
        return False
    if stride_of(block.body.indices, block.body.buffer, last.var) != 1:
        return False
    gathered = 0
    for load in loads_of(block):
        if any(collect(index, BufferLoad) for index in load.indices):
            gathered += 1
        elif stride_of(load.indices, load.buffer, last.var) not in (0, 1):
            return False
    return gathered >= _LEAST_GATHERED


def _even_axis(block: Block, axes: Sequence[Axis], lanes: int) -> Axis | None:
    """The last axis along which all elements are evenly apart, though not side by side.

    Where a result is a loop by itself, what lanes share of it is worth gathering their elements,
    unless that loop runs through a row: there its own elements are side by side.
    """
    own = [loop.loop_var for loop in collect(block.body, For)]
    if any(
        stride_of(x.indices, x.buffer, var) not in (0, None)
        for x in accesses_of(block)
        for var in own
    ):
        return None
    for axis in reversed(axes):
        strides = [stride_of(x.indices, x.buffer, axis.var) for x in accesses_of(block)]
        if (axis.extent or 0) >= lanes and None not in strides and any(strides):
            return axis
    return None


def _cases(choices: Choices, block: Block, axes: Sequence[Axis], target: Target) -> Axis | None:
    """The short axis whose results are computed side by side, as they share arithmetic.

    Such are the unknowns of a small system, and the parts that a transform makes of each place.
    """
    stores, last = stores_of(block), axes[-1].extent
    short = [axis for axis in axes[:-1] if axis.extent and 1 < axis.extent <= _MOST_CASES]
    if len(stores) != 1 or not short or (last is not None and last < _LEAST_ROW):
        return None
    shared = sharing_of(stores[0].value, short, axes[-1], _MOST_CASES, target.costs)
    if shared is None or shared.operations * (shared.axis.extent or 1) > _MOST_OPERATIONS:
        return None
    return choices.choose(f"{block.name}.cases", (shared.axis, None))


def _best_axes(sch: Schedule, rv: BlockRV, axes: list[Axis], target: Target) -> list[Axis]:
    """Split axes that are used as quotient and remainder, if only that allows vectors."""
    block = sch.get(rv)
    if _way(block, axes, target, whole=True) is not None and not _is_divided(block, axes[-1]):
        return axes
    found = with_cut_axes(sch, rv)
    if found is None:
        return axes
    attempt, cut = found
    block = attempt.get(rv)
    way = _way(block, cut, target, whole=True)
    if way is None or (way is _in_vectors and not _is_wide(block, cut[-1])):
        return axes
    sch.become(attempt)
    return cut


def _is_divided(block: Block, axis: Axis) -> bool:
    return any(stride_of(x.indices, x.buffer, axis.var) is None for x in loads_of(block))


def _is_wide(block: Block, axis: Axis) -> bool:
    """Whether an axis has enough contiguous elements for a vector."""
    bits = max(8, _moving_bits(block, axis))
    return axis.extent is None or axis.extent * bits >= 8 * _LEAST_BYTES


def _is_near(block: Block, axis: Axis) -> bool:
    """Whether neighbours in the result come from nearby elements."""
    if any(stride_of(x.indices, x.buffer, axis.var) != 1 for x in stores_of(block)):
        return False
    steps = [stride_of(x.indices, x.buffer, axis.var) for x in loads_of(block)]
    return bool(steps) and all(step in _NEAR for step in steps)


def _enough(sch: Schedule, loops: Sequence[LoopRV], target: Target) -> Sequence[LoopRV]:
    """The outermost loops with enough work for all threads; fusing more would add divisions.

    Divisions by sizes that come with the call are slow ones: a single thread does without.
    """
    count = 1
    if target.num_cores == 1 and any(as_int(sch.get(loop).extent) is None for loop in loops):
        return loops[:1]
    for number, loop in enumerate(loops):
        count *= as_int(sch.get(loop).extent) or 1
        if count >= _CHUNKS_PER_THREAD * target.num_cores:
            return loops[: number + 1]
    return loops


def _moving_bits(block: Block, last: Axis) -> int:
    """Bits of the widest element that varies along an axis (indices of rows, say, don't)."""
    accesses: list[BufferLoad | BufferStore] = [*loads_of(block), *stores_of(block)]
    moving = [x.buffer for x in accesses if stride_of(x.indices, x.buffer, last.var) != 0]
    return max((dtypes.bits_of(buffer.dtype) for buffer in moving), default=32)


def _flat_vector(axes: Sequence[Axis], lanes: int, most: int) -> int:
    """The number of elements per step through contiguous elements."""
    if any(axis.extent is None for axis in axes):
        return lanes
    total = work_of(axes)
    for vectors in range(most, 0, -1):
        if total % (vectors * lanes) == 0:
            return vectors * lanes
    return (most if total >= 4 * most * lanes else 1) * lanes


def stream_if_large(sch: Schedule, rv: BlockRV, target: Target, how: int) -> None:
    """Make stores of a result non-temporal if it won't stay in the caches anyway.

    ``how`` is 1 for results written in memory order. Transpositions (2) write lines far from each
    other, which a cache would have to read first: even if the last-level cache had room for the
    result, that takes longer, unless the result is only a few times the L2 cache.
    """
    last = sch.get(rv).iter_vars
    extent = as_int(last[-1].dom.extent) if last else None
    size = dtypes.bytes_of(stores_of(sch.get(rv))[0].buffer.dtype)
    halves = extent is None or extent * size % _LINE or target.vector_bits < 8 * _LINE
    if how == 2 and halves:
        return  # a line that is written in parts goes to memory in parts, one after the other
    buffers = {region.buffer for region in sch.get(rv).writes}
    outputs = set(sch.mod["main"].buffers)
    if not buffers <= outputs:
        return
    most = int(target.costs.streamed_size * target.l2_bytes) if how == 2 else target.l3_bytes // 2
    if not all(exceeds(buffer, most) for buffer in buffers):
        return
    others = [other for other in leaf_blocks(sch) if other != rv]
    if any(region.buffer in buffers for other in others for region in sch.get(other).reads):
        return
    if sch.choices.choose(f"{rv.name}.streams", (True, False)):
        sch.annotate(rv, STREAMING_STORES, how)
