"""Schedules of concatenations (also of halves, and rolled rows): rows from several operands.

The source of a row's element depends on its index. Vectors that evaluate this condition load from
all operands under masks; so the loop along the row is split where the condition changes, and each
segment is a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from tilewright.arith import Analyzer, linear_coefficients, simplify
from tilewright.ir import (
    GE,
    GT,
    LE,
    LT,
    Call,
    Expr,
    FloorMod,
    Max,
    Min,
    Range,
    Select,
    Var,
    as_int,
    collect,
    const,
    pre_order,
    uses_var,
)
from tilewright.scheduling.blocks import Axis, loads_of, stores_of, stride_of
from tilewright.scheduling.cpu.loops import vector_extent
from tilewright.tir import Block, BufferLoad
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

# More segments make more code than they save; so many places are looked at.
_MOST_SEGMENTS, _MOST_TURNS = 8, 32
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
    """Return the segments within which rows that wrap around, or turn back, don't.

    Such are ``x[(j + 3) % n]``, and borders that repeat the last element or mirror the row:
    ``x[min(j, n - 1)]``. ``None`` if none does, or something else keeps vectors from being loaded
    as a whole.
    """
    extent = last.extent
    if (
        extent is None
        or extent < _LEAST_ROW
        or any(stride_of(x.indices, x.buffer, last.var) != 1 for x in stores_of(block))
    ):
        return None
    turns: set[int] = set()
    columns = []
    for load in loads_of(block):
        if stride_of(load.indices, load.buffer, last.var) in (0, 1):
            continue
        if any(uses_var(index, {last.var}) for index in load.indices[:-1]):
            return None
        columns.append(load.indices[-1])
        turns |= _turns(columns[-1], last.var)
    places = sorted(place for place in turns if 0 < place < extent)
    if not columns or len(places) > _MOST_TURNS:
        return None
    ends = _joined([0, *places, extent], columns, last.var)
    if ends is None or not 2 < len(ends) <= _MOST_SEGMENTS + 1:
        return None
    return Segments(tuple(b - a for a, b in pairwise(ends)))


def _turns(index: Expr, var: Var) -> set[int]:
    """Where within an axis an index may leave the line that it is on."""
    found: set[int] = set()
    for item in pre_order(index):
        if isinstance(item, FloorMod) and (size := as_int(item.b)):
            start = as_int(simplify(item.a - var))
            if start is not None:
                found.update(-start % size + n * size for n in range(_MOST_SEGMENTS + 1))
        elif isinstance(item, (Min, Max)):
            found |= _meetings(item.a, item.b, var)
        elif isinstance(item, Select) and isinstance(item.condition, (LT, LE, GT, GE)):
            found |= _meetings(item.condition.a, item.condition.b, var)
    return found


def _meetings(left: Expr, right: Expr, var: Var) -> set[int]:
    """The places next to where two expressions may be equal."""
    found: set[int] = set()
    for one, other in product(_branches(left), _branches(right)):
        linear = linear_coefficients(one - other, [var])
        factor, rest = (None, None) if linear is None else map(as_int, linear)
        if factor in (1, -1) and rest is not None:
            found |= {-rest * factor, -rest * factor + 1}
    return found


def _branches(expr: Expr) -> list[Expr]:
    """The values among which an expression chooses."""
    if isinstance(expr, (Min, Max)):
        return [*_branches(expr.a), *_branches(expr.b)]
    if isinstance(expr, Select):
        return [*_branches(expr.true_value), *_branches(expr.false_value)]
    return [expr]


def _joined(ends: Sequence[int], columns: Sequence[Expr], var: Var) -> list[int] | None:
    """Join segments that are on one line in all columns; ``None`` if one is on none."""
    kept = [ends[0]]
    for number, end in enumerate(ends[1:], 1):
        if not _are_lines(columns, var, kept[-1], end):
            if kept[-1] == ends[number - 1] or not _are_lines(columns, var, ends[number - 1], end):
                return None
            kept.append(ends[number - 1])
    return [*kept, ends[-1]]


def _are_lines(columns: Sequence[Expr], var: Var, start: int, stop: int) -> bool:
    """Whether neighbours are read one after the other, backwards, or are the same."""
    analyzer = Analyzer()
    analyzer.bind(var, Range(const(start), const(stop)))
    for index in columns if stop - start > 1 else ():
        linear = linear_coefficients(analyzer.simplify(index), [var])
        if linear is None or as_int(linear[0]) not in (-1, 0, 1):
            return False
    return True


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
