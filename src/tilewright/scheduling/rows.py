"""Stages over the same rows, as in softmax and norms: which axes they share."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Expr, FloorDiv, as_int
from tilewright.scheduling.blocks import (
    Axis,
    accesses_of,
    are_side_by_side,
    axes_of,
    is_injective,
    loads_of,
)
from tilewright.tir import Block
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV


def shared_rows(sch: Schedule, blocks: Sequence[BlockRV], axes: Sequence[Axis]) -> int | None:
    """Return how many leading axes all stages have in common.

    If only those of a single element differ, as where a result is reshaped, the others count.
    """
    stages = []
    for rv in blocks[:-1]:
        own = axes_of(sch, rv)
        if own is None:
            return None
        stages.append(([axis for axis in own if not axis.is_reduce], is_injective(sch, rv)))
    shared = _count_shared(stages, axes)
    if shared is not None:
        return shared
    longer = [number for number, axis in enumerate(axes, 1) if axis.extent != 1]
    stages = [([axis for axis in own if axis.extent != 1], whole) for own, whole in stages]
    shared = _count_shared(stages, [axes[number - 1] for number in longer])
    return None if shared is None else longer[shared - 1]


def _count_shared(stages: list[tuple[list[Axis], bool]], axes: Sequence[Axis]) -> int | None:
    """How many leading axes reductions share, and stages that have all of the last one's axes."""
    shared = len(axes)
    for own, whole in stages:
        if whole and len(own) != len(axes):
            return None
        shared = shared if whole else min(shared, len(own))
        if any(mine.extent != theirs.extent for mine, theirs in zip(own[:shared], axes)):
            return None
    return shared or None


def arrange_axes(sch: Schedule, last: BlockRV) -> None:
    """Arrange the axes of the last stage: those of rows first, contiguous ones fused.

    An axis whose elements share a row by groups (``sum[c // 8]``) becomes two axes.
    """
    block = sch.get(last)
    extents = [axis.dom.extent for axis in block.iter_vars]
    place, members = _groups_of(block)
    first = len(extents) - _side_by_side(block, extents, len(extents) - place - 1)
    if members == 1 and first >= len(extents) - 1:
        return

    def layout(*i: Expr) -> tuple[Expr, ...]:
        axes = list(i[:first])
        if first < len(i):
            joined = i[first]
            for index, extent in zip(i[first + 1 :], extents[first + 1 :]):
                joined = joined * extent + index
            axes.append(joined)
        if members > 1:
            axes[place : place + 1] = [axes[place] // members, axes[place] % members]
        return tuple(axes)

    sch.transform_block_layout(last, layout)


def _groups_of(block: Block) -> tuple[int, int]:
    """The axis whose elements share a row by groups, and the group size; else -1 and 1."""
    for index in (index for load in loads_of(block) for index in load.indices):
        if isinstance(index, FloorDiv):
            members = as_int(index.b) or 1
            for place, axis in enumerate(block.iter_vars):
                extent = as_int(axis.dom.extent) or 1
                if axis.var is index.a and members > 1 and extent % members == 0:
                    return place, members
    return -1, 1


def _side_by_side(block: Block, extents: Sequence[Expr], most: int) -> int:
    """How many of the last axes are contiguous, in everything that a block reads and writes."""
    accesses, axes = accesses_of(block), [axis.var for axis in block.iter_vars]
    count = 1
    while count < min(most, len(extents)):
        outer, inner = axes[-count - 1], axes[-count]
        if not all(are_side_by_side(item, outer, inner, extents[-count]) for item in accesses):
            break
        count += 1
    return count
