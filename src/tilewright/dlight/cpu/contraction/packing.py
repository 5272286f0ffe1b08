"""Operands copied into panels: what a register tile reads in sequence is contiguous.

The dimension along the vector axis is split into tiles: the tile index becomes the first dimension
of the copy, the offset within a tile the last. The last panel is padded, so that one copy of the
inner loop handles all columns. For dot instructions, ``p`` neighbours along K make a word: panels
are ``[N / NR][K / p]...[NR][p]``, of which a vector holds neighbours along N.

A constant operand is packed when the program is built (``layout_free_buffers``); of any other, a
panel is packed right before the tiles that use it, so that it is still in the cache. An operand
that is copied anyway (padded, converted) is written in the panel layout directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.ir import Expr, as_int, collect, dtypes
from tilewright.scheduling import dimensions_of
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    is_injective,
    loads_of,
    parallelize,
    schedule_injective,
    stores_of,
    stride_of,
    work_of,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import SPATIAL, Block, Buffer, BufferLoad, PrimFunc
from tilewright.tir.analysis import has_branch
from tilewright.tir.attrs import CONSTANT_BYTES, LAYOUT_REWRITE
from tilewright.tir.layout_rewrite import constants_of
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Heights of tiles that are transposed by shuffles, and how far elements lie apart for that.
_TRANSPOSED, _FAR = (4, 8, 16), 16
# Elements along the other axes, taken as so many: they decide whether threads share the copy.
_DEPTH = 1024


def is_fetched_ahead(size: int, target: Target) -> bool:
    """Whether so many bytes of a convolution's filters are worth fetching ahead.

    Those of a whole model pass by between two calls, so they come from far caches, where their own
    size would let them stay in a near one.
    """
    return size > target.costs.fetched_share * target.l2_bytes


def comes_from_memory(sch: Schedule, size: int, target: Target) -> bool:
    """Whether a constant of so many bytes has left the caches when it's read again.

    In a graph all constants are read between two calls of a function. Nearer ones arrive faster
    if nothing but the loads asks for them.
    """
    whole = as_int(sch.mod["main"].attrs.get(CONSTANT_BYTES, 0)) or 0
    return max(size, whole) > target.costs.constants_share * target.l3_bytes


@dataclass(frozen=True)
class Panels:
    """The layout of an operand's copy: ``[N / width][...][width]``.

    Dimension ``dim`` is split into panels. Within a panel the dimensions ``first`` come before the
    others. ``parts`` gives strides of dimensions: elements with the same remainder are contiguous.
    ``word`` neighbours along dimension ``deep`` form a word, which is contiguous; without ``dim``
    there are only words.
    """

    dim: int | None
    width: int = 1
    first: tuple[int, ...] = ()
    parts: Mapping[int, int] = field(default_factory=dict)
    deep: int = -1
    word: int = 1

    @property
    def wide(self) -> int:
        """The dimension that is split into panels."""
        assert self.dim is not None
        return self.dim

    def layout(self, *i: Expr) -> tuple[Expr, ...]:
        """The index map of the layout."""
        order = (*self.first, *(d for d in range(len(i)) if d not in (self.dim, *self.first)))
        cuts = {**self.parts, **({self.deep: self.word} if self.word > 1 else {})}
        panel = () if self.dim is None else (i[self.dim] // self.width,)
        within = () if self.dim is None else (i[self.dim] % self.width,)
        return (
            *panel,
            *(i[d] % self.parts[d] for d in self.parts),
            *(i[d] // cuts[d] if d in cuts else i[d] for d in order),
            *within,
            *((i[self.deep] % self.word,) if self.word > 1 else ()),
        )


# ---- copies ---------------------------------------------------------------------------------


def copy_operand(sch: Schedule, main: BlockRV, buffer: Buffer) -> BlockRV:
    """Make a block read a copy of an operand; return the block that copies it."""
    buffers = [region.buffer for region in sch.get(main).reads]
    copied: BlockRV = sch.cache_read(main, buffers.index(buffer), "global")
    return copied


def pack_operand(
    sch: Schedule, main: BlockRV, buffer: Buffer, panels: Panels, target: Target
) -> None:
    """Make a block read a copy of an operand in panels; schedule the copy."""
    operand = next(load for load in loads_of(sch.get(main)) if load.buffer is buffer)
    copy = copy_operand(sch, main, buffer)
    lay_out(sch, copy, panels)
    schedule_packing(sch, copy, operand, panels, target)


def lay_out(sch: Schedule, copy: BlockRV, panels: Panels) -> None:
    """Set the layout of an operand's copy, packed when the program is built if possible."""
    sch.transform_layout(copy, ("write", 0), panels.layout)
    sch.annotate(copy, LAYOUT_REWRITE, True)


def copy_in_use(sch: Schedule, main: BlockRV, buffer: Buffer, readers: int = 1) -> BlockRV | None:
    """The block that computes an operand elementwise, if only these ``readers`` read it."""
    for producer in sch.get_producers(main):
        if buffer not in [region.buffer for region in sch.get(producer).writes]:
            continue
        if is_injective(sch, producer) and len(sch.get_consumers(producer)) == readers:
            found: BlockRV = producer
            return found
    return None


def pad_columns(
    sch: Schedule, main: BlockRV, operand: BufferLoad, vector: Axis, width: int
) -> BlockRV:
    """Round the vector axis up to whole tiles; return the block that copies the operand.

    Consumers read the padded result.
    """
    readers = sch.get_consumers(main)
    before = {sch.get(rv).name for rv in sch.get_producers(main)}
    sch.pad_einsum(main, [width if v.var is vector.var else 1 for v in sch.get(main).iter_vars])
    if readers:
        (crop,) = sch.get_consumers(main)
        sch.compute_inline(crop)
    made = [rv for rv in sch.get_producers(main) if sch.get(rv).name not in before]
    if len(made) != 1 or sch.get(made[0]).reads[0].buffer is not operand.buffer:
        raise ScheduleError("padding the vector axis changes other operands too")
    copied: BlockRV = made[0]
    return copied


def known_before(func: PrimFunc) -> set[Buffer]:
    """Constants, and what is computed from them elementwise."""
    known = set(constants_of(func))
    for block in collect(func.body, Block):
        reads = {region.buffer for region in block.reads}
        plain = block.init is None and all(axis.kind == SPATIAL for axis in block.iter_vars)
        if plain and reads and reads <= known:
            known |= {region.buffer for region in block.writes}
    return known


# ---- panels of elements ---------------------------------------------------------------------


def schedule_packing(
    sch: Schedule, copy: BlockRV, operand: BufferLoad, panels: Panels, target: Target
) -> None:
    """Schedule a copy of a whole operand, panel by panel."""
    loops, dim = sch.get_loops(copy), panels.wide
    extent = as_int(operand.buffer.shape[dim])
    if extent is None or extent % panels.width:
        return
    panel, element = sch.split(loops[dim], [None, panels.width])
    rest = [loop for d, loop in enumerate(loops) if d != dim]
    _within_panel(sch, copy, [panel], rest, element, operand, dim, target)
    parallelize(sch, [panel], target, extent * _DEPTH)


def pack_at(
    sch: Schedule, copy: BlockRV, at: LoopRV, operand: BufferLoad, dim: int, target: Target
) -> None:
    """Pack a panel in each iteration of the loop over panels."""
    sch.compute_at(copy, at, preserve_unit_loops=True)
    loops = sch.get_loops(copy)[-operand.buffer.ndim :]
    rest = [loop for d, loop in enumerate(loops) if d != dim]
    _within_panel(sch, copy, [], rest, loops[dim], operand, dim, target)


def _within_panel(
    sch: Schedule,
    copy: BlockRV,
    outer: list[LoopRV],
    rest: list[LoopRV],
    element: LoopRV,
    operand: BufferLoad,
    dim: int,
    target: Target,
) -> None:
    """Order the loops of a copy so that whole cache lines are read, and written contiguously."""
    if dim == operand.buffer.ndim - 1:
        sch.reorder(*outer, *rest, element)
        sch.vectorize(element)
        return
    # A line of the operand at a time, so that what is read stays in the cache. What follows the
    # vector axis is one run, whatever number of dimensions it has.
    sch.reorder(*outer, *rest[:dim], element, *rest[dim:])
    rest = [*rest[:dim], sch.fuse(*rest[dim:])] if len(rest) > dim + 1 else rest
    extent, lanes = as_int(sch.get(rest[-1]).extent) or 1, _lanes_of(operand, target)
    size = max(n for n in range(1, lanes + 1) if extent % n == 0)
    line, within = sch.split(rest[-1], [None, size])
    whole = as_int(sch.get(element).extent) or 0
    if size in _TRANSPOSED and whole % lanes == 0 and not has_branch(sch.get(copy)):
        # Tiles as wide and as high as vectors are transposed in registers.
        vectors, lane = sch.split(element, [None, lanes])
        sch.reorder(*outer, *rest[:-1], line, vectors, within, lane)
        sch.unroll(within)
        sch.vectorize(lane)
        return
    sch.reorder(*outer, *rest[:-1], line, element, within)


def _lanes_of(operand: BufferLoad, target: Target) -> int:
    return target.vector_lanes(dtypes.bits_of(operand.buffer.dtype))


# ---- what the steps read, gathered --------------------------------------------------------------


def gather_operand(sch: Schedule, main: BlockRV, operand: BufferLoad, vector: Axis) -> BlockRV:
    """Make a block read an operand by its own axes, the vector axis last; return the copy block."""
    buffers = [region.buffer for region in sch.get(main).reads]
    copied: BlockRV = sch.reindex(main, ("read", buffers.index(operand.buffer)))
    made = sch.get(copied).writes[0].buffer
    (load,) = [item for item in loads_of(sch.get(main)) if item.buffer is made]
    dim = dimensions_of(load, vector)[0]
    sch.transform_layout(copied, ("write", 0), lambda *i: (*i[:dim], *i[dim + 1 :], i[dim]))
    return copied


def gather_at(sch: Schedule, copy: BlockRV, at: LoopRV | None, target: Target) -> None:
    """Gather a panel's rows in each iteration of the loop over panels, or all at once.

    Elements along the other dimension are transposed in registers, a vector's length at a time.
    """
    if at is not None:
        sch.compute_at(copy, at, preserve_unit_loops=True)
    block = sch.get(copy)
    (load,), (store,) = loads_of(block), stores_of(block)
    lanes = _lanes_of(load, target)
    skip = len(sch.get_loops(copy)) - len(block.iter_vars)
    axes = axes_of(sch, copy, skip) or []
    (element,) = [axis for axis in axes if axis.var is store.indices[-1]]
    others = [axis for axis in axes if axis is not element]
    pitch = stride_of(load.indices, load.buffer, element.var) or 0
    runs = [a for a in others if stride_of(load.indices, load.buffer, a.var) == 1]
    outer = [axis.loop for axis in others]
    vectors, lane = sch.split(element.loop, [None, lanes])
    if pitch >= _FAR and runs and (runs[-1].extent or 1) > 1:
        step, within = sch.split(runs[-1].loop, [None, lanes])
        outer = [loop for loop in outer if loop != runs[-1].loop]
        sch.reorder(*outer, step, vectors, within, lane)
        sch.unroll(within)
        outer.append(step)
    else:
        sch.reorder(*outer, vectors, lane)
    sch.vectorize(lane)
    if at is None:
        parallelize(sch, outer, target, work_of(axes))


# ---- words for dot instructions -----------------------------------------------------------------


def lay_out_words(
    sch: Schedule, main: BlockRV, buffer: Buffer, panels: Panels, readers: int, target: Target
) -> BlockRV | None:
    """Pack an operand into panels of words, or only into words, for ``readers`` readers.

    Returns the block that does so, unless the operand already has this layout.
    """
    func, deepest = sch.mod["main"], panels.deep == buffer.ndim - 1
    if panels.dim is None and deepest and buffer in func.buffers:
        return None
    copy = copy_in_use(sch, main, buffer, readers) or copy_operand(sch, main, buffer)
    # Loops first: how elements of the new layout lie is harder to see through.
    if panels.dim is None and deepest:
        schedule_injective(sch, copy, target)
    else:
        _schedule_words(sch, copy, panels, target)
        sch.transform_layout(copy, ("write", 0), panels.layout)
    if {region.buffer for region in sch.get(copy).reads} <= constants_of(sch.mod["main"]):
        sch.annotate(copy, LAYOUT_REWRITE, True)
    return copy


def _schedule_words(sch: Schedule, copy: BlockRV, panels: Panels, target: Target) -> None:
    """Copy lines of the operand so that neighbours along K become contiguous.

    If K is the operand's last dimension they already are, and are moved together; else a line is
    read for each of them, and they are interleaved.
    """
    loops, deep, word = sch.get_loops(copy), panels.deep, panels.word
    work = work_of(axes_of(sch, copy) or [])
    outer, neighbour = sch.split(loops[deep], [None, word])
    order = [outer if d == deep else loop for d, loop in enumerate(loops) if d != panels.dim]
    if panels.dim is None:
        sch.reorder(*order, neighbour)
        if not has_branch(sch.get(copy)):  # lines follow one another here and there
            order = [*order[: deep + 1], sch.fuse(*order[deep + 1 :])]
        sch.vectorize(order[-1])
        parallelize(sch, order[:-1], target, work)
        return
    panel, column = sch.split(loops[panels.dim], [None, panels.width])
    if deep == len(loops) - 1:
        block, inner = sch.split(outer, [None, _line(sch, copy, word, target)])
        sch.reorder(panel, *order[:-1], block, column, inner, neighbour)
        sch.vectorize(neighbour)
    else:
        sch.reorder(panel, *order, column, neighbour)
        sch.vectorize(column)
    parallelize(sch, [panel], target, work)


def _line(sch: Schedule, copy: BlockRV, width: int, target: Target) -> int:
    """The number of words in a cache line, or the largest smaller one that divides K."""
    extent = as_int(sch.get(copy).iter_vars[-1].dom.extent) or width
    words = extent // width
    return max(size for size in range(1, target.vector_lanes(32) + 1) if words % size == 0)
