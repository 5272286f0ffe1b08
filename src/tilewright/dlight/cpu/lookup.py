"""Schedules of blocks that look up the place of each element along the last axis.

What is looked up serves all rows that have the same places: some rows are done together, so that a
place is read and brought into range once for all of them. This goes element by element: gathering
vectors is slower.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dlight.cpu.blocks import Axis, loads_of
from tilewright.ir import collect, uses_var
from tilewright.tir import Block, BufferLoad
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import LoopRV

# Rows that are done together.
_ROWS = 4


def shared_lookup(block: Block, axes: Sequence[Axis]) -> Axis | None:
    """Return the innermost axis of rows that have the same places; ``None`` if there is none."""
    last = axes[-1]
    places = [
        inner
        for load in loads_of(block)
        for index in load.indices
        for inner in collect(index, BufferLoad)
    ]
    if not any(uses_var(place, {last.var}) for place in places):
        return None
    for axis in reversed(axes[:-1]):
        if axis.extent is None or axis.extent >= _ROWS:
            free = not any(uses_var(place, {axis.var}) for place in places)
            return axis if free else None
    return None


def schedule_lookup(sch: Schedule, axes: Sequence[Axis], rows: Axis) -> list[LoopRV]:
    """Look up a place for some rows at a time; return the loops around them."""
    groups, row = sch.split(rows.loop, [None, _ROWS])
    others = [axis.loop for axis in axes[:-1] if axis is not rows]
    sch.reorder(*others, groups, axes[-1].loop, row)
    sch.unroll(row)
    return [*others, groups]
