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
import types
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ir import (
    GLOBAL_INFOS,
    BaseFunc,
    DummyGlobalInfo,
    GlobalInfo,
    GlobalVar,
    IRModule,
    Range,
    StringImm,
    StringType,
)
from tilewright.script.allowance import (
    Decorator,
    register_constructors,
    register_namespace,
    register_price,
    register_values,
)
from tilewright.script.evaluator import Evaluator
from tilewright.script.ir_builder.ir import (
    IRModuleFrame,
    decl_function,
    def_function,
    lookup_name,
    lookup_vdevice,
    module_get_attr,
    module_set_attr,
)
from tilewright.script.module_values import (
    GlobalInfos,
    MetaVar,
    ModuleAttrs,
    dummy_global_info,
    meta_var,
    module_attrs,
    module_global_infos,
    vdevice,
)
from tilewright.script.parser import captured_by, class_source, decorator_of
from tilewright.script.printer import Printer, quote, register, register_lines
from tilewright.script.scope import Scope
from tilewright.support.errors import ParseError
from tilewright.support.registry import near_matches
from tilewright.target import VDevice

# What builds modules without text (`with IRBuilder()`) has its names here too; text may not use it,
# so they are left out of `__all__`.
BUILDERS = (
    IRModuleFrame, decl_function, def_function, lookup_name, lookup_vdevice, module_get_attr,
    module_set_attr,
)  # fmt: skip


class ModuleReference:
    """The module from inside its functions: attributes are ``GlobalVar`` of its functions.

    All other members are private, so that a function may have any name.
    """

    def __init__(
        self, name: str, names: list[str], parse: Callable[[str], None] | None = None
    ) -> None:
        self._name = name
        self._variables = {entry: GlobalVar(entry) for entry in names}
        self._parse = parse
        self._functions: dict[str, BaseFunc] = {}

    def __getattr__(self, name: str) -> GlobalVar:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._variables:
            raise ParseError(
                f"module {self._name} has no function {name!r}; "
                f"{near_matches(name, list(self._variables))}"
            )
        return self._variables[name]


def functions_of(module: ModuleReference) -> dict[str, BaseFunc]:
    """The functions of a module that are parsed already."""
    return module._functions


def parsed_function(module: ModuleReference, name: str) -> BaseFunc:
    """Return a function of a module, which is parsed now if it was not yet.

    Raises ``ParseError`` for one that is being parsed: it calls itself.
    """
    if name not in module._functions and module._parse is not None:
        module._parse(name)
    if name not in module._functions:
        raise ParseError(
            f"{name} calls itself: state what the call gives, by R.call(cls.{name}, args, "
            "out_sinfo=R.Tensor(...))"
        )
    return module._functions[name]


def free_name(module: ModuleReference, name: str) -> str:
    """Return a name based on ``name`` that no function of a module has that is yet to be parsed."""
    free, number = name, 0
    while free in module._variables and free not in module._functions:
        number += 1
        free = f"{name}_{number}"
    return free


def add_function(module: ModuleReference, name: str, function: BaseFunc) -> None:
    """Add what a function of a module has made."""
    module._variables[name] = GlobalVar(name)
    module._functions[name] = function


class _ModuleDecorator(Decorator):
    """``@I.ir_module``."""

    def __call__(self, mod: Any = None, check_well_formed: bool = True, s_tir: bool = False) -> Any:
        """Turn a class of decorated functions into an ``IRModule``.

        The options are TVM's: all functions are checked, and TensorIR is TensorIR.
        """
        if not isinstance(check_well_formed, bool) or not isinstance(s_tir, bool):
            raise ParseError("check_well_formed= and s_tir= of ir_module are True or False")
        return self if mod is None else self.decorate(mod, 3)

    def decorate(self, mod: Any, depth: int) -> Any:
        """Parse a class that is being decorated in a frame of that depth.

        A class whose base has ``of_script`` (``relax.BasePyModule``) may have methods of Python,
        too: it gets the module of its other functions.
        """
        source, node = class_source(mod, depth)
        evaluator = Evaluator(source, Scope(captured_by(mod, depth)))
        if not hasattr(mod, "of_script"):
            return self.parse_class(evaluator, node)
        body = [item for item in node.body if _is_of_module(mod, item)]
        bare = ast.ClassDef(node.name, [], [], body or [ast.Pass()], [])
        return mod.of_script(self.parse_class(evaluator, ast.copy_location(bare, node)))

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
                    for key in value.attrs if value.allow_overwrite else ():
                        attrs.pop(key, None)
                    evaluator.add_attributes(item, attrs, value.attrs)
                elif isinstance(value, GlobalInfos):
                    evaluator.add_attributes(item, attrs, {GLOBAL_INFOS: value.infos})
                elif not isinstance(value, (str, type(...))):
                    evaluator.fail(item, "a module holds functions and I.module_attrs only")
            elif isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                value = evaluator.eval(item.value)
                if len(item.targets) > 1 or not isinstance(value, MetaVar):
                    evaluator.fail(item, "a module names values by `x = I.meta_var(value)`")
                evaluator.scope.define(item.targets[0].id, value.value)
            else:
                evaluator.fail(item, "a module holds functions and I.module_attrs only")
        functions = _parse_functions(evaluator, node.name, definitions)
        ordered = [name for name, _, _ in definitions]
        added = [name for name in functions if name not in set(ordered)]
        return IRModule({name: functions[name] for name in (*ordered, *added)}, attrs)


def pyfunc(func: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a method of a ``relax.BasePyModule`` as one that graphs may call by its name."""
    func.__dict__[_MARK] = True
    return func


_MARK = "__pyfunc__"


def marked_functions(cls: type) -> dict[str, Callable[..., Any]]:
    """The functions of a class, and of its bases, that ``pyfunc`` marks."""
    found = {name: item for base in cls.__mro__[::-1] for name, item in vars(base).items()}
    return {name: item for name, item in found.items() if _MARK in getattr(item, "__dict__", ())}


def _is_of_module(cls: type, item: ast.stmt) -> bool:
    """Whether a statement in a class's body is one of a module, and no method or value of Python.

    What a dialect decorates is left as it is until the whole class is read.
    """
    if not isinstance(item, ast.FunctionDef):
        return isinstance(item, ast.Expr)
    made = vars(cls).get(item.name)
    plain = isinstance(made, types.FunctionType) and _MARK not in made.__dict__
    return plain and bool(item.decorator_list)


def _parse_functions(
    evaluator: Evaluator, module: str, definitions: list[tuple[str, ast.FunctionDef, Any]]
) -> dict[str, BaseFunc]:
    ordered = sorted(definitions, key=lambda entry: entry[2].decorator.priority)
    waiting = {name: (item, found) for name, item, found in ordered}

    def parse(name: str) -> None:
        if name in waiting:
            item, found = waiting.pop(name)
            scope = evaluator.scope.inner(captured)
            reference._functions[name] = found.decorator.parse_function(
                evaluator.source, item, scope, found.options
            )

    reference = ModuleReference(module, [name for name, _, _ in definitions], parse)
    captured = {**evaluator.scope.flatten(), module: reference, "cls": reference}
    for name, _, _ in ordered:
        parse(name)
    return reference._functions


ir_module = _ModuleDecorator()
register_values(ModuleAttrs, GlobalInfos, MetaVar)
register_price(VDevice, 100)  # its target's options are looked up in tables and checked
register_namespace(ModuleReference, lambda reference: reference._variables)
register_constructors(GlobalVar)


@register_lines(IRModule)
def _print_module(printer: Printer, module: IRModule) -> None:
    printer.use("ir")
    printer.line("@I.ir_module")
    printer.line(f"class {printer.option_name or 'Module'}:")
    with printer.indented():
        attrs = dict(module.attrs)
        infos = attrs.get(GLOBAL_INFOS)
        if _are_infos(infos):
            shown = {key: list(value) for key, value in attrs.pop(GLOBAL_INFOS).items()}
            printer.line(f"I.module_global_infos({printer.value(shown)})")
        if attrs:
            printer.line(f"I.module_attrs({printer.value(attrs)})")
        elif not module.functions and infos is None:
            printer.line("pass")
        for index, (name, function) in enumerate(module.functions.items()):
            if index or module.attrs:
                printer.line("")
            printer.function(function, name)


def _are_infos(value: object) -> bool:
    """Whether an attribute is what ``I.module_global_infos`` states."""
    return isinstance(value, Mapping) and all(
        isinstance(items, tuple) and all(isinstance(item, GlobalInfo) for item in items)
        for items in value.values()
    )


@register(VDevice)
def _print_device(printer: Printer, device: VDevice, precedence: int) -> str:
    printer.use("ir")
    scope = "" if device.memory_scope == "global" else f", {quote(device.memory_scope)}"
    target = "None" if device.target is None else quote(str(device.target))
    return f"I.vdevice({target}, {device.vdevice_id}{scope})"


@register(DummyGlobalInfo)
def _print_dummy(printer: Printer, info: DummyGlobalInfo, precedence: int) -> str:
    printer.use("ir")
    return "I.dummy_global_info()"


@register(GlobalVar)
def _print_global(printer: Printer, variable: GlobalVar, precedence: int) -> str:
    printer.use("ir")
    return f"I.GlobalVar({quote(variable.name)})"


__all__ = [
    "DummyGlobalInfo",
    "GlobalVar",
    "IRModule",
    "ModuleReference",
    "Range",
    "StringImm",
    "StringType",
    "VDevice",
    "dummy_global_info",
    "ir_module",
    "meta_var",
    "module_attrs",
    "module_global_infos",
    "vdevice",
]
