"""Move the init of every reduction before its outermost reduction loop."""

from __future__ import annotations

from functools import partial

from tilewright.ir import uses_var
from tilewright.meta_schedule.postproc.base import Postproc, Rejected
from tilewright.meta_schedule.postproc.rewrite_parallel_vectorize_unroll import attempt
from tilewright.tir import REDUCE
from tilewright.tir.schedule import Schedule


class RewriteReductionBlock(Postproc):
    """Apply ``decompose_reduction`` wherever there is an init and a loop to put it before.

    Where the primitive refuses (a guard couples lanes and reduction steps), lowering tests for the
    first step inside the loop instead.
    """

    name = "rewrite-reduction-block"

    def apply(self, sch: Schedule) -> Rejected | None:
        """Decompose all reductions."""
        for func_name in sch.state.func_names():
            names = [
                name
                for name, realize in sch.state.index(func_name).blocks.items()
                if realize.block.init is not None
            ]
            for name in names:
                realize = sch.state.index(func_name).blocks[name]
                reducing = [
                    value
                    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
                    if iter_var.kind == REDUCE
                ]
                for loop in sch.state.loops_above(realize):
                    if any(uses_var(value, {loop.loop_var}) for value in reducing):
                        block = sch.get_block(name, func_name)
                        loops = sch.get_loops(block)
                        at = next(rv for rv in loops if rv.var is loop.loop_var)
                        attempt(sch, partial(sch.decompose_reduction, block, at))
                        break
        return None
