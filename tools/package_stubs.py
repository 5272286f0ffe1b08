"""Write `__init__.pyi` of packages that find their names in their own files, for type checkers.

python tools/package_stubs.py           # write the stubs
python tools/package_stubs.py --check   # exit status 1 if one is out of date
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

PACKAGES = (
    *(
        f"tilewright.meta_schedule.{name}"
        for name in (
            "cost_model",
            "database",
            "measure_callback",
            "mutator",
            "postproc",
            "schedule_rule",
            "search_strategy",
            "space_generator",
            "task_scheduler",
        )
    ),
    "tilewright.relax.ops",
    "tilewright.relax.ops.nn",
    "tilewright.relax.transform",
    "tilewright.tir.transform",
)


def stub(module: ModuleType) -> str:
    """Return the text of a stub: each name of the package, and the module that it is from."""
    lines = {_line(module, name) for name in names_of(module)}
    return f'"""Made by `tools/package_stubs.py`."""\n\n{chr(10).join(sorted(lines))}\n'


def names_of(module: ModuleType) -> list[str]:
    """The names that a package gives, or what a module without such a list was given."""
    listed = getattr(module, "__all__", None)
    return listed or [name for name in vars(module) if not name.startswith("_")]


def _line(module: ModuleType, name: str) -> str:
    found = getattr(module, name)
    if isinstance(found, ModuleType):
        return f"from {module.__name__} import {name} as {name}"
    source = getattr(found, "__module__", None)
    if "." in getattr(found, "__qualname__", ""):
        return f"{name} = {found.__qualname__}"  # a static method of a class that has a line, too
    if source is None or not hasattr(sys.modules[source], name):
        source = _imports(module)[name]  # a constant says nothing of where it is from
    return f"from {source} import {name} as {name}"


def _imports(module: ModuleType) -> dict[str, str]:
    """Where the names that a package imports itself are from."""
    return {
        item.asname or item.name: node.module
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for item in node.names
    }


def main() -> int:
    """Write or check the stubs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether they are up to date")
    check = parser.parse_args().check
    stale = []
    for name in PACKAGES:
        module = importlib.import_module(name)
        path = Path(inspect.getfile(module)).with_suffix(".pyi")
        made = stub(module)
        if not path.exists() or path.read_text() != made:
            stale.append(path)
            if not check:
                path.write_text(made)
    for path in stale if check else ():
        print(f"{path} is out of date: python tools/package_stubs.py")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
