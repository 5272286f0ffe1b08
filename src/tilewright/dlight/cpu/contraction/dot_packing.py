"""Operands of dot products laid out: words of neighbours along K, and panels of them.

What one instruction takes lies side by side: ``p`` neighbours along K make a word. Panels are
``[N / NR][K / p]...[NR][p]``, of which a vector holds neighbours along N. What is copied anyway
(padded, converted) is written in its layout at once; constants are packed when the program is
built. Used by :mod:`dot_product`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Expr, as_int, collect, uses_var
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    is_injective,
    parallelize,
    schedule_injective,
    work_of,
)
from tilewright.target import Target
from tilewright.tir import SPATIAL, Block, Buffer, BufferLoad, PrimFunc
from tilewright.tir.analysis import has_branch
from tilewright.tir.attrs import LAYOUT_REWRITE
from tilewright.tir.layout_rewrite import layout_free_positions
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV


def dimension_of(load: BufferLoad, axis: Axis) -> int | None:
    """The dimension of an operand that an axis is, by itself and in no other index."""
    using = [d for d, index in enumerate(load.indices) if uses_var(index, {axis.var})]
    return using[0] if len(using) == 1 and load.indices[using[0]] is axis.var else None


def lay_out(
    sch: Schedule,
    main: BlockRV,
    operand: BufferLoad,
    reduce: Axis,
    along: Axis | None,
    readers: int,
    tile: tuple[int, int],
    target: Target,
) -> BlockRV | None:
    """Bring an operand into panels along an axis, or into words where it has none.

    ``tile`` are the neighbours along K of a word, and the columns of a panel. Returns the block
    that does so, if it is not there already.
    """
    width, columns = tile
    deep = dimension_of(operand, reduce)
    assert deep is not None
    last = operand.buffer.ndim - 1
    is_padded = operand.buffer not in sch.mod["main"].buffers
    if along is None and deep == last and not is_padded:
        return None
    copy = _copy_of(sch, main, operand, readers)

    def words(indices: Sequence[Expr]) -> list[Expr]:
        return [i // width if d == deep else i for d, i in enumerate(indices)]

    wide = None if along is None else dimension_of(operand, along)

    def panels(*i: Expr) -> tuple[Expr, ...]:
        assert wide is not None
        rest = [index for d, index in enumerate(words(i)) if d != wide]
        return (i[wide] // columns, *rest, i[wide] % columns, i[deep] % width)

    # Loops first: how elements of the new layout lie is harder to see through.
    if wide is None and deep == last:
        schedule_injective(sch, copy, target)
    else:
        _schedule_copy(sch, copy, deep, wide, columns, width, target)
    if wide is not None:
        sch.transform_layout(copy, ("write", 0), panels)
    elif deep != last:
        sch.transform_layout(copy, ("write", 0), lambda *i: (*words(i), i[deep] % width))
    if _reads_constants(sch, copy):
        sch.annotate(copy, LAYOUT_REWRITE, True)
    return copy


def _schedule_copy(
    sch: Schedule,
    copy: BlockRV,
    deep: int,
    wide: int | None,
    columns: int,
    width: int,
    target: Target,
) -> None:
    """Copy lines of the operand so that neighbours along K come to lie side by side.

    Where K is the operand's last dimension they do already, and are moved together; else a line for
    each of them is read, and all are written by turns.
    """
    loops = sch.get_loops(copy)
    last = len(loops) - 1
    work = work_of(axes_of(sch, copy) or [])
    outer, neighbour = sch.split(loops[deep], [None, width])
    if wide is None:
        order = [outer if d == deep else loop for d, loop in enumerate(loops)]
        sch.reorder(*order, neighbour)
        if not has_branch(sch.get(copy)):  # lines follow one another here and there
            order = [*order[: deep + 1], sch.fuse(*order[deep + 1 :])]
        sch.vectorize(order[-1])
        parallelize(sch, order[:-1], target, work)
        return
    panel, column = sch.split(loops[wide], [None, columns])
    order = [outer if d == deep else loop for d, loop in enumerate(loops) if d != wide]
    if deep == last:
        order, (block, inner) = (
            order[:-1],
            sch.split(outer, [None, _line(sch, copy, width, target)]),
        )
        sch.reorder(panel, *order, block, column, inner, neighbour)
        sch.vectorize(neighbour)
    else:
        sch.reorder(panel, *order, column, neighbour)
        sch.vectorize(column)
    parallelize(sch, [panel], target, work)


def _line(sch: Schedule, copy: BlockRV, width: int, target: Target) -> int:
    """Words of a cache line, or the most below that divide K."""
    extent = as_int(sch.get(copy).iter_vars[-1].dom.extent) or width
    words = extent // width
    return max(size for size in range(1, target.vector_lanes(32) + 1) if words % size == 0)


def _reads_constants(sch: Schedule, rv: BlockRV) -> bool:
    return {region.buffer for region in sch.get(rv).reads} <= constants_of(sch.mod["main"])


def constants_of(func: PrimFunc) -> set[Buffer | None]:
    """The operands that are known before the function runs."""
    return {func.buffer_map.get(func.params[p]) for p in layout_free_positions(func)}


def known_before(func: PrimFunc) -> set[Buffer | None]:
    """Constants, and what is computed from them element by element."""
    known = constants_of(func)
    for block in collect(func.body, Block):
        reads = {region.buffer for region in block.reads}
        plain = block.init is None and all(axis.kind == SPATIAL for axis in block.iter_vars)
        if plain and reads and reads <= known:
            known |= {region.buffer for region in block.writes}
    return known


def _copy_of(sch: Schedule, main: BlockRV, operand: BufferLoad, readers: int) -> BlockRV:
    """The block that copies an operand for this use (of ``readers``) alone, or a new one."""
    buffer = operand.buffer
    for producer in sch.get_producers(main):
        block = sch.get(producer)
        if buffer not in [region.buffer for region in block.writes]:
            continue
        if is_injective(sch, producer) and len(sch.get_consumers(producer)) == readers:
            found: BlockRV = producer
            return found
    buffers = [region.buffer for region in sch.get(main).reads]
    copy: BlockRV = sch.cache_read(main, buffers.index(buffer), "global")
    return copy
