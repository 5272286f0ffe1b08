"""What the parser keeps while it reads a function: blocks so far, macros, parts of suites."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
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
    loops: int = 0
    """How many of its loops are open."""


@dataclass
class FunctionFrame:
    """What belongs to the function: parameters, attributes, lines of blocks by their names.

    ``copies_of`` says how many names have been made of one, for blocks that are copied.
    """

    params: list[Var] = field(default_factory=list)
    buffer_map: dict[Var, Buffer] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    ret_dtype: str = "void"
    blocks: dict[str, int] = field(default_factory=dict)
    copies_of: dict[str, int] = field(default_factory=dict)


class Macro:
    """Statements that are parsed where they are called: ``@T.macro``, ``@R.macro``.

    Its names are its own; with ``hygienic=False`` it also sees those of its caller. As a method it
    takes its object first, as Python's methods do. ``budget`` is that of the text which defines it:
    the body may do what this text may, whoever calls it.
    """

    def __init__(
        self,
        definition: Callable[[], tuple[Source, ast.FunctionDef]],
        captured: Mapping[str, object],
        hygienic: bool,
        budget: Budget | None = None,
        first: tuple[object, ...] = (),
    ) -> None:
        self.definition = definition
        self.captured = captured
        self.hygienic = hygienic
        self.budget = budget
        self.first = first

    @property
    def source(self) -> Source:
        """The text that it stands in."""
        return self.definition()[0]

    @property
    def node(self) -> ast.FunctionDef:
        """Its definition."""
        return self.definition()[1]

    @property
    def parameters(self) -> list[str]:
        """The names of its parameters."""
        return [item.arg for item in self.node.args.args]

    @property
    def defaults(self) -> dict[str, ast.expr]:
        """The parameters that need no argument, and their values."""
        values = self.node.args.defaults
        return dict(zip(self.parameters[len(self.parameters) - len(values) :], values))

    def bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of each parameter that arguments give; raises ``VerifyError``."""
        known, args = self.parameters, [*self.first, *args]
        name = f"macro {self.node.name!r}"
        if len(args) > len(known):
            raise VerifyError(f"{name} takes {len(known)} arguments")
        values = dict(zip(known, args))
        for item in named:
            if item not in known or item in values:
                raise VerifyError(f"{name} can't take {item!r}")
        values.update(named)
        for item in known:
            if item not in values and item not in self.defaults:
                raise VerifyError(f"{name} needs the argument {item!r}")
        return values

    def __get__(self, instance: object, owner: type | None = None) -> Macro:
        if instance is None:
            return self
        return Macro(self.definition, self.captured, self.hygienic, self.budget, (instance,))

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise VerifyError(
            f"macro {self.node.name!r} is a statement of its own inside @T.prim_func, "
            "and gives no value; in @R.function it gives what it returns"
        )


class MacroDecorator(Decorator):
    """``@T.macro``."""

    def __init__(self, hygienic: bool = True) -> None:
        self.hygienic = hygienic

    def __call__(self, *args: Any, hygienic: bool = True) -> Any:
        """Decorate a Python function, whose source is read when it is called first."""
        if not args:
            return MacroDecorator(hygienic)
        if len(args) > 1 or not callable(args[0]):
            raise ValueError("a macro is one function: @T.macro, or @T.macro(hygienic=False)")
        function = args[0]
        frame = sys._getframe(1)
        if "<locals>" in function.__qualname__:
            captured: Mapping[str, object] = captured_by(function, 2)
        else:
            captured = frame.f_globals  # as it will be: macros may follow that it calls
        return Macro(cache(partial(_definition_of, function)), captured, self.hygienic)

    def define_from_ast(self, source: Source, node: ast.FunctionDef, scope: Scope) -> Macro:
        """Make a macro of a definition in script text."""
        _check_parameters(source, node)
        return Macro(lambda: (source, node), scope.flatten(), self.hygienic, scope.budget)


def _definition_of(function: object) -> tuple[Source, ast.FunctionDef]:
    source, node = function_source(function)
    _check_parameters(source, node)
    return source, node


def _check_parameters(source: Source, node: ast.FunctionDef) -> None:
    given = node.args
    if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs:
        source.fail(node, "a macro takes parameters by position, without defaults")


macro = MacroDecorator()


def set_name(symbol: Var | Buffer, name: str) -> None:
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
