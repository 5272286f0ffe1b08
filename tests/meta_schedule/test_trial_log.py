"""Logs of trials: what is kept, and what of a damaged or hostile file is read."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
from trial_cases import Run

from tilewright import te
from tilewright.meta_schedule.trial_log import (
    FOLDER,
    append,
    file_name,
    read_log,
    read_logs,
    read_runs,
)
from tilewright.meta_schedule.tune_context import TuneContext


def test_a_run_is_kept_trial_by_trial(tmp_path: Path) -> None:
    run = Run(tmp_path)
    made = run.batch([2e-6, 3e-6], "wrong", [1e-6])
    run.race([made[2], made[0]], [1e-6, 1e-6], [2e-6, 2e-6])
    run.log.end({"searching": 1.5, "total": 2.0})

    (log,) = read_logs(tmp_path)
    assert (log.task, log.workload, log.left_out) == ("doubled", run.task.context.hash, 0)
    (start,) = log.of_kind("start")
    assert (start["flops"], start["bytes"], start["model"]) == (64.0, 512.0, "AnalyticModel")
    trials = log.of_kind("trial")
    assert [trial["seconds"] for trial in trials] == [(2e-6, 3e-6), None, (1e-6,)]
    assert [trial["origin"] for trial in trials] == ["rule", "search", "search"]
    assert (trials[1]["reason"], trials[1]["error"]) == ("wrong", "it is wrong")
    assert all(isinstance(trial["predicted"], float) for trial in trials)
    assert log.of_kind("batch")[0]["rejected"] == {"wrong": 1.0}
    (race,) = log.of_kind("race")
    assert [entry["won"] for entry in race["entries"]] == [True, None]
    assert race["entries"][0]["trace"] == trials[2]["trace"]
    (end,) = read_runs(tmp_path)
    assert (end["phases"], end["trials"]) == ({"searching": 1.5, "total": 2.0}, 3.0)
    # The winner is no fourth trial, and the records tell what made them.
    origins = [x.provenance["origin"] for x in run.database.get_all_tuning_records()]
    assert origins == ["rule", "search", "search"]


def test_torn_and_foreign_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append(path, "start", task="a", workload="00")
    with path.open("ab") as file:
        file.write(b'{"kind":"trial","seco')  # killed here
    append(path, "trial", seconds=[1.0], predicted=float("nan"))
    lines = [
        b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"kind":"exec","code":"x"}', b'{"kind":[]}',
        b'{"kind":"trial","seconds":' + b"9" * 5000 + b"}",
    ]  # fmt: skip
    with path.open("ab") as file:
        file.write(b"\n".join(lines) + b"\n")
    log = read_log(path)
    assert [event["kind"] for event in log.events] == ["start", "trial"]
    assert log.events[1]["seconds"] == (1.0,) and log.events[1]["predicted"] is None
    assert log.left_out == 1 + len(lines)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seconds", [1.0, "x"]), ("seconds", []), ("seconds", [-1.0]), ("seconds", [True]),
        ("predicted", "1"), ("predicted", 10**400), ("reason", {"a": 1}), ("time", -1),
        ("run", 3),
    ],
)  # fmt: skip
def test_values_of_other_types_are_none(field: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"kind": "trial", field: value}) + "\n")
    (event,) = read_log(path).events
    assert event[field] is None


def named(name: str, target: str = "llvm -mcpu=znver4", n: int | None = None) -> str:
    size = te.var("n")
    a = te.placeholder((size,), "float32", "A")
    func = te.create_prim_func([a, te.compute((size,), lambda i: a[i] * 2.0, name="B")])
    symbols = None if n is None else {"n": n}
    return file_name(TuneContext(func, target=target, task_name=name, symbols=symbols))


def test_names_of_files_are_plain_and_apart() -> None:
    """Long names may differ at their ends only, and tasks in their sizes or targets."""
    assert named("fused_add").startswith("fused_add-") and named("fused_add").endswith(".jsonl")
    hostile = named("../../etc/<script>\n\x00é")
    assert "/" not in hostile and not hostile.startswith(".") and hostile.isascii()
    tasks = [
        named(100 * "a" + "@n=1"), named(100 * "a" + "@n=2"), named("a/b"), named("a b"),
        named("a_b"), named("a_b", "llvm -mcpu=haswell"), named("a_b", n=7), named("a_b", n=8),
    ]  # fmt: skip
    assert len(set(tasks)) == len(tasks) and max(map(len, tasks)) < 100


def test_a_log_that_is_no_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    os.mkfifo(tmp_path / FOLDER / "pipe.jsonl")  # reading it would wait for ever
    (tmp_path / FOLDER / "folder.jsonl").mkdir()
    assert read_logs(tmp_path) == [] and read_runs(tmp_path) == []


def test_what_can_not_be_logged_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FOLDER).write_text("in the way")
    run = Run(tmp_path)
    with caplog.at_level(logging.WARNING, "tilewright"):
        run.batch([1e-6], [2e-6])
    assert len(run.database.get_all_tuning_records()) == 2
    assert [r.message for r in caplog.records if "log of trials can't be written" in r.message]
    assert len(caplog.records) == 1
