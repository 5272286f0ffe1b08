"""Small rewrites of statements that every part needs: fresh copies, buffer replacement."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from tilewright.ir import (
    DEFINITIONS,
    Mutator,
    Node,
    Var,
    contains,
    definition_fields,
    pre_order,
    substitute,
)
from tilewright.ir.dtype import INDEX
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import AssertStmt, Block, DeclBuffer, SeqStmt, Stmt, seq


class Renewer(Mutator):
    """Copies a tree, giving every variable and buffer that it defines a fresh identity."""

    def __init__(self, mapping: Mapping[Any, object], root: Node) -> None:
        self.mapping: dict[Any, Any] = dict(mapping)
        self.root = root

    def define(self, symbol: Buffer | Var) -> Any:
        """A new symbol in the place of one that is defined; the same one when it comes again."""
        made: Any
        if isinstance(symbol, Buffer):
            made = self.renew_buffer(symbol)
        else:
            made = Var(symbol.name, symbol.dtype)
        self.mapping[symbol] = made
        return made

    def renew_buffer(self, buffer: Buffer) -> Buffer:
        """A new buffer, whose pointer, shape and strides are the new ones."""
        # A pointer that something else has defined (an alias) keeps its new name.
        data = self.mapping.get(buffer.data)
        if data is None:
            data = self.mapping[buffer.data] = Var(buffer.data.name, buffer.data.dtype)
        return buffer.replace(
            data=data,
            shape=tuple(map(self.visit, buffer.shape)),
            strides=tuple(map(self.visit, buffer.strides)),
            elem_offset=None if buffer.elem_offset is None else self.visit(buffer.elem_offset),
        )

    def generic_visit(self, node: Node) -> Any:
        """Give what a node defines a new variable or buffer, and rewrite the rest."""
        fields = definition_fields(type(node))
        if fields:
            if type(node) is DeclBuffer:
                # The view is new, but it is of memory that somebody else has defined.
                self.mapping.setdefault(node.buffer.data, node.buffer.data)
            changes = {}
            for name, single in fields:
                value = getattr(node, name)
                changes[name] = self.define(value) if single else tuple(map(self.define, value))
            node = node.replace(**changes)
        return node.map_children(self.visit)

    def visit_Block(self, node: Block) -> Stmt:
        """A block: what it allocates, views and binds is new."""
        # What a block defines is in scope in all of it, whatever the order of the fields.
        allocations = tuple(map(self.define, node.alloc_buffers))
        for var in _view_vars(node):
            # A match defines its strides and offset, unless something around has done so.
            if var not in self.mapping and _uses(self.root, var) == _uses(node, var):
                self.define(var)
        iter_vars = tuple(map(self.visit, node.iter_vars))
        match_buffers = tuple(map(self.visit, node.match_buffers))
        return node.replace(
            iter_vars=iter_vars,
            alloc_buffers=allocations,
            match_buffers=match_buffers,
            reads=tuple(map(self.visit, node.reads)),
            writes=tuple(map(self.visit, node.writes)),
            init=None if node.init is None else self.visit(node.init),
            body=self.visit(node.body),
        )

    def visit_Var(self, node: Var) -> Any:
        """The variable in the place of one."""
        return self.mapping.get(node, node)

    def visit_Buffer(self, node: Buffer) -> Any:
        """The buffer in the place of one."""
        return self.mapping.get(node, node)

    def visit_PrimFunc(self, node: PrimFunc) -> PrimFunc:
        """Give a function parameters and sizes of its own."""
        for var in node.symbolic_vars():
            self.define(var)
        params = tuple(map(self.define, node.params))
        buffer_map = {
            self.mapping[var]: self.define(buffer) for var, buffer in node.buffer_map.items()
        }
        return node.replace(params=params, buffer_map=buffer_map, body=self.visit(node.body))


_has_definitions = contains(DEFINITIONS)


def renew_defs(func: PrimFunc) -> PrimFunc:
    """Return a copy of a function that shares no definition with it (``renew_definitions``)."""
    made: PrimFunc = renew_definitions(func)
    return made


def renew_definitions(node: Node, mapping: Mapping[Any, object] | None = None) -> Any:
    """Copy a function, statement or expression so that it shares no definition with the original.

    ``mapping`` says what free variables and buffers become.
    """
    if not mapping and not _has_definitions(node):
        return node
    return Renewer(mapping or {}, node).visit(node)


def _view_vars(block: Block) -> list[Var]:
    """Return the variables that are strides or offsets of a block's matched buffers."""
    places = (
        place
        for match in block.match_buffers
        for place in (*match.buffer.strides, match.buffer.elem_offset)
    )
    return [place for place in places if type(place) is Var]


def _uses(node: Node, var: Var) -> int:
    return sum(item is var for item in pre_order(node))


def replace_buffers(node: Node, mapping: Mapping[Buffer, Buffer]) -> Any:
    """Replace uses of buffers in loads, stores and regions (definitions are left alone)."""
    return substitute(node, mapping)


def split_size_checks(body: Stmt) -> tuple[list[Stmt], Stmt]:
    """Return the assertions a body begins with that read no memory, and what comes after them.

    They say what sizes must be, and come before anything that is of these sizes.
    """
    stmts = list(body.stmts) if isinstance(body, SeqStmt) else [body]
    checks = list(takewhile(_is_of_sizes, stmts))
    return (checks, seq(*stmts[len(checks) :])) if checks else ([], body)


_reads_memory = contains(Buffer)


def _is_of_sizes(stmt: Stmt) -> bool:
    return isinstance(stmt, AssertStmt) and not _reads_memory(stmt)


def fresh_name(base: str, taken: set[str], separator: str = "_") -> str:
    """Return ``base``, or ``base_1``, ``base_2`` … if taken; the result is added to ``taken``."""
    name, number = base, 0
    while name in taken:
        number += 1
        name = f"{base}{separator}{number}"
    taken.add(name)
    return name


def index_var(name: str) -> Var:
    """A fresh variable of the index dtype."""
    return Var(name, INDEX)
