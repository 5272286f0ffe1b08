"""Parts of a search as TVM's users write them: builder, runner, strategy, space and callback."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import meta_schedule as ms
from tilewright import te
from tilewright.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tilewright.meta_schedule.database import MemoryDatabase
from tilewright.meta_schedule.measure_callback import PyMeasureCallback
from tilewright.meta_schedule.runner import (
    EvaluatorConfig,
    LocalRunner,
    LocalRunnerFuture,
    PyRunner,
    PyRunnerFuture,
    RunnerFuture,
    RunnerInput,
    RunnerResult,
)
from tilewright.meta_schedule.search_strategy import MeasureCandidate, PySearchStrategy
from tilewright.meta_schedule.space_generator import PySpaceGenerator
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver3 -num-cores=1")


def doubled() -> Any:
    x = te.placeholder((16,), name="X")
    return te.create_prim_func([x, te.compute((16,), lambda i: x[i] * 2.0, name="B")])


class ExportBuilder(PyBuilder):
    """Leaves a library for each candidate."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def build(self, build_inputs: list[BuilderInput]) -> list[BuilderResult]:
        results = []
        for item in build_inputs:
            path = self.folder / f"{self.count}.so"
            self.count += 1
            tvm.compile(item.mod, target=item.target).export_library(path)
            results.append(BuilderResult(str(path), None))
        return results


class TimeRunner(PyRunner):
    """Loads each library, calls it, and answers by futures."""

    def __init__(self) -> None:
        self.seen: list[RunnerInput] = []

    def run(self, runner_inputs: list[RunnerInput]) -> list[PyRunnerFuture]:
        futures: list[PyRunnerFuture] = []
        for item in runner_inputs:
            self.seen.append(item)
            mod = tvm.runtime.load_module(item.artifact_path)
            arrays = [np.ones(info.shape, info.dtype) for info in item.args_info]
            mod["main"](*arrays)
            np.testing.assert_array_equal(arrays[1], 2.0)
            if len(self.seen) == 2:
                futures.append(LocalRunnerFuture(error_message="the second one fails"))
                continue
            seconds = 1e-3 / len(self.seen)
            futures.append(RunnerFuture(lambda: True, lambda s=seconds: RunnerResult([s], None)))
        return futures


class Enumerate(PySearchStrategy):
    """Annotates loops, two candidates a batch, three batches; takes no count."""

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        super()._initialize_with_tune_context(context)
        self.heard: list[float | None] = []
        self.batches = 0

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: list[Schedule],
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        self.spaces = design_spaces

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:  # type: ignore[override]
        self.batches += 1
        if self.batches > 3:
            return None
        made = []
        for number in range(2):
            sch = self.spaces[0].copy()
            sch.annotate(sch.get_loops(sch.get_block("B"))[0], "number", 2 * self.batches + number)
            made.append(MeasureCandidate(sch, self.context.args_info))
        return made

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        self.heard += [None if r.run_secs is None else float(r.run_secs[0]) for r in results]


class OneSpace(PySpaceGenerator):
    """The program as it is."""

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        self.task_name = context.task_name

    def generate_design_space(self, mod: Any) -> list[Schedule]:
        return [Schedule(mod)]


class Listen(PyMeasureCallback):
    """Keeps what it hears, and ends the task after five candidates."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, str | None, str | None]] = []

    def apply(  # type: ignore[override]
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: list[MeasureCandidate],
        builder_results: list[BuilderResult],
        runner_results: list[RunnerResult],
    ) -> None:
        for _, built, result in zip(measure_candidates, builder_results, runner_results):
            assert Path(built.artifact_path or "").suffix == ".so"
            self.heard.append((task_id, built.error_msg, result.error_msg))
        if len(self.heard) >= 5:
            task_scheduler.terminate_task(task_id)


def test_all_parts_are_the_users_own(tmp_path: Path) -> None:
    runner, strategy, callback = TimeRunner(), Enumerate(), Listen()
    context = ms.TuneContext(
        doubled(), target=TARGET, space_generator=OneSpace(), search_strategy=strategy,
        task_name="doubled", start_from_rules=False,
    )  # fmt: skip
    assert context.space_generator.task_name == "doubled"  # type: ignore[attr-defined]
    database = ms.database.MemoryDatabase()
    ms.tune_tasks(
        tasks=[context], task_weights=[1.0], work_dir=str(tmp_path / "log"), max_trials_global=20,
        builder=ExportBuilder(tmp_path), runner=runner, database=database, cost_model="random",
        measure_callbacks=["add-to-database", callback], task_scheduler="round-robin",
    )  # fmt: skip
    assert callback.heard[:3] == [
        (0, None, None),
        (0, None, "the second one fails"),
        (0, None, None),
    ]
    assert len(strategy.heard) == 6 and strategy.heard[1] is None
    records = database.get_all_tuning_records()
    assert len(records) >= 5
    again = records[0].as_measure_candidate()
    assert again.sch.trace.as_json() == records[0].trace.as_json()
    assert [info.shape for info in again.args_info] == [(16,), (16,)]
    found = database.query(doubled(), TARGET, workload_name="doubled", kind="record")
    assert found.run_secs == min(r.run_secs for r in records if r.run_secs)
    assert runner.seen[0].device_type == "cpu"
    assert [info.shape for info in runner.seen[0].args_info] == [(16,), (16,)]


def test_a_runner_by_itself(tmp_path: Path) -> None:
    (built,) = ExportBuilder(tmp_path).build(
        [BuilderInput(tvm.IRModule({"main": doubled()}), TARGET)]
    )
    assert built.artifact_path is not None and built.error_msg is None
    infos = ms.arg_info.arg_infos(doubled())
    runner = LocalRunner(20, EvaluatorConfig(number=2, repeat=2, min_repeat_ms=0.1))
    (future,) = runner.run([RunnerInput(built.artifact_path, "cpu", infos)])
    runner.close()
    assert future.done()
    result = future.result()
    assert result.error_msg is None and len(result.run_secs or ()) >= 2
    assert not result.verified


def test_what_has_no_library_is_a_build_that_failed(tmp_path: Path) -> None:
    missing = BuilderResult(str(tmp_path / "missing.so"), None).loaded()
    assert missing.module is None and "missing.so" in str(missing.error_msg)


def test_futures() -> None:
    assert LocalRunnerFuture([1, 2]).result() == RunnerResult((1.0, 2.0), None)
    with pytest.raises(TuneError, match="either res or error_message"):
        LocalRunnerFuture()
    with pytest.raises(TuneError, match="without f_result"):
        RunnerFuture(lambda: False).result()
    with pytest.raises(NotImplementedError, match="PyRunnerFuture must define done"):
        PyRunnerFuture().done()
    with pytest.raises(TuneError, match="an artifact_path or a module"):
        RunnerInput()
    with pytest.raises(TuneError, match="number and repeat are positive"):
        EvaluatorConfig(number=0)
    assert EvaluatorConfig(enable_cpu_cache_flush=True).flush_cache_bytes > 0


class Gives(PyRunner):
    """Gives for each input what it is told."""

    def __init__(self, *results: Any) -> None:
        self.results = results

    def run(self, runner_inputs: Sequence[RunnerInput]) -> Any:
        return [result for _ in runner_inputs for result in self.results]


@pytest.mark.parametrize(
    "seconds",
    [
        (math.nan,), (math.inf,), (0.0,), (-1.0,), (), ("a",), (10**400,), (1e-3, math.nan), 1e-3,
        (None,),
    ],
    ids=str,
)  # fmt: skip
def test_times_that_are_none_are_a_failure(seconds: Any) -> None:
    result = RunnerResult(seconds)
    assert result.run_secs is None and result.reason == "run"
    assert result.error == "its times aren't positive numbers of seconds"
    assert RunnerResult(seconds, "it crashed", "crash").error == "it crashed"
    made = Gives(result).race([None], 3)  # type: ignore[list-item]  # nobody looks
    assert made[0].run_secs is None


def test_times_of_any_kind_of_number_are_taken() -> None:
    result = RunnerResult([np.float32(0.5), 1, Fraction(1, 4)])  # type: ignore[arg-type]
    assert result.run_secs == (0.5, 1.0, 0.25) and result.reason is None


@pytest.mark.parametrize(
    "results, match",
    [
        (
            (None,),
            "must give a RunnerResult for each input, or a future that has one, got NoneType",
        ),
        ((), "Gives gave fewer results than inputs"),
        ((RunnerResult((1e-3,)),) * 2, "Gives gave more results than inputs"),
    ],
    ids=["none", "fewer", "more"],
)
def test_a_runner_of_ones_own_gives_a_result_for_each_input(
    results: tuple[Any, ...], match: str
) -> None:
    runner = Gives(*results)
    with pytest.raises(TuneError, match=match):
        runner.race([None] * 2, 2)  # type: ignore[list-item]
    with pytest.raises(TuneError, match=match):
        ms.tune_tir(doubled(), TARGET, max_trials_global=4, num_trials_per_iter=4, runner=runner)


class Yields(PyRunner):
    """Yields results: after how it takes inputs, so many for each."""

    def __init__(self, how: str, *counts: int) -> None:
        self.how, self.counts, self.taken = how, counts, 0

    def run(self, runner_inputs: Sequence[RunnerInput]) -> Any:
        if self.how == "all first":
            runner_inputs = list(runner_inputs)
        numbers = range(len(runner_inputs)) if self.how == "by number" else None
        for place, item in enumerate(numbers or runner_inputs):
            _ = runner_inputs[place] if numbers else item
            self.taken += 1
            for _ in range(self.counts[place % len(self.counts)]):
                yield RunnerResult((1.0 + place,))


@pytest.mark.parametrize("how", ["one by one", "by number", "all first"])
@pytest.mark.parametrize(
    "counts, sure, match",
    [
        ((1,), [0, 1, 2], None),
        ((2,), [0], "more"),
        ((1, 0), [0], "fewer"),
        ((0, 1), [], "fewer"),
        ((1, 0, 2), [0], None),  # as many as inputs: nobody could tell
        ((1, 0, 3), [0], "more"),
        ((0,), [], "fewer"),
    ],
)
def test_a_result_that_may_be_of_another_input_is_not_taken(
    how: str, counts: tuple[int, ...], sure: list[int], match: str | None
) -> None:
    runner = Yields(how, *counts)
    results = runner.run_each([object()] * 3)  # type: ignore[list-item]  # nobody looks
    given = []
    with pytest.raises(TuneError, match=f"{match} results") if match else nullcontext():
        for result in results:
            given.append(result.seconds - 1.0)
            if how != "all first" and counts == (1,):
                assert runner.taken == len(given)  # none waits for the next
    if match:
        assert given == ([] if how == "all first" else sure)
    else:
        assert len(given) == 3


def test_nothing_is_recorded_of_results_that_are_too_many() -> None:
    database = MemoryDatabase()
    runner = Gives(*[RunnerResult((1e-3,))] * 2)
    with pytest.raises(TuneError, match="more results"):
        ms.tune_tir(
            doubled(), TARGET, max_trials_global=4, num_trials_per_iter=4, runner=runner,
            database=database,
        )  # fmt: skip
    assert len(database) == 0
