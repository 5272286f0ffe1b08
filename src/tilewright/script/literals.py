"""Literals of script: text with values, lists, dictionaries, comprehensions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from tilewright.script.bounded import format_value
from tilewright.script.evaluation import Evaluation, Method

_CONVERSIONS: dict[str, Callable[[Any], str]] = {"r": repr, "s": str, "a": ascii}


class Literals(Evaluation):
    """Evaluates what makes a Python value of its parts."""

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _format(self, node: ast.JoinedStr) -> str:
        return "".join(str(self.eval(part)) for part in node.values)

    def _formatted(self, node: ast.FormattedValue) -> str:
        value = self.eval(node.value)
        specification = "" if node.format_spec is None else self.eval(node.format_spec)
        budget = self.scope.budget
        if node.conversion != -1:
            if budget is not None:
                budget.spend(budget.size(value))
            value = self.guard(node, _CONVERSIONS[chr(node.conversion)], value)
        if budget is not None:
            return self.guard(node, format_value, budget, value, specification)  # type: ignore[no-any-return]
        return self.guard(node, format, value, specification)  # type: ignore[no-any-return]

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._items(node.elts))

    def _list(self, node: ast.List) -> list[Any]:
        return self._items(node.elts)

    def _items(self, nodes: Sequence[ast.expr]) -> list[Any]:
        made: list[Any] = []
        for item in nodes:
            if isinstance(item, ast.Starred):
                made.extend(self.iterate(item, self.eval(item.value)))
            else:
                made.append(self.eval(item))
        return made

    def _slice(self, node: ast.Slice) -> slice:
        lower, upper, step = (
            None if part is None else self.eval(part)
            for part in (node.lower, node.upper, node.step)
        )
        return slice(lower, upper, step)

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values):
            if key is None:
                made.update(self._mapping(value))
            else:
                name = self._key(key)
                if name in made:
                    self.fail(key, f"the key {name!r} is given twice")
                made[name] = self.eval(value)
        return made

    def _mapping(self, node: ast.expr) -> dict[Any, Any]:
        """Evaluate what stands after ``**``."""
        value = self.eval(node)
        if self.scope.budget is not None and type(value) is not dict:
            self.fail(node, "expected a dictionary")
        made: dict[Any, Any] = self.guard(node, dict, value)
        return made

    def _key(self, node: ast.expr) -> Any:
        key = self.eval(node)
        self._check_key(node, key)
        return key

    def _check_key(self, node: ast.AST, key: object) -> None:
        if self.scope.budget is not None:
            self.guard(node, self.scope.budget.admit_key, key)
        else:
            self.guard(node, hash, key)

    def _list_comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Any:
        made: list[Any] = []
        self._generate(node.generators, lambda: made.append(self.eval(node.elt)))
        if not isinstance(node, ast.SetComp):
            return made
        for item in made:
            self._check_key(node, item)
        if self.scope.budget is not None:
            self.scope.budget.spend_keys(made)
        return self.guard(node, set, made)

    def _dict_comprehension(self, node: ast.DictComp) -> Any:
        made: dict[Any, Any] = {}

        def give() -> None:
            key = self._key(node.key)
            made[key] = self.eval(node.value)
            if self.scope.budget is not None and type(key) is not str:
                self.scope.budget.spend(len(made) >> 6)

        self._generate(node.generators, give)
        return made

    def _generate(self, generators: list[ast.comprehension], give: Callable[[], None]) -> None:
        """Run the loops of a comprehension, calling ``give`` for each element."""
        if not generators:
            give()
            return
        first, *others = generators
        for value in self.iterate(first.iter, self.eval(first.iter)):
            self.scope.push()
            self.bind_names(first.target, value)
            if all(self.eval(condition) for condition in first.ifs):
                self._generate(others, give)
            self.scope.pop()

    def bind_names(self, target: ast.expr, value: object) -> None:
        """Bind names of a comprehension or a function's parameter to Python values."""
        if isinstance(target, ast.Name):
            self.scope.define(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = list(self.iterate(target, value))
            if len(values) != len(target.elts):
                self.fail(target, f"{len(target.elts)} names for {len(values)} values")
            for item, part in zip(target.elts, values):
                self.bind_names(item, part)
        else:
            self.fail(target, "expected a name")

    METHODS: ClassVar[Mapping[type, Method]] = {
        ast.Constant: _constant,
        ast.Tuple: _tuple,
        ast.List: _list,
        ast.Dict: _dict,
        ast.Slice: _slice,
        ast.ListComp: _list_comprehension,
        ast.GeneratorExp: _list_comprehension,
        ast.SetComp: _list_comprehension,
        ast.DictComp: _dict_comprehension,
        ast.JoinedStr: _format,
        ast.FormattedValue: _formatted,
    }
