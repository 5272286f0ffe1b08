"""Remove what has no effect: empty loops and branches, dead lets, dead memory, idle stores.

Dead memory is an allocation that is written but never read by anything that matters: its stores go,
and with them what only they needed. An idle store writes a value to the place that it was just
loaded from.

Not in the default order for CPUs: Simplify drops empty loops and branches, schedules leave no dead
memory behind, and LLVM removes dead stores to what is on the stack.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import Expr, IntImm, Mutator, Var, as_int, not_, pre_order
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    NO_OP,
    Allocate,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    is_no_op,
    seq,
)
from tilewright.tir.transform.base import FunctionTransform
from tilewright.tir.transform.effects import EffectTable, ExprTable, is_pure


class RemoveNoOp(FunctionTransform):
    """Remove statements that do nothing, until none is left."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        while True:
            remover = _Remover(func, _dead_memory(func))
            made = func.map_children(remover.visit)
            if made is func:
                return func
            func = made


def _dead_memory(func: PrimFunc) -> set[Var]:
    """Pointers of allocations whose contents nothing depends on."""
    allocated = {i.buffer.data for i in pre_order(func.body) if type(i) is Allocate}
    if not allocated:
        return set()
    live: set[Var] = set()
    # What flows into memory (by pointer) through the values and places of its stores.
    sources: dict[Var, set[Var]] = {}
    stack: list[Any] = [func.body]
    while stack:
        item = stack.pop()
        if type(item) is BufferStore:
            target = item.buffer.data
            used = _mentions(item.value, *item.indices)
            if target in allocated and is_pure(item.value) and all(map(is_pure, item.indices)):
                sources.setdefault(target, set()).update(used)
            else:
                live |= used
                live.add(target)
        elif isinstance(item, Stmt):
            stack.extend(item.child_nodes())
        else:
            live |= _mentions(item)
    todo = list(live)
    while todo:
        for source in sources.get(todo.pop(), ()):
            if source not in live:
                live.add(source)
                todo.append(source)
    return allocated - live


def _mentions(*exprs: Any) -> set[Var]:
    """Pointers that expressions read from or hand on."""
    found: set[Var] = set()
    for expr in exprs:
        for item in pre_order(expr):
            if isinstance(item, Buffer):
                found.add(item.data)
            elif type(item) is Var and item.dtype == "handle":
                found.add(item)
    return found


class _Remover(Mutator):
    def __init__(self, func: PrimFunc, dead: set[Var]) -> None:
        self.dead = dead
        self.effects = EffectTable(func)
        self.table = ExprTable()
        # Variables that hold what is still at the place that they were loaded from.
        self.held: dict[Var, BufferLoad] = {}

    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_SeqStmt(self, node: SeqStmt) -> Stmt:
        made = node.map_children(self.visit)
        if made is node and not any(map(is_no_op, node.stmts)):
            return node
        return seq(made)

    def visit_Evaluate(self, node: Evaluate) -> Stmt:
        self._disturb(node)
        return NO_OP if is_pure(node.value) and not is_no_op(node) else node

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        if node.buffer.data in self.dead:
            return NO_OP
        value = self.held.get(node.value, node.value) if type(node.value) is Var else node.value
        if (
            type(value) is BufferLoad
            and value.buffer is node.buffer
            and self.table.key(value.indices) == self.table.key(node.indices)
        ):
            return NO_OP
        self._disturb(node)
        return node

    def _disturb(self, stmt: Stmt) -> None:
        """Forget what memory held before a statement that changes it."""
        if self.held:
            effects = self.effects.of(stmt)
            for var, load in list(self.held.items()):
                if effects.disturbs(_mentions(load)):
                    del self.held[var]

    def visit_LetStmt(self, node: LetStmt) -> Stmt:
        if type(node.value) is BufferLoad:
            self.held[node.var] = node.value
        body = self.visit(node.body)
        self.held.pop(node.var, None)
        if is_pure(node.value) and not _uses(body, node.var):
            return body  # type: ignore[no-any-return]
        return node if body is node.body else node.replace(body=body)

    def visit_For(self, node: For) -> Stmt:
        extent = as_int(node.extent)
        if extent is not None and extent <= 0:
            return NO_OP
        self._disturb(node)
        body = self.visit(node.body)
        if is_no_op(body) and is_pure(node.min) and is_pure(node.extent):
            return NO_OP
        return node if body is node.body else node.replace(body=body)

    def visit_While(self, node: While) -> Stmt:
        # An empty body doesn't make it a no-op: it may never end.
        self._disturb(node)
        return node.map_children(self.visit)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        if isinstance(node.condition, IntImm):
            taken = node.then_case if node.condition.value else node.else_case
            return NO_OP if taken is None else self.visit(taken)
        before = dict(self.held)
        then_case = self.visit(node.then_case)
        after, self.held = self.held, before
        else_case = None if node.else_case is None else self.visit(node.else_case)
        self.held = {var: load for var, load in self.held.items() if var in after}
        if else_case is not None and is_no_op(else_case):
            else_case = None
        if is_no_op(then_case):
            if else_case is not None:
                return IfThenElse(not_(node.condition), else_case)
            if is_pure(node.condition):
                return NO_OP
        if then_case is node.then_case and else_case is node.else_case:
            return node
        return IfThenElse(node.condition, then_case, else_case)

    def visit_AttrStmt(self, node: AttrStmt) -> Stmt:
        body = self.visit(node.body)
        if is_no_op(body):
            return NO_OP
        return node if body is node.body else node.replace(body=body)

    def visit_Allocate(self, node: Allocate) -> Any:
        body = self.visit(node.body)
        if not _uses(body, node.buffer.data):
            return body
        return node if body is node.body else node.replace(body=body)

    def visit_DeclBuffer(self, node: DeclBuffer) -> Any:
        body = self.visit(node.body)
        if not _uses(body, node.buffer.data):
            return body
        return node if body is node.body else node.replace(body=body)


def _uses(stmt: Stmt, var: Var) -> bool:
    """Whether a variable is used, be it through a buffer whose pointer or shape it is."""
    return any(
        item is var or (isinstance(item, Buffer) and _buffer_uses(item, var))
        for node in pre_order(stmt)
        for item in (node, getattr(node, "buffer", None))
        if item is not None
    )


def _buffer_uses(buffer: Buffer, var: Var) -> bool:
    parts = (*buffer.shape, *buffer.strides, buffer.elem_offset)
    return buffer.data is var or any(
        item is var for part in parts if part is not None for item in pre_order(part)
    )
