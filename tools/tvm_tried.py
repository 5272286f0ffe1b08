"""Find which of TVM's names no test refers to.

A test refers to a name

- by importing it, or by an attribute of what it imported (``T.float16x8``, ``relax.op.nn.conv2d``);
- by a table of dotted paths whose name ends in ``_PATHS``, at the top of the file, if it looks the
  names up and calls them (``SCALAR_PATHS = [f"script.tirx.{kind}" for kind in KINDS]``);
- if it is a member of a class, by an attribute of that name of anything: nobody runs the tests here
  to see of what.

Other text doesn't count. Several names of one object count together.
"""

from __future__ import annotations

import ast
import importlib
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvm_names import Row, named

TESTS = Path(__file__).parent.parent / "tests"
TABLE = "_PATHS"


@dataclass
class Referred:
    """What tests refer to."""

    objects: dict[int, Any] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)

    def add(self, owner: str, name: str, value: Any) -> None:
        """Remember that something is referred to: itself, and the path that was used."""
        self.paths.add(f"{owner}.{name}")
        if _is_named(value):
            self.objects[id(value)] = value

    def has(self, path: str, value: Any) -> bool:
        """Whether a name is referred to, under it or under another name of the same object."""
        return path in self.paths or (_is_named(value) and id(value) in self.objects)


def _is_named(value: Any) -> bool:
    """Whether an object is what its name stands for: numbers and text may be anybody's."""
    return not isinstance(value, (int, float, str, bytes, tuple, frozenset, type(None)))


def referred() -> Referred:
    """Read what the tests refer to."""
    found = Referred()
    for file in sorted(TESTS.rglob("*.py")):
        read(found, file, file.read_text())
    return found


def read(found: Referred, file: Path, text: str) -> None:
    """Add what one file of the tests refers to."""
    module = ".".join(file.relative_to(TESTS.parent).with_suffix("").parts)
    _File(found, module).read(ast.parse(text))


class _File:
    """One file: the modules and objects that its names stand for."""

    def __init__(self, found: Referred, module: str) -> None:
        self.found = found
        self.module = module
        self.names: dict[str, Any] = {}

    def read(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                self._import_from(node)
            elif isinstance(node, ast.Import):
                self._import(node)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._assigned(node.targets[0].id, node.value)
        for node in nodes:
            if isinstance(node, ast.Attribute):
                self.found.attributes.add(node.attr)
                self._value(node)

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.split(".")[0] != "tilewright":
                continue
            module = importlib.import_module(alias.name)
            top = importlib.import_module("tilewright")
            self.names[alias.asname or "tilewright"] = module if alias.asname else top

    def _import_from(self, node: ast.ImportFrom) -> None:
        if node.level or (node.module or "").split(".")[0] != "tilewright":
            return
        for alias in node.names:
            value = _part(importlib.import_module(str(node.module)), alias.name)
            if value is not None:
                self.names[alias.asname or alias.name] = value
                self.found.add(_path(str(node.module)), alias.name, value)

    def _assigned(self, name: str, value: ast.expr) -> None:
        """Take a short name for a module (``nn = topi.nn``), and the paths of a table."""
        if isinstance(value, ast.Attribute):
            made = self._value(value)
            if isinstance(made, (types.ModuleType, type)):
                self.names[name] = made
        if name.endswith(TABLE):
            for path in getattr(importlib.import_module(self.module), name):
                owner, _, last = path.rpartition(".")
                self.found.add(owner, last, named(f"tilewright.{path}"))

    def _value(self, node: ast.expr) -> Any:
        """What an expression stands for; ``None`` if only a run could say."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        owner = self._value(node.value)
        if not isinstance(owner, (types.ModuleType, type)):
            return None
        value = _part(owner, node.attr)
        if value is not None:
            self.found.add(_path(owner), node.attr, value)
        return value


def _part(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        try:
            return importlib.import_module(f"{owner.__name__}.{name}")
        except (ImportError, AttributeError):
            return None


def _path(owner: Any) -> str:
    name = owner if isinstance(owner, str) else owner.__name__
    return str(name).removeprefix("tilewright").lstrip(".")


def untried(rows: Iterable[Row], tests: Referred) -> Iterator[Row]:
    """Give the names counted as the same or renamed that no test refers to."""
    for row in rows:
        if row.state not in ("same", "renamed"):
            continue
        if row.is_member:
            member = row.how.strip("`").rpartition(".")[2] if row.how else row.name.split(".")[-1]
            if member not in tests.attributes and not _is_special(member):
                yield row
            continue
        here = row.how.strip("`") or row.path
        value = named(f"tilewright.{here}")
        if not tests.has(here, value):
            yield row


def _is_special(member: str) -> bool:
    return member.startswith("__") and member.endswith("__")
