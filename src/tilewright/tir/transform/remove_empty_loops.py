"""Remove loops without iterations from functions of blocks, so that what is left can be scheduled.

A block that reduces over nothing keeps its ``init``: a sum of nothing is zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.ir import is_const, substitute
from tilewright.tir.empty_reduction import initial_values, only_reduces
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import NO_OP, Block, BlockRealize, For, Stmt, is_no_op
from tilewright.tir.transform.base import FunctionTransform, StmtMutator
from tilewright.tir.walk import statements, symbols_in


class RemoveEmptyLoops(FunctionTransform):
    """Drop loops of extent zero, and buffers that only these used."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not any(map(_is_empty, statements(func))):
            return func
        return func.map_children(_Remover().visit)


def _is_empty(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and is_const(stmt.extent, 0)


def _nest(loop: Stmt) -> Iterator[For]:
    """A loop and those that are all of its body, inwards."""
    while isinstance(loop, For):
        yield loop
        loop = loop.body


class _Remover(StmtMutator):
    def __init__(self) -> None:
        self.taken: set[str] = set()

    def visit_For(self, node: For) -> Any:
        if _is_empty(node):
            initial = initial_values(node, self.taken)
            return NO_OP if initial is None else self.visit(initial)
        if any(_is_empty(loop) for loop in _nest(node)) and only_reduces(node):
            return self.visit(substitute(node.body, {node.loop_var: node.min}))
        made = self.visit(node.body)
        return NO_OP if is_no_op(made) else node.replace(body=made)

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        block = self.visit(node.block)
        if block is node.block:
            return node
        idle = is_no_op(block.body) and block.init is None and block.name != "root"
        return NO_OP if idle else node.replace(block=block)

    def visit_Block(self, node: Block) -> Block:
        body = self.visit(node.body)
        if body is node.body:
            return node
        # Regions name buffers too, also where nothing is left of a block's accesses to them.
        used = symbols_in(body) | (symbols_in(node.init) if node.init is not None else frozenset())
        kept = tuple(buffer for buffer in node.alloc_buffers if buffer in used)
        return node.replace(body=body, alloc_buffers=kept)
