"""Runs that end early go on as if nothing had happened."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.everyday import few
from tilewright import te
from tilewright.meta_schedule.builder import Builder, BuilderInput, BuilderResult
from tilewright.meta_schedule.cost_model import CostModel, XGBModel
from tilewright.meta_schedule.database import JSONDatabase
from tilewright.meta_schedule.database.record import trace_digest
from tilewright.meta_schedule.measure_callback import MeasureCallback
from tilewright.meta_schedule.progress import Progress
from tilewright.meta_schedule.resume import alone, interrupted_run, whole_run
from tilewright.meta_schedule.runner import (
    REASONS,
    TUNING,
    EvaluatorConfig,
    LocalRunner,
    Runner,
    RunnerInput,
    RunnerResult,
)
from tilewright.meta_schedule.search_strategy import EvolutionarySearch
from tilewright.meta_schedule.task_scheduler import TaskScheduler
from tilewright.meta_schedule.trial_log import file_name, read_logs, read_runs
from tilewright.meta_schedule.tune import tune_tasks
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.runtime import Module
from tilewright.support.errors import TuneError
from tilewright.target import Target

TARGET = Target("llvm -mcpu=znver4 -num-cores=2")
TRIALS, BATCH = 22, 6


def task(name: str, n: int) -> TuneContext:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    search = EvolutionarySearch(population_size=64, genetic_num_iters=2)
    return TuneContext(
        te.create_prim_func([a, b, c]), target=TARGET, task_name=name, rand_state=n,
        search_strategy=search,
    )  # fmt: skip


class Named(Builder):
    """Gives modules that only have a name."""

    def build(self, inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [BuilderResult(module=Module.__new__(Module)) for _ in inputs]


class Killed(BaseException):
    pass


class Fake(Runner):
    """Times that depend on the number of the trial only; ends the run after so many."""

    def __init__(
        self, done: int = 0, after: int | None = None, config: EvaluatorConfig | None = None
    ) -> None:
        self.done, self.after, self.config = done, after, config or TUNING

    def settings(self) -> str:
        return str(self.config)

    def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
        for _ in inputs:
            if self.done == self.after:
                raise Killed
            self.done += 1
            if self.done % 11 == 0:
                yield RunnerResult(None, "it is wrong", "wrong")
            else:
                yield RunnerResult((1e-3 * (1 + self.done * 7919 % 101),))

    def race(self, inputs: Sequence[RunnerInput], rounds: int) -> list[RunnerResult]:
        return [RunnerResult((1e-3,) * rounds) for _ in inputs]


class Seen(MeasureCallback):
    """What is measured, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_result(self, scheduler: Any, task: Any, trial: Any) -> None:
        self.seen.append(f"{task.name} {trace_digest(trial.candidate.sch.trace)}")


class Said(Progress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)


def tune(folder: Path, runner: Runner, **options: Any) -> tuple[list[str], list[str]]:
    """Tune two tasks; returns what was measured, and what was said."""
    seen, said = Seen(), Said()
    scheduler = TaskScheduler.create("gradient")
    scheduler.final_rounds = 0
    arguments: dict[str, Any] = {
        "max_trials_global": TRIALS,
        "num_trials_per_iter": BATCH,
    } | options
    try:
        tune_tasks(
            [task("small", 24), task("large", 48)], work_dir=folder, builder=Named(), runner=runner,
            cost_model=arguments.pop("cost_model", CostModel.create("xgb")), progress=said,
            measure_callbacks=["add-to-database", "update-cost-model", seen],
            task_scheduler=scheduler, **arguments,
        )  # fmt: skip
    except Killed:
        assert runner.after is not None  # type: ignore[attr-defined]
    return seen.seen, said.said


def predicted(folder: Path) -> list[list[float | None]]:
    return [[e["predicted"] for e in log.of_kind("trial")] for log in read_logs(folder)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[list[float | None]]]:
    folder = tmp_path_factory.mktemp("whole")
    seen, _ = tune(folder, Fake())
    assert len(seen) == TRIALS
    return seen, predicted(folder)


@few("after", [1, BATCH, 13], 13)
def test_a_run_that_ended_goes_on_as_if_it_had_not(
    after: int, tmp_path: Path, whole: tuple[list[str], list[list[float | None]]]
) -> None:
    """The same candidates in the same order, with the same predictions; none is measured twice."""
    first, _ = tune(tmp_path, Fake(after=after))
    again, _ = tune(tmp_path, Fake(after, after=after + 5))
    rest, said = tune(tmp_path, Fake(len(first + again)))
    assert [*first, *again, *rest] == whole[0]
    assert predicted(tmp_path) == whole[1]
    assert any(f"ended after {len(first + again)} trials" in text for text in said)
    assert len(JSONDatabase(work_dir=tmp_path)) == TRIALS - TRIALS // 11


def test_a_run_that_came_to_its_end_is_not_done_again(tmp_path: Path) -> None:
    first, _ = tune(tmp_path, Fake(), max_trials_global=BATCH)
    second, said = tune(tmp_path, Fake(), max_trials_global=BATCH)
    assert not set(first) & set(second) and len(second) == BATCH
    assert not any("goes on" in text for text in said)
    assert [run["finished"] for run in read_runs(tmp_path)] == [True, True]


def test_a_model_that_can_not_be_kept_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def save(model: object, path: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(XGBModel, "save", save)
    monkeypatch.setattr(XGBModel, "trained", True)
    with caplog.at_level("WARNING", "tilewright"):
        tune(tmp_path, Fake(), max_trials_global=BATCH, cost_model="xgb")
    assert "what the cost model learned can't be kept: No space" in caplog.text
    assert [run["finished"] for run in read_runs(tmp_path)] == [True]


def test_another_run_does_not_go_on(tmp_path: Path) -> None:
    tune(tmp_path, Fake(after=5))
    seen, said = tune(tmp_path, Fake(), num_trials_per_iter=4, max_trials_global=4)
    assert len(seen) == 4 and not any("goes on" in text for text in said)


@few(
    "other",
    [{"verify": False}, {"flush_cache_bytes": 1 << 20}, {"repeat": 1}, {"min_repeat_ms": 1.0}],
    {"verify": False},
)
def test_a_run_that_measures_otherwise_does_not_go_on(
    other: dict[str, Any], tmp_path: Path
) -> None:
    """What wasn't verified must not count as measured by a run that verifies."""
    tune(tmp_path, Fake(after=5, config=replace(TUNING, **other)))
    seen, said = tune(tmp_path, Fake(), max_trials_global=4)
    assert len(seen) == 4 and not any("goes on" in text for text in said)


def test_settings_of_a_runner_tell_all_that_results_depend_on() -> None:
    plain = LocalRunner().settings()
    assert LocalRunner().settings() == plain
    others = [
        LocalRunner(evaluator_config=replace(TUNING, verify=False)),
        LocalRunner(timeout_sec=1.0),
        LocalRunner(num_threads=1),
    ]
    assert len({plain, *(runner.settings() for runner in others)}) == 4


def test_a_part_of_a_whole_goes_on_by_its_number(tmp_path: Path) -> None:
    """Parts 9 and 10 of a whole: numbers, not texts."""
    with whole_run(tmp_path, "model") as whole:
        for _ in range(8):
            whole.next_part()
        tune(tmp_path, Fake(), max_trials_global=4, part_of=whole)
        first, _ = tune(tmp_path, Fake(4, after=7), part_of=whole)
        assert len(first) == 3
        number = f"{whole.run}/10"
    tasks, database = [task("small", 24), task("large", 48)], JSONDatabase(work_dir=tmp_path)
    past = interrupted_run(tmp_path, f"{whole.run}/9", tasks, database, ended=True)
    assert past is not None and past.run == f"{whole.run}/9"
    assert sum(len(found) for found in past.results.values()) == 4
    assert sum(len(found) for found in past.later.values()) == 3
    later = interrupted_run(tmp_path, number, tasks, database, ended=True)
    assert later is not None and not any(later.later.values())


def test_a_whole_that_another_process_has_numbers_no_parts(tmp_path: Path) -> None:
    with whole_run(tmp_path, "model") as whole, whole_run(tmp_path, "model") as other:
        assert whole.next_part() == f"{whole.run}/1"
        assert other.next_part() is None
    with whole_run(None, "model") as nowhere:
        assert nowhere.next_part() is None


def test_a_run_that_is_still_running_is_left_alone(tmp_path: Path) -> None:
    tune(tmp_path, Fake(after=5))
    (begin, *_) = [json.loads(x) for x in (tmp_path / "logs/runs.jsonl").read_text().splitlines()]
    with alone(tmp_path, begin["digest"]) as own:
        assert own
        with alone(tmp_path, begin["digest"]) as second:
            assert not second
        _, said = tune(tmp_path, Fake(), max_trials_global=4)
        assert not any("goes on" in text for text in said)


def moved(folder: Path, field: str, change: Callable[[float], float]) -> None:
    """Change a number in every line of the logs."""
    for path in (folder / "logs").glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        changed = [line | {field: change(line[field])} for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in changed))


def test_the_time_that_a_run_had_taken_is_part_of_its_budget(tmp_path: Path) -> None:
    tune(tmp_path, Fake(after=5))
    moved(tmp_path, "spent", lambda seconds: seconds + 100)
    begin = json.loads((tmp_path / "logs/runs.jsonl").read_text().splitlines()[0])
    tasks, database = [task("small", 24), task("large", 48)], JSONDatabase(work_dir=tmp_path)
    past = interrupted_run(tmp_path, begin["digest"], tasks, database)
    assert past is not None and 100 <= past.seconds < 200
    assert sum(len(found) for found in past.results.values()) == 5
    # Nothing is left of 50 s: what is known is done again, and nothing more.
    seen, said = tune(tmp_path, Fake(5), time_budget=50.0)
    assert len(seen) < BATCH and any("goes on" in text for text in said)
    # It took what both took.
    past = interrupted_run(tmp_path, begin["digest"], tasks, database, ended=True)
    assert past is not None and 100 <= past.seconds < 200


@pytest.mark.parametrize("jump", [1e6, -1e6])
def test_a_clock_that_jumps_takes_no_time(jump: float, tmp_path: Path) -> None:
    """Between two beginnings, and between a beginning and its end."""
    tune(tmp_path, Fake(after=5))
    seen = 0

    def jumping(when: float) -> float:
        nonlocal seen
        seen += 1
        return max(0.0, when + jump * (seen % 3))

    moved(tmp_path, "time", jumping)
    seen_now, said = tune(tmp_path, Fake(5), time_budget=1000.0, max_trials_global=9)
    assert len(seen_now) == 4 and any("goes on" in text for text in said)
    spent = [
        json.loads(x)["spent"] for x in (tmp_path / "logs/runs.jsonl").read_text().splitlines()
    ]
    assert spent == sorted(spent) and spent[0] >= 0 and spent[-1] < 500


def test_what_the_database_does_not_have_is_measured_again(tmp_path: Path) -> None:
    """A kill between the log and the database, or a database that was removed."""
    tune(tmp_path, Fake(after=15))
    records = tmp_path / "database_tuning_record.json"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(lines[:-1]))
    seen, _ = tune(tmp_path, Fake(14))
    assert len(seen) == TRIALS - 14
    right = TRIALS - TRIALS // 11
    assert len(JSONDatabase(work_dir=tmp_path)) == right
    for file in tmp_path.glob("database_*"):
        file.unlink()
    log = tmp_path / "logs/runs.jsonl"
    log.write_text(log.read_text().replace('"finished":true', '"finished":false'))
    seen, _ = tune(tmp_path, Fake())
    assert len(seen) >= right - 1  # failures are known; by other times, others may be drawn
    assert len(JSONDatabase(work_dir=tmp_path)) >= right - 3


def test_who_runs_beside_it_leaves_nothing_to_go_on_from(tmp_path: Path) -> None:
    """Else the third would take the run of the second, which is still running."""
    tune(tmp_path, Fake(after=5))
    (begin, *_) = [json.loads(x) for x in (tmp_path / "logs/runs.jsonl").read_text().splitlines()]
    with alone(tmp_path, begin["digest"]):
        second, _ = tune(tmp_path, Fake(after=3))
    assert len(second) == 3
    _, said = tune(tmp_path, Fake(5), max_trials_global=6)
    assert any("ended after 5 trials" in text for text in said)


def test_a_forked_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A builder's process may outlive the killed run that forked it."""
    ready, done = os.pipe(), os.pipe()
    with alone(tmp_path, "run") as own:
        assert own
        pid = os.fork()
        if pid == 0:
            os.write(ready[1], b"x")
            os.read(done[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
    try:
        with alone(tmp_path, "run") as own:
            assert own
    finally:
        os.write(done[1], b"x")
        os.waitpid(pid, 0)
        for end in (*ready, *done):
            os.close(end)


def test_numbers_of_a_stranger_are_kept_in_bounds(tmp_path: Path) -> None:
    tune(tmp_path, Fake(after=BATCH + 1))
    (name,) = (p for p in (tmp_path / "logs").glob("*.jsonl") if '"batch"' in p.read_text())
    lines = [json.loads(line) for line in name.read_text().splitlines()]
    run = lines[0]["run"]
    odd: list[dict[str, object]] = [
        {"kind": "batch", "run": run, "size": 1e300},
        {"kind": "batch", "run": run, "size": 0.5},
        {"kind": "batch", "run": run, "size": -3},
        {"kind": "batch", "run": run, "size": True},
        {"kind": "trial", "run": run, "trace": "y", "reason": "[bold]not a reason"},
        {"kind": "trial", "run": run, "time": 1e300, "trace": "x", "seconds": [0.0]},
    ]
    for line in lines:
        if line["kind"] == "batch":
            line["size"] = 10**9
        if line["kind"] == "trial":
            line["seconds"] = [0.0]
    tasks = [task("small", 24), task("large", 48)]
    begin = json.loads((tmp_path / "logs/runs.jsonl").read_text().splitlines()[0])
    name.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *odd]))
    database = JSONDatabase(work_dir=tmp_path)
    past = interrupted_run(tmp_path, begin["digest"], tasks, database)
    assert past is not None and past.batches[name.name] == [10**9]
    reasons = {r.reason for found in past.results[name.name].values() for r in found}
    assert reasons <= {*REASONS, None}
    seen, _ = tune(tmp_path, Fake(), time_budget=1000.0, max_trials_global=9)
    assert 0 < len(seen) <= 9
    assert all(record.best_seconds > 0 for record in JSONDatabase(work_dir=tmp_path).records())


def test_a_log_of_many_beginnings_is_read_in_linear_time(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    begin = '{"kind":"begin","run":"r","digest":"d","spent":%d}\n'
    (logs / "runs.jsonl").write_text("".join(begin % n for n in range(1, 40_000)))
    small = task("small", 24)
    trial = '{"kind":"trial","run":"r","spent":%d.5,"trace":"t","reason":"run"}\n'
    (logs / file_name(small)).write_text("".join(trial % n for n in range(1, 40_000)))
    start = time.process_time()
    past = interrupted_run(tmp_path, "d", [small], JSONDatabase(work_dir=tmp_path))
    assert past is not None and past.seconds == pytest.approx(39_999.5)
    assert time.process_time() - start < 20.0


def test_what_says_nothing_of_its_time_takes_none(tmp_path: Path) -> None:
    tune(tmp_path, Fake(after=5))
    for path in (tmp_path / "logs").glob("*.jsonl"):
        path.write_text(path.read_text().replace('"spent":', '"other":'))
    begin = json.loads((tmp_path / "logs/runs.jsonl").read_text().splitlines()[0])
    past = interrupted_run(
        tmp_path, begin["digest"], [task("small", 24)], JSONDatabase(work_dir=tmp_path)
    )
    assert past is not None and past.seconds == 0.0 and past.results


def test_the_same_task_twice_is_not_two_runs(tmp_path: Path) -> None:
    tune(tmp_path, Fake(after=15))
    (begin, *_) = [json.loads(x) for x in (tmp_path / "logs/runs.jsonl").read_text().splitlines()]
    database, tasks = JSONDatabase(work_dir=tmp_path), [task("small", 24), task("large", 48)]
    once = interrupted_run(tmp_path, begin["digest"], tasks, database)
    twice = interrupted_run(tmp_path, begin["digest"], [*tasks, *tasks], database)
    assert once is not None and twice is not None and once.batches == twice.batches


def test_logs_of_a_stranger_can_not_stop_a_run(tmp_path: Path) -> None:
    tune(tmp_path, Fake(after=5))
    for path in (tmp_path / "logs").glob("*.jsonl"):
        lines = path.read_text().splitlines()
        odd = ['{"kind": "trial", "run": 3, "trace": []}', '{"kind": "begin"}', "{", "[]", "\x00"]
        path.write_text("\n".join([*odd, *lines, *odd]) + "\n")
    (tmp_path / "logs/runs.jsonl").open("ab").write(b'{"kind":"begin","digest":"')
    seen, _ = tune(tmp_path, Fake(5))
    assert len(seen) == TRIALS - 5


@pytest.mark.parametrize(
    "seconds",
    [0, -1.0, float("nan"), -float("inf"), "10", float("inf"), True, 10**400, 10**9999, -(10**400)],
    ids=["0", "-1.0", "nan", "-inf", "text", "inf", "true", "1e400", "1e9999", "-1e400"],
)
@pytest.mark.parametrize("post", [False, True])
def test_a_budget_that_is_none_is_refused(seconds: Any, post: bool, tmp_path: Path) -> None:
    with pytest.raises(TuneError, match="time_budget"):
        tune(tmp_path, Fake(), time_budget=seconds, max_trials_global=None, post_optimization=post)
    assert not list(tmp_path.iterdir())


def test_a_budget_may_be_huge(tmp_path: Path) -> None:
    seen, _ = tune(tmp_path, Fake(), time_budget=1e308, max_trials_global=2)
    assert len(seen) == 2


@pytest.mark.parametrize("name", ["max_trials_global", "max_trials_per_task"])
@pytest.mark.parametrize(
    "trials",
    [-1, 2.0, float("nan"), True, "3", -(10**9999)],
    ids=["-1", "2.0", "nan", "true", "text", "-1e9999"],
)
def test_numbers_of_trials_that_are_none_are_refused(
    name: str, trials: Any, tmp_path: Path
) -> None:
    with pytest.raises(TuneError, match=f"{name} is a number of trials"):
        tune(tmp_path, Fake(), **{name: trials})
    assert not list(tmp_path.iterdir())


def test_a_number_of_trials_may_be_huge(tmp_path: Path) -> None:
    huge = {"max_trials_global": 10**400, "max_trials_per_task": 10**400}
    seen, _ = tune(tmp_path, Fake(after=BATCH), **huge)
    assert len(seen) == BATCH
