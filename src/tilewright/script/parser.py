"""Finds the source of decorated functions and classes, and parses whole texts.

Where a dialect plugs in: its function decorator (``T.prim_func``, ``R.function``) is a
:class:`FunctionDecorator`, whose ``parse_function`` gets the ``ast`` of the function. Used on a
Python function, a decorator finds the source and the captured variables; met in text or inside
``@I.ir_module``, the machinery here calls ``parse_function`` itself.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import types
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from tilewright.ir import BaseFunc, IRModule
from tilewright.script.allowance import Budget, Decorator, check_length, count_syntax
from tilewright.script.diagnostics import Source
from tilewright.script.evaluator import Evaluator
from tilewright.script.scope import DIALECTS, NAMES, Scope, load_dialect
from tilewright.support.errors import ParseError


class FunctionDecorator(Decorator):
    """A decorator of a dialect that turns the source of a function into IR.

    ``priority`` orders the functions of a module: those of lower priority are parsed first, so that
    callers can look at their callees.
    """

    priority = 0

    def parse_function(
        self, source: Source, node: ast.FunctionDef, scope: Scope, options: Mapping[str, object]
    ) -> BaseFunc:
        """Return the function that ``node`` stands for; ``options`` are the decorator's."""
        raise NotImplementedError(f"{type(self).__name__} must define parse_function")

    def __call__(self, function: Any = None, /, **options: Any) -> Any:
        """Decorate a Python function, or keep options for it."""
        configured = Configured(self, options)
        if function is None:
            return configured
        return configured.decorate(function, depth=2)


class Configured:
    """A function decorator with its options."""

    def __init__(self, decorator: FunctionDecorator, options: Mapping[str, Any]) -> None:
        self.decorator = decorator
        self.options = options

    def __call__(self, function: Any) -> Any:
        """Decorate a Python function."""
        return self.decorate(function, depth=2)

    def decorate(self, function: Callable[..., object], depth: int) -> Any:
        """Parse a function; one in a class of ``@I.ir_module`` is left for that."""
        if is_inside_class(function) and is_decorated(sys._getframe(depth)):
            return function
        source, node = function_source(function)
        scope = Scope(captured_by(function, depth + 1))
        return self.decorator.parse_function(source, node, scope, self.options)


def is_inside_class(function: Callable[..., Any]) -> bool:
    """Whether a function is being defined directly in a class body."""
    parts = function.__qualname__.split(".")
    return len(parts) > 1 and parts[-2] != "<locals>"


def is_decorated(frame: types.FrameType) -> bool:
    """Whether the class whose body runs in a frame has a decorator, which will read its functions.

    In other classes functions are parsed at once, as outside of classes.
    """
    first = frame.f_code.co_firstlineno
    line = linecache.getline(frame.f_code.co_filename, first, frame.f_globals).strip()
    return not line.startswith("class ")


def captured_by(function: object, depth: int) -> dict[str, Any]:
    """Return what a function can see: globals, the defining frame's locals, its own closure."""
    frame: types.FrameType | None = sys._getframe(depth)
    captured = dict(getattr(function, "__globals__", None) or (frame.f_globals if frame else {}))
    if frame is not None:
        captured.update(frame.f_locals)
    for item in [function, *getattr(function, "__dict__", {}).values()]:
        code, cells = getattr(item, "__code__", None), getattr(item, "__closure__", None)
        for name, cell in zip(code.co_freevars if code else (), cells or ()):
            try:
                captured[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
    return captured


def function_source(function: Any) -> tuple[Source, ast.FunctionDef]:
    """Return the source of a Python function and its ``ast``.

    Raises ``ParseError`` if it can't be found.
    """
    name = getattr(function, "__name__", str(function))
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise _no_source(name, str(error)) from error
    source = Source("".join(lines), inspect.getsourcefile(function) or "<script>", first)
    node = source.parse()[0]
    if isinstance(node, ast.FunctionDef):
        return source, node
    if name.isidentifier():  # text of something else: that of `python -c` has the name of exec's
        raise _no_source(name, "what stands in its place is other text")
    raise source.fail(node, "expected a function definition")


def _no_source(name: str, why: str) -> ParseError:
    return ParseError(
        f"the source of {name!r} can't be found ({why}); "
        "put it into a file, or use tilewright.script.parse(text)"
    )


@lru_cache(maxsize=32)
def _classes_of(text: str) -> list[ast.ClassDef]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]


def class_source(cls: type, depth: int) -> tuple[Source, ast.ClassDef]:
    """Return the source of a class under decoration and its ``ast``.

    The line on which the decorator runs tells classes of one name apart.

    Raises ``ParseError`` if it can't be found.
    """
    frame = sys._getframe(depth)
    name = frame.f_code.co_filename
    text = "".join(linecache.getlines(name, frame.f_globals))
    for node in _classes_of(text):
        first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
        if node.name == cls.__name__ and first <= frame.f_lineno <= (node.end_lineno or first):
            return Source(text, name), node
    raise ParseError(
        f"the source of class {cls.__name__} can't be found in {name}; "
        "put it into a file, or use tilewright.script.parse(text)"
    )


def decorator_of(evaluator: Evaluator, node: ast.FunctionDef) -> Configured | None:
    """Return the dialect's decorator on a function definition, if there is one."""
    for item in node.decorator_list:
        value = evaluator.decorator(item)
        if isinstance(value, FunctionDecorator):
            return Configured(value, {})
        if isinstance(value, Configured):
            return value
    return None


def parse_function(evaluator: Evaluator, node: ast.FunctionDef) -> BaseFunc:
    """Parse a decorated function definition in the evaluator's scope."""
    found = decorator_of(evaluator, node)
    if found is None:
        evaluator.fail(node, f"function {node.name!r} needs a decorator such as @T.prim_func")
        raise AssertionError
    scope = evaluator.scope.inner(evaluator.scope.flatten())
    return found.decorator.parse_function(evaluator.source, node, scope, found.options)


def parse(text: str, extra_vars: Mapping[str, Any] | None = None, *, name: str = "<script>") -> Any:
    """Parse script text: a module class, a function, statements or an expression.

    ``extra_vars`` are names that the text may use besides the dialects ``T``, ``I`` and ``R``.
    Text can't reach the machine, so that programs from elsewhere can be parsed safely: it sees
    the dialects and bounded builtins only (``script.allowance``), and may not compute for long.

    Raises ``ParseError``, which points at the place, for all else.
    """
    source = Source(text, name)
    try:
        check_length(text)
    except ParseError as error:
        raise source.error_at(1, 0, None, error.message) from None
    body = source.parse()
    budget = Budget(lambda: count_syntax(body))
    evaluator = Evaluator(source, Scope(dict(extra_vars or {}), budget))
    if body and all(isinstance(node, ast.Expr) and _is_text(node.value) for node in body):
        raise source.error_at(1, 0, None, "the text holds no program")
    result: Any = None
    rest: list[ast.stmt] = []
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            _import(evaluator, node)
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            made = evaluator.guarded_statement(node, _definition, evaluator)
            if made is None:
                continue
            if result is not None:
                evaluator.fail(node, "the text holds several programs; put them into one module")
            result = made
        else:
            rest.append(node)
            if _is_constant_assignment(node):
                assert isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
                evaluator.scope.define(node.targets[0].id, evaluator.eval(node.value))
                rest.pop()
    if result is not None:
        for node in rest:
            if not (isinstance(node, ast.Expr) and _is_text(node.value)):
                evaluator.fail(node, "a statement outside of the program")
        return result
    if not rest:
        raise source.error_at(1, 0, None, "the text holds no program")
    parse_fragment = load_dialect("tir").parse_fragment
    return evaluator.guarded_statement(
        rest[-1], lambda _: parse_fragment(source, rest, evaluator.scope)
    )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_constant_assignment(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    )


def _import(evaluator: Evaluator, node: ast.Import | ast.ImportFrom) -> None:
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return
    for item in node.names:
        known = isinstance(node, ast.ImportFrom) and node.module == "tilewright.script"
        if not known or item.name not in (*DIALECTS, *NAMES):
            evaluator.fail(
                node, "script text may only import dialects from tilewright.script; use extra_vars"
            )
        evaluator.scope.define(item.asname or item.name, load_dialect(item.name))


def _definition(evaluator: Evaluator, node: ast.ClassDef | ast.FunctionDef) -> Any:
    if isinstance(node, ast.FunctionDef):
        for item in node.decorator_list:
            value = evaluator.decorator(item)
            define = getattr(value, "define_from_ast", None)
            if define is not None:  # macros: they bind a name and are no program themselves
                evaluator.scope.define(node.name, define(evaluator.source, node, evaluator.scope))
                return None
        return parse_function(evaluator, node)
    for item in node.decorator_list:
        parse_class = getattr(evaluator.decorator(item), "parse_class", None)
        if parse_class is not None:
            return parse_class(evaluator, node)
    return evaluator.fail(node, f"class {node.name!r} needs the decorator @I.ir_module")


def from_source(
    program: str | Callable[..., object] | type, extra_vars: Mapping[str, object] | None = None
) -> Any:
    """Parse text, an undecorated Python function (as a PrimFunc) or class (as a module)."""
    if isinstance(program, str):
        return parse(program, extra_vars)
    if isinstance(program, type):
        source, _ = _class_source(program)
        captured = {**captured_by(program, 2), **(extra_vars or {})}
        evaluator = Evaluator(source, Scope(captured))
        return load_dialect("ir").ir_module.parse_class(evaluator, _)
    if isinstance(program, (BaseFunc, IRModule)):
        return program
    source, node = function_source(program)
    captured = {**captured_by(program, 2), **(extra_vars or {})}
    decorator = load_dialect("tir").prim_func
    return decorator.parse_function(source, node, Scope(captured), {})


def _class_source(cls: type) -> tuple[Source, ast.ClassDef]:
    try:
        lines, first = inspect.getsourcelines(cls)
    except (OSError, TypeError) as error:
        raise ParseError(f"the source of class {cls.__name__} can't be found: {error}") from error
    source = Source("".join(lines), inspect.getsourcefile(cls) or "<script>", first)
    node = source.parse()[0]
    if not isinstance(node, ast.ClassDef):
        source.fail(node, "expected a class definition")
    return source, node
