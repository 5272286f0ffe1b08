"""Why a function has its schedule."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from trial_cases import TARGET, Run, doubled

from tilewright import te
from tilewright.meta_schedule.database import TuningRecord
from tilewright.meta_schedule.database.record import provenance
from tilewright.meta_schedule.report.explain import (
    _told_apart,
    by_rule,
    explain_record,
    explain_rule,
    interval_text,
)
from tilewright.meta_schedule.trial_log import read_logs
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule


def matmul() -> PrimFunc:
    a, b = (te.placeholder((32, 32), "float32", name) for name in "AB")
    k = te.reduce_axis((0, 32), "k")
    c = te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def test_a_record_says_whom_it_beat_and_how_it_was_checked(tmp_path: Path) -> None:
    run = Run(tmp_path)
    made = run.batch([2e-6], "wrong", [1e-6])
    run.race([made[2], made[0]], [1e-6] * 7, [2e-6] * 7)
    (log,) = read_logs(tmp_path)
    best = run.database.query_tuning_record(doubled(), TARGET)
    assert best is not None
    found = explain_record(best, database=run.database, log=log)
    assert found.facts["schedule"] == ["found by the search, which made it from its sketches"]
    assert found.facts["beat"][:2] == [
        "in a race, measured in turn:", "  what the rules make: 2.00 times as long",
    ]  # fmt: skip
    assert found.facts["checked"][0] == "against the unscheduled program"
    assert "vectorized" in found.tree and "vectorize" in found.trace
    assert "def main" in found.script
    text = found.text()
    assert text.startswith("function  B (64, 64)") and "loops:" in text and "script:" not in text
    assert "script:" in found.text(script=True)
    assert found.as_json()["facts"] == found.facts


def test_a_rule_s_own_schedule_is_known_as_such() -> None:
    run = Run(Path("unused"))
    func = run.task.context.mod["main"]
    own = by_rule(func, TARGET)
    assert own is not None and own.schedule.trace is not None
    workload = run.database.commit_workload(func)
    record = TuningRecord(own.schedule.trace, workload, (1e-6,), TARGET)
    found = explain_record(record)
    assert found.facts["schedule"] == [f"what the rules make ({own.rule})"]
    assert found.facts["checked"][0].startswith("never")
    assert found.facts["time"] == ["1 us (measured once)"]


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        ("rule", "what the rules made when it was measured; they make another one now"),
        ("rule, with option 1 of x", "by rule, with other options than its own: option 1 of x"),
        ("adapted from another shape", "adapted from another shape"),
        (None, "the record doesn't say what made it"),
    ],
)
def test_origins(origin: str | None, text: str) -> None:
    run = Run(Path("unused"))
    workload = run.database.commit_workload(doubled())
    sch = run.candidate(4).sch
    record = TuningRecord(sch.trace, workload, (1e-6,), TARGET, None, provenance(origin=origin))
    assert explain_record(record).facts["schedule"] == [text]


def test_a_record_that_does_not_replay_is_explained_as_far_as_possible() -> None:
    run = Run(Path("unused"))
    other = Schedule(matmul())
    other.reorder(*reversed(other.get_loops("C")))
    workload = run.database.commit_workload(doubled())
    record = TuningRecord(other.trace, workload, (1e-6,), TARGET)
    found = explain_record(record)
    assert "doesn't replay" in found.facts["problem"][0] and not found.tree and found.trace


def test_a_rule_says_its_choices_and_why_others_do_not_apply() -> None:
    found = explain_rule(matmul(), TARGET, "matmul", why="the database has no record")
    assert found.facts["schedule"] == ["by rule: the database has no record"]
    lines = found.facts["by rule"]
    assert lines[0] == "TiledReduction applies"
    assert any(line.startswith("  tiled_reduction.plan: ") for line in lines)
    assert any(line.startswith("not Scan: ") for line in lines)
    assert "cycles" in found.facts["estimate"][0]
    assert "parallel" in found.tree or "vectorized" in found.tree


def test_options_are_told_apart_by_what_differs() -> None:
    @dataclass
    class Tile:
        rows: int
        score: float

    @dataclass
    class Plan:
        name: str
        tile: Tile

    texts = _told_apart([Plan("a", Tile(2, 1 / 3)), Plan("a", Tile(4, 1 / 3))])
    assert texts == ["tile.rows 2", "tile.rows 4"]
    assert _told_apart([True, False]) == ["True", "False"]


def test_times_have_their_interval() -> None:
    assert interval_text([1e-3] * 3) == "1 ms (1 ms to 1 ms, from 3 values)"
    assert interval_text([1e-3] * 10_000).endswith("from 10000 values)")  # a stranger's, perhaps
    assert interval_text([1e-3]) == "1 ms (measured once)"
