"""Put the tensor intrinsics in that rules have tiled blocks for."""

from __future__ import annotations

from tilewright.ir import uses_var
from tilewright.meta_schedule.postproc.base import Postproc, Rejected
from tilewright.tir import REDUCE
from tilewright.tir.attrs import AUTO_TENSORIZE, AUTO_TENSORIZE_INIT
from tilewright.tir.schedule import BlockRV, Schedule
from tilewright.tir.walk import child_blocks


class RewriteTensorize(Postproc):
    """Replace blocks annotated with the name of an intrinsic by it.

    The init of a reduction gets loops of its own before. With ``vectorize_init_loop`` the innermost
    of these is vectorised.
    """

    name = "rewrite-tensorize"

    def __init__(self, vectorize_init_loop: bool = False) -> None:
        self.vectorize_init_loop = vectorize_init_loop

    def apply(self, sch: Schedule) -> Rejected | None:
        """Tensorize all annotated blocks."""
        for func_name in sch.state.func_names():
            wanted = {
                name: str(realize.block.annotations[AUTO_TENSORIZE])
                for name, realize in sch.state.index(func_name).blocks.items()
                if AUTO_TENSORIZE in realize.block.annotations
            }
            for name, intrin in wanted.items():
                block = sch.get_block(name, func_name)
                notes = sch.get(block).annotations
                init = notes.get(AUTO_TENSORIZE_INIT)
                for key in (AUTO_TENSORIZE, AUTO_TENSORIZE_INIT):
                    if key in notes:
                        sch.unannotate(block, key)
                if sch.get(block).init is not None:
                    made = self._decompose(sch, block)
                    if init is not None and made is not None:
                        sch.tensorize(made, str(init))
                sch.tensorize(block, intrin)
        return None

    def _decompose(self, sch: Schedule, block: BlockRV) -> BlockRV | None:
        """Give the init loops of its own, before the outermost reduction loop."""
        realize = sch.state.get_block(block)
        reducing = [
            value
            for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
            if iter_var.kind == REDUCE
        ]
        for loop in sch.get_loops(block):
            if any(uses_var(value, {sch.get(loop).loop_var}) for value in reducing):
                init = sch.decompose_reduction(block, loop)
                break
        else:
            return None
        if self.vectorize_init_loop:
            inner = child_blocks(sch.get(init))
            leaf = sch.get_block(inner[0].block.name, block.func) if inner else init
            loops = sch.get_loops(leaf) or sch.get_loops(init)
            if loops:
                sch.vectorize(loops[-1])
        return init
