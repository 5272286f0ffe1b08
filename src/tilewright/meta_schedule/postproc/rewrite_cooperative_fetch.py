"""Let the threads of a GPU's block fetch the tiles of operands together."""

from __future__ import annotations

from tilewright.ir import as_int
from tilewright.meta_schedule.postproc.base import Postproc, Rejected
from tilewright.tir.analysis import has_branch
from tilewright.tir.attrs import COOPERATIVE_FETCH
from tilewright.tir.schedule import BlockRV, Schedule

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


def _divide(sch: Schedule, block: BlockRV, length: int) -> Rejected | None:
    loops = sch.get_loops(block)
    around = {sch.get(loop).thread: as_int(sch.get(loop).extent) for loop in loops}
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
