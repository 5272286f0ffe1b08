"""Schedules of gathers: of elements along the last axis, or of whole rows.

If rows share their indices, some rows are processed together, so that an index is read and brought
into range once for all of them. Elements are loaded one by one: vector gathers are slower.

Rows of a table (embeddings) are prefetched while others are copied.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import collect, free_vars, uses_var
from tilewright.scheduling.blocks import Axis, exceeds, loads_of
from tilewright.target import Target
from tilewright.tir import PARALLEL, SERIAL, Block, BufferLoad
from tilewright.tir.attrs import PREFETCH_NEXT
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Rows that are done together.
_ROWS = 4


def shared_gather(block: Block, axes: Sequence[Axis]) -> Axis | None:
    """Return the innermost axis of rows that share their indices; ``None`` if there is none."""
    last = axes[-1]
    places = [place for load in loads_of(block) for place in _places(load)]
    if not any(uses_var(place, {last.var}) for place in places):
        return None
    for axis in reversed(axes[:-1]):
        if axis.extent is None or axis.extent >= _ROWS:
            free = not any(uses_var(place, {axis.var}) for place in places)
            return axis if free else None
    return None


def prefetch_gathered_rows(sch: Schedule, rv: BlockRV, target: Target) -> None:
    """Prefetch the next row of a table beyond the caches, if a block copies whole rows."""
    block = sch.get(rv)
    tables = [load for load in loads_of(block) if _places(load)]
    if not any(exceeds(load.buffer, target.l2_bytes) for load in tables):
        return
    values = dict(zip((v.var for v in block.iter_vars), sch.state.get_block(rv).iter_values))
    used = {var for load in tables for place in _places(load) for var in free_vars(place)}
    loops = {var for axis in used if axis in values for var in free_vars(values[axis])}
    rows = [loop for loop in sch.get_loops(rv) if sch.get(loop).loop_var in loops]
    last = block.iter_vars[-1].var
    if rows and last not in used and sch.get(rows[-1]).kind in (SERIAL, PARALLEL):
        sch.annotate(rows[-1], PREFETCH_NEXT, 3)


def _places(load: BufferLoad) -> list[BufferLoad]:
    return [inner for index in load.indices for inner in collect(index, BufferLoad)]


def schedule_gather(sch: Schedule, axes: Sequence[Axis], rows: Axis) -> list[LoopRV]:
    """Read each index once for some rows at a time; return the loops around them."""
    groups, row = sch.split(rows.loop, [None, _ROWS])
    others = [axis.loop for axis in axes[:-1] if axis is not rows]
    sch.reorder(*others, groups, axes[-1].loop, row)
    sch.unroll(row)
    return [*others, groups]
