"""A record that ends the process when it is run in its graph does so thrice at most."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.relax.helpers import graph, random, tensor
from tilewright import relax
from tilewright.meta_schedule.database import JSONDatabase, TuningRecord
from tilewright.meta_schedule.database.record import provenance
from tilewright.meta_schedule.resume import whole_run
from tilewright.relax import op
from tilewright.relax.tuning import graph_race
from tilewright.relax.tuning.attempts import Attempts
from tilewright.relax.tuning.graph_race import GraphRace
from tilewright.relax.tuning.models import apply_database, extract_tasks, to_tensor_functions
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

TARGET = Target("native").with_options(num_cores=1)
RUNS = Path("logs", "runs.jsonl")


def history(folder: Path, *steps: object) -> Attempts:
    """What a run knows before which others tried these records, or (``None``) began."""
    with whole_run(folder, "run"):
        pass
    lines = (folder / RUNS).read_text().splitlines()
    begin = json.loads(lines[0])
    (folder / RUNS).write_text("")
    made = [begin]
    for step in steps:
        event: dict[str, Any] = {"kind": "begin", "digest": "run"}
        if isinstance(step, str):
            event = {"kind": "trying", "records": [*step]}
        if step in ("tried", "end"):
            event = {"kind": step, "finished": False} if step == "end" else {"kind": step}
        made.append({"run": begin["run"], "time": begin["time"], **event})
    (folder / RUNS).write_text("".join(json.dumps(line) + "\n" for line in made))
    with whole_run(folder, "run") as whole:
        return Attempts(whole)


@pytest.mark.parametrize("steps, deadly, suspects", [
    ((), "", ""),
    (("a", "tried", "abc", "tried"), "", ""),
    (("a",), "", "a"),
    (("a", None, "a"), "a", ""),
    (("a", None, "a", "tried"), "", ""),  # the first kill came from outside
    (("a", None, "a", "tried", "a"), "a", ""),
    (("a", None, "a", "tried", "ab"), "", "b"),
    (("abc",), "", "abc"),
    (("abc", None, "a", "tried"), "", "bc"),
    (("abc", None, "a", "tried", "b"), "", "bc"),
    (("abc", None, "a", "tried", "b", None, "b"), "b", "c"),
    (("abc", None, "a", "tried", "b", None, "b", None, "c", "tried", "ac", "tried"), "b", ""),
    (("ab", None, "a", "tried", "b", "tried", "ab"), "ab", ""),
    (("ab", None, "a", "tried", "b", "tried", "bc", None, "c", "tried", "bc"), "bc", ""),
    (("ab", None, "a", "tried", "b", "tried", "a", None, "ab", "tried"), "", ""),
    (("ab", None, "a", "tried", "ab"), "", "b"),
    (("a", None, "bc"), "", "abc"),
    (("", None), "", ""),
    (("a", "end", None), "", ""),  # interrupted before the block began
])  # fmt: skip
def test_what_was_run_when_the_process_ended(
    steps: tuple[object, ...], deadly: str, suspects: str, tmp_path: Path
) -> None:
    known = history(tmp_path, *steps)
    assert known.deadly == set(deadly) and known.suspects == set(suspects)


def test_a_log_that_others_wrote(tmp_path: Path) -> None:
    with whole_run(tmp_path, "run") as whole:
        run = whole.run
    with (tmp_path / RUNS).open("w") as file:
        for records in (3, None, {"a": 1}, [None, 4, ["x"]], "abc", ["a", 5]):
            begin = {"kind": "begin", "run": run, "digest": "run", "time": 1.0}
            for event in (begin, {"kind": "trying", "run": run, "records": records}):
                file.write(json.dumps(event) + "\n")
        file.write('{"kind": "trying", "records": ["z"]}\n{"kind": "trying"')
    with whole_run(tmp_path, "run") as whole:
        known = Attempts(whole)
    assert not known.deadly and known.suspects == {"a"}


def test_whatever_a_block_ends_with_is_noted(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        whole_run(tmp_path, "run") as whole,
        Attempts(whole).trying(["a"]),
    ):
        raise KeyboardInterrupt
    with whole_run(tmp_path, "run") as whole:
        known = Attempts(whole)
    assert not known.deadly and not known.suspects
    with Attempts().trying(["a"]):
        pass  # nowhere to note it


N = 48
W = random(N, N, seed=1)


@pytest.mark.parametrize("culprits", [1, 2, 3])
def test_runs_that_go_on_find_who_it_was(
    culprits: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mod = graph(
        lambda x: op.nn.softmax(op.matmul(op.nn.relu(op.exp(x)), relax.const(W))), tensor((N, N))
    )
    database = JSONDatabase(work_dir=tmp_path / "records")
    known = []
    for task in extract_tasks(mod, TARGET):
        workload = database.commit_workload(task.mod)
        said = provenance({"against": "unscheduled program", "trusted_timing": True})
        record = TuningRecord(
            Schedule(task.mod).trace, workload, (1e-9,), TARGET, provenance=said
        )  # fmt: skip
        database.commit_tuning_record(record)
        known.append((workload.hash, record.digest))
    assert len(known) >= 2
    deadly = {workload for workload, _ in known[:culprits]}
    run_with = graph_race._with_records

    def with_records(base: Any, named: Any, chosen: Mapping[str, Any]) -> Any:
        if deadly & {graph_race.workload_hash(base.functions[name]) for name in chosen}:
            os.kill(os.getpid(), signal.SIGKILL)
        return run_with(base, named, chosen)

    monkeypatch.setattr(graph_race, "_with_records", with_records)

    def race() -> Collection[tuple[str, str]]:
        race = GraphRace(mod, lambda _: to_tensor_functions(mod, TARGET), TARGET)
        with whole_run(tmp_path, "run") as whole:
            choice = race.run(database, attempts=Attempts(whole))
        assert choice is not None
        database.commit_graph_choice(choice)
        return choice.records

    for _ in range(1 + 2 * culprits):
        child = os.fork()
        if child == 0:
            race()
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with caplog.at_level(logging.WARNING):
        assert not deadly & {workload for workload, _ in race()}
    said = [text for text in caplog.messages if "ended the process" in text]
    assert len(said) == culprits
    assert all(any(workload[:12] in text for text in said) for workload in deadly)
    # Whoever compiles the graph doesn't get them either: nothing else served those functions.
    tuned, report = apply_database(database, mod, TARGET)
    left = {item.name for item in report if item.outcome == "rule"}
    assert deadly <= {graph_race.workload_hash(tuned[name]) for name in left}
