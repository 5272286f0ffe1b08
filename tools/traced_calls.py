"""Compile Python files so that each call in their text is told, without a slower interpreter."""

from __future__ import annotations

import ast
import builtins
import sys
import types
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

#: Functions that look at the frame that calls them.
OF_FRAMES = frozenset({"super", "locals", "globals", "vars", "dir", "eval", "exec", "__import__"})


class _Instrument(ast.NodeTransformer):
    """Lets each call of a file go through one of the functions that are told of calls."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in OF_FRAMES:
            return node
        return self._through("__tried__", node, [node.func, *node.args], node.keywords)

    def _decorated(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list = [
            self._through("__decorator__", each, [each], []) for each in node.decorator_list
        ]
        return node  # type: ignore[no-any-return]

    visit_FunctionDef = visit_AsyncFunctionDef = _decorated

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._decorated(node)
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and each.args.args:
                this = ast.copy_location(ast.Name(each.args.args[0].arg, ast.Load()), each)
                told = ast.Expr(self._through("__entered__", this, [this], []))
                each.body.insert(ast.get_docstring(each) is not None, ast.copy_location(told, each))
        return node

    def _through(
        self, name: str, node: ast.expr, args: list[ast.expr], keywords: list[ast.keyword]
    ) -> ast.expr:
        made = ast.Call(ast.copy_location(ast.Name(name, ast.Load()), node), args, keywords)
        return ast.copy_location(made, node)


class _Loader(SourceFileLoader):
    """Compiles a file with its calls told."""

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        tree = _Instrument().visit(ast.parse(self.get_data(path)))
        code = compile(tree, path, "exec", dont_inherit=True)
        assert isinstance(code, types.CodeType)
        return code


class _Finder(MetaPathFinder):
    """Finds the files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        spec = PathFinder.find_spec(name, path, target)
        origin = "" if spec is None else str(spec.origin)
        if spec is None or not (origin.startswith(self.folder) and origin.endswith(".py")):
            return None
        spec.loader = _Loader(name, origin)
        return spec


def trace(
    folder: Path,
    tried: Callable[..., Any],
    decorator: Callable[[Any], Any],
    entered: Callable[[Any], None],
) -> None:
    """From now on, import files below a folder so that their calls are told.

    ``tried(function, *args, **kwargs)`` calls a function for them, ``decorator(function)`` gives
    back what they decorate with, and ``entered(self)`` is called first by methods of their classes.
    """
    told = {"tried": tried, "decorator": decorator, "entered": entered}
    builtins.__dict__.update({f"__{name}__": function for name, function in told.items()})
    sys.meta_path.insert(0, _Finder(folder))
