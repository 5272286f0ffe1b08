"""What the passes for GPUs share: kernels, thread tags, and conditions on thread indices.

A kernel is an outermost thread-bound nest. Threads of one block share memory of scope ``shared``
and meet at barriers; memory of scope ``local`` belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.ir import (
    TRUE,
    Call,
    Expr,
    Node,
    StringImm,
    Var,
    and_,
    call,
    const,
    free_vars,
    if_then_else,
    not_,
    pre_order,
    uses_var,
)
from tilewright.support.errors import LowerError
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.interpreter.emit_threads import all_reduce_operands
from tilewright.tir.reducer import REDUCERS
from tilewright.tir.stmt import (
    Allocate,
    AttrStmt,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.thread_scope import is_private

THREAD_TAGS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
VTHREAD_TAGS = ("vthread", "vthread.x", "vthread.y", "vthread.z")


def map_kernels(func: PrimFunc, function: Callable[[For], Stmt]) -> PrimFunc:
    """Rewrite all outermost thread-bound loops of a function."""

    def go(node: Node) -> Any:
        if isinstance(node, Expr):
            return node
        if type(node) is For and node.thread is not None:
            return function(node)
        if type(node) is SeqStmt:
            made = node.map_children(go)
            return node if made is node else seq(made)
        return node.map_children(go)

    return func.map_children(go)


def thread_nest(kernel: For) -> tuple[list[For], Stmt]:
    """Split a kernel into the thread-bound loops at its top and what is below them."""
    loops: list[For] = []
    body: Stmt = kernel
    while isinstance(body, For) and body.thread is not None:
        loops.append(body)
        body = body.body
    return loops, body


def call_name(node: Node) -> str:
    """The operator's name of an ``Evaluate`` of a call, else an empty text."""
    value = node.value if type(node) is Evaluate else None
    return value.op.name if isinstance(value, Call) else ""


def has_loads(expr: Expr) -> bool:
    """Whether an expression reads memory."""
    return any(isinstance(item, BufferLoad) for item in pre_order(expr))


def guarded(condition: Expr, stmt: Stmt, keep_open: Callable[[Any], bool]) -> Stmt:
    """Put ``stmt`` under a condition on a thread index, except what must stay open to all threads.

    ``keep_open`` says of a statement that it is to be left alone. So is what moves values among the
    registers of a thread: other threads may need the result of an all-reduce, too. All-reduces are
    never under the condition: threads that don't take part bring the reducer's identity.
    """
    index = set(free_vars(condition))

    def is_open(node: Node) -> bool:
        return keep_open(node) or _is_register_move(node, index)

    def go(condition: Expr, node: Any) -> Stmt:
        made: Stmt
        if is_open(node):
            made = node
        elif call_name(node) == "thread_allreduce":
            made = Evaluate(_masked(condition, node.value))
        elif not any(is_open(s) or call_name(s) == "thread_allreduce" for s in pre_order(node)):
            made = IfThenElse(condition, node)
        elif type(node) is IfThenElse and not has_loads(node.condition):
            other = None if node.else_case is None else go(condition, node.else_case)
            made = IfThenElse(node.condition, go(condition, node.then_case), other)
        elif type(node) is BlockRealize and not has_loads(node.predicate):
            body = go(condition, node.block.body)
            made = node.replace(block=node.block.replace(body=body))
        else:
            made = spread(condition, node, go)
        return made

    return go(condition, stmt)


def _is_register_move(node: Node, index: set[Var]) -> bool:
    """Whether a store reads and writes memory of a thread's own only, and not by its index."""
    return (
        type(node) is BufferStore
        and is_private(node.buffer.scope)
        and not uses_var(node, index)
        and all(
            is_private(item.buffer.scope)
            for item in pre_order(node)
            if isinstance(item, BufferLoad)
        )
    )


def spread(condition: Expr, node: Any, go: Callable[[Expr, Any], Stmt]) -> Stmt:
    """Put the parts of a statement under a condition by ``go``; the statement itself runs always.

    ``LowerError`` if it can't run where the condition does not hold.
    """
    kind = type(node)
    if kind is SeqStmt:
        return seq(go(condition, item) for item in node.stmts)
    if kind is IfThenElse and not has_loads(node.condition):
        made = [go(and_(condition, node.condition), node.then_case)]
        if node.else_case is not None:
            made.append(go(and_(condition, not_(node.condition)), node.else_case))
        return seq(made)
    if kind is BlockRealize and not has_loads(node.predicate):
        inner = go(and_(condition, node.predicate), node.block.body)
        return BlockRealize(node.iter_values, TRUE, node.block.replace(body=inner))
    if (
        kind in (Allocate, DeclBuffer, AttrStmt)
        or (kind is LetStmt and not has_loads(node.value))
        or (kind is For and not has_loads(node.extent) and not has_loads(node.min))
    ):
        wrapped: Stmt = node.replace(body=go(condition, node.body))
        return wrapped
    raise LowerError(
        f"threads must meet inside a {kind.__name__} that only those with {condition!r} may run: "
        "move it out of the branch, or give the thread loops the same extent"
    )


def _masked(condition: Expr, node: Call) -> Call:
    """An all-reduce in which only threads with ``condition`` bring values of their own."""
    name, values, addresses, _ = all_reduce_operands(node)
    identity = REDUCERS.get(name)(*(value.dtype for value in values)).identity
    brought = [if_then_else(condition, own, none) for own, none in zip(values, identity)]
    texts = node.args[1 + 2 * len(values) :]
    return Call.of_fields(node.op, (node.args[0], *brought, *addresses, *texts), node.dtype)


def all_reduce(
    reducer: str, values: Iterable[Expr], results: Iterable[BufferLoad], tags: Iterable[str]
) -> Stmt:
    """Make the statement that joins values of the threads along some tags."""
    addresses = [call("address_of", load, dtype="handle") for load in results]
    texts = [StringImm(tag) for tag in tags]
    args = (StringImm(reducer), *values, *addresses, *texts)
    return Evaluate(call("thread_allreduce", *args, dtype="void"))


def register(name: str, dtype: str) -> Buffer:
    """One element of memory of a thread's own."""
    return Buffer(name, (const(1),), dtype, scope="local")


def assigned(targets: Sequence[BufferLoad], values: Sequence[Expr]) -> Stmt:
    """Stores whose values are all computed before the first is stored."""
    if len(targets) == 1:
        return BufferStore(targets[0].buffer, values[0], targets[0].indices)
    names = [Var(f"{target.buffer.name}_value", target.dtype) for target in targets]
    stmt = seq(
        BufferStore(target.buffer, name, target.indices) for target, name in zip(targets, names)
    )
    for name, value in reversed(list(zip(names, values))):
        stmt = LetStmt(name, value, stmt)
    return stmt
