"""The tuning loop: who gets trials, what is counted, what is kept."""

from __future__ import annotations

import gc
import math
import re
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from tuning_cases import TARGET, FakeBuilder, FakeRunner, Listed, contexts, tune

from tilewright.meta_schedule.builder import Builder, BuilderInput, BuilderResult
from tilewright.meta_schedule.database import MemoryDatabase
from tilewright.meta_schedule.measure_callback import AddToDatabase, MeasureCallback
from tilewright.meta_schedule.progress import (
    ConsoleProgress,
    Progress,
    gain_text,
    whole_gain,
)
from tilewright.meta_schedule.runner import NoReferenceError, Runner, RunnerInput, RunnerResult
from tilewright.meta_schedule.task_scheduler import (
    GradientBased,
    RoundRobin,
    TaskRecord,
    TaskScheduler,
)
from tilewright.support.collector import RAISED_THRESHOLD
from tilewright.support.errors import ScheduleError, TuneError
from tilewright.tir.schedule import Schedule

# ---- budgets and counts --------------------------------------------------------------------------


def test_round_robin_gives_every_task_its_turn() -> None:
    scheduler = RoundRobin()
    strategies = [Listed(), Listed(), Listed()]
    database = tune(scheduler, contexts(*strategies), 22)
    assert [task.trials for task in scheduler.tasks] == [8, 8, 6]
    assert len(database) == 22
    assert [strategy.ended for strategy in strategies] == [1, 1, 1]
    assert [len(strategy.heard) for strategy in strategies] == [8, 8, 6]


def test_tasks_are_tuned_by_tvms_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    scheduler, database = RoundRobin(), MemoryDatabase()
    scheduler.final_rounds = 0
    scheduler.tune(
        contexts(Listed(), Listed()), [1.0, 2.0], 12, 5, 4, FakeBuilder(), FakeRunner(),
        [AddToDatabase()], database, None,
    )  # fmt: skip
    assert [task.trials for task in scheduler.tasks] == [5, 5] and len(database) == 10
    assert scheduler.task_id == 1
    assert [len(scheduler.join_running_task(number)) for number in (0, 1)] == [1, 1]
    scheduler.touch_task(0)
    assert scheduler.tasks[0].finished
    scheduler.print_tuning_statistics()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["task", "task0", "task1", "2"]
    assert lines[1].split()[1:4] == ["1", "5", "0"] and lines[2].endswith("ended")


def test_a_small_budget_reaches_every_task() -> None:
    for scheduler in (RoundRobin(), GradientBased()):
        tune(scheduler, contexts(*(Listed() for _ in range(4))), 10, num_trials_per_iter=32)
        trials = [task.trials for task in scheduler.tasks]
        assert min(trials) >= 1 and sum(trials) == 10


def test_limits_per_task_and_exhausted_spaces_leave_trials_unspent() -> None:
    scheduler = RoundRobin()
    tune(scheduler, contexts(Listed(3), Listed()), 50, max_trials_per_task=10)
    assert [task.trials for task in scheduler.tasks] == [3, 10]
    assert all(task.finished for task in scheduler.tasks)


def test_no_trials_means_nothing_is_done() -> None:
    runner, builder = FakeRunner(), FakeBuilder()
    tune(RoundRobin(), contexts(Listed()), 0, runner=runner, builder=builder)
    assert not runner.known and not builder.batches and runner.closed == builder.closed == 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that only a ``Slow`` runner spends."""
    now = [1000.0]
    monkeypatch.setattr(
        "tilewright.meta_schedule.task_scheduler.base.time.monotonic", lambda: now[0]
    )
    return now


class Slow(FakeRunner):
    """Takes half a second per candidate, and per round of one in the last comparison."""

    def __init__(self, clock: list[float], *seconds: float) -> None:
        super().__init__(*seconds)
        self.clock = clock
        self.rounds: list[int] = []

    def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
        for result in super().run(inputs):
            self.clock[0] += 0.5
            yield result

    def race(self, inputs: Sequence[RunnerInput], rounds: int) -> list[RunnerResult]:
        self.rounds.append(rounds)
        self.clock[0] += 8e-3 * rounds * len(inputs)
        return [replace(result, run_secs=(1e-3,) * rounds) for result in super().run(inputs)]


@pytest.mark.parametrize("seconds", [5.0, 20.0, 60.0])
def test_a_run_takes_the_time_it_is_given(clock: list[float], seconds: float) -> None:
    runner, scheduler = Slow(clock), GradientBased()
    tasks = contexts(*(Listed(1000) for _ in range(3)))
    tune(scheduler, tasks, 1000, runner=runner, until=clock[0] + seconds, final_rounds=12)
    assert 0.8 * seconds <= clock[0] - 1000.0 <= 1.05 * seconds + 0.5
    assert len(runner.rounds) == sum(task.trials > 1 for task in scheduler.tasks)
    assert all(task.finished for task in scheduler.tasks)


@pytest.mark.parametrize("seconds", [6.0, 14.0, 40.0])
def test_little_time_is_divided_among_all_tasks(clock: list[float], seconds: float) -> None:
    """Half a second a candidate: for eight tasks there is no time for first batches of four."""
    scheduler = GradientBased()
    tasks = contexts(*(Listed(1000) for _ in range(8)))
    tune(scheduler, tasks, 1000, runner=Slow(clock), until=clock[0] + seconds, final_rounds=12)
    trials = [task.trials for task in scheduler.tasks]
    assert min(trials) >= 1 and clock[0] - 1000.0 <= seconds + 0.5
    assert seconds > 6.0 or max(trials) <= 2


def test_a_slow_start_ends_nothing(clock: list[float]) -> None:
    """The first candidate also starts the processes: more than half of the time."""

    class Starting(Slow):
        def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
            self.clock[0] += 0.0 if self.known else 8.0
            yield from super().run(inputs)

    scheduler = GradientBased()
    tasks = contexts(*(Listed(1000) for _ in range(4)))
    tune(scheduler, tasks, 1000, runner=Starting(clock), until=clock[0] + 13.0, final_rounds=12)
    assert min(task.trials for task in scheduler.tasks) >= 1


def test_the_comparison_of_the_best_has_its_part_of_the_time(clock: list[float]) -> None:
    """Calls of 0.1 s: the comparison takes longer than a batch, and is thought of beforehand."""
    runner, scheduler = Slow(clock, 0.1), RoundRobin()
    tune(scheduler, contexts(Listed(1000)), 1000, runner=runner, until=clock[0] + 60.0,
         final_rounds=12)  # fmt: skip
    (task,) = scheduler.tasks
    assert 10 <= task.trials < 90 and runner.rounds == [12]


def test_without_time_nothing_begins_and_with_little_something_does(clock: list[float]) -> None:
    for seconds, trials in ((-1.0, 0), (1.1, 3)):
        runner, scheduler = Slow(clock), RoundRobin()
        tune(scheduler, contexts(Listed()), 10, runner=runner, until=clock[0] + seconds)
        assert scheduler.tasks[0].trials == trials


def test_a_task_ends_when_no_improvement_is_expected() -> None:
    scheduler, runner = RoundRobin(), FakeRunner(*[2e-3] * 4, 1e-3)
    tune(scheduler, contexts(Listed(1000)), 1000, runner=runner, min_improvement=0.01)
    (task,) = scheduler.tasks
    # It became twice as fast once, so half of that chance is worth waiting for, for some time.
    assert task.steps == [0.5] and 100 < task.trials < 400
    assert task.expected_gain(4) < 0.01 <= task.expected_gain(40)
    tune(scheduler, contexts(Listed(1000)), 1000, min_improvement=0.01)
    assert scheduler.tasks[0].trials < 20
    with pytest.raises(TuneError, match=r"min_improvement is from 0 to 1, got 1\.5"):
        tune(scheduler, contexts(Listed()), 1, min_improvement=1.5)


def test_failures_are_counted_by_reason_and_the_run_goes_on() -> None:
    scheduler, runner = RoundRobin(), FakeRunner("wrong", 2e-3, "crash", "timeout", 1e-3)
    database = tune(
        scheduler, contexts(Listed()), 8, runner=runner, builder=FakeBuilder(1), cost_model=None
    )
    (task,) = scheduler.tasks
    assert task.trials == 8
    assert task.rejected == {"wrong": 1, "build": 2, "crash": 1, "timeout": 1}
    assert sorted(r.best_seconds for r in database.get_all_tuning_records()) == [1e-3, 1e-3, 2e-3]
    assert task.best_seconds == 1e-3 and task.best_history == [2e-3, 1e-3]


def test_records_say_how_they_were_verified() -> None:
    (record, *_) = tune(RoundRobin(), contexts(Listed()), 2).get_all_tuning_records()
    assert record.provenance["verified"] == {
        "against": "unscheduled program",
        "relative_difference": 0.0,
        "trusted_timing": True,
    }
    assert record.target == TARGET and record.args_info is not None


def test_the_best_known_time_is_what_candidates_race_against() -> None:
    database = MemoryDatabase()
    tune(RoundRobin(), contexts(Listed()), 4, runner=FakeRunner(5e-4), database=database)
    runner, scheduler = FakeRunner(1e-3), RoundRobin()
    tune(scheduler, contexts(Listed()), 4, runner=runner, database=database)
    assert runner.known == [5e-4] * 4
    assert scheduler.tasks[0].best_seconds == 5e-4


def test_callbacks_see_every_result_and_batch() -> None:
    class Counting(MeasureCallback):
        results, batches = 0, 0

        def on_result(self, *_: Any) -> None:
            self.results += 1

        def on_batch(self, *_: Any) -> None:
            self.batches += 1

    counting = Counting()
    database = tune(RoundRobin(), contexts(Listed()), 10, callbacks=[counting])
    assert (counting.results, counting.batches) == (10, 3)
    assert len(database) == 0  # given callbacks replace the default ones


def test_candidates_are_measured_while_later_ones_are_built() -> None:
    """With the same results in the same order, whoever waits for whom."""
    happened: list[str] = []

    class Overlapping(FakeBuilder):
        def build_each(
            self, inputs: Iterable[BuilderInput]
        ) -> Generator[BuilderResult, None, None]:
            for result in self.build(list(inputs)):
                happened.append("built")
                yield result

    class Lazy(FakeRunner):
        def run_each(self, inputs: Iterable[RunnerInput]) -> Iterator[RunnerResult]:
            for item in inputs:
                happened.append("run")
                yield from self.run([item])

    def times(builder: Builder, runner: FakeRunner) -> list[float]:
        database = tune(RoundRobin(), contexts(Listed()), 8, builder=builder, runner=runner)
        return [record.best_seconds for record in database.get_all_tuning_records()]

    seconds = [1e-3 * n for n in range(9, 1, -1)]
    first = times(Overlapping(1), Lazy(*seconds))
    one = ["built", "run"]
    assert happened[0] == "built"  # the reference
    assert happened[1:9] == [*one, "built", *one, *one, "built"]
    assert first == times(FakeBuilder(1), FakeRunner(*seconds))
    assert first == times(Overlapping(1), FakeRunner(*seconds))


def test_the_cycle_collector_rarely_runs_meanwhile() -> None:
    """Trees have no cycles: looking for them would be two fifths of the time of a search."""
    seen: list[int] = []

    class Looking(MeasureCallback):
        def on_batch(self, *_: object) -> None:
            seen.append(gc.get_threshold()[0])

    before = gc.get_threshold()
    tune(RoundRobin(), contexts(Listed()), 8, callbacks=[Looking()])
    assert seen and set(seen) == {max(before[0], RAISED_THRESHOLD)}
    assert gc.get_threshold() == before


# ---- ends ----------------------------------------------------------------------------------------


def test_an_interrupt_keeps_what_was_measured() -> None:
    scheduler, runner, strategy = RoundRobin(), FakeRunner(1e-3, 2e-3, None), Listed()
    messages: list[str] = []

    class Noting(Progress):
        def message(self, text: str) -> None:
            messages.append(text)

    builder = FakeBuilder()
    database = tune(
        scheduler, contexts(strategy), 8, runner=runner, builder=builder, progress=Noting()
    )
    assert scheduler.interrupted
    assert [r.best_seconds for r in database.get_all_tuning_records()] == [1e-3, 2e-3]
    assert runner.closed == builder.closed == 1 and strategy.ended == 1
    assert messages[-1] == "interrupted; everything measured so far is kept"


def test_a_task_without_design_space_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = contexts(Listed(), Listed(), Listed())

    def refuse() -> list[Schedule]:
        raise ScheduleError("no rule fits")

    monkeypatch.setattr(tasks[0], "generate_design_space", refuse)
    monkeypatch.setattr(tasks[1], "generate_design_space", list)
    scheduler = RoundRobin()
    tune(scheduler, tasks, 8)
    assert [task.trials for task in scheduler.tasks] == [0, 0, 8]
    assert scheduler.tasks[0].error == "its design space can't be generated: no rule fits"
    assert scheduler.tasks[1].error == (
        "its design space can't be generated: the space generator gave no design space"
    )
    with pytest.raises(TuneError, match="no task could be tuned: task0: its design space"):
        tune(RoundRobin(), tasks[:1], 8)


def test_a_task_whose_program_can_not_be_built_or_run_is_given_up() -> None:
    class Failing(FakeBuilder):
        def build(self, inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
            if not self.batches:
                self.batches.append(1)
                return [BuilderResult(None, "LLVM said no", "build")]
            return super().build(inputs)

    class Refusing(FakeRunner):
        def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
            if not self.known:
                self.known.append(None)
                raise NoReferenceError("it died")
            yield from super().run(inputs)

    scheduler, strategy = RoundRobin(), Listed()
    tasks = contexts(strategy, Listed(), Listed())
    tune(scheduler, tasks, 8, builder=Failing(), runner=Refusing(1e-3))
    assert [task.trials for task in scheduler.tasks] == [0, 0, 8]
    assert "can't be compiled, so no candidate could be checked: LLVM said no" in str(
        scheduler.tasks[0].error
    )
    assert scheduler.tasks[1].error == "it died"
    assert strategy.ended == 1


def test_a_runner_that_answers_too_little_is_an_error() -> None:
    class Short(Runner):
        def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
            yield RunnerResult((1e-3,))

    with pytest.raises(TuneError, match="Short gave fewer results than inputs"):
        tune(RoundRobin(), contexts(Listed()), 4, runner=Short())


def test_numbers_of_tasks_and_weights_must_agree() -> None:
    with pytest.raises(TuneError, match="1 tasks but 2 weights"):
        tune(RoundRobin(), contexts(Listed()), 4, task_weights=[1.0, 2.0])


# ---- gradient ------------------------------------------------------------------------------------


def gradient(*histories: list[float], weights: Sequence[float] = ()) -> GradientBased:
    scheduler = GradientBased(explore=0.0)
    scheduler.tasks = [
        TaskRecord(
            context,
            weights[number] if weights else 1.0,
            best_seconds=history[-1] if history else math.inf,
            best_history=history,
        )
        for number, (context, history) in enumerate(
            zip(contexts(*(Listed() for _ in histories)), histories)
        )
    ]
    return scheduler


def test_gradient_starts_with_a_batch_for_every_task() -> None:
    assert gradient([1e-3], [], []).next_task_id() == 1


def test_gradient_prefers_what_takes_longest() -> None:
    assert gradient([1e-3], [9e-3], [2e-3]).next_task_id() == 1
    assert gradient([1e-3], [9e-3], [2e-3], weights=[100, 1, 1]).next_task_id() == 0


def test_gradient_prefers_what_still_improves() -> None:
    flat, falling = [2e-3] * 6, [9e-3, 8e-3, 6e-3, 4e-3, 3e-3, 2e-3]
    assert gradient(flat, falling).next_task_id() == 1


def test_gradient_leaves_what_never_works() -> None:
    assert gradient([math.inf] * 4, [1e-3] * 4).next_task_id() == 1
    assert gradient([math.inf], [1e-3]).next_task_id() == 0  # it gets a few batches first


def test_finished_tasks_get_nothing() -> None:
    for scheduler in (gradient([1e-3], [2e-3]), RoundRobin()):
        scheduler.tasks = gradient([1e-3], [2e-3]).tasks
        scheduler.tasks[1].finished = True
        assert [scheduler.next_task_id() for _ in range(3)] == [0, 0, 0]
        scheduler.tasks[0].finished = True
        assert scheduler.next_task_id() == -1


def test_schedulers_by_name() -> None:
    assert isinstance(TaskScheduler.create("gradient"), GradientBased)
    assert isinstance(TaskScheduler.create("round-robin"), RoundRobin)
    with pytest.raises(TuneError, match="gradient"):
        TaskScheduler.create("gradiant")


# ---- progress ------------------------------------------------------------------------------------


def test_plain_progress_prints_a_line_per_batch() -> None:
    console = Console(force_terminal=False, record=True, width=120, quiet=False)
    tune(
        RoundRobin(),
        contexts(Listed(), Listed()),
        8,
        runner=FakeRunner(1e-3, "wrong", 5e-4),
        progress=ConsoleProgress(console),
    )
    text = console.export_text()
    assert "[4/8] task0: best 500.00 us, 4 trials, rejected wrong 1" in text.replace(
        "500 us", "500.00 us"
    )
    assert "[8/8] task1: best" in text


def test_live_progress_shows_a_table() -> None:
    console = Console(force_terminal=True, record=True, width=120)
    tune(RoundRobin(), contexts(Listed()), 4, progress=ConsoleProgress(console))
    text = console.export_text()
    assert "4/4 trials" in text and "task0" in text and "GFLOP/s" in text
    assert "to gain by 32 more trials of each" in text


def test_the_whole_gain_is_weighed_by_time() -> None:
    slow, quick, broken = (TaskRecord(context) for context in contexts(*map(Listed, (1, 2, 3))))
    assert whole_gain([slow, quick]) == math.inf  # nothing is known of them
    for task, seconds in ((slow, 3e-3), (quick, 1e-3)):
        task.trials, task.best_seconds = 32, seconds
    broken.error = "it can't be built"
    slow.steps[:] = [0.4] * 8
    gains = slow.expected_gain(32), quick.expected_gain(32)
    assert whole_gain([slow, quick, broken]) == pytest.approx((3 * gains[0] + gains[1]) / 4)
    assert gain_text(0.0123) == "1.2%" and gain_text(math.inf) == "-"


def test_the_rest_of_a_budget_of_time_is_shown() -> None:
    console = Console(force_terminal=True, record=True, width=160)
    progress = ConsoleProgress(console)
    progress.until = time.monotonic() + 90
    with progress.running([], 100):
        title = progress._table().title
    assert isinstance(title, str) and re.search(r"about (89|90)[.\d]* s left", title)
