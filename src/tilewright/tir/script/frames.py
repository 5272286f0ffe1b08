"""What the parser keeps while it reads a function: blocks so far, macros, parts of suites."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir import (
    Expr,
    Var,
)
from tilewright.script.allowance import Budget, Decorator
from tilewright.script.diagnostics import Source
from tilewright.script.parser import captured_by, function_source
from tilewright.script.scope import Scope
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer, BufferRegion
from tilewright.tir.script import declarations as decl
from tilewright.tir.stmt import (
    NO_OP,
    IterVar,
    MatchBufferRegion,
    SeqStmt,
    Stmt,
)


@dataclass
class Rest:
    """A statement whose body is the rest of the suite."""

    build: Callable[[Stmt], Stmt]


@dataclass
class BlockFrame:
    """What has been said about a block so far; the function's frame stands for the root block."""

    declaration: decl.BlockDecl | None = None
    iter_vars: list[IterVar] = field(default_factory=list)
    values: list[Expr | None] = field(default_factory=list)
    predicate: Expr | None = None
    reads: tuple[BufferRegion, ...] | None = None
    writes: tuple[BufferRegion, ...] | None = None
    annotations: dict[str, Any] = field(default_factory=dict)
    allocations: list[Buffer] = field(default_factory=list)
    matches: list[MatchBufferRegion] = field(default_factory=list)
    init: Stmt | None = None


@dataclass
class FunctionFrame:
    """What belongs to the function: parameters, attributes, lines of blocks by their names.

    ``copies_of`` says how many names have been made of one, for blocks that are copied.
    """

    params: list[Var] = field(default_factory=list)
    buffer_map: dict[Var, Buffer] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    blocks: dict[str, int] = field(default_factory=dict)
    copies_of: dict[str, int] = field(default_factory=dict)


class Macro:
    """A piece of program that is parsed where it is called: ``@T.macro``.

    Its names are its own; with ``hygienic=False`` it also sees those of its caller. ``budget`` is
    that of the text which defines it: the body may do what this text may, whoever calls it.
    """

    def __init__(
        self,
        source: Source,
        node: ast.FunctionDef,
        captured: Mapping[str, Any],
        hygienic: bool,
        budget: Budget | None = None,
    ) -> None:
        given = node.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs:
            source.fail(node, "a macro takes plain parameters")
        self.source = source
        self.node = node
        self.captured = captured
        self.hygienic = hygienic
        self.budget = budget

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise VerifyError(
            f"macro {self.node.name!r} is a statement of its own inside @T.prim_func, "
            "and gives no value"
        )


class MacroDecorator(Decorator):
    """``@T.macro``."""

    def __init__(self, hygienic: bool = True) -> None:
        self.hygienic = hygienic

    def __call__(self, function: Any = None, /, *, hygienic: bool = True) -> Any:
        """Decorate a Python function."""
        if function is None:
            return MacroDecorator(hygienic)
        source, node = function_source(function)
        return Macro(source, node, captured_by(function, 2), self.hygienic)

    def define_from_ast(self, source: Source, node: ast.FunctionDef, scope: Scope) -> Macro:
        """Make a macro of a definition in script text."""
        return Macro(source, node, scope.flatten(), self.hygienic, scope.budget)


macro = MacroDecorator()


def set_name(symbol: Any, name: str) -> None:
    """Give a new variable or buffer the name that it is assigned to."""
    object.__setattr__(symbol, "name", name)
    if isinstance(symbol, Buffer) and not symbol.data.name:
        object.__setattr__(symbol.data, "name", name)


def join(stmts: list[Stmt]) -> Stmt:
    """Make one statement of a suite's, as they stand."""
    if len(stmts) == 1:
        return stmts[0]
    return SeqStmt(tuple(stmts)) if stmts else NO_OP


def flatten(stmts: list[Stmt]) -> list[Stmt]:
    """Splice sequences and drop no-ops, for code that was copied into place."""
    made: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, SeqStmt):
            made.extend(stmt.stmts)
        elif stmt is not NO_OP:
            made.append(stmt)
    return made
