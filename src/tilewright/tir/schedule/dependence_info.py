"""What depends on what among the blocks of a module, without a schedule."""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.tir import Block, PrimFunc
from tilewright.tir.schedule.block_scope import BlockScope
from tilewright.tir.schedule.sref import StmtSRef
from tilewright.tir.schedule.state import ScheduleState


class SBlockDependenceInfo:
    """The dependencies among blocks of a module that isn't scheduled."""

    def __init__(self, mod: IRModule | PrimFunc) -> None:
        self._state = ScheduleState(mod)

    def get_sref(self, block: Block) -> StmtSRef | None:
        """Return the sref of a block; ``None`` if the module has no such block."""
        return self._state.get_sref(block)

    def get_sblock_scope(self, block_sref: StmtSRef) -> BlockScope:
        """Return the dependencies among the child blocks of a block."""
        return self._state.get_block_scope(block_sref)
