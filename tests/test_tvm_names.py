"""The page for those who come from TVM is up to date, and names are what it says."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tilewright import tir, topi

TOOLS = Path(__file__).parent.parent / "tools"


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        yield importlib.import_module("tvm_names")


@pytest.fixture(scope="module")
def tried(tool: ModuleType) -> ModuleType:
    return importlib.import_module("tvm_tried")


@pytest.fixture(scope="module")
def compared(tool: ModuleType) -> Any:
    return tool.compared()


def test_page_is_up_to_date_and_enough_names_are_the_same(tool: ModuleType, compared: Any) -> None:
    rows, comparison = compared
    assert not list(tool.shortfalls(rows, comparison))
    made = tool.page(rows, comparison)
    assert tool.PAGE.read_text().endswith(tool.MARK + made), "python tools/tvm_names.py"


def test_every_decision_is_about_a_name(compared: Any) -> None:
    rows, comparison = compared
    paths = {row.path for row in rows}
    assert not set(comparison.decisions.renamed) - paths
    unused = [
        pattern for pattern in comparison.decisions.out_of_scope if not comparison.excluded[pattern]
    ]
    assert not unused


def test_packages_are_imported_by_their_paths(compared: Any) -> None:
    rows, _ = compared
    for package in {row.package for row in rows if row.state == "same"}:
        importlib.import_module(f"tilewright.{package}".rstrip("."))


def test_every_name_is_tried_by_a_test(compared: Any, tried: ModuleType) -> None:
    """Tests refer to each name that counts as the same; ``tools/tvm_tried.py`` says how."""
    rows, _ = compared
    missing = [row.path for row in tried.untried(rows, tried.referred())]
    assert not missing, "write a test that calls these with TVM's arguments"


def test_tests_that_call_names_are_there(tool: ModuleType, tried: ModuleType) -> None:
    """What ``tools/tvm_called.py`` found names tests that weren't renamed or taken away since."""
    root = tried.TESTS.parent
    for test in set(json.loads(tool.CALLED.read_text())[tool.BOUND].values()):
        file, _, function = test.partition("::")
        text = (root / file).read_text() if (root / file).exists() else ""
        definition = f"def {function.rpartition('::')[2]}(" if function else "import"
        assert definition in text, f"{test} is gone: python tools/tvm_called.py TESTS"


def test_what_a_test_refers_to(tried: ModuleType) -> None:
    file = tried.TESTS / "support" / "nowhere.py"
    found = tried.Referred()
    text = """
from tilewright import topi, tir as t
from tilewright.relax import op
nn = topi.nn
def test(x, schedule):
    nn.relu(x), t.exp(x), schedule.split(x)
    getattr(op, "cosh")(x)
"""
    tried.read(found, file, text)
    names = {"topi.nn.relu": True, "tirx.exp": True, "te.exp": True, "topi.nn.selu": False}
    names |= {"relax.op.cosh": False}
    assert {path: found.has(path, tried.named(f"tilewright.{path}")) for path in names} == names
    assert "split" in found.attributes and "cosh" not in found.attributes


def test_calls_are_told_apart(tool: ModuleType, compared: Any) -> None:
    names = importlib.import_module("tvm_called").Names(*compared)
    schedule = tir.Schedule(tir.PrimFunc((), tir.Evaluate(tir.const(0))))

    def found(function: Any, *args: Any, **kwargs: Any) -> dict[str, bool]:
        return dict(names.of(function, args, kwargs))

    assert found(topi.sum, 1, axis=0)["topi.sum"]
    assert not found(topi.sum, 1, axes=0)["topi.sum"]
    assert found(schedule.split, 1, [2, 3])["s_tir.Schedule.split"]
    assert found(tir.Schedule.split, schedule, loop=1, factors=[2])["s_tir.Schedule.split"]
    assert not found(schedule.split, 1, sizes=[2])["s_tir.Schedule.split"]
    assert not found("a b".split, 1, [2, 3])  # a method of that name, but of another class
    assert {"te.exp", "tirx.exp"} <= {path for path, fits in names.of(tir.exp, (1,), {}) if fits}


TRACED = """
from functools import cache
@cache
def half(x):
    return x // 2
class Halves:
    def of(self, x):
        "Docstrings stay."
        return half(x)
made = Halves().of(*[len("abcd")])
"""


def test_calls_of_a_file_are_traced(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file_to_trace.py").write_text(TRACED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.meta_path", [*sys.meta_path])
    for name in ("__tried__", "__decorator__", "__entered__"):
        monkeypatch.setattr(f"builtins.{name}", None, raising=False)
    told: list[tuple[Any, ...]] = []

    def tried(function: Any, *args: Any) -> Any:
        told.append((function.__name__, *args))
        return function(*args)

    def decorator(function: Any) -> Any:
        told.append((function.__name__, "decorates"))
        return function

    def entered(this: Any) -> None:
        told.append((type(this).__name__, "entered"))

    importlib.import_module("traced_calls").trace(tmp_path, tried, decorator, entered)
    made = importlib.import_module("file_to_trace")
    assert made.made == 2 and made.Halves.of.__doc__ == "Docstrings stay."
    assert told == [
        ("cache", "decorates"), ("Halves",), ("len", "abcd"), ("of", 4), ("Halves", "entered"),
        ("half", 4),
    ]  # fmt: skip


DIFFERENCES = {
    "x, y=1": ("x, y=1", []),
    "a, b": ("b, a", ["`a` has another place", "`b` has another place"]),
    "x, axis=0": ("x, axis=-1", ["`axis=0` is `-1`"]),
    "x, keep=False": ("x", ["no `keep`"]),
    "x, y": ("x, *, y", ["`y` by name only"]),
    "x, z=1": ("x, z", ["`z` is required"]),
    "x": ("x, more", ["`more` is required"]),
    "x, /": ("x, *, more=1", []),
    "x, span=None": ("x", []),
    "*args": ("args", ["no `*args`"]),
    "x, key=...": ("x, key=None", []),
    "x, n=1.0": ("x, n=1", []),
    "*, key": ("**names", []),
    "x, key": ("*rest, **names", []),
}


@pytest.mark.parametrize("theirs", DIFFERENCES)
def test_differences_of_signatures_are_told(tool: ModuleType, theirs: str) -> None:
    ours, told = DIFFERENCES[theirs]
    assert tool.differences(theirs, ours, {"span"}) == told


def test_signatures_are_written_as_text(tool: ModuleType) -> None:
    def function(a, /, b=1, *rest, c=(1, 2), d=object(), **more):  # noqa: B008
        raise NotImplementedError

    text = "a, /, b=1, *rest, c=(1, 2), d=..., **more"
    assert tool.signature_text(function) == text
    assert tool.signature_text(lambda *, key=None: key) == "*, key=None"
