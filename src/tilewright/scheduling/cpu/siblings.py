"""Sums over the same elements, none of which needs another: one loop computes all of them.

The means of a bilateral filter are sums of weights times pixels over sums of weights: in one loop
each weight, an exponential, is computed once. A tile of each sum is in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import dtypes, substitute
from tilewright.scheduling.blocks import (
    Axis,
    axes_of,
    element_bits,
    is_costly,
    loads_of,
    size_of,
    stores_of,
    stride_of,
    work_of,
)
from tilewright.scheduling.cpu.loops import parallelize, vectorize_tile
from tilewright.scheduling.cpu.reduction import column_axis, has_idle_threads
from tilewright.scheduling.cpu.shared_work import pays_together
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block, BufferStore
from tilewright.tir.schedule import Schedule, others_after
from tilewright.tir.schedule.handles import BlockRV

# The bits of a sum's vectors that hide what the operations of a step wait for each other, and the
# vectors of all sums together, which leave registers for what is computed.
_BITS, _ACCUMULATORS = 1024, 8
# Rows that are in the nearest cache together, however far they are from each other; bytes.
_FEW_ROWS, _LINE, _PAGE = 8, 64, 4096


@dataclass(frozen=True)
class _Columns:
    """A reduction whose neighbouring results, along ``vector``, are the lanes of vectors."""

    rv: BlockRV
    axes: Sequence[Axis]
    vector: Axis
    store: BufferStore


def schedule_siblings(sch: Schedule, blocks: Sequence[BlockRV], target: Target) -> set[str]:
    """Schedule reductions over the same elements together; return the names of those blocks.

    ``blocks`` are in the order of the program. What merging would change is left as it is.
    """
    done: set[str] = set()
    found = [columns for rv in blocks if (columns := _columns_of(sch, rv, target)) is not None]
    while found:
        first, *found = found
        group, attempt = [first], sch.copy()
        while found and _belong_together([*group, found[0]], target):
            try:
                attempt.merge(*(item.axes[-1].loop for item in (first, found[0])))
            except ScheduleError:
                break
            group.append(found.pop(0))
        if len(group) == 1:
            continue
        try:
            _schedule(attempt, [item.rv for item in group], first, target)
        except ScheduleError:
            continue
        sch.become(attempt)
        done |= {item.rv.name for item in group}
    return done


def _columns_of(sch: Schedule, rv: BlockRV, target: Target) -> _Columns | None:
    block, axes = sch.get(rv), axes_of(sch, rv)
    stores = stores_of(block)
    if block.init is None or axes is None or len(stores) != 1:
        return None
    spatial = [axis for axis in axes if not axis.is_reduce]
    steps = [axis for axis in axes if axis.is_reduce]
    if not steps or has_idle_threads(block, spatial, steps, target):
        return None
    vector = column_axis(block, spatial)
    if vector is None or not _is_near(block, steps, target):
        return None
    return _Columns(rv, axes, vector, stores[0])


def _belong_together(group: Sequence[_Columns], target: Target) -> bool:
    """Whether reductions have the same axes, as far as that can be seen, and share work."""
    first, *others = group
    for other in others:
        if other.axes.index(other.vector) != first.axes.index(first.vector):
            return False
        kinds, theirs = ([axis.kind for axis in item.axes] for item in (first, other))
        if kinds != theirs:
            return False
    return pays_together(
        [_in_terms_of(item, first) for item in group], first.vector.var, target.costs
    )


def _in_terms_of(item: _Columns, first: _Columns) -> BufferStore:
    return substitute(item.store, {a.var: b.var for a, b in zip(item.axes, first.axes)})


def _schedule(sch: Schedule, group: Sequence[BlockRV], first: _Columns, target: Target) -> None:
    """Tile the common loops, keep each block's tile in registers."""
    axes = first.axes
    outer = [axis.loop for axis in axes if not axis.is_reduce and axis is not first.vector]
    steps = [axis.loop for axis in axes if axis.is_reduce]
    columns, column = sch.split(first.vector.loop, [None, _width(sch, group, first, target)])
    copies = [sch.cache_write(rv, 0, "local") for rv in group]
    around = [*outer, columns]
    sch.reorder(*around, *steps, column)
    for copy in copies:
        sch.reverse_compute_at(copy, columns)
    inits = [sch.decompose_reduction(rv, steps[0]) for rv in group]
    sch.vectorize(column)
    for rv in (*inits, *copies):
        vectorize_tile(sch, sch.get_loops(rv)[len(around) :])
    parallelize(sch, around, target, len(group) * work_of(axes))


def _width(sch: Schedule, group: Sequence[BlockRV], first: _Columns, target: Target) -> int:
    """The number of columns of a tile."""
    blocks: list[Block] = [sch.get(rv) for rv in group]
    lanes = target.vector_lanes(max(8, *map(element_bits, blocks)))
    few = max(1, min(_BITS // target.vector_bits, _ACCUMULATORS // len(group)))
    vectors = sch.choices.choose(f"{first.rv.name}.together", others_after(few, (1, 2, 4)))
    extent = first.vector.extent
    return min(vectors * lanes, extent or vectors * lanes)


def _is_near(block: Block, steps: Sequence[Axis], target: Target) -> bool:
    """Whether a tile's columns may be read one row after the other.

    Of many rows from far away, memory gives whole rows much sooner than parts of them; and rows
    that are whole pages apart push each other out of the nearest cache.
    """
    costly = is_costly(block)
    room = target.l3_bytes // 4 if costly else 2 * target.l2_bytes
    for load in loads_of(block):
        size, rows, paged = size_of(load.buffer), 1, False
        width = dtypes.bytes_of(load.buffer.dtype)
        for axis in steps:
            apart = stride_of(load.indices, load.buffer, axis.var)
            if apart is None or axis.extent is None:
                return False
            if abs(apart) * width > _LINE:
                rows *= axis.extent
                paged = paged or apart * width % _PAGE == 0
        if rows > _FEW_ROWS and (size is None or size > room or (paged and not costly)):
            return False
    return True
