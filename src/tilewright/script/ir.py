"""The module dialect: ``from tilewright.script import ir as I``.

A module is a class of decorated functions::

    @I.ir_module
    class Module:
        I.module_attrs({"runtime": 1})

        @T.prim_func
        def main(A: T.Buffer((16,), "float32")): ...

The functions may come from any dialect. Inside them the class's name and ``cls`` stand for the
module: ``cls.main`` is the ``GlobalVar`` of ``main``.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from tilewright.ir import BaseFunc, GlobalVar, IRModule
from tilewright.script.allowance import (
    Decorator,
    register_constructors,
    register_namespace,
    register_values,
)
from tilewright.script.evaluator import Evaluator
from tilewright.script.parser import captured_by, class_source, decorator_of
from tilewright.script.printer import Printer, quote, register, register_lines
from tilewright.script.scope import Scope
from tilewright.support.errors import ParseError
from tilewright.support.registry import near_matches


class ModuleAttrs:
    """What ``I.module_attrs`` gives."""

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self.attrs = dict(attrs)


def module_attrs(attrs: Mapping[str, object]) -> ModuleAttrs:
    """State attributes of the module.

    Raises ``ParseError`` if it is no dict.
    """
    if not isinstance(attrs, Mapping):
        raise ParseError(f"module_attrs takes a dict, got {type(attrs).__name__}")
    return ModuleAttrs(attrs)


class ModuleReference:
    """The module from inside its functions: attributes are ``GlobalVar`` of its functions.

    ``functions`` holds those that are parsed already.
    """

    def __init__(self, name: str, names: list[str]) -> None:
        self._name = name
        self._variables = {entry: GlobalVar(entry) for entry in names}
        self.functions: dict[str, BaseFunc] = {}

    def __getattr__(self, name: str) -> GlobalVar:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._variables:
            raise ParseError(
                f"module {self._name} has no function {name!r}; "
                f"{near_matches(name, list(self._variables))}"
            )
        return self._variables[name]


class _ModuleDecorator(Decorator):
    """``@I.ir_module``."""

    def __call__(self, cls: Any = None, /) -> IRModule | _ModuleDecorator:
        """Turn a class of decorated functions into an ``IRModule``."""
        if cls is None:
            return self
        source, node = class_source(cls, 2)
        return self.parse_class(Evaluator(source, Scope(captured_by(cls, 2))), node)

    def parse_class(self, evaluator: Evaluator, node: ast.ClassDef) -> IRModule:
        """Parse a class definition."""
        for given in (*node.bases, *(keyword.value for keyword in node.keywords)):
            evaluator.fail(given, "a module takes no base classes and no options")
        attrs: dict[str, Any] = {}
        definitions: list[tuple[str, ast.FunctionDef, Any]] = []
        for item in node.body:
            if isinstance(item, ast.FunctionDef):
                found = decorator_of(evaluator, item)
                if found is None:
                    evaluator.fail(item, f"function {item.name!r} needs a decorator")
                    raise AssertionError
                name = found.options.get("name", item.name)
                if any(name == other for other, _, _ in definitions):
                    evaluator.fail(item, f"the module has two functions named {name!r}")
                definitions.append((name, item, found))
            elif isinstance(item, ast.Pass):
                continue
            elif isinstance(item, ast.Expr):
                value = evaluator.eval(item.value)
                if isinstance(value, ModuleAttrs):
                    evaluator.add_attributes(item, attrs, value.attrs)
                elif not isinstance(value, (str, type(...))):
                    evaluator.fail(item, "a module holds functions and I.module_attrs only")
            else:
                evaluator.fail(item, "a module holds functions and I.module_attrs only")
        functions = _parse_functions(evaluator, node.name, definitions)
        return IRModule({name: functions[name] for name, _, _ in definitions}, attrs)


def _parse_functions(
    evaluator: Evaluator, module: str, definitions: list[tuple[str, ast.FunctionDef, Any]]
) -> dict[str, BaseFunc]:
    reference = ModuleReference(module, [name for name, _, _ in definitions])
    captured = {**evaluator.scope.flatten(), module: reference, "cls": reference}
    for name, item, found in sorted(definitions, key=lambda entry: entry[2].decorator.priority):
        scope = evaluator.scope.inner(captured)
        reference.functions[name] = found.decorator.parse_function(
            evaluator.source, item, scope, found.options
        )
    return reference.functions


ir_module = _ModuleDecorator()
register_values(ModuleAttrs)
register_namespace(ModuleReference, lambda reference: reference._variables)
register_constructors(GlobalVar)


@register_lines(IRModule)
def _print_module(printer: Printer, module: IRModule) -> None:
    printer.use("ir")
    printer.line("@I.ir_module")
    printer.line(f"class {printer.option_name or 'Module'}:")
    with printer.indented():
        if module.attrs:
            printer.line(f"I.module_attrs({printer.value(dict(module.attrs))})")
        elif not module.functions:
            printer.line("pass")
        for index, (name, function) in enumerate(module.functions.items()):
            if index or module.attrs:
                printer.line("")
            printer.function(function, name)


@register(GlobalVar)
def _print_global(printer: Printer, variable: GlobalVar, precedence: int) -> str:
    printer.use("ir")
    return f"I.GlobalVar({quote(variable.name)})"


__all__ = [
    "GlobalVar",
    "IRModule",
    "ModuleReference",
    "ir_module",
    "module_attrs",
]
