"""Walks over statements: below a node, within a block's scope, and the loads of a buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from tilewright.ir import (
    Let,
    Node,
    Var,
    collect,
    defined_symbols,
    definition_fields,
    free_vars,
    is_const,
    pre_order,
)
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.stmt import Block, BlockRealize, For, IterVar, LetStmt, SeqStmt, Stmt

R = TypeVar("R")


def statements(node: Node) -> Iterator[Stmt]:
    """Yield the statements below a node, parents first, without looking into expressions.

    Most passes of a pipeline find nothing to do, and are to find that out quickly.
    """
    stack = [item for item in reversed(node.child_nodes()) if isinstance(item, Stmt)]
    while stack:
        current = stack.pop()
        yield current
        stack += [item for item in reversed(current.child_nodes()) if isinstance(item, Stmt)]


def scope_statements(stmt: Stmt) -> Iterator[Stmt]:
    """Yield a statement and those below it, parents first, not entering blocks."""
    stack: list[Stmt] = [stmt]
    while stack:
        current = stack.pop()
        yield current
        if type(current) is not BlockRealize:
            stack += [item for item in reversed(current.child_nodes()) if isinstance(item, Stmt)]


def child_blocks(stmt: Stmt) -> list[BlockRealize]:
    """Return the blocks directly below a statement or in a block's body, in program order.

    A ``BlockRealize`` argument stands for itself. Blocks inside ``init`` are not counted.
    """
    body = stmt.body if type(stmt) is Block else stmt
    return [item for item in scope_statements(body) if type(item) is BlockRealize]


def defined_inside(block: Block) -> set[Var]:
    """The variables that loops, other blocks and lets inside of a block define."""
    found: set[Var] = set()
    for root in (block.body, block.init):
        for item in pre_order(root) if root is not None else ():
            if isinstance(item, For):
                found.add(item.loop_var)
            elif isinstance(item, (IterVar, Let, LetStmt)):
                found.add(item.var)
    return found


def loads_of(node: Node, buffer: Buffer) -> list[BufferLoad]:
    """All loads of a buffer below a node."""
    return [item for item in collect(node, BufferLoad) if item.buffer is buffer]


def outermost(body: Stmt) -> tuple[Stmt, ...]:
    """Return the statements of a function's outermost block, if this does nothing but hold them.

    A primitive leaves most of them as they are. What was found out about one stays true as long as
    what it refers to is the same, of which ``symbols_in`` tells.
    """
    if type(body) is not BlockRealize or not is_const(body.predicate, 1):
        return ()
    block = body.block
    if block.iter_vars or block.match_buffers or block.init is not None:
        return ()
    return block.body.stmts if type(block.body) is SeqStmt else (block.body,)


def per_statement(function: Callable[[Stmt], R]) -> Callable[[Stmt], R]:
    """Remember what a function says of a statement for as long as there is the statement."""
    known: WeakKeyDictionary[Stmt, R] = WeakKeyDictionary()

    @wraps(function)
    def look_up(stmt: Stmt) -> R:
        found = known.get(stmt)
        if found is None:
            found = known[stmt] = function(stmt)
        return found

    return look_up


@per_statement
def symbols_in(stmt: Stmt) -> frozenset[Any]:
    """Return the variables and buffers that a statement uses or defines.

    Those that the shapes of its buffers are made of, and their pointers, are among them.
    """
    found: set[Any] = set()
    for item in pre_order(stmt):
        if isinstance(item, (Var, Buffer)):
            found.add(item)
        elif definition_fields(type(item)):
            found.update(defined_symbols(item))
    for item in list(found):
        if isinstance(item, Buffer):
            found.add(item.data)
            for number in (*item.shape, *item.strides, item.elem_offset):
                if number is not None:
                    found.update(free_vars(number))
    return frozenset(found)


def mentions(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether a statement uses a buffer or its memory; soon known if it was asked before."""
    symbols = symbols_in(stmt)
    return buffer in symbols or buffer.data in symbols
