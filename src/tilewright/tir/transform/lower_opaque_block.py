"""Remove blocks: allocations become ``Allocate``, predicates branches, unit loops vanish."""

from __future__ import annotations

from typing import Any

from tilewright.ir import TRUE, Expr, Var, as_expr, const, substitute
from tilewright.support.errors import LowerError
from tilewright.tir.attrs import (
    AUTO_STEP,
    PIPELINE_SPECIALISED,
    PREFETCH_DISTANCE,
    STREAMING_STORES,
    TENSOR_INTRIN,
)
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import split_size_checks
from tilewright.tir.stmt import (
    THREAD_BINDING,
    UNROLLED,
    Allocate,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.transform.base import FunctionTransform, Replacing, SeqMutator
from tilewright.tir.transform.effects import memory_read


class LowerOpaqueBlock(FunctionTransform):
    """Turn blocks without iteration variables into statements."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Rewriter().visit)


class _Rewriter(Replacing, SeqMutator):
    def __init__(self) -> None:
        self.values: dict[Var, Expr] = {}

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return substitute(node, self.values)

    def visit_For(self, node: For) -> Any:
        extent, minimum = self.visit(node.extent), self.visit(node.min)
        # A pipeline's roles meet by barriers also where it has a single step.
        single = (
            getattr(extent, "value", None) == 1 and PIPELINE_SPECIALISED not in node.annotations
        )
        if single and node.kind != THREAD_BINDING:
            if memory_read(minimum):
                # The body may change what the start was read from.
                return LetStmt(node.loop_var, minimum, self.visit(node.body))
            self.values[node.loop_var] = minimum
            return self.visit(node.body)
        return node.map_children(self.visit)

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        block: Block = node.block
        for what, present in (
            ("iteration variables (run ConvertBlocksToOpaque first)", block.iter_vars),
            ("an init (run LowerInitBlock first)", block.init),
            ("matched buffers (run LowerMatchBuffer first)", block.match_buffers),
        ):
            if present:
                raise LowerError(f"LowerOpaqueBlock: block {block.name!r} still has {what}")
        predicate = self.visit(node.predicate)
        body: Stmt = self.visit(block.body)
        checks: list[Stmt] = []
        if predicate is TRUE and block.alloc_buffers:
            checks, body = split_size_checks(body)
        step = block.annotations.get(AUTO_STEP)
        if step is not None:
            body = AttrStmt(None, AUTO_STEP, as_expr(step), body)
        for key in (STREAMING_STORES, PREFETCH_DISTANCE):
            if block.annotations.get(key):
                body = AttrStmt(None, key, as_expr(block.annotations[key]), body)
        if type(body) is SeqStmt and TENSOR_INTRIN in block.annotations:
            # An intrinsic stays one statement, for a pipeline to place; UnrollLoop opens it.
            body = For(Var("once"), const(0), const(1), UNROLLED, body)
        if predicate is not TRUE:
            body = IfThenElse(predicate, body)
        for buffer in reversed(block.alloc_buffers):
            body = Allocate(buffer, body)
        return seq(*checks, body) if checks else body
