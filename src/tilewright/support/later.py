"""Public names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def imported_later(
    package: str, modules: Mapping[str, str], absent: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package, given the module of each name.

    ``absent`` says of names that aren't there why, and what to do.

    A name that is also its module's last part stands for the module itself; ``module:NAME`` is
    what has another name there.
    """

    def find(name: str) -> Any:
        if name not in modules:
            why = f": {absent[name]}" if absent and name in absent else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{why}")
        path, _, source = modules[name].partition(":")
        module = importlib.import_module(path)
        if not source and path.endswith(f".{name}"):
            return module
        return getattr(module, source or name)

    return find
