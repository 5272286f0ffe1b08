"""What reductions over nothing leave behind: their initial values.

``init`` of a block runs at the first iteration of its reduction; a reduction without iterations has
none, but its result is defined all the same: a sum of nothing is zero. So a loop over reduction
axes that has no iterations stands for the ``init`` of the blocks inside, run for all of their
spatial axes. With that, the order of loops doesn't change what a program means.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from tilewright.arith import conjuncts, simplify
from tilewright.ir import TRUE, Expr, Var, and_, as_int, is_const, or_, substitute, uses_var
from tilewright.tir.analysis.regions import block_access_regions
from tilewright.tir.rewrite import fresh_name, renew_definitions
from tilewright.tir.stmt import (
    NO_OP,
    REDUCE,
    AttrStmt,
    Block,
    BlockRealize,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.walk import child_blocks, statements


def may_be_empty(loop: For) -> bool:
    """Whether a loop is not known to have an iteration."""
    extent = as_int(loop.extent)
    return loop.thread is None and (extent is None or extent <= 0)


def initial_values(loop: For, taken: set[str]) -> Stmt | None:
    """Return what a loop does if it has no iterations, ``None`` if that is nothing.

    ``taken`` are names that blocks have already; those of the new ones are added.
    """
    if not _has_inits(loop):
        return None
    first = {loop.loop_var: loop.min}
    made = _Initial(taken).visit(loop.body, frozenset(first), first)
    return None if made is None else renew_definitions(made)


def begun_by_nothing(loop: For) -> frozenset[str]:
    """Return the names of the blocks whose ``init`` a loop runs if it has no iterations."""
    if not _has_inits(loop):
        return frozenset()
    first = {loop.loop_var: loop.min}
    made = _Initial(set())
    made.visit(loop.body, frozenset(first), first)
    return frozenset(made.begun)


def _has_inits(loop: For) -> bool:
    return any(type(item) is Block and item.init is not None for item in statements(loop))


class _Initial:
    """Keeps inits of statements, and the loops and branches around that they need.

    ``root`` are the variables that stand for the loop without iterations. ``first`` are those that
    have no value, they and the variables of other loops that only reduce, with the value that they
    would begin with: where an outer loop has begun its reduction already, there is no ``init``.
    """

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.begun: set[str] = set()  # names of the blocks whose init was kept
        self.hidden: frozenset[int] = frozenset()  # blocks, by identity, that are left out

    def visit(self, stmt: Stmt, root: frozenset[Var], first: Mapping[Var, Expr]) -> Stmt | None:
        if isinstance(stmt, SeqStmt):
            parts = [self.visit(item, root, first) for item in stmt.stmts]
            kept = [part for part in parts if part is not None]
            return seq(*kept) if kept else None
        if isinstance(stmt, For):
            return self.loop(stmt, root, first)
        if isinstance(stmt, BlockRealize):
            return self.realize(stmt, root, first)
        if isinstance(stmt, (IfThenElse, LetStmt, AttrStmt)):
            return self.around(stmt, root, first)
        return None

    def loop(self, loop: For, root: frozenset[Var], first: Mapping[Var, Expr]) -> Stmt | None:
        driven = driven_by(loop)
        reducing = {block for block, kinds in driven.items() if kinds == {True}}
        start = substitute(loop.min, first)
        within = {**first, loop.loop_var: start}
        if only_reduces(loop):
            return self.visit(loop.body, root, within)
        # It drives axes of others too: what it reduces begins before it.
        others = driven.keys() - reducing
        parts = [self.visit_without(others, loop.body, root, within)] if reducing else []
        if not any(uses_var(e, first) for e in (loop.min, loop.extent)):
            body = self.visit_without(reducing, loop.body, root, first)
            parts.append(None if body is None else loop.replace(body=body))
        kept = [part for part in parts if part is not None]
        return seq(*kept) if kept else None

    def visit_without(
        self, hidden: Set[int], stmt: Stmt, root: frozenset[Var], first: Mapping[Var, Expr]
    ) -> Stmt | None:
        before, self.hidden = self.hidden, self.hidden | hidden
        made = self.visit(stmt, root, first)
        self.hidden = before
        return made

    def around(
        self, stmt: AttrStmt | IfThenElse | LetStmt, root: frozenset[Var], first: Mapping[Var, Expr]
    ) -> Stmt | None:
        if uses_var(stmt.condition if isinstance(stmt, IfThenElse) else stmt.value, first):
            return None
        if not isinstance(stmt, IfThenElse):
            body = self.visit(stmt.body, root, first)
            return None if body is None else stmt.replace(body=body)
        then_case = self.visit(stmt.then_case, root, first)
        other = None if stmt.else_case is None else self.visit(stmt.else_case, root, first)
        if then_case is None and other is None:
            return None
        return stmt.replace(then_case=NO_OP if then_case is None else then_case, else_case=other)

    def realize(
        self, realize: BlockRealize, root: frozenset[Var], first: Mapping[Var, Expr]
    ) -> Stmt | None:
        block = realize.block
        if id(block) in self.hidden:
            return None
        pairs = list(zip(block.iter_vars, realize.iter_values))
        if any(item.kind != REDUCE and uses_var(value, first) for item, value in pairs):
            return None  # an axis without elements
        reduced = {item.var for item, value in pairs if uses_var(value, root.__contains__)}
        body: Stmt | None
        if block.init is None:
            inner = {v.var: substitute(x, first) for v, x in pairs if uses_var(x, first)}
            body = self.visit(block.body, root | reduced, {**first, **inner})
            return None if body is None else self.kept(realize, body, inner, first, TRUE)
        if not reduced:
            return None
        starts = {item: substitute(x, first) for item, x in pairs if item.kind == REDUCE}
        begins = and_(*(_begins(item, start) for item, start in starts.items()))
        found = self.kept(realize, block.init, {item.var for item in starts}, first, begins)
        if found is not None:
            self.begun.add(block.name)
        return found

    def kept(
        self,
        realize: BlockRealize,
        body: Stmt,
        gone: Collection[Var],
        first: Mapping[Var, Expr],
        begins: Expr,
    ) -> Stmt | None:
        """Give a block another body, and only those axes that have values."""
        block = realize.block
        if is_const(begins, 0) or any(uses_var(m, gone.__contains__) for m in block.match_buffers):
            return None
        pairs = [p for p in zip(block.iter_vars, realize.iter_values) if p[0].var not in gone]
        made = block.replace(
            iter_vars=tuple(item for item, _ in pairs),
            name=fresh_name(f"{block.name}_init", self.taken),
            init=None,
            body=body,
            annotations={},
        )
        reads, writes = block_access_regions(made)
        holds = [part for part in conjuncts(realize.predicate) if not uses_var(part, first)]
        return realize.replace(
            iter_values=tuple(value for _, value in pairs),
            predicate=and_(*holds, begins),
            block=made.replace(reads=tuple(reads), writes=tuple(writes)),
        )


def _begins(axis: IterVar, start: Expr) -> Expr:
    """Whether a reduction is at its start: always, where its axis has no values at all."""
    at_start = simplify(start == axis.dom.min)
    return at_start if is_const(at_start, 1) else simplify(or_(at_start, axis.dom.extent <= 0))


def driven_by(loop: For) -> dict[int, set[bool]]:
    """Say of each outermost block, by identity, whether the axes that a loop drives reduce."""
    return {
        id(realize.block): {
            item.kind == REDUCE
            for item, value in zip(realize.block.iter_vars, realize.iter_values)
            if uses_var(value, {loop.loop_var})
        }
        for realize in child_blocks(loop.body)
    }


def only_reduces(loop: For) -> bool:
    """Whether a loop drives axes of reductions, and no others."""
    kinds = {
        item.kind == REDUCE
        for realize in statements(loop)
        if type(realize) is BlockRealize
        for item, value in zip(realize.block.iter_vars, realize.iter_values)
        if uses_var(value, {loop.loop_var})
    }
    return kinds == {True}
