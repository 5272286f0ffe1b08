"""What script refers to: names, attributes, items, functions that it calls, decorators.

Here ``allowance`` is asked what text from elsewhere may name.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from tilewright.script.allowance import Decorator, may_be_named, may_name
from tilewright.script.bounded import item_of
from tilewright.script.evaluation import Method
from tilewright.script.literals import Literals
from tilewright.support.errors import TilewrightError
from tilewright.support.registry import near_matches

Subscript = Callable[[Any, tuple[Any, ...]], Any]
_SUBSCRIPTS: dict[type, Subscript] = {}


def register_subscript(cls: type) -> Callable[[Subscript], Subscript]:
    """Return a decorator: the function gives the meaning of ``value[indices]`` for a class.

    ``indices`` is a tuple; slices come as Python ``slice`` objects of evaluated bounds.
    """

    def decorate(function: Subscript) -> Subscript:
        _SUBSCRIPTS[cls] = function
        return function

    return decorate


class References(Literals):
    """Evaluates what names something that is there already."""

    def _name(self, node: ast.Name) -> Any:
        try:
            return self.scope.lookup(node.id)
        except KeyError:
            pass
        except ImportError as error:
            self.fail(node, f"the dialect {node.id} is not available: {error}", error)
        near = near_matches(node.id, self.scope.names())
        return self.fail(node, f"undefined variable {node.id!r}; {near}")

    def _attribute(self, node: ast.Attribute) -> Any:
        value = self.named(node.value)
        name = node.attr
        listed = self.scope.budget is None or may_name(value, name)
        if not listed:
            self.unknown_attribute(node, value)
        try:
            found = getattr(value, name)
        except AttributeError:
            self.unknown_attribute(node, value)
        except ImportError as error:
            self.fail(node, f"{ast.unparse(node)} is not available: {error}", error)
        except TilewrightError as error:
            self.fail(node, error.message, error)
        if self.scope.budget is not None and not may_be_named(found):
            self.fail(node, f"{ast.unparse(node)} can't be used in text from elsewhere")
        return found

    def named(self, node: ast.expr) -> Any:
        """Evaluate what stands before ``(`` or ``.``: there text may name functions and modules."""
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        return self.eval(node)

    def unknown_attribute(self, node: ast.Attribute, value: object) -> None:
        """Raise the error for an attribute that is not there, with near matches."""
        names = [name for name in dir(value) if not name.startswith("_")]
        if self.scope.budget is not None:
            names = [name for name in names if may_name(value, name)]
        owner = ast.unparse(node.value)
        at = ast.Name(node.attr)
        at.lineno = at.end_lineno = node.end_lineno or node.lineno
        at.end_col_offset = node.end_col_offset
        at.col_offset = (node.end_col_offset or 0) - len(node.attr.encode())
        near = f"; {near_matches(node.attr, names)}" if names else ""
        self.fail(at, f"{owner} has no {node.attr!r}{near}")

    def decorator(self, node: ast.expr) -> Any:
        """Evaluate what stands after ``@``."""
        if self.scope.budget is None:
            return self.eval(node)
        target = node.func if isinstance(node, ast.Call) else node
        if isinstance(target, ast.Attribute):
            owner = self.named(target.value)
            found = getattr(owner, target.attr, None) if may_name(owner, target.attr) else None
        else:
            found = self.named(target)
        if not isinstance(found, Decorator):
            return self.fail(node, f"`{ast.unparse(target)}` is no decorator such as T.prim_func")
        if not isinstance(node, ast.Call):
            return found
        if node.args:
            self.fail(node.args[0], "a decorator in text takes options by name")
        configure: Callable[..., object] = found  # type: ignore[assignment]  # all of them take options
        return self.guard(node, configure, **self._options(node.keywords))

    def _subscript(self, node: ast.Subscript) -> Any:
        # What a name stands for was weighed when it was made; taking an item of it costs one step.
        is_name = isinstance(node.value, ast.Name)
        value = self.named(node.value) if is_name else self.eval(node.value)
        index = self.eval(node.slice)
        function = _SUBSCRIPTS.get(type(value))
        if function is None:
            if self.scope.budget is None:
                return self.guard(node, operator.getitem, value, index)
            return self.guard(node, item_of, self.scope.budget, value, index)
        return self.guard(node, function, value, index if isinstance(index, tuple) else (index,))

    def _call(self, node: ast.Call) -> Any:
        function = self.named(node.func)
        if not callable(function):
            self.fail(node.func, f"{ast.unparse(node.func)} can't be called")
        return self.call(node, function, self._items(node.args), self._options(node.keywords))

    def call(
        self,
        node: ast.Call,
        function: Callable[..., object],
        args: list[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call a function that the text names; dialects may override this."""
        return self.guard(node, function, *args, **kwargs)

    def _options(self, keywords: Sequence[ast.keyword]) -> dict[str, Any]:
        """Evaluate the arguments that are given by name."""
        made: dict[str, Any] = {}
        for keyword in keywords:
            found = (
                {keyword.arg: self.eval(keyword.value)}
                if keyword.arg is not None
                else self._mapping(keyword.value)
            )
            for name, value in found.items():
                if not isinstance(name, str):
                    self.fail(keyword.value, f"the name of an argument is text, got {name!r}")
                if name in made:
                    self.fail(keyword.value, f"the argument {name!r} is given twice")
                made[name] = value
        return made

    METHODS: ClassVar[Mapping[type, Method]] = {
        **Literals.METHODS,
        ast.Name: _name,
        ast.Attribute: _attribute,
        ast.Subscript: _subscript,
        ast.Call: _call,
    }
