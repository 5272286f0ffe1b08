"""A tuning run without building and running, for the tests of logs and reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewright import te
from tilewright.meta_schedule.builder import BuilderResult
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import Database, MemoryDatabase
from tilewright.meta_schedule.database.record import trace_digest
from tilewright.meta_schedule.measure_callback import AddToDatabase, Batch, KeepTrialLog, Trial
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.meta_schedule.task_record import TaskRecord
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver4 -num-cores=1")
BUILT = BuilderResult(None)


def doubled(size: int = 64) -> PrimFunc:
    a = te.placeholder((size,), "float32", "A")
    return te.create_prim_func([a, te.compute((size,), lambda i: a[i] * 2.0, name="B")])


@dataclass
class Run:
    """What callbacks see of a run with one task."""

    work_dir: Path
    name: str = "doubled"
    size: int = 64
    database: Database = field(default_factory=MemoryDatabase)
    cost_model: CostModel | None = field(default_factory=lambda: CostModel.create("analytic"))

    def __post_init__(self) -> None:
        context = TuneContext(
            doubled(self.size), target=TARGET, task_name=self.name, start_from_rules=False
        )
        self.task = TaskRecord(context)
        self.tasks = [self.task]
        self.log = KeepTrialLog(self.work_dir)
        self.callbacks = [self.log, AddToDatabase()]

    def candidate(self, factor: int, *, by_rule: bool = False) -> MeasureCandidate:
        sch = Schedule(self.task.context.mod)
        _, inner = sch.split(sch.get_loops("B")[0], [None, factor])
        sch.vectorize(inner)
        return MeasureCandidate(sch, self.task.context.args_info, by_rule=by_rule)

    def tell(self, candidate: MeasureCandidate, result: RunnerResult) -> None:
        for callback in self.callbacks:
            callback.on_result(self, self.task, Trial(candidate, BUILT, result))

    def batch(self, *times: Sequence[float] | str) -> list[MeasureCandidate]:
        """A batch of candidates, the first of them by rule; texts are reasons of failures."""
        made = [self.candidate(2 << n, by_rule=n == 0) for n in range(len(times))]
        results = [
            RunnerResult(None, f"it is {time}", time)
            if isinstance(time, str)
            else RunnerResult(tuple(time), error_ratio=0.0, inputs=("random", "zero"), seed=7)
            for time in times
        ]
        for candidate, result in zip(made, results):
            self.tell(candidate, result)
            if result.reason:
                self.task.failures[result.reason] += 1
        for callback in self.callbacks:
            callback.on_batch(self, self.task, Batch(made, results))
        return made

    def race(self, candidates: Sequence[MeasureCandidate], *times: Sequence[float]) -> None:
        """The last race, in which the first candidate wins."""
        results = [RunnerResult(tuple(time), error_ratio=0.0) for time in times]
        self.log.on_race(self, self.task, Batch(candidates, results, 0))
        beat = tuple(trace_digest(item.sch.trace) for item in candidates[1:])
        self.tell(candidates[0], replace(results[0], beat=beat))
