"""Joining axes of symbolic size that are contiguous together: rows and columns of an image.

Along either of two axes of unknown size there may be few elements, and most of a vector or tile
empty; all of them together are enough. Axes are joined where whatever depends on them holds their
elements one after another, so that the joined axis has one stride.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import Expr, pre_order
from tilewright.scheduling.blocks import Axis, accesses_of, are_contiguous, axes_of
from tilewright.tir import Block
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV


def fused_indices(first: int, width: Expr) -> Callable[..., Sequence[Expr]]:
    """Fuse the index at a position and the next one."""

    def indices(*i: Expr) -> tuple[Expr, ...]:
        return (*i[:first], i[first] * width + i[first + 1], *i[first + 2 :])

    return indices


def join_neighbours(sch: Schedule, rv: BlockRV, axes: list[Axis]) -> list[Axis]:
    """Fuse neighbouring axes of a block, the inner one symbolic, as far as all is contiguous.

    ``axes`` are all of the block's; returns those that are left.
    """
    while (place := _pair(sch.get(rv), axes)) is not None:
        width = sch.get(rv).iter_vars[place + 1].dom.extent
        sch.transform_block_layout(rv, fused_indices(place, width))
        axes = axes_of(sch, rv) or []
    return axes


def _pair(block: Block, axes: Sequence[Axis]) -> int | None:
    """The position of an axis that can be joined with the next one."""
    order = [item.var for item in block.iter_vars]
    if [axis.var for axis in axes] != order:
        return None
    accesses = accesses_of(block)
    for place, outer in enumerate(axes[:-1]):
        inner = axes[place + 1]
        if outer.extent == 1 or inner.extent is not None or outer.kind != inner.kind:
            continue
        extent = block.iter_vars[place + 1].dom.extent
        found = [are_contiguous(item, outer.var, inner.var, extent) for item in accesses]
        used = sum(1 for item in pre_order(block.body) if item is outer.var or item is inner.var)
        if False not in found and used == 2 * found.count(True):
            return place
    return None
