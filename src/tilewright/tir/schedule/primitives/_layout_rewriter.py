"""Rewriting all accesses to one buffer by an ``IndexMap``: the work of ``transform_layout``."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith import Analyzer
from tilewright.ir import TRUE, Expr, Range, dtypes
from tilewright.tir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    MatchBufferRegion,
    Stmt,
)
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.index_map import IndexMap
from tilewright.tir.schedule.primitives._element_rewriter import ElementRewriter
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.walk import mentions


class LayoutRewriter(ElementRewriter):
    """Maps the indices of every access to one buffer and updates the enclosing signatures."""

    change = "its layout can't be changed"

    def __init__(
        self,
        state: ScheduleState,
        realize: BlockRealize,
        old: Buffer,
        new: Buffer,
        index_map: IndexMap,
        analyzer: Analyzer,
    ) -> None:
        super().__init__(state, realize, old, new)
        self.index_map = index_map
        self.analyzer = analyzer

    def mapped(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return where an element is in the new layout."""
        if any(dtypes.lanes_of(index.dtype) > 1 for index in indices):
            raise self.refuse("is accessed by vectors")
        return self.index_map.map_indices(indices, self.analyzer)

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        made: BufferLoad = self.generic_visit(node) if node.buffer is not self.old else node
        if made.buffer is not self.old:
            return made
        indices = tuple(map(self.visit, node.indices))
        return BufferLoad(self.new, self.mapped(indices))

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        if not mentions(node, self.old):
            return node
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
            self.analyzer.bind(
                node.loop_var, Range.from_min_extent(node.min, node.extent), override=True
            )
            return self.generic_visit(node)

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

    def visit_MatchBufferRegion(self, node: MatchBufferRegion) -> MatchBufferRegion | None:
        if node.source.buffer is self.old:
            raise self.refuse("is matched by a tensorized block")
        return node
