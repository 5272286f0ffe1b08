"""The position of a block or loop in the program: what is around, inside and beside it.

An ``StmtSRef`` is a view of one version of a function. Programs are persistent, so it still
describes that version after primitives have made another; get a new sref for the new one.
"""

from __future__ import annotations

from typing import Any

from tilewright.tir import Block, BlockRealize, For, SeqStmt, Stmt
from tilewright.tir.schedule.function_index import FunctionIndex


class StmtSRef:
    """A loop or block of one version of a function. Read-only; equal if the statement is."""

    __slots__ = ("_index", "func_name", "stmt")

    stmt: For | Block
    """The loop or block; ``None`` for marks."""
    func_name: str
    """The name of the function."""

    def __init__(self, index: FunctionIndex, func_name: str, stmt: For | Block) -> None:
        self._index = index
        self.func_name = func_name
        self.stmt = stmt

    @staticmethod
    def inline_mark() -> StmtSRef:
        """The sref that stands for "inline the block" as a place to compute it at."""
        return _INLINE

    @staticmethod
    def root_mark() -> StmtSRef:
        """The sref that stands for "outside of all loops" as a place to compute a block at."""
        return _ROOT

    @property
    def parent(self) -> StmtSRef | None:
        """The loop or block around it; ``None`` for the root block, and for marks."""
        if self.stmt is None:
            return None
        current = self._index.parents[self.stmt]
        while current is not None and not isinstance(current, (For, Block)):
            current = self._index.parents[current]
        return None if current is None else StmtSRef(self._index, self.func_name, current)

    @property
    def children(self) -> list[StmtSRef]:
        """The loops and blocks directly inside it, in program order; those of ``init`` last."""
        if self.stmt is None:
            return []
        bodies: list[Stmt] = [self.stmt.body]
        if isinstance(self.stmt, Block) and self.stmt.init is not None:
            bodies.append(self.stmt.init)
        return [
            StmtSRef(self._index, self.func_name, found)
            for body in bodies
            for found in _outermost(body)
        ]

    @property
    def siblings(self) -> list[StmtSRef]:
        """The other loops and blocks directly inside its parent, in program order."""
        parent = self.parent
        return [] if parent is None else [item for item in parent.children if item != self]

    @property
    def seq_index(self) -> int:
        """Its index in the ``SeqStmt`` that contains it; -1 if there is none."""
        item: Any = self.stmt
        if item is None:
            return -1
        parent = self._index.parents[item]
        if isinstance(parent, BlockRealize):
            item, parent = parent, self._index.parents[parent]
        if not isinstance(parent, SeqStmt):
            return -1
        return next(n for n, other in enumerate(parent.stmts) if other is item)

    @property
    def realize(self) -> BlockRealize | None:
        """The realize of a block; ``None`` for a loop."""
        return self._index.parents[self.stmt] if isinstance(self.stmt, Block) else None

    def __eq__(self, other: object) -> bool:
        if self.stmt is None or not isinstance(other, StmtSRef):
            return self is other
        return self.stmt is other.stmt

    def __hash__(self) -> int:
        return hash((self.func_name, self.stmt))

    def __repr__(self) -> str:
        stmt = self.stmt
        if stmt is None:
            return f"StmtSRef({self.func_name})"
        inner = stmt.name if isinstance(stmt, Block) else f"for {stmt.loop_var.name}"
        return f"StmtSRef({self.func_name}: {inner})"


_NOWHERE: Any = None
_INLINE = StmtSRef(_NOWHERE, "inline", _NOWHERE)
_ROOT = StmtSRef(_NOWHERE, "root", _NOWHERE)


def _outermost(body: Stmt) -> list[For | Block]:
    """The outermost loops and blocks below a statement."""
    found: list[For | Block] = []
    stack = [body]
    while stack:
        item = stack.pop()
        if isinstance(item, For):
            found.append(item)
        elif isinstance(item, BlockRealize):
            found.append(item.block)
        else:
            stack.extend(reversed([part for part in item.child_nodes() if isinstance(part, Stmt)]))
    return found
