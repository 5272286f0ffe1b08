"""Lower the ``init`` of reduction blocks.

Where the loops around a block serve the reduction alone, the initial value is written once before
them; else it is written under the condition that this is the reduction's first iteration, and where
there may be none, before the loop that has none.
"""

from __future__ import annotations

from tilewright.arith import Analyzer
from tilewright.ir import TRUE, Expr, IntImm, Range, and_, is_const, substitute
from tilewright.tir.analysis import is_injective_binding
from tilewright.tir.empty_reduction import initial_values, may_be_empty
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import fresh_name, renew_definitions
from tilewright.tir.stmt import (
    REDUCE,
    SERIAL,
    UNROLLED,
    Block,
    BlockRealize,
    BufferStore,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.transform.base import FunctionTransform, StmtMutator, bind_loop, uses_any


class LowerInitBlock(FunctionTransform):
    """Turn ``init`` into ordinary statements."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_InitLowering().visit)


class _InitLowering(StmtMutator):
    """Rewrites statements; names of new blocks are unique among those it made."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return node

    def visit_For(self, node: For) -> Stmt:
        hoisted = self.hoist(node)
        if hoisted is not None:
            return SeqStmt(hoisted)
        initial = initial_values(node, self.taken) if may_be_empty(node) else None
        loop: Stmt = self.generic_visit(node)
        if initial is None:
            return loop
        return seq(IfThenElse(node.extent <= 0, self.visit(initial)), loop)

    def hoist(self, loop: For) -> tuple[Stmt, Stmt] | None:
        """Take ``init`` out of ``loop`` if this loop and those below only reduce.

        Returns what writes it, to stand before, and the rest.
        """
        chain = []
        body: Stmt = loop
        while isinstance(body, For):
            chain.append(body)
            body = body.body
        if not isinstance(body, BlockRealize) or body.block.init is None:
            return None
        block, init_body = body.block, body.block.init
        variables = [item.loop_var for item in chain]
        if any(item.kind not in (SERIAL, UNROLLED) for item in chain):
            return None
        spatial = []
        condition: Expr = TRUE
        analyzer = Analyzer()
        for item in chain:
            bind_loop(analyzer, item)
        first = {item.loop_var: item.min for item in chain}
        if not _reduces_once(body, chain, analyzer):
            return None  # a loop repeats the whole reduction: init belongs inside of it
        for iter_var, value in zip(block.iter_vars, body.iter_values):
            if iter_var.kind != REDUCE:
                if uses_any(value, variables):
                    return None
                spatial.append((iter_var, value))
                continue
            start = substitute(value, first)
            if not analyzer.can_prove_ge(value, start):
                return None
            condition = and_(condition, analyzer.simplify(start == iter_var.dom.min))
        if uses_any(body.predicate, variables) or (
            isinstance(condition, IntImm) and not condition.value
        ):
            return None
        init = Block(
            tuple(iter_var for iter_var, _ in spatial),
            (),
            block.writes,
            fresh_name(f"{block.name}_init", self.taken),
            init_body,
        )
        realize = BlockRealize(tuple(value for _, value in spatial), body.predicate, init)
        before = renew_definitions(realize)
        if condition is not TRUE:
            before = IfThenElse(condition, before)
        update = block.replace(init=None, body=self.visit(block.body))
        rest: Stmt = body.replace(block=update)
        for item in reversed(chain):
            rest = item.replace(body=rest)
        return before, rest

    def visit_Block(self, node: Block) -> Stmt:
        body = self.visit(node.body)
        if node.init is None:
            return node if body is node.body else node.replace(body=body)
        first: Expr = TRUE
        for iter_var in node.iter_vars:
            if iter_var.kind == REDUCE:
                single = isinstance(iter_var.dom.extent, IntImm) and iter_var.dom.extent.value == 1
                if not single:
                    first = and_(first, iter_var.var == iter_var.dom.min)
        init = node.init if first is TRUE else IfThenElse(first, node.init)
        return node.replace(init=None, body=seq(init, body))


def _reduces_once(realize: BlockRealize, chain: list[For], analyzer: Analyzer) -> bool:
    """Whether each of the loops around a block goes on with its reduction, in the block's axes."""
    reduced = [
        value
        for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
        if iter_var.kind == REDUCE
    ]
    if not all(
        is_const(item.extent, 1) or any(uses_any(value, [item.loop_var]) for value in reduced)
        for item in chain
    ):
        return False
    ranges = {item.loop_var: Range.from_min_extent(item.min, item.extent) for item in chain}
    return is_injective_binding(tuple(reduced), ranges, analyzer=lambda: analyzer)
