"""When the time of a run is over nobody is waited for, and what was measured is kept."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import pytest
from started import processes
from tuning_cases import FakeBuilder, FakeRunner, Listed, contexts, tune

from tests.meta_schedule.test_local_builder import inputs
from tests.meta_schedule.test_runner import CONFIG, TARGET, double, hanging
from tilewright import driver
from tilewright.meta_schedule.arg_info import arg_infos
from tilewright.meta_schedule.builder import BuilderInput, BuilderResult, LocalBuilder
from tilewright.meta_schedule.measure_callback import MeasureCallback
from tilewright.meta_schedule.runner import (
    LocalRunner,
    Reference,
    RunnerInput,
    RunnerResult,
    worker,
)
from tilewright.meta_schedule.runner.verification import Task
from tilewright.meta_schedule.task_record import TaskRecord
from tilewright.meta_schedule.task_scheduler import (
    GradientBased,
    RoundRobin,
    TaskScheduler,
    shares,
)
from tilewright.meta_schedule.time_limit import OutOfTimeError, TimeLimited, ending
from tilewright.runtime import Module


def test_a_limit_ends_with_its_block_and_is_never_extended() -> None:
    first, second = TimeLimited(), TimeLimited()
    with ending(50.0, first), ending(70.0, first, second):
        assert (first.until, second.until) == (50.0, 70.0)
    assert first.until == second.until == TimeLimited.until == math.inf
    with pytest.raises(KeyError), ending(1.0, first):
        with pytest.raises(OutOfTimeError):
            first.check_time()
        raise KeyError
    first.check_time()


@pytest.fixture
def right() -> Module:
    return driver.compile(double(), TARGET)


@pytest.fixture
def reference(right: Module) -> Reference:
    return Reference("double", right, arg_infos(double()))


def test_a_candidate_in_flight_is_not_waited_for(right: Module, reference: Reference) -> None:
    runner = LocalRunner(evaluator_config=CONFIG, timeout_sec=60.0, num_threads=1)
    good, bad = (RunnerInput(module=item, reference=reference) for item in (right, hanging()))
    before = processes()
    list(runner.run([good]))  # everything is started
    end = time.monotonic() + 0.5
    with ending(end, runner):
        for ask in (lambda: list(runner.run([bad])), lambda: runner.race([bad, good], 3)):
            with pytest.raises(OutOfTimeError):
                ask()
    assert end <= time.monotonic() < end + 20.0
    assert not processes() - before
    (result,) = runner.run([good])
    assert result.run_secs
    runner.close()


def test_a_reference_in_flight_is_not_waited_for(right: Module) -> None:
    runner = LocalRunner(evaluator_config=CONFIG, num_threads=1)
    slow = Reference("hanging", hanging(), arg_infos(double()))
    with ending(time.monotonic() + 0.3, runner):
        runner.prepare(slow)
        with pytest.raises(OutOfTimeError):
            list(runner.run([RunnerInput(module=right, reference=slow)]))
    runner.close()


def test_a_race_has_as_many_rounds_as_there_is_time_for(
    right: Module, reference: Reference
) -> None:
    entry = (right, Task(reference), (), False)
    for limit, rounds in ((-1.0, 1), (0.0, 1), (math.inf, 5)):
        results = worker.race([entry, entry], 5, CONFIG, limit)
        assert [len(item.run_secs or ()) for item in results] == [rounds] * 2


def test_a_build_in_flight_is_not_waited_for() -> None:
    def build(candidate: BuilderInput) -> Module:
        while True:
            time.sleep(1.0)

    builder = LocalBuilder(2, f_build=build)
    end = time.monotonic() + 0.3
    with ending(end, builder), pytest.raises(OutOfTimeError):
        list(builder.build_each(inputs(3)))
    assert end <= time.monotonic() < end + 20.0
    assert not builder.is_building


class Late(FakeRunner):
    """Has no answer after the first six."""

    def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
        for result in super().run(inputs):
            if len(self.known) > 6:
                raise OutOfTimeError("late")
            yield result


def test_what_was_measured_until_then_is_kept() -> None:
    scheduler, runner = RoundRobin(), Late()
    tasks = contexts(Listed(100), Listed(100))
    database = tune(scheduler, tasks, 100, runner=runner, until=time.monotonic() + 1000.0)
    assert [task.trials for task in scheduler.tasks] == [4, 2]
    assert len(database) == 6 and not scheduler.interrupted
    assert runner.closed == 1 and runner.until == math.inf


class Stuck(FakeBuilder):
    def build(self, inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        raise OutOfTimeError("late")


def test_no_time_for_the_unscheduled_program_is_no_fault_of_the_task() -> None:
    scheduler = RoundRobin()
    tune(scheduler, contexts(Listed(4)), 8, builder=Stuck(), until=time.monotonic() + 1000.0)
    (task,) = scheduler.tasks
    assert task.error is None and task.trials == 0 and task.finished


class Order(MeasureCallback):
    """Which tasks have had candidates, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_batch(self, scheduler: object, task: TaskRecord, batch: object) -> None:
        self.names.append(task.name)


@pytest.mark.parametrize("seconds, order", [(10.0, [1, 3, 2, 0]), (40.0, [0, 1, 2, 3])])
@pytest.mark.parametrize("kind", [RoundRobin, GradientBased])
def test_what_takes_more_than_its_share_begins_last(
    kind: type[TaskScheduler], seconds: float, order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    beginnings = {"task0": 5.0, "task1": 1.0, "task2": 3.0, "task3": 1.0}
    monkeypatch.setattr(shares, "_beginning", lambda task: beginnings[task.name])
    seen, scheduler = Order(), kind()
    tasks = contexts(*(Listed(2) for _ in beginnings))
    tune(scheduler, tasks, 100, callbacks=[seen], until=time.monotonic() + 1000.0, seconds=seconds)
    assert seen.names[:4] == [f"task{n}" for n in order]


def test_a_task_that_can_not_begin_in_time_leaves_it_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By what the beginning of two others took."""
    beginnings = {"task0": 1.0, "task1": 1.0, "task2": 1e9}
    monkeypatch.setattr(shares, "_beginning", lambda task: beginnings[task.name])
    scheduler = RoundRobin()
    tasks = contexts(*(Listed(9) for _ in beginnings))
    tune(scheduler, tasks, 100, until=time.monotonic() + 1000.0, seconds=1000.0)
    assert [task.trials for task in scheduler.tasks] == [9, 9, 0]
    assert scheduler.tasks[2].state == "ended: there was no time left for it"
