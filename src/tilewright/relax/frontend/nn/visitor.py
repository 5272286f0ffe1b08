"""``Mutator``: walks over a module and replaces what it is made of."""

from __future__ import annotations

from typing import Any

from tilewright.relax.frontend.nn.core import (
    Effect,
    Module,
    ModuleDict,
    ModuleList,
    Parameter,
    ParameterDict,
    ParameterList,
)


class Mutator:
    """Visits modules, parameters and effects; what a method returns replaces what it was given.

    Override ``visit_module``, ``visit_param``, …; a method of this class walks on below. ``name``
    is the dotted name.
    """

    def visit_module(self, name: str, node: Module) -> Any:
        """Visit a module: its attributes in order."""
        for key, value in list(vars(node).items()):
            if self._is_visited(value):
                setattr(node, key, self.visit(_joined(name, key), value))
        return node

    def visit_effect(self, name: str, node: Effect) -> Any:
        """Visit an effect."""
        return node

    def visit_param(self, name: str, node: Parameter) -> Any:
        """Visit a parameter."""
        return node

    def visit_modulelist(self, name: str, node: ModuleList) -> Any:
        """Visit a list of modules: its items in order."""
        return self._items(name, node, range(len(node)))

    def visit_moduledict(self, name: str, node: ModuleDict) -> Any:
        """Visit a dictionary of modules: its items in order."""
        return self._items(name, node, list(node.keys()))

    def visit_parameterlist(self, name: str, node: ParameterList) -> Any:
        """Visit a list of parameters: its items in order."""
        return self._items(name, node, range(len(node)))

    def visit_parameterdict(self, name: str, node: ParameterDict) -> Any:
        """Visit a dictionary of parameters: its items in order."""
        return self._items(name, node, list(node.keys()))

    def visit(self, name: str, node: object) -> Any:
        """Visit what a module has, by the method for its kind; other things stay."""
        for kind, method in self._methods():
            if isinstance(node, kind):
                return method(name, node)
        return node

    def _methods(self) -> tuple[tuple[type, Any], ...]:
        return (
            (ModuleList, self.visit_modulelist),
            (ModuleDict, self.visit_moduledict),
            (ParameterList, self.visit_parameterlist),
            (ParameterDict, self.visit_parameterdict),
            (Module, self.visit_module),
            (Effect, self.visit_effect),
            (Parameter, self.visit_param),
        )

    def _is_visited(self, value: object) -> bool:
        return any(isinstance(value, kind) for kind, _ in self._methods())

    def _items(self, name: str, node: Any, keys: Any) -> Any:
        for key in keys:
            node[key] = self.visit(_joined(name, str(key)), node[key])
        return node


def _joined(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key
