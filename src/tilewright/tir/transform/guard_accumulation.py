"""Skip the steps of a register tile's reduction that add nothing.

A sum over some of its steps (``te.sum(..., where=...)``) comes as ``acc = acc + (c ? x : 0)``. In a
tile whose loops are unrolled or vectorized the condition would be met at each element; where it is
the same for the whole tile, one test around the tile's step does, and the arithmetic of the steps
that are left out is saved: ``if c: for tile: acc = acc + x``. Runs when loops have been cut, which
such a test is no reason for.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import (
    Add,
    Call,
    Expr,
    contains,
    expr_equal,
    is_const,
    uses_var,
)
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import UNROLLED, VECTORIZED, BufferStore, For, IfThenElse, Stmt
from tilewright.tir.transform.base import FunctionTransform, StmtMutator

_TILE = (UNROLLED, VECTORIZED)
_has_call = contains(Call)


class GuardAccumulation(FunctionTransform):
    """Put conditions of what is added around the loops of a register tile."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Guard().visit) if _has_call(func.body) else func


class _Guard(StmtMutator):
    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return node

    def visit_For(self, node: For) -> Any:
        chain = [node]
        while type(chain[-1].body) is For:
            chain.append(chain[-1].body)
        start = len(chain)
        while start and chain[start - 1].kind in _TILE:
            start -= 1
        found = _conditional_term(chain[-1].body) if start < len(chain) else None
        if found is None:
            return self.generic_visit(node)
        condition, store = found
        # Loops of the tile over which the condition changes stay outside of it.
        while start < len(chain) and any(
            uses_var(condition, {loop.loop_var}) for loop in chain[start:]
        ):
            start += 1
        if start == len(chain):
            return node
        made: Any = store
        for loop in reversed(chain[start:]):
            made = loop.replace(body=made)
        made = IfThenElse(condition, made)
        for loop in reversed(chain[:start]):
            made = loop.replace(body=made)
        return made


def _conditional_term(stmt: Stmt) -> tuple[Expr, BufferStore] | None:
    """The condition of ``local = local + (c ? x : 0)``, and the store without it."""
    if type(stmt) is not BufferStore or stmt.buffer.scope != "local":
        return None
    value = stmt.value
    if type(value) is not Add:
        return None
    old, term = value.a, value.b  # type: ignore[attr-defined]
    if not isinstance(old, BufferLoad) or old.buffer is not stmt.buffer:
        return None
    if not all(expr_equal(a, b) for a, b in zip(old.indices, stmt.indices)):
        return None
    if not (isinstance(term, Call) and term.op.name == "if_then_else"):
        return None
    condition, kept, other = term.args
    if not is_const(other, 0):
        return None
    return condition, stmt.replace(value=value.replace(b=kept))
