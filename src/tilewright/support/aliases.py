"""Packages that can be imported by a second name, as one and the same module.

Names that stand for nothing here raise an ``ImportError`` that says what to use.

If ``sym`` is an alias of ``arith``, ``import tilewright.sym.int_set`` gives the module
``tilewright.arith.int_set`` itself, not a copy of it, so classes are the same by either name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Loader(Loader):
    """Hands out a module that is there already."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # it was given that of its alias


class AliasFinder(MetaPathFinder):
    """Finds modules by their aliases: a package's alias, and names below that."""

    def __init__(self, aliases: Mapping[str, str], absent: Mapping[str, str] | None = None) -> None:
        self.aliases = aliases
        self.absent = absent or {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to get the module that an alias stands for."""
        if fullname in self.absent:
            raise ImportError(f"there is no {fullname}: {self.absent[fullname]}", name=fullname)
        name = self.resolve(fullname)
        if name is None:
            return None
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            return None
        return ModuleSpec(fullname, _Loader(module), is_package=hasattr(module, "__path__"))

    def resolve(self, fullname: str) -> str | None:
        """Return the name that an alias stands for, or ``None``."""
        package, below = fullname, ""
        while package:
            if package in self.aliases:
                return self.aliases[package] + below
            package, _, last = package.rpartition(".")
            below = f".{last}{below}"
        return None


def install(aliases: Mapping[str, str], absent: Mapping[str, str]) -> None:
    """Make aliases importable; before all other finders, which would make copies.

    ``absent`` says of names of packages that aren't there what takes their place.
    """
    sys.meta_path.insert(0, AliasFinder(aliases, absent))
