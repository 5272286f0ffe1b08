"""Statements that aren't blocks, as kernels of one thread.

Loops around blocks become grids. What else a function does with memory, the host can't do, as the
memory is a device's: assignments and ``while`` loops outside of blocks, and branches, bindings and
bounds that read memory. One thread does all of such a statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir import Call, Expr, Var, const, pre_order
from tilewright.scheduling.gpu.binding import BLOCKS, THREADS
from tilewright.tir import (
    THREAD_BINDING,
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferLoad,
    DeclBuffer,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    is_no_op,
    seq,
)
from tilewright.tir.schedule import KERNELS, Schedule
from tilewright.tir.walk import child_blocks

ALONE = "gpu_alone"
_HOST_CALLS = ("call_extern", "call_pure_extern", "call_packed")


def run_rest_alone(sch: Schedule) -> bool:
    """Put statements that aren't blocks into kernels of one thread; return whether there are any.

    To be done before blocks are bound: those inside of such statements go with them.
    """
    if _with_kernels(sch.mod["main"].root) is sch.mod["main"].root:
        return False
    sch.use_kernel("root", ALONE)
    return True


def calls_the_host(stmt: Stmt) -> bool:
    """Whether a statement calls a function by name: it runs on the host, wherever it is."""
    return any(type(x) is Call and x.op.name in _HOST_CALLS for x in pre_order(stmt))


def alone(stmt: Stmt) -> Stmt:
    """A kernel of one thread."""
    for tag in (THREADS, BLOCKS):
        stmt = For(Var("one"), const(0), const(1), THREAD_BINDING, stmt, tag)
    return stmt


def _with_kernels(root: Block) -> Block:
    body = _divided(root.body)
    return root if body is root.body else root.replace(body=body)


def _divided(stmt: Any) -> Any:
    """A statement of the host, with kernels in place of what the host can't do."""
    kind = type(stmt)
    if kind is SeqStmt:
        made = [_divided(item) for item in stmt.stmts]
        return stmt if all(a is b for a, b in zip(made, stmt.stmts)) else seq(made)
    if is_no_op(stmt) or calls_the_host(stmt) or kind is BlockRealize:
        return stmt
    if kind is For and child_blocks(stmt):
        return stmt
    if kind is AssertStmt and not _reads(stmt.condition):
        return stmt
    if kind in (Allocate, DeclBuffer) or (kind in (AttrStmt, LetStmt) and not _reads(stmt.value)):
        body = _divided(stmt.body)
        return stmt if body is stmt.body else stmt.replace(body=body)
    if kind is IfThenElse and not _reads(stmt.condition):
        then = _divided(stmt.then_case)
        other = None if stmt.else_case is None else _divided(stmt.else_case)
        if then is stmt.then_case and other is stmt.else_case:
            return stmt
        return IfThenElse(stmt.condition, then, other)
    return alone(stmt)


def _reads(expr: Expr) -> bool:
    return any(type(item) is BufferLoad for item in pre_order(expr))


def _build(func: PrimFunc, options: Mapping[str, object]) -> Block | str:
    if options:
        return f"it takes no options, got {', '.join(options)}"
    made = _with_kernels(func.root)
    return "all of it is in blocks" if made is func.root else made


KERNELS.register(ALONE, _build)
