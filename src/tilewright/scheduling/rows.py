"""Stages over the same rows, as in softmax and norms: which axes they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.ir import Expr, FloorDiv, as_int
from tilewright.scheduling.blocks import (
    Axis,
    accesses_of,
    are_side_by_side,
    axes_of,
    inline_injective,
    is_injective,
    leaf_blocks,
    loads_of,
    stores_of,
)
from tilewright.scheduling.rule import NotApplicable
from tilewright.tir import Block
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV


def stages_before_elements(sch: Schedule) -> list[BlockRV] | NotApplicable:
    """Inline what may be; return the blocks if some reduce and the last is element-wise."""
    inline_injective(sch)
    blocks = leaf_blocks(sch)
    if all(is_injective(sch, rv) for rv in blocks) or not is_injective(sch, blocks[-1]):
        return NotApplicable("there is no reduction followed by an element-wise stage")
    return blocks


def shared_rows(sch: Schedule, blocks: Sequence[BlockRV], axes: Sequence[Axis]) -> int | None:
    """Return how many leading axes all stages have in common.

    If only those of a single element differ, as where a result is reshaped, the others count.
    """
    stages = []
    for rv in blocks[:-1]:
        own = axes_of(sch, rv)
        if own is None:
            return None
        kept = [axis for axis in own if not axis.is_reduce]
        stages.append(_Stage(sch.get(rv), kept, is_injective(sch, rv)))
    stages.append(_Stage(sch.get(blocks[-1]), list(axes), True))
    shared = _count_shared(stages)
    if shared is not None:
        return shared
    longer = [number for number, axis in enumerate(axes, 1) if axis.extent != 1]
    shared = _count_shared([stage.without_units() for stage in stages])
    return None if shared is None else longer[shared - 1]


@dataclass(frozen=True)
class _Stage:
    """A block, its spatial axes, and whether it computes each element by itself."""

    block: Block
    axes: list[Axis]
    whole: bool

    def without_units(self) -> _Stage:
        """The stage without axes of one element."""
        return replace(self, axes=[axis for axis in self.axes if axis.extent != 1])

    def follows(self, producer: _Stage, rows: int) -> bool:
        """Whether a row of this stage needs no other row of what ``producer`` stores."""
        pairs = list(zip(producer.axes[:rows], self.axes))
        for store in stores_of(producer.block):
            for load in loads_of(self.block):
                if load.buffer is store.buffer and any(
                    here is not mine.var and mine.extent != 1
                    for theirs, mine in pairs
                    for there, here in zip(store.indices, load.indices)
                    if there is theirs.var
                ):
                    return False
        return True


def _count_shared(stages: Sequence[_Stage]) -> int | None:
    """How many leading axes reductions share, and stages that have all of the last one's axes."""
    axes = stages[-1].axes
    shared = len(axes)
    for stage in stages[:-1]:
        if stage.whole and len(stage.axes) != len(axes):
            return None
        shared = shared if stage.whole else min(shared, len(stage.axes))
        if any(mine.extent != theirs.extent for mine, theirs in zip(stage.axes[:shared], axes)):
            return None
    # Axes of one extent, or of one that comes with the call, need not be the same.
    for number, stage in enumerate(stages):
        if not all(later.follows(stage, shared) for later in stages[number + 1 :]):
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
