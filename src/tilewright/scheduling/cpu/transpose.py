"""Schedules of blocks that read along one axis and write along another: transpositions.

Tiles are as wide and as high as a vector. The rows of a tile are copied to a small buffer; its
columns are the vectors that are stored. The code generator reads such columns by a network of
shuffles, so that memory is accessed only in whole vectors.

A few channels (the colours of an image) don't fill a tile: their vectors are interleaved or
deinterleaved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.ir import as_int, dtypes, expr_equal, product, uses_var
from tilewright.scheduling.blocks import (
    Axis,
    exceeds,
    loads_at_times,
    loads_of,
    stores_of,
    stride_of,
)
from tilewright.target import Target
from tilewright.tir import Block, Buffer, BufferLoad
from tilewright.tir.attrs import PREFETCH_NEXT
from tilewright.tir.schedule import Schedule, others_after
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Tiles that are done together: along what is read, so that memory gives long runs of it, and along
# what is written. More rows, an even distance apart, would not find room in the caches' sets.
_MOST_ACROSS, _MOST_LAST = 16, 2
# The network is made of groups of so many bytes.
_GROUP_BYTES = 16


@dataclass(frozen=True)
class Transposition:
    """An operand that is read along ``across`` while the result is written along ``last``."""

    across: Axis
    last: Axis
    load: BufferLoad
    rows: int
    columns: int

    @property
    def operand(self) -> Buffer:
        """The transposed operand."""
        return self.load.buffer


def transposition_of(block: Block, axes: Sequence[Axis], target: Target) -> Transposition | None:
    """Return how a block transposes; ``None`` if it doesn't, or not in whole tiles."""
    last, stores = axes[-1], stores_of(block)
    if any(stride_of(item.indices, item.buffer, last.var) != 1 for item in stores):
        return None
    turned = [load for load in loads_of(block) if not _follows(load, last)]
    if len({load.buffer for load in turned}) != 1 or len(stores) != 1:
        return None
    operand = turned[0].buffer
    along = [axis for axis in axes[:-1] if axis.extent != 1 and _is_along(turned, axis)]
    if len(along) != 1 or not _are_same(load for load in loads_of(block) if load.buffer is operand):
        return None
    if _is_joined(turned[0], along[0]):
        # What a condition leaves out isn't copied.
        at_times = loads_at_times(block)
        if any(load is item for load in turned for item in at_times):
            return None
    size = dtypes.bytes_of(operand.dtype)
    rows = _tile(last.extent, size, target, whole=False)
    columns = _tile(along[0].extent, size, target, whole=True)
    if rows is None or columns is None:
        return None
    held = as_int(product(operand.shape))
    if held is not None and held < rows * columns:  # padded or repeated: no tile of it is whole
        return None
    return Transposition(along[0], last, turned[0], rows, columns)


def _follows(load: BufferLoad, axis: Axis) -> bool:
    return stride_of(load.indices, load.buffer, axis.var) in (0, 1)


def _are_same(loads: Iterable[BufferLoad]) -> bool:
    first, *others = loads
    return all(all(map(expr_equal, load.indices, first.indices)) for load in others)


def _is_along(loads: Sequence[BufferLoad], axis: Axis) -> bool:
    return all(stride_of(load.indices, load.buffer, axis.var) == 1 for load in loads)


def _is_joined(load: BufferLoad, axis: Axis) -> bool:
    """Whether an axis goes through several dimensions of an operand, one after the other."""
    return sum(uses_var(index, {axis.var}) for index in load.indices) > 1


def _tile(extent: int | None, size: int, target: Target, *, whole: bool) -> int | None:
    """Elements of a tile along an axis: a vector's, or as many as the axis allows.

    ``whole`` prefers tiles that divide the axis to wider ones.
    """
    most = target.vector_bits // 8 // size
    if extent is not None:
        dividing = extent & -extent
        if whole and dividing * size >= _GROUP_BYTES:
            most = min(most, dividing)
        most = min(most, 1 << (extent.bit_length() - 1))
    return most if size < _GROUP_BYTES <= most * size else None


def schedule_transposition(
    sch: Schedule, rv: BlockRV, axes: Sequence[Axis], plan: Transposition, target: Target
) -> list[LoopRV]:
    """Transpose by tiles; return the loops around them that may run in parallel.

    Consecutive tiles are adjacent in the result, so lines shared by two tiles are soon complete.
    Data larger than the L2 cache are processed by blocks of some rows and some columns of tiles, so
    that more than one line is read per page; the block below is prefetched meanwhile.
    """
    copy, turned = _copy_rows(sch, rv, plan)
    across, column = sch.split(plan.across.loop, [None, plan.columns])
    last, row = sch.split(plan.last.loop, [None, plan.rows])
    others = [axis.loop for axis in axes if axis not in (plan.across, plan.last)]
    outer = shared = [*others, across, last]
    blocked = exceeds(plan.operand, target.l2_bytes)
    if sch.choices.choose("transpose.blocked", (blocked, not blocked)):
        rows = _tiles(
            sch, last, sch.choices.choose("transpose.last", others_after(_MOST_LAST, (1, 2, 4, 8)))
        )
        most = sch.choices.choose("transpose.across", others_after(_MOST_ACROSS, (1, 2, 4, 8, 32)))
        last, last_inner = sch.split(last, [None, rows])
        across, across_inner = sch.split(across, [None, _tiles(sch, across, most)])
        outer = [*others, across, last, across_inner, last_inner]
        # Fused loops would have no next block, so the loop that has one isn't among them.
        many = [number for number, loop in enumerate(outer[:-2]) if _count(sch, loop) != 1]
        if many:
            shared = outer[: many[-1]] if len(many) > 1 else [outer[many[0]]]
            if sch.choices.choose("transpose.prefetch", (True, False)):
                sch.annotate(outer[many[-1]], PREFETCH_NEXT, 2)
    sch.reorder(*outer, column, row)
    sch.compute_at(copy, outer[-1])
    within = sch.get_loops(copy)[len(outer) :]
    if turned and len(within) > 1:
        within = [*within[:-2], within[-1], within[-2]]
        sch.reorder(*within)
    for loops in (within, [column, row]):
        sch.vectorize(loops[-1])
        for loop in loops[:-1]:
            sch.unroll(loop)
    return shared


def _copy_rows(sch: Schedule, rv: BlockRV, plan: Transposition) -> tuple[BlockRV, bool]:
    """Make the block read a copy; return its block, and whether its last loops are by columns.

    Of an operand that several dimensions of are joined (rows of an image, one after the other), a
    copy in its own shape would hold all that these dimensions have; so the copy is by the block's
    own axes.
    """
    place = [region.buffer for region in sch.get(rv).reads].index(plan.operand)
    if not any(_is_joined(plan.load, axis) for axis in (plan.across, plan.last)):
        return sch.cache_read(rv, place, "local", [rv]), False
    copy: BlockRV = sch.reindex(rv, ("read", place))
    sch.set_scope(copy, 0, "local")
    made = stores_of(sch.get(copy))[0]
    loops = [axis.var for axis in sch.get(copy).iter_vars]
    read = next(load for load in loads_of(sch.get(rv)) if load.buffer is made.buffer)
    dim = next(d for d, index in enumerate(read.indices) if index is plan.across.var)
    sch.transform_layout(copy, ("write", 0), lambda *i: (*i[:dim], *i[dim + 1 :], i[dim]))
    return copy, made.indices[dim] is not loops[-1]


def _count(sch: Schedule, loop: LoopRV) -> int:
    return as_int(sch.get(loop).extent) or 0


def _tiles(sch: Schedule, loop: LoopRV, most: int) -> int:
    """Tiles of a block along an axis: as many as divide it."""
    extent = as_int(sch.get(loop).extent)
    if extent is None:
        return 1
    return max(count for count in range(1, most + 1) if extent % count == 0)


# ---- few channels ---------------------------------------------------------------------------

# Vectors whose lanes are stored by turns, and distances at which lanes are loaded by shuffles.
_MOST_STORED, _MOST_LOADED = 8, 4


def channels_of(block: Block, axes: Sequence[Axis]) -> tuple[Axis, Axis] | None:
    """Return the axis of the vectors and that of a few contiguous channels.

    They are contiguous in the result, or in the operand.
    """
    stores, last = stores_of(block), axes[-1]
    if len(stores) != 1 or len(axes) < 2 or not loads_of(block):
        return None
    store = stores[0]
    if last.extent is not None and 2 <= last.extent <= _MOST_STORED:
        row = axes[-2]
        step = stride_of(store.indices, store.buffer, row.var)
        lies = stride_of(store.indices, store.buffer, last.var) == 1 and step == last.extent
        near = (0, 1, last.extent)  # vectors, or every so many lanes of some, as of pairs
        steps = {stride_of(x.indices, x.buffer, row.var) for x in loads_of(block)}
        return (row, last) if lies and steps <= set(near) else None
    steps = {stride_of(x.indices, x.buffer, last.var) for x in loads_of(block)}
    step = max((s or 0 for s in steps), default=0)
    if stride_of(store.indices, store.buffer, last.var) != 1 or not 2 <= step <= _MOST_LOADED:
        return None
    if not steps <= {0, 1, step}:
        return None
    far = [x for x in loads_of(block) if not _follows(x, last)]
    channels = [a for a in axes[:-1] if a.extent == step and _is_along(far, a)]
    return (last, channels[0]) if len(channels) == 1 else None


def schedule_channels(
    sch: Schedule, axes: Sequence[Axis], turns: tuple[Axis, Axis], lanes: int
) -> list[LoopRV]:
    """Process all channels of a vector of positions together; return the loops around them."""
    row, channel = turns
    outer = [axis.loop for axis in axes if axis not in turns]
    # Short vectors that leave no rest: lanes that are masked would be scattered one by one.
    dividing = [size for size in range(lanes // 2, lanes + 1) if (row.extent or 1) % size == 0]
    place, inner = sch.split(row.loop, [None, dividing[-1] if dividing else lanes])
    if channel is axes[-1]:
        sch.reorder(*outer, place, inner, channel.loop)
    else:
        sch.reorder(*outer, place, channel.loop, inner)
        sch.unroll(channel.loop)
    sch.vectorize(inner)
    return [*outer, place]
