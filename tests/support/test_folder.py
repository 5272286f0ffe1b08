"""Packages that find what they hold in their own files."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.support.errors import TilewrightError
from tilewright.support.folder import classes_in, modules_in, register_classes
from tilewright.support.registry import Registry

BASE = "class Thing:\n    name = ''\n"
FILES = {
    "zebra.py": "from {package}.base import Thing\nclass Zebra(Thing):\n    name = 'zebra'\n",
    "ant.py": (
        "from {package}.zebra import Zebra\n"
        "class Ant(Zebra):\n    name = 'ant'\n"
        "class Nameless(Zebra):\n    pass\n"
        "class _Hidden(Zebra):\n    pass\n"
    ),
    "base.py": BASE,
    "_helper.py": "raise AssertionError('a helper is imported by those who need it')\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> str:
    """A package of things, of a name of its own."""
    name = f"things_{abs(hash(request.node.name))}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for file, text in FILES.items():
        (folder / file).write_text(text.replace("{package}", name))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module(name)
    return name


def test_modules_come_in_the_order_of_their_names(package: str) -> None:
    found = [module.__name__ for module in modules_in(package)]
    assert found == [f"{package}.{name}" for name in ("ant", "base", "zebra")]


def test_classes_are_public_derived_and_at_home(package: str) -> None:
    base = importlib.import_module(f"{package}.base")
    assert list(classes_in(package, base.Thing)) == ["Ant", "Nameless", "Zebra"]


def test_classes_register_by_a_name_of_their_own(package: str) -> None:
    base = importlib.import_module(f"{package}.base")
    registry: Registry[Callable[[], Any]] = Registry("thing")
    found = register_classes(registry, classes_in(package, base.Thing))
    assert {name: entry.__name__ for name, entry in registry.items()} == {
        "ant": "Ant",
        "zebra": "Zebra",
    }
    assert "Nameless" in found
    with pytest.raises(TilewrightError, match="registered twice"):
        register_classes(registry, found)


def test_a_folder_put_on_the_path_counts(package: str, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (more / "bee.py").write_text("")
    importlib.import_module(package).__path__.append(str(more))
    assert [module.__name__.rpartition(".")[2] for module in modules_in(package)] == [
        "ant", "base", "bee", "zebra",
    ]  # fmt: skip
