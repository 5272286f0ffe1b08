"""Aliases of packages give the modules themselves."""

from __future__ import annotations

import importlib

import pytest

import tilewright
from tilewright.support.aliases import AliasFinder
from tilewright.support.later import imported_later

SAME = [
    ("tilewright.sym", "tilewright.arith"),
    ("tilewright.sym.int_set", "tilewright.arith.int_set"),
    ("tilewright.tirx", "tilewright.tir"),
    ("tilewright.tirx.transform", "tilewright.tir.transform"),
    ("tilewright.tirx.stmt", "tilewright.tir.stmt"),
    ("tilewright.relax.op", "tilewright.relax.ops"),
    ("tilewright.relax.op.nn", "tilewright.relax.ops.nn"),
    ("tilewright.script.ir_builder.tirx", "tilewright.tir.script.ir_builder"),
    ("tilewright.script.ir_builder.tir", "tilewright.tir.script.ir_builder"),
    ("tilewright.script.ir_builder.relax", "tilewright.relax.script.ir_builder"),
    ("tilewright.s_tir.schedule", "tilewright.tir.schedule"),
    ("tilewright.s_tir.schedule.state", "tilewright.tir.schedule.state"),
    ("tilewright.s_tir.transform", "tilewright.tir.transform"),
    ("tilewright.s_tir.analysis", "tilewright.tir.analysis"),
    ("tilewright.s_tir.meta_schedule.database", "tilewright.meta_schedule.database"),
    ("tilewright.s_tir.dlight.gpu", "tilewright.dlight.gpu"),
    ("tilewright.s_tir.tensor_intrin", "tilewright.tir.intrin"),
    ("tilewright.script.tirx", "tilewright.tir.script"),
    ("tilewright.script.tir", "tilewright.tir.script"),
    ("tilewright.script.relax", "tilewright.relax.script"),
    ("tilewright.transform", "tilewright.ir.transform"),
    ("tilewright.instrument", "tilewright.ir.instrument"),
]


@pytest.mark.parametrize(("alias", "name"), SAME)
def test_aliases_are_the_modules_themselves(alias: str, name: str) -> None:
    module = importlib.import_module(name)
    assert importlib.import_module(alias) is module
    assert module.__spec__ is not None
    assert (module.__name__, module.__spec__.name) == (name, name)


def test_aliases_are_attributes_without_an_import() -> None:
    assert tilewright.sym is tilewright.arith
    assert tilewright.tirx is tilewright.tir
    assert tilewright.s_tir.meta_schedule is tilewright.meta_schedule
    assert tilewright.s_tir.SBlock is tilewright.tir.Block
    assert tilewright.s_tir.Schedule is tilewright.tir.Schedule
    assert set(tilewright.__all__) <= set(dir(tilewright))
    with pytest.raises(AttributeError, match="nothing"):
        tilewright.s_tir.nothing


def test_what_is_not_there_is_named_as_it_was_asked_for() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"tilewright\.sym\.nothing"):
        importlib.import_module("tilewright.sym.nothing")


def test_the_longest_alias_counts() -> None:
    finder = AliasFinder({"a": "x", "a.b": "y.z"})
    assert finder.resolve("a.c.d") == "x.c.d"
    assert finder.resolve("a.b.c") == "y.z.c"
    assert finder.resolve("ab") is None
    assert finder.find_spec("c.a", None) is None


def test_a_fault_inside_of_a_module_is_told(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "faulty_module.py").write_text("import nothing_of_that_name")
    monkeypatch.syspath_prepend(tmp_path)
    finder = AliasFinder({"alias": "faulty_module"})
    with pytest.raises(ModuleNotFoundError, match="nothing_of_that_name"):
        finder.find_spec("alias", None)


def test_later_names_may_have_another_name_in_their_module() -> None:
    find = imported_later("p", {"root": "math:sqrt", "math": "math", "pi": "math"})
    math = importlib.import_module("math")
    assert find("root") is math.sqrt
    assert find("pi") == math.pi
