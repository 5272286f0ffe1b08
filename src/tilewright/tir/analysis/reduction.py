"""Recognising reductions: which registered reducer a block's init and update follow.

``rfactor`` needs to know, as do rules that look for sums or maxima. A block reduces by a reducer
if its update is ``C[i] = combine(C[i], value)`` for the reducer's ``combine``, in either order of
commutative operands. Pairs such as (index, value) of ``argmax`` are matched as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from tilewright.ir import (
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
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.reducer import REDUCERS, CommReducer
from tilewright.tir.stmt import Block, BufferStore, LetStmt, SeqStmt, Stmt


@dataclass(frozen=True)
class Reduction:
    """A block's update as ``targets[indices] = reducer(targets[indices], values)``."""

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
    updates, initials = _simultaneous_stores(block.body), _simultaneous_stores(block.init)
    if not updates or initials is None or len(updates) != len(initials):
        return None
    by_buffer = {store.buffer: store for store in initials}
    indices = updates[0].indices
    for store in updates:
        other = by_buffer.get(store.buffer)
        if other is None or not _same_indices(store.indices, indices):
            return None
        if not _same_indices(other.indices, indices):
            return None
    orders = permutations(updates) if len(updates) <= 3 else [tuple(updates)]
    for order in orders:
        for name, factory in REDUCERS.items():
            try:
                reducer = factory(*(store.buffer.dtype for store in order))
            except (TypeError, VerifyError):
                continue  # a reducer of tuples of another length, or not for these dtypes
            if len(reducer.lhs) != len(order):
                continue
            values = _match_combine(reducer, order, indices)
            if values is not None:
                targets = tuple(store.buffer for store in order)
                initial = tuple(by_buffer[buffer].value for buffer in targets)
                return Reduction(reducer, name, targets, indices, values, initial)
    return None


def _simultaneous_stores(stmt: Stmt) -> list[BufferStore] | None:
    """Return stores whose values all see the state before the first; ``None`` for anything else."""
    lets: dict[Var, Expr] = {}
    while isinstance(stmt, LetStmt):
        lets[stmt.var] = substitute(stmt.value, lets)
        stmt = stmt.body
    items = stmt.stmts if isinstance(stmt, SeqStmt) else (stmt,)
    stores: list[BufferStore] = []
    for item in items:
        if not isinstance(item, BufferStore):
            return None
        if any(_loads_of(item.value, earlier.buffer) for earlier in stores):
            return None
        stores.append(item)
    return [substitute(store, lets) for store in stores]


def _same_indices(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return len(a) == len(b) and all(x is y or expr_equal(x, y) for x, y in zip(a, b))


_COMMUTATIVE = (Add, Mul, Min, Max, And, Or)


def _match_combine(
    reducer: CommReducer, stores: Sequence[BufferStore], indices: Sequence[Expr]
) -> tuple[Expr, ...] | None:
    """Match stored values with the reducer's result; return what its right side stands for."""
    left = {var: store.buffer for var, store in zip(reducer.lhs, stores)}
    right = set(reducer.rhs)

    def match(pattern: Any, expr: Any, found: dict[Var, Expr]) -> dict[Var, Expr] | None:
        if type(pattern) is Var:
            if pattern in left:
                same = (
                    isinstance(expr, BufferLoad)
                    and expr.buffer is left[pattern]
                    and _same_indices(expr.indices, indices)
                )
                return found if same else None
            if pattern in right:
                known = found.get(pattern)
                if known is None:
                    return {**found, pattern: expr}
                return found if expr_equal(known, expr) else None
        if type(pattern) is not type(expr) or pattern.dtype != expr.dtype:
            return None
        ours, theirs = pattern.child_nodes(), expr.child_nodes()
        if not ours:
            return found if expr_equal(pattern, expr) else None
        if getattr(pattern, "op", None) is not getattr(expr, "op", None):
            return None
        made = match_all(ours, theirs, found)
        if made is None and isinstance(pattern, _COMMUTATIVE):
            made = match_all(ours, theirs[::-1], found)
        return made

    def match_all(
        patterns: Sequence[Any], exprs: Sequence[Any], found: dict[Var, Expr]
    ) -> dict[Var, Expr] | None:
        if len(patterns) != len(exprs):
            return None
        current: dict[Var, Expr] | None = found
        for pattern, expr in zip(patterns, exprs):
            current = match(pattern, expr, current or {})
            if current is None:
                return None
        return current

    bound: dict[Var, Expr] | None = {}
    for pattern, store in zip(reducer.result, stores):
        bound = match(pattern, store.value, bound or {})
        if bound is None:
            return None
    assert bound is not None
    if any(var not in bound for var in reducer.rhs):
        return None
    values = tuple(bound[var] for var in reducer.rhs)
    if any(_loads_of(value, store.buffer) for value in values for store in stores):
        return None
    return values


def _loads_of(node: Node, buffer: Buffer) -> list[BufferLoad]:
    return [
        item for item in pre_order(node) if isinstance(item, BufferLoad) and item.buffer is buffer
    ]
