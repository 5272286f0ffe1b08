"""Whole graphs are compared in the end: records that are slower in place are put back."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.relax.helpers import graph, random, symbol, tensor
from tilewright import relax
from tilewright.ir import IRModule
from tilewright.meta_schedule.database import Database, JSONDatabase, MemoryDatabase, TuningRecord
from tilewright.meta_schedule.database.graph_choice import GraphChoice
from tilewright.meta_schedule.database.record import provenance
from tilewright.meta_schedule.passes import MetaScheduleApplyDatabase
from tilewright.meta_schedule.progress import Progress
from tilewright.relax import op
from tilewright.relax.tuning import graph_race
from tilewright.relax.tuning.graph_race import graph_hash
from tilewright.relax.tuning.models import compile_relax, extract_tasks, race_graph
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Schedule

TARGET = Target("native").with_options(num_cores=1)
N = 160
W = random(N, N, seed=1)


def network(rows: object = N) -> IRModule:
    return graph(
        lambda x: op.nn.softmax(
            op.matmul(op.nn.relu(op.matmul(x, relax.const(W))), relax.const(W))
        ),
        tensor((rows, N)),
    )


def with_records(mod: IRModule, database: Database) -> list[str]:
    """Records of loops as they are, which claim to be fast; returns their workloads' hashes."""
    found = []
    for task in extract_tasks(mod, TARGET):
        workload = database.commit_workload(task.mod)
        said = provenance({"against": "unscheduled program", "trusted_timing": True})
        database.commit_tuning_record(
            TuningRecord(Schedule(task.mod).trace, workload, (1e-9,), TARGET, provenance=said)
        )
        found.append(workload.hash)
    return found


class Messages(Progress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)


class Every(dict[str, float]):
    """The same speedup for every kernel."""

    def __init__(self, value: float) -> None:
        self.value = value

    def get(self, name: str, default: object = None) -> float:  # type: ignore[override]
        return self.value


def choice_of(mod: IRModule, database: Database) -> GraphChoice | None:
    return database.graph_choice(graph_hash(mod), TARGET)


def test_records_that_are_slow_in_their_place_are_put_back(tmp_path: Path) -> None:
    mod, database = network(), JSONDatabase(work_dir=tmp_path)
    recorded = with_records(mod, database)
    progress = Messages()
    race_graph(mod, TARGET, database, progress=progress)
    assert "whole graphs: by rule " in progress.said[-1]
    choice = choice_of(mod, JSONDatabase(work_dir=tmp_path))
    assert choice is not None
    # The products, at least, are many times slower as loops; they may not be used.
    products = [task for task in extract_tasks(mod, TARGET) if "matmul" in task.task_name]
    hashes = {database.commit_workload(task.mod).hash for task in products}
    assert hashes and hashes <= set(choice.by_rule) <= set(recorded)
    x = random(N, N, seed=3)
    made = np.asarray(compile_relax(database, mod, TARGET)(x))
    np.testing.assert_allclose(made, np.asarray(relax.build(mod, TARGET)(x)), rtol=1e-4, atol=1e-6)


def test_what_is_kept_for_the_race_is_a_part_of_any_budget() -> None:
    race = graph_race.GraphRace(
        network(), lambda _: relax.get_pipeline("zero", TARGET)(network()), TARGET
    )
    assert race.by_rule.executable  # built before it is timed
    race._build_seconds = 0.05
    few, some, much = (race.seconds(x, measured_ways=False) for x in (0.5, 5.0, 100.0))
    assert 0.0 < few < some < much and some < 2.5
    assert race.most == graph_race._BEST
    assert race.seconds(0.5, measured_ways=True) > few and race.most == 1
    assert math.isfinite(race.seconds(1e308, measured_ways=False)) and race.most == graph_race._BEST
    race._build_seconds = 1e3
    assert race.seconds(100.0, measured_ways=False) > 1e3 and race.most == 1


def test_a_graph_without_records_has_no_choice() -> None:
    database = MemoryDatabase()
    race_graph(network(), TARGET, database)
    assert choice_of(network(), database) is None


@pytest.fixture
def raced(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], GraphChoice]:
    """The choice if the graph with its records takes such a share of the time by rule."""

    def run(share: float) -> GraphChoice:
        database, seen = MemoryDatabase(), list[object]()
        with_records(network(), database)

        def turn(executable: object, inputs: object) -> float:
            if executable not in seen:
                seen.append(executable)
            return 1.0 if executable is seen[0] else share

        monkeypatch.setattr(graph_race, "_turn", turn)
        monkeypatch.setattr(graph_race, "gains", lambda *_: Every(2.0))
        race_graph(network(), TARGET, database)
        choice = choice_of(network(), database)
        assert choice is not None
        return choice

    return run


def test_a_graph_with_records_must_be_clearly_faster(
    raced: Callable[[float], GraphChoice],
) -> None:
    for share in (0.9, 0.99):
        choice = raced(share)
        assert choice.by_rule == ()
        assert len(choice.records) == len(extract_tasks(network(), TARGET))
    for share in (0.998, 1.0, 1.1):
        choice = raced(share)
        assert choice.records == ()
        assert len(choice.by_rule) == len(extract_tasks(network(), TARGET))


def test_a_graph_with_other_results_is_not_used(
    raced: Callable[[float], GraphChoice],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(graph_race, "_close", lambda *_: False)
    with caplog.at_level(logging.WARNING):
        assert raced(0.5).by_rule != ()
    assert "has other results than by rule" in caplog.text


def test_symbolic_sizes_are_measured_where_they_are_given() -> None:
    mod = network(symbol("n"))
    database, progress = MemoryDatabase(), Messages()
    with_records(mod, database)
    race_graph(mod, TARGET, database, progress=progress)
    assert choice_of(mod, database) is None and "sizes are open" in progress.said[-1]
    race_graph(mod, TARGET, database, progress=progress, symbols={"n": 33})
    assert choice_of(mod, database) is not None


def test_workloads_left_to_the_rules_get_no_record() -> None:
    mod, database = network(), MemoryDatabase()
    (first, *_) = with_records(mod, database)
    functions = relax.get_pipeline("zero", TARGET)(mod)
    applied = MetaScheduleApplyDatabase(database=database, target=TARGET, leave={first})(functions)
    scheduled = [
        bool(function.attrs.get(IS_SCHEDULED))
        for name, function in applied.functions.items()
        if name != "main"
    ]
    assert scheduled.count(False) == 1


def test_graphs_with_effects_are_not_called() -> None:
    @I.ir_module
    class Sends:
        @R.function(pure=False)
        def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
            y: R.Tensor((4, 4), "float32") = R.exp(x)
            R.call_packed("tests.nobody_defines_this", y, sinfo_args=(R.Tuple(),))
            return y

    database, progress = MemoryDatabase(), Messages()
    with_records(Sends, database)
    race_graph(Sends, TARGET, database, progress=progress)
    assert progress.said == ["the graph isn't measured as a whole: its calls have effects"]
    assert choice_of(Sends, database) is None


def test_numbers_that_numpy_has_no_type_for_are_raced() -> None:
    mod = graph(lambda x: op.exp(op.add(x, x)), tensor((4, 4), "bfloat16"))
    database = MemoryDatabase()
    with_records(mod, database)
    race_graph(mod, TARGET, database, progress=Messages())
    assert choice_of(mod, database) is not None


def test_infinite_results_are_no_agreement() -> None:
    right = np.array([1.0, np.inf, np.nan], "float32")
    assert graph_race._close(right, right)
    assert not graph_race._close(right, np.array([np.nan, np.inf, np.nan], "float32"))


# ---- on disk -------------------------------------------------------------------------------------


def test_the_last_choice_counts_and_bad_lines_are_set_aside(tmp_path: Path) -> None:
    database = JSONDatabase(work_dir=tmp_path)
    first = GraphChoice("a" * 32, TARGET, True, ("b" * 32,))
    last = GraphChoice("a" * 32, TARGET, False, ())
    database.commit_graph_choice(first)
    database.commit_graph_choice(last)
    with (tmp_path / "database_graph.json").open("a") as file:
        for line in ("[]", '["x", {}, true, []]', '["' + "a" * 32 + '", {"kind": 3}, true, []]',
                     '["' + "a" * 32 + '", {"kind": "llvm"}, 1, []]', "not json"):  # fmt: skip
            file.write(line + "\n")
    read = JSONDatabase(work_dir=tmp_path)
    assert read.graph_choice("a" * 32, TARGET) == last
    assert read.graph_choice("b" * 32, TARGET) is None
    assert len((tmp_path / "database_graph.json.corrupt").read_text().splitlines()) == 5
    with pytest.raises(TuneError, match="not a choice for a graph"):
        GraphChoice.from_json([1, 2])
