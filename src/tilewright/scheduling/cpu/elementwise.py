"""Schedules of single blocks without reductions: vectors along the last axis, or transposed.

Vectors need contiguous elements. Where the last axis has none, tiles are transposed, a few channels
are processed together, or lanes are shuffled from whole vectors, in the original axes or in split
ones (``cut_axes``). Otherwise elements are processed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    inside = work_inside(block.body)
    work = work_of(axes) * inside * (8 if is_costly(block) else 1)
    vectors = sch.choices.choose(f"{block.name}.vectors", others_after(vectors, (1, 2, 4, 8)))
    last, outer = axes[-1], [axis.loop for axis in axes[:-1]]
    lanes = target.vector_lanes(max(8, _moving_bits(block, last)))
    way, blocks = _way(block, axes, target, whole=skip == 0), [rv]
    if way == "vectors":
        size, cases = vector_extent(last.extent, lanes, vectors * lanes), None
        if skip == 0 and is_flat(block, axes):
            last = Axis(sch.fuse(*(axis.loop for axis in axes)), last.var, last.kind, None)
            outer, size = [], _flat_vector(axes, lanes, vectors)
        elif skip == 0 and size is not None:
            cases = _cases(sch.choices, block, axes, target)
            if cases is not None:
                size = min(size, max(1, _CASES // (cases.extent or 1)) * lanes)
                outer = [axis.loop for axis in axes[:-1] if axis is not cases]
        if size is not None:
            inner = last.loop
            if size != last.extent:
                chunk, inner = sch.split(last.loop, [None, size])
                outer.append(chunk)
            if cases is not None:
                sch.reorder(*outer, cases.loop, inner)
                sch.unroll(cases.loop)
            sch.vectorize(inner)
    elif isinstance(way, Segments):
        blocks = schedule_segments(sch, axes, way, lanes, vectors * lanes)
    elif isinstance(way, Transposition):
        outer = schedule_transposition(sch, rv, axes, way, target)
    elif way == "gather" and (rows := shared_gather(block, axes)) is not None:
        outer = schedule_gather(sch, axes, rows)
    elif way == "channels" and (turns := channels_of(block, axes)) is not None:
        outer = schedule_channels(sch, axes, turns, lanes)
    elif way is None and skip == 0 and (turn := turn_of(block, last)) is not None:
        outer, blocks = schedule_turns(sch, axes, turn, lanes)
    elif way is None and inside > 1 and (apart := _even_axis(block, axes, lanes)) is not None:
        outer = [axis.loop for axis in axes if axis is not apart]
        size = vector_extent(apart.extent, lanes, vectors * lanes)
        chunk, inner = sch.split(apart.loop, [None, size])
        outer.append(chunk)
        sch.reorder(*outer, inner)
        sch.vectorize(inner)
    elif way is None and (not outer or inside > 1):
        outer.append(last.loop)  # else nothing would be left to share, or too little
    for part in blocks:
        stream_if_large(sch, part, target, 2 if isinstance(way, Transposition) else 1)
    if skip == 0:
        parallelize(sch, _enough(sch, outer, target), target, work)
        prefetch_gathered_rows(sch, rv, target)


def _way(
    block: Block, axes: Sequence[Axis], target: Target, *, whole: bool
) -> Transposition | Segments | str | None:
    """How to vectorise; ``whole`` if all loops of the block may be changed."""
    last, turns = axes[-1], channels_of(block, axes)
    vectors = can_vectorize(block, last)
    if vectors and (turns is None or is_flat(block, axes)):
        return (segments_of(block, last) if whole else None) or "vectors"
    if whole and not vectors and (wrapped := wrapped_segments(block, last)) is not None:
        return wrapped
    plan = transposition_of(block, axes, target) if whole and not vectors else None
    if plan is not None:
        return plan
    if whole and not vectors and shared_gather(block, axes) is not None:
        return "gather"
    if turns is not None:
        return "channels"
    if _is_near(block, last) or (whole and _mixes_gathered(block, last)):
        return "vectors"
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
    if way is None or (way == "vectors" and not _is_wide(block, cut[-1])):
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
