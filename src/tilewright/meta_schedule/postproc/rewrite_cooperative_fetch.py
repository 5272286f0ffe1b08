"""Let the threads of a GPU's block fetch the tiles of operands together."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import as_int
from tilewright.meta_schedule.postproc.base import Postproc, Rejected
from tilewright.meta_schedule.schedule_rule.binding import WARP_SIZE
from tilewright.tir import For
from tilewright.tir.analysis import has_branch
from tilewright.tir.attrs import COOPERATIVE_FETCH, WARP_EXECUTION
from tilewright.tir.schedule import BlockRV, LoopRV, Schedule
from tilewright.tir.walk import statements

_AXES = ("threadIdx.z", "threadIdx.y", "threadIdx.x")


class RewriteCooperativeFetch(Postproc):
    """Divide the loop of blocks annotated for it among the threads around it.

    The annotation's value is the length of vectors. It is 1 instead where that doesn't divide the
    loop, or where the copy branches (padding), as lanes can't go different ways.
    """

    name = "rewrite-cooperative-fetch"

    def apply(self, sch: Schedule) -> Rejected | None:
        """Rewrite all annotated blocks."""
        for func_name in sch.state.func_names():
            blocks = sch.state.index(func_name).blocks
            wanted = {
                name: realize.block.annotations[COOPERATIVE_FETCH]
                for name, realize in blocks.items()
                if COOPERATIVE_FETCH in realize.block.annotations
            }
            for name, length in wanted.items():
                block = sch.get_block(name, func_name)
                sch.unannotate(block, COOPERATIVE_FETCH)
                refused = _divide(sch, block, as_int(length) or 1)
                if refused is not None:
                    return refused
        return None


def _threads(sch: Schedule, loops: Sequence[LoopRV]) -> dict[str, int | None]:
    """Return the extents of the threads of a block, by tag.

    They are those around the copy; where there are none, those of other loops of its kernel. Warps
    have threads of their own.
    """
    above = [sch.get(loop) for loop in loops]
    if not any(loop.thread in _AXES for loop in above):
        kernel = next((loop for loop in above if loop.thread is not None), None)
        below = [] if kernel is None else statements(kernel)
        above += [item for item in below if type(item) is For]
    found = {loop.thread: as_int(loop.extent) for loop in above if loop.thread in _AXES}
    if any(WARP_EXECUTION in loop.annotations for loop in above):
        found.setdefault("threadIdx.x", WARP_SIZE)
    return {tag: extent for tag, extent in found.items() if tag is not None}


def _divide(sch: Schedule, block: BlockRV, length: int) -> Rejected | None:
    loops = sch.get_loops(block)
    around = _threads(sch, loops)
    tags = [tag for tag in _AXES if tag in around]
    if not tags:
        return Rejected(f"no threads are around block {block.name!r}, to fetch its tile")
    extent = as_int(sch.get(loops[-1]).extent)
    if extent is None or any(around[tag] is None for tag in tags):
        return Rejected(f"the extents of the threads or of the tile of {block.name!r} vary")
    if extent % length or has_branch(sch.get(block)):
        length = 1
    factors = [around[tag] for tag in tags] + ([length] if length > 1 else [])
    parts = sch.split(loops[-1], [None, *factors])
    if length > 1:
        sch.vectorize(parts[-1])
    for part, tag in zip(parts[1:], tags):
        sch.bind(part, tag)
    return None
