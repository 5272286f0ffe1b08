"""Rewriting all element accesses to a buffer, and refusing any other use of it.

``transform_layout`` and ``unsafe_set_dtype`` change the contents of memory: an access other than by
an element's indices would find something else.
"""

from __future__ import annotations

from tilewright.ir import Call, Expr, Mutator, Var
from tilewright.tir import Block, BlockRealize, Buffer, BufferLoad, DeclBuffer
from tilewright.tir.schedule.state import ScheduleState


class ElementRewriter(Mutator):
    """Replaces the buffer ``old``; ``change`` describes that in error messages."""

    change: str

    def __init__(
        self, state: ScheduleState, realize: BlockRealize, old: Buffer, new: Buffer
    ) -> None:
        self.state = state
        self.realize = realize
        self.old = old
        self.new = new

    def refuse(self, reason: str) -> Exception:
        """Return the error that the buffer can't be changed, and why."""
        return self.state.error(f"{self.old.name} {reason}: {self.change}", self.realize)

    def check_not_aliased(self, block: Block) -> None:
        """Refuse if a block declares another buffer in the same memory."""
        for buffer in block.alloc_buffers:
            if buffer is not self.old and buffer.data is self.old.data:
                raise self.refuse(f"shares its memory with {buffer.name}")

    def visit_Var(self, node: Var) -> Expr:
        """Refuse the buffer's pointer."""
        if node is self.old.data:
            raise self.refuse("is used through its pointer")
        return node

    def visit_Call(self, node: Call) -> Call:
        """Refuse the address of an element."""
        if node.op.name in ("address_of", "tile_of") and any(
            isinstance(arg, BufferLoad) and arg.buffer is self.old for arg in node.args
        ):
            raise self.refuse("is used through its pointer")
        return self.generic_visit(node)

    def visit_DeclBuffer(self, node: DeclBuffer) -> DeclBuffer:
        """Refuse another view of the memory."""
        if node.buffer.data is self.old.data:
            raise self.refuse(f"shares its memory with {node.buffer.name}")
        return self.generic_visit(node)
