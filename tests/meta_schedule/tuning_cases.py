"""Tasks, builders, runners and strategies that tests of the tuning loop make up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright import te
from tilewright.meta_schedule.builder import Builder, BuilderInput, BuilderResult
from tilewright.meta_schedule.database import Database, MemoryDatabase
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import Runner, RunnerInput, RunnerResult
from tilewright.meta_schedule.search_strategy import SearchStrategy
from tilewright.meta_schedule.task_scheduler import (
    TaskScheduler,
)
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.meta_schedule.tuning_session import TuningSession
from tilewright.runtime import Module
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver4 -num-cores=1")


def scaled(factor: float) -> PrimFunc:
    a = te.placeholder((16,), name="A")
    return te.create_prim_func([a, te.compute((16,), lambda i: a[i] * factor, name="B")])


class Listed(SearchStrategy):
    """Gives a fixed number of candidates."""

    def __init__(self, size: int = 100) -> None:
        super().__init__()
        self.size = size
        self.ended = 0
        self.heard: list[RunnerResult] = []

    def generate_measure_candidates(self, count: int | None = None) -> list[MeasureCandidate]:
        assert count is not None
        count = min(count, self.size)
        self.size -= count
        made = []
        for number in range(count):
            sch = Schedule(self.context.mod)
            (loop,) = sch.get_loops(sch.get_block("B"))
            sch.annotate(loop, "number", number)
            made.append(MeasureCandidate(sch, self.context.args_info))
        return made

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        assert len(measure_candidates) == len(results)
        self.heard += results

    def post_tuning(self) -> None:
        super().post_tuning()
        self.ended += 1


class FakeBuilder(Builder):
    """Gives modules that can't be run, or errors for the candidates of some batch numbers."""

    def __init__(self, *fails: int) -> None:
        self.fails = fails
        self.batches: list[int] = []
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def build(self, inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        self.batches.append(len(inputs))
        module = Module.__new__(Module)
        return [
            BuilderResult(None, "no", "build")
            if len(inputs) > 1 and number in self.fails
            else BuilderResult(module=module)
            for number in range(len(inputs))
        ]


class FakeRunner(Runner):
    """Answers from a list, then with the last entry; ``None`` raises an interrupt."""

    def __init__(self, *seconds: float | str | None) -> None:
        self.seconds = list(seconds) or [1e-3]
        self.known: list[float | None] = []
        self.closed = 0

    def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
        for item in inputs:
            self.known.append(item.best_seconds)
            answer = self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
            if answer is None:
                raise KeyboardInterrupt
            if isinstance(answer, str):
                yield RunnerResult(None, "something", answer)
            else:
                yield RunnerResult((answer,), error_ratio=0.0)

    def close(self) -> None:
        self.closed += 1


def contexts(*strategies: SearchStrategy, rules: bool = False) -> list[TuneContext]:
    return [
        TuneContext(
            scaled(number + 2.0),
            target=TARGET,
            search_strategy=strategy,
            task_name=f"task{number}",
            space_generator="post-order-apply",
            start_from_rules=rules,
        )
        for number, strategy in enumerate(strategies)
    ]


def tune(
    scheduler: TaskScheduler, tasks: list[TuneContext], trials: int, **options: Any
) -> Database:
    scheduler.final_rounds = options.pop("final_rounds", 0)
    weights = options.pop("task_weights", [1.0] * len(tasks))
    arguments: dict[str, Any] = {
        "max_trials_per_task": trials,
        "num_trials_per_iter": 4,
        "builder": FakeBuilder(),
        "runner": FakeRunner(),
        "database": MemoryDatabase(),
        "cost_model": None,
    } | options
    scheduler.spend(tasks, weights, TuningSession(max_trials_global=trials, **arguments))
    made: Database = arguments["database"]
    return made
