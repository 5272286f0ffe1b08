"""Rewriting all accesses to one buffer by an ``IndexMap``: the work of ``transform_layout``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import TRUE, Call, Expr, Mutator, Range, Var, dtypes
from tilewright.tir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    For,
    MatchBufferRegion,
    Stmt,
)
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.index_map import IndexMap
from tilewright.tir.schedule.state import ScheduleState


class LayoutRewriter(Mutator):
    """Maps the indices of every access to one buffer and corrects the signatures around."""

    def __init__(
        self,
        state: ScheduleState,
        realize: BlockRealize,
        old: Buffer,
        new: Buffer,
        index_map: IndexMap,
        analyzer: Analyzer,
    ) -> None:
        self.state = state
        self.realize = realize
        self.old = old
        self.new = new
        self.index_map = index_map
        self.analyzer = analyzer

    def mapped(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        if any(dtypes.lanes_of(index.dtype) > 1 for index in indices):
            raise self.refuse("is accessed by vectors")
        return self.index_map.map_indices(indices, self.analyzer)

    def check_not_aliased(self, block: Block) -> None:
        """Refuse if a block declares another buffer in the same memory."""
        for buffer in block.alloc_buffers:
            if buffer is not self.old and buffer.data is self.old.data:
                raise self.refuse(f"shares its memory with {buffer.name}")

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        made: BufferLoad = self.generic_visit(node) if node.buffer is not self.old else node
        if made.buffer is not self.old:
            return made
        indices = tuple(map(self.visit, node.indices))
        return BufferLoad(self.new, self.mapped(indices))

    def visit_Call(self, node: Call) -> Expr:
        if node.op.name == "address_of" and any(
            isinstance(arg, BufferLoad) and arg.buffer is self.old for arg in node.args
        ):
            raise self.refuse("is used through its pointer")
        return self.generic_visit(node)  # type: ignore[no-any-return]

    def visit_DeclBuffer(self, node: DeclBuffer) -> Stmt:
        if node.buffer.data is self.old.data:
            raise self.refuse(f"shares its memory with {node.buffer.name}")
        return self.generic_visit(node)  # type: ignore[no-any-return]

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        value = self.visit(node.value)
        indices = tuple(map(self.visit, node.indices))
        if node.buffer is self.old:
            return BufferStore(self.new, value, self.mapped(indices))
        if value is node.value and all(a is b for a, b in zip(indices, node.indices)):
            return node
        return BufferStore(node.buffer, value, indices)

    def visit_For(self, node: For) -> Stmt:
        # That the loop has iterations is known inside of it only.
        with self.analyzer.constraint(TRUE):
            self.analyzer.bind(node.loop_var, Range(node.min, node.extent), override=True)
            return self.generic_visit(node)  # type: ignore[no-any-return]

    def visit_Block(self, node: Block) -> Stmt:
        self.check_not_aliased(node)
        accesses = any(region.buffer is self.old for region in (*node.reads, *node.writes))
        with self.analyzer.constraint(TRUE):
            for iter_var in node.iter_vars:
                self.analyzer.bind(iter_var.var, iter_var.dom, override=True)
            for match in node.match_buffers:
                self.visit(match)
            body = self.visit(node.body)
            init = None if node.init is None else self.visit(node.init)
        if body is node.body and init is node.init:
            if accesses:
                raise self.refuse(f"is used opaquely by block {node.name!r}")
            return node
        made = node.replace(body=body, init=init)
        if accesses:
            reads, writes = block_access_regions(made)
            made = made.replace(reads=tuple(reads), writes=tuple(writes))
        return made

    def visit_MatchBufferRegion(self, node: MatchBufferRegion) -> Any:
        if node.source.buffer is self.old:
            raise self.refuse("is matched by a tensorized block")
        return node

    def visit_Var(self, node: Var) -> Var:
        if node is self.old.data:
            raise self.refuse("is used through its pointer")
        return node

    def refuse(self, reason: str) -> Exception:
        return self.state.error(
            f"{self.old.name} {reason}: its layout can't be changed", self.realize
        )
