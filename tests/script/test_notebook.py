"""What notebooks show: the script in colour, and no markup that a program could bring along."""

from __future__ import annotations

import pytest

from tilewright import te
from tilewright.ir import IRModule
from tilewright.meta_schedule.database import MemoryDatabase, TuningRecord
from tilewright.script import notebook
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.loop_tree import loop_tree


@pytest.fixture
def func() -> PrimFunc:
    a = te.placeholder((8, 16), "float32", "A")
    k = te.reduce_axis((0, 16), "k")
    b = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="B")
    return te.create_prim_func([a, b])


def test_functions_and_modules_are_coloured(func: PrimFunc) -> None:
    for item in (func, IRModule({"main": func})):
        html = item._repr_html_()
        assert '<span class="k">def</span>' in html and "<style>" in html


def test_schedules_have_their_trace(func: PrimFunc) -> None:
    sch = Schedule(func)
    sch.split(sch.get_loops("B")[0], [2, None])
    html = sch._repr_html_()
    assert "<details><summary>trace</summary>" in html and "apply_trace" in html
    assert "apply_trace" in sch.trace._repr_html_()
    assert "apply_trace" not in Schedule(func, record=False)._repr_html_()


def test_databases_show_the_best_records(func: PrimFunc) -> None:
    database = MemoryDatabase()
    workload = database.commit_workload(func)
    for seconds in (2e-3, 1e-3):
        sch = Schedule(workload.mod)
        target = Target("llvm -mcpu=znver4")
        database.commit_tuning_record(TuningRecord(sch.trace, workload, (seconds,), target))
    html = database._repr_html_()
    assert "MemoryDatabase: 2 records" in html
    assert "1 ms" in html and "2 ms" not in html and workload.hash[:12] in html


def test_text_never_becomes_markup(func: PrimFunc) -> None:
    hostile = func.with_attr("note", "</pre><script>alert(1)</script>\x1b[2J")
    html = hostile._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html.replace("</span>", "")
    assert "\x1b" not in html


def test_long_scripts_are_shortened() -> None:
    text = notebook.shortened("\n".join(map(str, range(5000))))
    assert text.endswith("# ... 4000 more lines")


def test_the_tree_of_loops(func: PrimFunc) -> None:
    sch = Schedule(func)
    i, k = sch.get_loops("B")
    sch.parallel(i)
    sch.decompose_reduction("B", k)
    assert loop_tree(sch.mod["main"]).splitlines() == [
        "parallel i in 8",
        "├─ block B_init: spatial 8",
        "└─ for k in 16",
        "   └─ block B_update: spatial 8, reduce 16",
    ]
