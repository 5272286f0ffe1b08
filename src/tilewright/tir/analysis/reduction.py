"""Recognising reductions: which registered reducer a block's init and update follow.

``rfactor`` needs to know, as does whoever combines partial results of threads. A block reduces by a
reducer if its update is ``C[i] = combine(C[i], value)`` for the reducer's ``combine``, in either
order of commutative operands. Tuples such as (index, value) of ``argmax`` are matched as a whole:
several stores to one place of several buffers, all values computed before the first store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations
from typing import Any

from tilewright.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Expr,
    Max,
    Min,
    Mul,
    Node,
    Or,
    Var,
    expr_equal,
    pre_order,
    substitute,
)
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.reducer import CommReducer, known_reducers
from tilewright.tir.stmt import Block, BufferStore, LetStmt, SeqStmt, Stmt
from tilewright.tir.walk import loads_of

_LONGEST = 4096
"""Nodes of a statement that is still compared with others."""


@dataclass(frozen=True)
class Reduction:
    """A block's update as ``targets[indices] = reducer(targets[indices], values)``.

    ``initial`` is what the block's init stores, empty if it has none. The order of the tuple is the
    reducer's, whatever the order of the stores.
    """

    reducer: CommReducer
    name: str
    targets: tuple[Buffer, ...]
    indices: tuple[Expr, ...]
    values: tuple[Expr, ...]
    initial: tuple[Expr, ...]


def match_reduction(block: Block) -> Reduction | None:
    """Recognise a registered reducer in a block's init and update, or return ``None``."""
    if block.init is None:
        return None
    found = match_update(block)
    initials = simultaneous_stores(block.init)
    if found is None or initials is None or len(initials) != len(found.targets):
        return None
    by_buffer = {store.buffer: store for store in initials}
    for buffer in found.targets:
        other = by_buffer.get(buffer)
        if other is None or not _same_indices(other.indices, found.indices):
            return None
    return replace(found, initial=tuple(by_buffer[buffer].value for buffer in found.targets))


def match_update(block: Block) -> Reduction | None:
    """Recognise a registered reducer in a block's update, whether or not it has an init."""
    return match_stores(block.body)


def match_stores(stmt: Stmt) -> Reduction | None:
    """Recognise a registered reducer in stores that all see the state before the first."""
    updates = simultaneous_stores(stmt)
    if not updates:
        return None
    indices = updates[0].indices
    buffers = {store.buffer for store in updates}
    if len(buffers) != len(updates):
        return None
    if not all(_same_indices(store.indices, indices) for store in updates):
        return None
    for order in permutations(updates):
        for name, reducer in known_reducers(*(store.buffer.dtype for store in order)):
            values = _match_combine(reducer, order, indices)
            if values is not None:
                targets = tuple(store.buffer for store in order)
                return Reduction(reducer, name, targets, indices, values, ())
    return None


def simultaneous_stores(stmt: Stmt) -> list[BufferStore] | None:
    """Return stores whose values all see the state before the first; ``None`` for anything else.

    Variables of ``LetStmt``s around them are replaced by their values. Also ``None`` where that
    makes them longer than anybody writes.
    """
    lets: dict[Var, Expr] = {}
    while isinstance(stmt, LetStmt):
        lets[stmt.var] = substitute(stmt.value, lets)
        stmt = stmt.body
    items = stmt.stmts if isinstance(stmt, SeqStmt) else (stmt,)
    stores: list[BufferStore] = []
    for item in items:
        if not isinstance(item, BufferStore):
            return None
        parts = (item.value, *item.indices)
        if any(loads_of(part, earlier.buffer) for part in parts for earlier in stores):
            return None
        stores.append(item)
    spelled_out = [substitute(store, lets) for store in stores]
    if lets and any(map(too_long, spelled_out)):
        return None
    return spelled_out


def too_long(node: Node) -> bool:
    """Whether a statement whose names were put in their places is too long to compare with others.

    Each name that is used twice doubles it.
    """
    return next(islice(pre_order(node), _LONGEST, None), None) is not None


def _same_indices(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return len(a) == len(b) and all(x is y or expr_equal(x, y) for x, y in zip(a, b))


_COMMUTATIVE = (Add, Mul, Min, Max, And, Or, EQ, NE)
_MIRRORED = {LT: GT, GT: LT, LE: GE, GE: LE}
_COMMUTATIVE_CALLS = {"bitwise_and", "bitwise_or", "bitwise_xor"}

Found = dict[Var, Expr]


class _Combination:
    """Matches expressions with a reducer's result; all ways of doing so, one after the other."""

    def __init__(
        self, reducer: CommReducer, stores: Sequence[BufferStore], indices: Sequence[Expr]
    ) -> None:
        self.left = {var: store.buffer for var, store in zip(reducer.lhs, stores)}
        self.right = set(reducer.rhs)
        self.indices = indices

    def match(self, pattern: Any, expr: Any, found: Found) -> Iterator[Found]:
        if type(pattern) is Var and pattern in self.left:
            if (
                isinstance(expr, BufferLoad)
                and expr.buffer is self.left[pattern]
                and _same_indices(expr.indices, self.indices)
            ):
                yield found
            return
        if type(pattern) is Var and pattern in self.right:
            known = found.get(pattern)
            if known is not None:
                if expr_equal(known, expr):
                    yield found
            elif not any(loads_of(expr, buffer) for buffer in self.left.values()):
                yield {**found, pattern: expr}
            return
        mirrored = _MIRRORED.get(type(expr))
        if mirrored is not None and mirrored is type(pattern):
            yield from self.match_all((pattern.b, pattern.a), (expr.a, expr.b), found)
            return
        if type(pattern) is not type(expr) or pattern.dtype != expr.dtype:
            return
        ours, theirs = pattern.child_nodes(), expr.child_nodes()
        if not ours:
            if expr_equal(pattern, expr):
                yield found
            return
        operator = getattr(pattern, "op", None)
        if operator is not getattr(expr, "op", None):
            return
        yield from self.match_all(ours, theirs, found)
        if isinstance(pattern, _COMMUTATIVE) or (
            operator is not None and operator.name in _COMMUTATIVE_CALLS
        ):
            yield from self.match_all(ours, theirs[::-1], found)

    def match_all(
        self, patterns: Sequence[object], exprs: Sequence[object], found: Found
    ) -> Iterator[Found]:
        if len(patterns) != len(exprs):
            return
        if not patterns:
            yield found
            return
        for made in self.match(patterns[0], exprs[0], found):
            yield from self.match_all(patterns[1:], exprs[1:], made)


def _match_combine(
    reducer: CommReducer, stores: Sequence[BufferStore], indices: Sequence[Expr]
) -> tuple[Expr, ...] | None:
    """Match stored values with the reducer's result; return what its right side stands for."""
    matcher = _Combination(reducer, stores, indices)
    for found in matcher.match_all(reducer.result, [store.value for store in stores], {}):
        if all(var in found for var in reducer.rhs):
            return tuple(found[var] for var in reducer.rhs)
    return None
