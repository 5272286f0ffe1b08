"""Images that lose their blocks of channels: ``NCHW16c`` to ``NCHW``.

The channel of the result is block times size plus place: one axis that is read as a quotient and a
remainder. Made two axes, the places within a block are read side by side while columns are written
side by side, which is a transposition of whole vectors.
"""

from __future__ import annotations

from tilewright.dlight.base import NotApplicable, ScheduleRule
from tilewright.dlight.cpu.blocks import axes_of, has_branch, is_injective, leaf_blocks, loads_of
from tilewright.dlight.cpu.elementwise import schedule_injective
from tilewright.dlight.cpu.transpose import transposition_of
from tilewright.ir import Expr, FloorMod, as_int, pre_order
from tilewright.target import Target
from tilewright.tir import Block
from tilewright.tir.schedule import Schedule


class LayoutConversion(ScheduleRule):
    """Applies to one block that reads an axis of its result as quotient and remainder."""

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Make two axes of the one, and transpose."""
        blocks = leaf_blocks(sch)
        if len(blocks) != 1 or not is_injective(sch, blocks[0]) or has_branch(sch.get(blocks[0])):
            return NotApplicable("more than one block that moves elements")
        found = _cut_axis(sch.get(blocks[0]))
        if found is None:
            return NotApplicable("no axis is read as quotient and remainder")
        axis, size = found

        def cut(*i: Expr) -> tuple[Expr, ...]:
            return (*i[:axis], i[axis] // size, i[axis] % size, *i[axis + 1 :])

        sch.transform_block_layout(blocks[0], cut)
        axes = axes_of(sch, blocks[0])
        if axes is None or transposition_of(sch.get(blocks[0]), axes, target) is None:
            return NotApplicable("what is left is no transposition")
        schedule_injective(sch, blocks[0], target)
        return sch


def _cut_axis(block: Block) -> tuple[int, int] | None:
    """The place of the one axis of which a remainder is read, and by what."""
    places = {item.var: place for place, item in enumerate(block.iter_vars)}
    found = {
        (places[node.a], as_int(node.b))
        for load in loads_of(block)
        for index in load.indices
        for node in pre_order(index)
        if isinstance(node, FloorMod) and node.a in places
    }
    if len(found) != 1:
        return None
    axis, size = found.pop()
    extent = as_int(block.iter_vars[axis].dom.extent)
    return (axis, size) if size and extent is not None and extent % size == 0 else None
