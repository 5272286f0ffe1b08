"""Tuning measures the ways to compute a convolution, and builds follow what the database knows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.everyday import few
from tests.relax.helpers import graph, graph_of, random, symbol, tensor, values
from tilewright import relax
from tilewright.ir import IRModule, PassContext, structural_hash
from tilewright.meta_schedule.builder import Builder, BuilderInput, BuilderResult, LocalBuilder
from tilewright.meta_schedule.database import JSONDatabase, MemoryDatabase, TuningRecord
from tilewright.meta_schedule.database.record import provenance
from tilewright.meta_schedule.runner import (
    EvaluatorConfig,
    LocalRunner,
    NoReferenceError,
    Runner,
    RunnerInput,
    RunnerResult,
)
from tilewright.relax import op
from tilewright.relax.transform.conv_alternatives import MeasuredTimes, allowed_tiles
from tilewright.relax.tuning.conv_algorithms import AlternativesRace, extract_alternatives
from tilewright.relax.tuning.graph_race import graph_hash
from tilewright.relax.tuning.models import (
    alternatives_to_measure,
    apply_database,
    compile_relax,
    extract_tasks,
    share_of_trials,
    to_tensor_functions,
    tune_relax,
)
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

TARGET = Target("native").with_options(num_cores=1)
LANES = TARGET.vector_lanes(32)
BLOCKS = f"NCHW{LANES}c"
WINOGRAD = [f"{layout} by F({m}x{m}, 3x3)" for layout in ("NCHW", BLOCKS) for m in (2, 4)]
X = random(1, 32, 10, 9, seed=1)
W = random(32, 32, 3, 3, seed=2)


def conv(x, seed=2, size=3, filters=32):
    weight = relax.const(random(filters, 32, size, size, seed=seed))
    return op.nn.conv2d(x, weight, padding=size // 2)


def point(x, seed=2):
    """A convolution that Winograd's filtering doesn't serve."""
    return conv(x, seed, 1)


def single(x, of=conv):
    """A convolution between operators that keep plain images."""
    return op.nn.softmax(of(op.nn.softmax(x, 1)), 1)


def points(x):
    return single(x, point)


class SameModule(Builder):
    """Compiles nothing: the fake runner asks which function it was."""

    def build(self, inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [BuilderResult(module=item.mod) for item in inputs]  # type: ignore[arg-type]


class Biased(Runner):
    """Answers with times by the name of the way, 1 ms for others."""

    def __init__(self, mod: IRModule, seconds: Mapping[str, float | None]) -> None:
        self.names = {
            structural_hash(task): name
            for item in extract_alternatives(mod, TARGET)
            for name, task in {**item.ways, **item.conversions}.items()
        }
        self.seconds = seconds
        self.asked: list[str] = []

    def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
        for item in inputs:
            name = self.names[item.reference.key]
            self.asked.append(name)
            seconds = self.seconds.get(name, 1e-3)
            if seconds is None:
                yield RunnerResult(None, "it is wrong", "wrong")
            else:
                yield RunnerResult((seconds,), error_ratio=0.0)


def measured(mod: IRModule, database=None, trials=64, **seconds: float | None):
    """A database with the times that are given by way."""
    database = MemoryDatabase() if database is None else database
    names = {name.replace("blocks", BLOCKS): time for name, time in seconds.pop("by", {}).items()}
    runner = Biased(mod, names)
    found = extract_alternatives(mod, TARGET)
    spent = AlternativesRace(TARGET, database, SameModule(), runner).run(found, trials)
    return database, spent, runner


def kernels(mod: IRModule, database) -> list[str]:
    return values(to_tensor_functions(mod, TARGET, database=database))


def layouts(mod: IRModule, database, target: Target = TARGET) -> list[str]:
    with database:
        made = relax.transform.SelectConvLayout(target)(mod)
    calls = [b.value for b in made["main"].bindings if isinstance(b.value, relax.Call)]
    return [c.attrs["data_layout"] for c in calls if c.op_name == "nn.conv2d"]


needs_blocks = pytest.mark.skipif(LANES < 8, reason="vectors are too short for blocks")


def test_the_ways_of_a_convolution_are_listed():
    (item,) = extract_alternatives(graph_of(lambda x: conv(conv(x)), X), TARGET)
    assert sorted(item.ways) == sorted(["NCHW", BLOCKS, *WINOGRAD])
    assert len(item.conversions) == 2 and item.weight == 2
    with PassContext(config={"relax.conv_max_error": 0.0, "relax.conv_layout": "NCHW"}):
        assert extract_alternatives(graph_of(conv, X), TARGET) == []


def test_ways_are_the_tasks_of_a_graph():
    mod = graph_of(conv, X)
    known = {structural_hash(t) for t in extract_alternatives(mod, TARGET)[0].ways.values()}
    for error in (0.0, 3e-6, 1e-5):
        with PassContext(config={"relax.conv_max_error": error}):
            (task,) = extract_tasks(mod, TARGET)
        assert structural_hash(task.mod) in known


@pytest.mark.parametrize(("best", "kernel"), [("NCHW", "conv2d"), (WINOGRAD[0], "conv2d_winograd")])
def test_the_fastest_way_is_used(best, kernel):
    mod = graph_of(single, X)
    database, spent, runner = measured(mod, by={best: 1e-4})
    assert spent == len(set(runner.asked)) == 8
    assert kernels(mod, database) == ["softmax", kernel, "softmax"]


def test_the_allowed_error_goes_before_times():
    mod = graph_of(conv, X)
    times = {"NCHW": 5e-4, WINOGRAD[0]: 2e-4, WINOGRAD[1]: 1e-4}
    database, _, _ = measured(mod, by=times)
    sizes = {0.0: [], 3e-6: [4], 1e-5: [6]}
    for error, expected in sizes.items():
        with PassContext(config={"relax.conv_max_error": error}):
            made = to_tensor_functions(mod, TARGET, database=database)
        constants = [
            arg.data.shape[0]
            for binding in made["main"].bindings
            for arg in binding.value.args[1].fields
            if isinstance(arg, relax.Constant) and "winograd" in binding.value.args[0].name
        ]
        assert constants == expected


@needs_blocks
def test_layouts_pay_for_their_conversions():
    mod = graph_of(points, X)
    times = {"NCHW": 3e-4, "blocks": 1e-4, "conversion 0": 8e-5, "conversion 1": 8e-5}
    assert layouts(mod, measured(mod, by=times)[0]) == [BLOCKS]
    times["conversion 1"] = 1.5e-4
    assert layouts(mod, measured(mod, by=times)[0]) == ["NCHW"]


@needs_blocks
def test_chains_are_converted_once():
    chain = graph_of(lambda x: single(x, lambda y: point(point(y), 5)), X)
    times = {"NCHW": 3e-4, "blocks": 2e-4, "conversion 0": 9e-5, "conversion 1": 9e-5}
    database, _, _ = measured(chain, by=times)
    assert layouts(chain, database) == [BLOCKS] * 2
    assert layouts(graph_of(points, X), database) == ["NCHW"]


def test_without_times_the_estimate_decides():
    mod = graph_of(single, X)
    empty, spent, _ = measured(mod, trials=7)  # one too few
    assert spent == 0 and len(empty) == 0
    assert kernels(mod, empty) == kernels(mod, None) == ["softmax", "conv2d_winograd", "softmax"]
    # A way that is wrong has no time; without the direct way's nothing is known.
    database, _, _ = measured(mod, by={"NCHW": None, WINOGRAD[1]: 1e-9})
    assert kernels(mod, database) == kernels(mod, None)
    database, _, _ = measured(mod, by={WINOGRAD[0]: None, WINOGRAD[1]: None})
    assert kernels(mod, database) == ["softmax", "conv2d", "softmax"]


@needs_blocks
def test_times_of_other_targets_do_not_count():
    mod = graph_of(points, X)
    database, _, _ = measured(mod, by={"NCHW": 1e-2, "conversion 0": 1e-5, "conversion 1": 1e-5})
    other = TARGET.with_options(num_cores=3)
    assert layouts(mod, database) == [BLOCKS]
    assert layouts(mod, database, other) == ["NCHW"]


def test_times_with_cold_caches_are_of_another_kind() -> None:
    """Of a direct convolution there is a cold time, too, or of all ways: warm ones are compared."""
    mod = graph_of(conv, X)
    (item,) = extract_alternatives(mod, TARGET)
    times = dict.fromkeys(item.ways, 0.001) | {WINOGRAD[0]: 1e-5}
    for cold in (item.ways, {"NCHW": item.ways["NCHW"]}):
        database = MemoryDatabase()
        for task in cold.values():
            said = provenance({"against": "it"}, timing={"caches": "cold"})
            database.commit_tuning_record(
                TuningRecord(
                    Schedule(task).trace,
                    database.commit_workload(task),
                    (1e-6,),
                    TARGET,
                    provenance=said,
                )
            )
        _, spent, _ = measured(mod, database, by=times)
        assert spent == len(item.ways) + len(item.conversions)
        assert measured(mod, database, by=times)[1] == 0  # they are known now
        if len(cold) == 1:
            with database:
                known = MeasuredTimes(TARGET).best(first_convolution(mod), allowed_tiles())
            assert known is not None and known[0] == pytest.approx(1e-5) and known[1] is not None


def first_convolution(mod: IRModule) -> relax.Call:
    return next(
        b.value
        for b in mod["main"].bindings
        if isinstance(b.value, relax.Call) and b.value.op_name == "nn.conv2d"
    )


@needs_blocks
def test_records_survive_on_disk_and_are_not_measured_again(tmp_path: Path):
    mod = graph_of(points, X)
    times = {"NCHW": 3e-4, "blocks": 1e-5, "conversion 0": 8e-5, "conversion 1": 8e-5}
    assert measured(mod, JSONDatabase(work_dir=tmp_path), by=times)[1] == 4
    again = JSONDatabase(work_dir=tmp_path)
    assert len(again) == 4
    assert layouts(mod, again) == [BLOCKS]
    _, spent, runner = measured(mod, again)
    assert spent == 0 and runner.asked == []
    for record in again.get_all_tuning_records():
        record.as_measure_candidate_module()  # replays


@needs_blocks
def test_expensive_convolutions_go_first():
    def body(x):
        return op.concat([op.nn.softmax(conv(x, 3, 1, 64), 1), op.nn.softmax(point(x), 1)], 1)

    database, spent, _ = measured(graph_of(body, X), trials=6)
    assert spent == len(database) == 4
    large = graph_of(lambda x: conv(x, 3, 1, 64), X)
    assert measured(large, database)[1] == 0


def test_unknown_sizes_and_other_operators_have_no_alternatives():
    unknown = graph(conv, tensor((symbol("n"), 32, 10, 9)))
    assert extract_alternatives(unknown, TARGET) == []
    at_run_time = graph_of(lambda x, w: op.nn.conv2d(x, w), X, W)
    assert extract_alternatives(at_run_time, TARGET) == []
    assert extract_alternatives(graph_of(lambda x: op.nn.relu(x), X), TARGET) == []
    assert extract_alternatives(graph_of(conv, X), Target("cuda -arch=sm_80")) == []


def test_no_reference_is_a_warning(caplog: pytest.LogCaptureFixture):
    class Dead(Biased):
        def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
            raise NoReferenceError("it died")

    mod, database = graph_of(point, X), MemoryDatabase()
    with caplog.at_level(logging.WARNING):
        race = AlternativesRace(TARGET, database, SameModule(), Dead(mod, {}))
        race.run(extract_alternatives(mod, TARGET), 8)
    assert "its ways can't be compared: it died" in caplog.text and len(database) == 0


@needs_blocks
def test_a_share_of_the_trials():
    mod, database = graph_of(point, X), MemoryDatabase()
    race = AlternativesRace(TARGET, database, SameModule(), Biased(mod, {}))
    found = alternatives_to_measure(mod, TARGET, database)
    assert alternatives_to_measure(mod, TARGET, database, ["add"]) == []
    assert [race.run(found, trials) for trials in (3, 0, 4)] == [0, 0, 4]
    assert alternatives_to_measure(to_tensor_functions(mod, TARGET), TARGET, database) == []
    with pytest.raises(TuneError, match="is from 0 to 1, got 2"):
        share_of_trials(16, 2)
    assert [share_of_trials(trials, 0.25) for trials in (0, 15, 16)] == [0, 3, 4]
    with pytest.raises(TuneError, match="unknown builder 'remote'; known: local"):
        tune_relax(mod, None, TARGET, None, 4, builder="remote", database="memory")


@needs_blocks
def test_words_choose_among_fused_functions():
    bias = relax.const(random(1, 64, 1, 1, seed=8))

    def body(x):
        """A point with an epilogue, and a window with another."""
        fused = op.nn.relu(op.add(conv(x, 3, 1, 64), bias))
        return op.concat([op.nn.softmax(fused, 1), op.nn.softmax(op.sigmoid(conv(x)), 1)], 1)

    mod = graph_of(body, X)
    names = [task.task_name for task in extract_tasks(mod, TARGET)]
    assert "fused_conv2d_add_relu" in names and "fused_conv2d_winograd_sigmoid" in names

    def measured_by(*words: str) -> list[str]:
        runner = Biased(mod, {})
        database = MemoryDatabase()
        found = alternatives_to_measure(mod, TARGET, database, words)
        AlternativesRace(TARGET, database, SameModule(), runner).run(found, 16)
        return runner.asked

    point_ways = {"NCHW", BLOCKS, "conversion 0", "conversion 1"}
    for words in (["relu"], ["fused_conv2d_add_relu"], ["nothing", "d_add"]):
        asked = measured_by(*words)
        assert set(asked) == point_ways
    assert set(WINOGRAD) < set(measured_by("sigmoid")) == set(measured_by("winograd"))
    assert set(measured_by("conv2d")) == {*measured_by("relu"), *measured_by("sigmoid")}
    assert measured_by("softmax") == measured_by("concat") == []


@needs_blocks
def test_a_model_is_tuned_and_compiled(tmp_path: Path):
    mod = graph_of(lambda x: op.nn.relu(point(x)), X)
    runner = LocalRunner(evaluator_config=EvaluatorConfig(repeat=1, min_repeat_ms=0.2))
    database = tune_relax(
        mod, None, TARGET, tmp_path, 6, alternatives=0.7, builder=LocalBuilder(1), runner=runner
    )
    (item,) = extract_alternatives(mod, TARGET)
    for task in (*item.ways.values(), *item.conversions.values()):
        assert database.query_tuning_record(task, TARGET) is not None
    built = compile_relax(JSONDatabase(work_dir=tmp_path), mod, TARGET)
    expected = relax.build(mod, TARGET)(X).numpy()
    np.testing.assert_allclose(built(X).numpy(), expected, rtol=1e-4, atol=1e-4)


@few(("share", "by_times"), [(0.5, True), (1.0, False), (1.5, False)], (0.5, True), (1.0, False))
def test_what_is_searched_for_is_the_graph_that_is_faster_as_a_whole(
    share: float, by_times: bool, monkeypatch: pytest.MonkeyPatch
):
    """Alone the direct way is faster; the graph takes such a share of the time with it."""
    mod = graph_of(single, X)
    database, _, _ = measured(mod, by={"NCHW": 1e-5})
    direct = ["softmax", "conv2d", "softmax"]
    assert kernels(mod, database) == direct != kernels(mod, None)
    ways: list[object] = []

    def turn(executable: object, inputs: object) -> float:
        ways.extend([executable] if executable not in ways else [])
        return 1.0 if executable is ways[0] else share

    monkeypatch.setattr("tilewright.relax.tuning.graph_race._turn", turn)
    monkeypatch.setattr("tilewright.relax.tuning.models._race_graphs", lambda *_: None)
    settings = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=0.2)
    before = {record.workload.hash for record in database.get_all_tuning_records()}
    tune_relax(
        mod, None, TARGET, None, 4, database=database, runner=LocalRunner(evaluator_config=settings)
    )
    choice = database.graph_choice(graph_hash(mod), TARGET)
    assert choice is not None and choice.measured_ways == by_times
    found = {record.workload.hash for record in database.get_all_tuning_records()} - before
    expected = extract_tasks(mod, TARGET, database=database if by_times else MemoryDatabase())
    assert found and found <= {structural_hash(task.mod) for task in expected}
    # The next run keeps to it, and so does a build.
    monkeypatch.setattr("tilewright.relax.tuning.graph_race._turn", None)
    tune_relax(mod, None, TARGET, None, 1, database=database)
    made = apply_database(database, mod, TARGET)[0]
    assert values(made) == (direct if by_times else kernels(mod, None))
