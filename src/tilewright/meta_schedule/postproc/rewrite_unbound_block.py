"""Bind what is left: a GPU runs no loop outside of its blocks and threads."""

from __future__ import annotations

from tilewright.meta_schedule.postproc.base import Postproc, Rejected
from tilewright.meta_schedule.postproc.rewrite_parallel_vectorize_unroll import leaf_blocks
from tilewright.meta_schedule.schedule_rule.binding import (
    bind_blocks_and_threads,
    tags_around,
)
from tilewright.scheduling.gpu import limits_of
from tilewright.target import Target
from tilewright.tir import BlockRealize
from tilewright.tir.schedule import Schedule


class RewriteUnboundBlock(Postproc):
    """Bind the outer loops of blocks that aren't in a kernel yet; see ``AutoBind``.

    As many threads as fill whole warps, up to the target's limit.
    """

    name = "rewrite-unbound-block"

    def __init__(self, max_threadblocks: int = 256) -> None:
        self.max_threadblocks = max_threadblocks
        self.limits = limits_of(Target("cuda"))

    def initialize(self, target: Target) -> None:
        """Learn the limits of the GPU."""
        self.limits = limits_of(target)

    def apply(self, sch: Schedule) -> Rejected | None:
        """Bind all blocks of all functions."""
        most, warp = self.limits.max_threads, self.limits.warp_size
        for func_name in sch.state.func_names():
            root = sch.state.func(func_name).body
            if type(root) is not BlockRealize:
                continue
            for name in [item.block.name for item in leaf_blocks(root)]:
                block = sch.get_block(name, func_name)
                if not any(tag.startswith("blockIdx") for tag in tags_around(sch, block)):
                    bind_blocks_and_threads(
                        sch,
                        block,
                        self.max_threadblocks,
                        most,
                        lambda extent: min(most, -(-extent // warp) * warp),
                    )
        return None
