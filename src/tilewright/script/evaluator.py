"""Evaluates the expressions of script text: the part that all dialects share.

The evaluator walks Python's ``ast`` rather than calling ``eval``, for three reasons. What stands in
the text is built *as it stands*: ``x + 0`` gives an ``Add`` (only two constants fold), so that
printing and parsing are inverse. ``and``, ``or``, ``not`` and comparisons give nodes. And every
error points at its line and column. Python values that a function captures fold as usual:
with ``N = 0`` outside, ``x + N`` is ``x``.

The core is in ``evaluation``; what syntax means in ``literals``, ``operators`` and ``references``.
This file joins them and adds lambdas. A dialect says what subscripting its own symbols means with
:func:`references.register_subscript`.

Text that isn't the user's own source has a scope with a budget: then ``allowance`` says which
names, attributes and values it may use, and each step is paid for.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from tilewright.ir import Expr, Node
from tilewright.script.allowance import register_values
from tilewright.script.evaluation import Method
from tilewright.script.operators import Operators
from tilewright.script.references import References
from tilewright.support.errors import ParseError


class Evaluator(Operators, References):
    """Evaluates ``ast`` expressions in a scope."""

    def _lambda(self, node: ast.Lambda) -> Lambda | None:
        given = node.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.defaults or given.posonlyargs:
            self.fail(node, "a lambda in script takes parameters by position, without defaults")
        scope = self.scope.inner()
        scope.frames = list(self.scope.frames)
        return Lambda(Evaluator(self.source, scope), node)

    METHODS: ClassVar[Mapping[type, Method]] = {
        **Operators.METHODS,
        **References.METHODS,
        ast.Lambda: _lambda,
    }


class Lambda:
    """A lambda of the text."""

    def __init__(self, evaluator: Evaluator, node: ast.Lambda) -> None:
        self._evaluator = evaluator
        self._node = node
        self._names = [item.arg for item in node.args.args]
        parameter = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(name, parameter) for name in self._names]
        )
        self.__name__ = "<lambda>"

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Evaluate the body with these values for the parameters."""
        if named:
            raise ParseError("a lambda in script takes its arguments by their places")
        if len(values) != len(self._names):
            raise ParseError(f"the lambda takes {len(self._names)} arguments, got {len(values)}")
        scope = self._evaluator.scope
        scope.push()
        scope.frames[-1].update(zip(self._names, values))
        try:
            return self._evaluator.eval(self._node.body)
        finally:
            scope.pop()


register_values(Lambda)
register_values(Node)
register_values(Expr, attributes="dtype astype")
