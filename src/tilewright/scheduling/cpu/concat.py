"""Schedules of concatenations (also of halves, and rolled rows): rows from several operands.

The source of a row's element depends on its index. Vectors that evaluate this condition load from
all operands under masks; so the loop along the row is split where the condition changes, and each
segment is a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tilewright.arith import simplify
from tilewright.ir import LT, Call, FloorMod, as_int, collect, uses_var
from tilewright.scheduling.blocks import Axis, loads_of, stores_of, stride_of
from tilewright.scheduling.cpu.loops import vector_extent
from tilewright.tir import Block, BufferLoad
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

# More segments make more code than they save.
_MOST_SEGMENTS = 8
# Shorter rows that wrap around aren't cut.
_LEAST_ROW = 32


@dataclass(frozen=True)
class Segments:
    """The extents of consecutive segments of a row."""

    extents: tuple[int, ...]


def segments_of(block: Block, last: Axis) -> Segments | None:
    """Return the segments of rows; ``None`` if there is one source, or other conditions.

    Rows of one operand and a constant (padding) have narrow borders: masks are as good there.
    """
    if last.extent is None:
        return None
    ends = {0, last.extent}
    for branch in collect(block.body, Call):
        if branch.op.name != "if_then_else" or not all(
            collect(side, BufferLoad) for side in branch.args[1:]
        ):
            continue
        test = branch.args[0]
        end = as_int(test.b) if isinstance(test, LT) and test.a is last.var else None
        if end is not None and 0 < end < last.extent:
            ends.add(end)
    if not 2 < len(ends) <= _MOST_SEGMENTS + 1:
        return None
    return Segments(tuple(b - a for a, b in pairwise(sorted(ends))))


def wrapped_segments(block: Block, last: Axis) -> Segments | None:
    """Return the segments within which rows that wrap around, as ``x[(j + 3) % n]``, don't.

    ``None`` if none wraps, or something else keeps vectors from being loaded as a whole.
    """
    extent = last.extent
    if (
        extent is None
        or extent < _LEAST_ROW
        or any(stride_of(x.indices, x.buffer, last.var) != 1 for x in stores_of(block))
    ):
        return None
    ends = {0, extent}
    for load in loads_of(block):
        column = load.indices[-1] if load.indices else None
        size = as_int(column.b) if isinstance(column, FloorMod) else None
        if not isinstance(column, FloorMod) or size is None:
            if stride_of(load.indices, load.buffer, last.var) not in (0, 1):
                return None
            continue
        start = as_int(simplify(column.a - last.var))
        if start is None or any(uses_var(index, {last.var}) for index in load.indices[:-1]):
            return None
        ends.update(range(-start % size, extent, size))
        if len(ends) > _MOST_SEGMENTS + 1:
            return None
    if len(ends) == 2:
        return None
    return Segments(tuple(b - a for a, b in pairwise(sorted(ends))))


def schedule_segments(
    sch: Schedule, axes: Sequence[Axis], segments: Segments, lanes: int, limit: int
) -> list[BlockRV]:
    """Split the last loop into the segments, each vectorised separately; return their blocks."""
    blocks = []
    for loop, extent in zip(sch.loop_partition(axes[-1].loop, segments.extents), segments.extents):
        blocks += sch.get_child_blocks(loop)
        size = vector_extent(extent, lanes, limit)
        if size is not None:
            sch.vectorize(loop if size == extent else sch.split(loop, [None, size])[1])
    return blocks
