"""The core of evaluating script: dispatch by syntax, steps that are paid for, errors that point."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from tilewright.ir import Expr, as_expr
from tilewright.script.diagnostics import ScriptError, Source
from tilewright.script.printer import is_printable
from tilewright.script.scope import Scope
from tilewright.support.errors import TilewrightError

Method = Callable[[Any, Any], Any]
"""A method of an evaluator and the syntax that it takes."""


class Evaluation:
    """Evaluates ``ast`` expressions in a scope by the methods that ``METHODS`` has for syntax."""

    METHODS: ClassVar[Mapping[type, Method]] = {}

    def __init__(self, source: Source, scope: Scope) -> None:
        self.source = source
        self.scope = scope

    def fail(self, node: ast.AST, message: str, cause: BaseException | None = None) -> Any:
        """Raise a ``ParseError`` that points at ``node``."""
        self.source.fail(node, message, cause)

    def check_parameters(self, given: ast.arguments) -> None:
        """Refuse two parameters of one name, as Python does when it compiles a function."""
        seen: set[str] = set()
        for item in given.args:
            if item.arg in seen:
                self.fail(item, f"two parameters are named {item.arg!r}")
            seen.add(item.arg)

    def guard(
        self, node: ast.AST, function: Callable[..., object], /, *args: object, **kwargs: object
    ) -> Any:
        """Call a function; what it raises becomes a ``ParseError`` that points at ``node``."""
        try:
            return function(*args, **kwargs)
        except (ScriptError, RecursionError):
            raise
        except TilewrightError as error:
            self.fail(node, error.message, error)
        except Exception as error:
            # User code may raise anything; the cause is chained.
            self.fail(node, f"{type(error).__name__}: {error}", error)

    def guarded_statement(self, node: ast.AST, read: Callable[..., object], *before: object) -> Any:
        """Let ``read(*before, node)`` read a statement; whatever it raises points at that."""
        try:
            if self.scope.budget is not None:
                self.scope.budget.spend()
            return read(*before, node)
        except ScriptError:
            raise
        except RecursionError as error:
            self.fail(node, "the program is nested too deeply", error)
        except TilewrightError as error:
            self.fail(node, error.message, error)
        except Exception as error:
            # What a dialect's functions make of odd values is known only when they meet them.
            self.fail(node, f"{type(error).__name__}: {error}", error)

    def eval(self, node: ast.expr) -> Any:
        """Return the value of an expression: an IR node, a declaration or a Python value."""
        method: Method = self.METHODS.get(type(node), Evaluation._unsupported)
        budget = self.scope.budget
        try:
            if budget is None:
                return method(self, node)
            budget.spend()
            value = method(self, node)
            budget.admit(value)
            return value
        except ScriptError:
            raise
        except RecursionError as error:
            # The innermost frame with enough room left makes the error.
            self.fail(node, "the expression is nested too deeply", error)
        except TilewrightError as error:
            self.fail(node, error.message, error)

    def eval_expr(self, node: ast.expr) -> Expr:
        """Return the value as an IR expression."""
        value = self.eval(node)
        if isinstance(value, Expr):
            return value
        made: Expr = self.guard(node, as_expr, value)
        return made

    def parse_text(self, node: ast.AST, text: str) -> ast.expr:
        """Return the expression that a string of the program holds; reading it has its price."""
        if self.scope.budget is not None:
            self.guard(node, self.scope.budget.spend, len(text))
        return self.source.parse_expression(node, text)

    def _unsupported(self, node: ast.expr) -> Any:
        return self.fail(node, f"{type(node).__name__} has no meaning in script")

    def iterate(self, node: ast.AST, value: object) -> Iterable[Any]:
        """Return the items of a value that a program iterates over."""
        if self.scope.budget is not None:
            value = self.guard(node, self.scope.budget.members_of, value)
        made: Iterable[Any] = self.guard(node, iter, value)
        return made

    def add_attributes(
        self, node: ast.AST, attrs: dict[str, object], added: Mapping[str, object]
    ) -> None:
        """Add attributes that a statement states; each may be stated once."""
        for name, value in added.items():
            if not isinstance(name, str):
                self.fail(node, f"the name of an attribute is text, got {name!r}")
            if name in attrs:
                self.fail(node, f"the attribute {name!r} is given twice")
            if not is_printable(value):
                self.fail(node, f"the attribute {name!r} can't hold {value!r}")
            attrs[name] = value
