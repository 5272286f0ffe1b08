"""The positions of a function's statements, found in one walk."""

from __future__ import annotations

from typing import Any

from tilewright.ir import Var
from tilewright.tir import (
    Allocate,
    AttrStmt,
    BlockRealize,
    DeclBuffer,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    While,
)

_WITH_BODY = (LetStmt, AttrStmt, Allocate, DeclBuffer, While)


class FunctionIndex:
    """The positions of one function's statements. Never changed once built.

    ``parents`` maps each statement to the one around it (a block's parent is its realize; ``None``
    for the body). ``loops`` and ``blocks`` are in program order. ``cache`` keeps the results of
    analyses of this version of the function.
    """

    __slots__ = ("blocks", "cache", "func", "loops", "parents")

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.cache: dict[Any, Any] = {}
        parents: dict[Any, Any] = {}
        loops: dict[Var, For] = {}
        blocks: dict[str, BlockRealize] = {}
        stack: list[tuple[Any, Any]] = [(func.body, None)]
        pop, push = stack.pop, stack.append
        while stack:
            stmt, parent = pop()
            parents[stmt] = parent
            kind = type(stmt)
            if kind is For:
                loops[stmt.loop_var] = stmt
                push((stmt.body, stmt))
            elif kind is BlockRealize:
                block = stmt.block
                blocks[block.name] = stmt
                parents[block] = stmt
                push((block.body, block))
                if block.init is not None:
                    push((block.init, block))
            elif kind is SeqStmt:
                stack.extend([(item, stmt) for item in reversed(stmt.stmts)])
            elif kind is IfThenElse:
                if stmt.else_case is not None:
                    push((stmt.else_case, stmt))
                push((stmt.then_case, stmt))
            elif kind in _WITH_BODY:
                push((stmt.body, stmt))
        self.parents = parents
        self.loops = loops
        self.blocks = blocks
