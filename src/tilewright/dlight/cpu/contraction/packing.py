"""Operands copied into panels: what a register tile reads one after the other lies together.

The dimension that follows the vector axis is cut into tiles: their number becomes the first
dimension of the copy, what is within a tile the last. The last panel is padded, so that one copy of
the inner loop does for all columns. A constant operand is packed when the program is built
(``layout_free_buffers``); of another one a panel is made right before the tiles that use it, so
that it is still in the cache. Used by the rules for contractions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tilewright.ir import Expr, as_int, dtypes, free_vars, uses_var
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    coefficient_of,
    loads_of,
    parallelize,
    stores_of,
    stride_of,
    work_of,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import BufferLoad
from tilewright.tir.analysis import has_branch
from tilewright.tir.attrs import LAYOUT_REWRITE
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Heights of tiles that are transposed by shuffles, and how far elements lie apart for that.
_TRANSPOSED, _FAR = (4, 8, 16), 16

_NONE: Mapping[int, int] = {}


def dimension_of(operand: BufferLoad, axis: Axis) -> int:
    """The dimension of an operand that an axis runs along."""
    return next(d for d, index in enumerate(operand.indices) if uses_var(index, {axis.var}))


def run_after(operand: BufferLoad, dim: int) -> int:
    """How many elements that lie side by side the dimensions after one have; 1 if unknown."""
    extents = [as_int(extent) for extent in operand.buffer.shape[dim + 1 :]]
    return math.prod(extent or 0 for extent in extents) or 1


def is_part(index: Expr, axis: Axis) -> bool:
    """Whether an axis counts the elements of one of equal parts of a dimension.

    Filters of a grouped convolution do: ``group * filters + filter``.
    """
    if axis.extent is None:
        return False
    factors = {var: coefficient_of(index, var) for var in free_vars(index)}
    own = factors.pop(axis.var, None)
    return own == 1 and all(f is not None and f % axis.extent == 0 for f in factors.values())


def pad_columns(
    sch: Schedule, main: BlockRV, operand: BufferLoad, vector: Axis, width: int
) -> BlockRV:
    """Round the vector axis up to whole tiles; return the block that copies the operand.

    What reads the result reads it padded.
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


def copy_operand(sch: Schedule, main: BlockRV, operand: BufferLoad) -> BlockRV:
    """Let a block read a copy of an operand; return the block that makes it."""
    buffers = [region.buffer for region in sch.get(main).reads]
    copied: BlockRV = sch.cache_read(main, buffers.index(operand.buffer), "global")
    return copied


def lay_out_panels(
    sch: Schedule,
    copy: BlockRV,
    dim: int,
    width: int,
    first: Sequence[int] = (),
    parts: Mapping[int, int] = _NONE,
) -> None:
    """Give the copy of an operand the layout ``[N / width][...][width]``.

    Within a panel the dimensions ``first`` come before the others. Of the dimensions in ``parts``
    every so manieth element belongs to one part of the panel; parts lie one after the other.
    """

    def panels(*i: Expr) -> tuple[Expr, ...]:
        rest = [d for d in range(len(i)) if d != dim and d not in first]
        within = [i[d] // parts[d] if d in parts else i[d] for d in (*first, *rest)]
        return (i[dim] // width, *(i[d] % parts[d] for d in parts), *within, i[dim] % width)

    sch.transform_layout(copy, ("write", 0), panels)
    sch.annotate(copy, LAYOUT_REWRITE, True)


def schedule_packing(
    sch: Schedule, copy: BlockRV, operand: BufferLoad, dim: int, width: int, target: Target
) -> None:
    """Schedule a copy of a whole operand, panel by panel."""
    loops = sch.get_loops(copy)
    extent = as_int(operand.buffer.shape[dim])
    if extent is None or extent % width:
        return
    panel, element = sch.split(loops[dim], [None, width])
    rest = [loop for d, loop in enumerate(loops) if d != dim]
    _within_panel(sch, copy, [panel], rest, element, operand, dim, target)
    parallelize(sch, [panel], target, (as_int(operand.buffer.shape[dim]) or 1) * 1024)


def pack_at(
    sch: Schedule,
    copy: BlockRV,
    at: LoopRV,
    operand: BufferLoad,
    dim: int,
    target: Target,
) -> None:
    """Make a panel in each iteration of the loop over panels."""
    sch.compute_at(copy, at, preserve_unit_loops=True)
    loops = sch.get_loops(copy)[-operand.buffer.ndim :]
    rest = [loop for d, loop in enumerate(loops) if d != dim]
    _within_panel(sch, copy, [], rest, loops[dim], operand, dim, target)


def gather_operand(sch: Schedule, main: BlockRV, operand: BufferLoad, vector: Axis) -> BlockRV:
    """Let a block read an operand by its own axes, the vector axis last; return what copies it."""
    buffers = [region.buffer for region in sch.get(main).reads]
    copied: BlockRV = sch.reindex(main, ("read", buffers.index(operand.buffer)))
    made = sch.get(copied).writes[0].buffer
    (load,) = [item for item in loads_of(sch.get(main)) if item.buffer is made]
    dim = dimension_of(load, vector)
    sch.transform_layout(copied, ("write", 0), lambda *i: (*i[:dim], *i[dim + 1 :], i[dim]))
    return copied


def gather_at(sch: Schedule, copy: BlockRV, at: LoopRV | None, target: Target) -> None:
    """Lay a panel's rows side by side in each iteration of the loop over panels, or all at once.

    Elements that lie across are transposed in registers, as many at a time as vectors are long.
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
    """Order the loops of a copy so that whole cache lines are read, and written side by side."""
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
