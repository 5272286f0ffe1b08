"""Run virtual threads inside each real one: interleaved copies in place of ``vthread`` loops.

A statement that depends on the virtual thread is repeated for each of them, the innermost possible
statement, so that loops around are shared. Memory of a thread's own whose contents depend on the
virtual thread gets one more dimension. What does not depend on it runs once.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import Expr, IntImm, Mutator, Node, Var, const, pre_order, substitute
from tilewright.support.errors import LowerError
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.interpreter.emit_threads import all_reduce_operands
from tilewright.tir.stmt import (
    UNROLLED,
    Allocate,
    AssertStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from tilewright.tir.thread_scope import is_shared, is_vthread
from tilewright.tir.transform.base import FunctionTransform
from tilewright.tir.transform.kernels import call_name, map_kernels


class InjectVirtualThread(FunctionTransform):
    """Remove the loops bound to ``vthread`` tags."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return map_kernels(func, _without_virtual)


def _without_virtual(node: Any) -> Any:
    if isinstance(node, Expr):
        return node
    made = node.map_children(_without_virtual)
    if type(node) is not For or not is_vthread(node.thread):
        return made
    if not isinstance(node.extent, IntImm):
        raise LowerError(
            f"the number of virtual threads must be a constant, the loop on {node.thread} has "
            f"extent {node.extent!r}"
        )
    return _Injector(made.loop_var, node.extent.value, made.body).rewritten()


class _Injector:
    def __init__(self, var: Var, count: int, body: Stmt) -> None:
        self.var, self.count, self.body = var, count, body
        self.own: dict[Var, Buffer] = {}  # memory allocated inside that a thread has of its own
        self.touched: set[Var] = {var}  # variables and pointers that depend on the virtual thread
        for item in pre_order(body):
            if type(item) is Allocate and not is_shared(item.buffer.scope):
                self.own[item.buffer.data] = item.buffer

    def rewritten(self) -> Stmt:
        before = -1
        while len(self.touched) != before:
            before = len(self.touched)
            self.spread(self.body, False)
        wider = {
            buffer: Buffer(
                buffer.name, (const(self.count), *buffer.shape), buffer.dtype, (), None,
                buffer.scope, buffer.alignment,
            )
            for data, buffer in self.own.items()
            if data in self.touched
        }  # fmt: skip
        for item in pre_order(self.body):
            if type(item) is DeclBuffer and item.buffer.data in self.touched & set(self.own):
                raise LowerError(
                    f"virtual threads need memory {item.buffer.name!r} of their own, but it is "
                    "seen through several buffers"
                )
        return self.repeated(_Widener(self.var, wider).visit(self.body), wider)

    # ---- what depends on the virtual thread -----------------------------------------------

    def touches(self, node: Node) -> bool:
        """Whether an expression depends on the virtual thread."""
        return any(
            (type(item) is Var and item in self.touched)
            or (isinstance(item, BufferLoad) and item.buffer.data in self.touched)
            for item in pre_order(node)
        )

    def spread(self, node: Any, under: bool) -> None:
        """Find memory and variables whose values depend on it; ``under`` such a condition."""
        kind = type(node)
        if kind is BufferStore:
            if under or any(map(self.touches, (node.value, *node.indices))):
                self.touch(node.buffer)
        elif kind is LetStmt:
            if under or self.touches(node.value):
                self.touched.add(node.var)
            self.spread(node.body, under)
        elif kind is For:
            self.spread(node.body, under or self.touches(node.extent) or self.touches(node.min))
        elif kind is While:
            self.spread(node.body, under or self.touches(node.condition))
        elif kind is IfThenElse:
            under = under or self.touches(node.condition)
            self.spread(node.then_case, under)
            if node.else_case is not None:
                self.spread(node.else_case, under)
        elif call_name(node) == "thread_allreduce":
            _, values, addresses, _ = all_reduce_operands(node.value)
            if under or any(map(self.touches, values)):
                for address in addresses:
                    self.touch(address.args[0].buffer)
        elif not isinstance(node, Expr):
            for item in node.child_nodes():
                self.spread(item, under)

    def touch(self, buffer: Buffer) -> None:
        if buffer.data in self.own:
            self.touched.add(buffer.data)

    # ---- copies ---------------------------------------------------------------------------

    def repeated(self, stmt: Stmt, wider: dict[Buffer, Buffer]) -> Stmt:
        self.touched |= {buffer.data for buffer in wider.values()}
        made: Stmt = self.copies(stmt)
        return made

    def copies(self, node: Any) -> Any:
        kind = type(node)
        if kind is SeqStmt:
            return seq(map(self.copies, node.stmts))
        if kind in (BufferStore, Evaluate, AssertStmt):
            return self.loop(node) if self.touches(node) else node
        if any(map(self.touches, _decisive(node))):
            return self.loop(node)
        if not self.touches(node):
            return node
        return node.map_children(lambda item: item if isinstance(item, Expr) else self.copies(item))

    def loop(self, stmt: Stmt) -> Stmt:
        """``stmt`` for one virtual thread after the other."""
        if any(call_name(item) == "storage_sync" for item in pre_order(stmt)):
            raise LowerError(
                "a barrier stands under a condition that differs between virtual threads"
            )
        var = Var(self.var.name, self.var.dtype)
        body = substitute(stmt, {self.var: var})
        return For(var, const(0), const(self.count), UNROLLED, body)


def _decisive(node: Any) -> tuple[Expr, ...]:
    """Expressions that a statement evaluates before its parts."""
    kind = type(node)
    if kind is For:
        return node.min, node.extent
    if kind is While or kind is IfThenElse:
        return (node.condition,)
    return (node.value,) if kind is LetStmt else ()


class _Widener(Mutator):
    """Gives buffers a dimension for the virtual thread."""

    def __init__(self, var: Var, wider: dict[Buffer, Buffer]) -> None:
        self.var, self.wider = var, wider

    def visit_Allocate(self, node: Allocate) -> Stmt:
        body = self.visit(node.body)
        return node.replace(buffer=self.wider.get(node.buffer, node.buffer), body=body)

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        made = self.generic_visit(node)
        wide = self.wider.get(node.buffer)
        return made if wide is None else BufferLoad(wide, (self.var, *made.indices))

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        made = self.generic_visit(node)
        wide = self.wider.get(node.buffer)
        return made if wide is None else BufferStore(wide, made.value, (self.var, *made.indices))
