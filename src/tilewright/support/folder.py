"""Being in a folder is being registered: what a package finds in its own modules.

A package whose modules each bring a thing of one kind (a primitive, a pass, a rule, an operator)
asks for them in its ``__init__``, so adding one is writing a file. It happens when the package is
imported, in the order of the files' names; where another order matters it is written down next to
what needs it (``pipeline.py``, ``defaults.py``), not in the imports. Type checkers see what was
found in the package's ``__init__.pyi``, which ``tools/package_stubs.py`` writes.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from tilewright.support.registry import Registry


def modules_in(package: str, prefix: str = "") -> list[ModuleType]:
    """Import all modules of a package, or those whose names begin with a prefix.

    The package may be one that is being imported. What begins with an underscore is a helper of
    other modules, which import it themselves.
    """
    path = sys.modules[package].__path__
    names = sorted({info.name for info in pkgutil.iter_modules(path)})
    wanted = [name for name in names if name.startswith(prefix) and not name.startswith("_")]
    return [importlib.import_module(f"{package}.{name}") for name in wanted]


def classes_in(package: str, kind: type) -> dict[str, type[Any]]:
    """Return the public classes derived from ``kind`` that a package's modules define, by name."""
    return {
        name: item
        for module in modules_in(package)
        for name, item in vars(module).items()
        if isinstance(item, type)
        and issubclass(item, kind)
        and item is not kind
        and item.__module__ == module.__name__
        and not name.startswith("_")
    }


def register_classes(
    registry: Registry[Callable[[], Any]], classes: Mapping[str, type[Any]]
) -> Mapping[str, type[Any]]:
    """Register the classes that give themselves a ``name`` by it, and return all of them."""
    for item in classes.values():
        if isinstance(vars(item).get("name"), str):
            registry.register(vars(item)["name"], item)
    return classes
