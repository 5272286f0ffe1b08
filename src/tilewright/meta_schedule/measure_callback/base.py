"""The interface of callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from tilewright.meta_schedule.builder import BuilderResult
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.meta_schedule.task_record import TaskRecord
from tilewright.support.errors import TuneError
from tilewright.support.registry import Registry


class Tuning(Protocol):
    """The tuning run that callbacks receive: a ``TaskScheduler``."""

    tasks: list[TaskRecord]
    database: Database | None
    cost_model: CostModel | None


class Trial(NamedTuple):
    """A candidate, what was built of it, and its times, or why it has none."""

    candidate: MeasureCandidate
    built: BuilderResult
    result: RunnerResult


class Batch(NamedTuple):
    """Candidates of one task that were measured together; ``won``: the best of a race, if any."""

    candidates: Sequence[MeasureCandidate]
    results: Sequence[RunnerResult]
    won: int | None = None


class MeasureCallback:
    """Base of callbacks. Override what you need; a ``name`` registers it."""

    CallbackListType: ClassVar[Any]  # a union, for annotations

    name = ""

    def on_result(self, scheduler: Tuning, task: TaskRecord, trial: Trial) -> None:
        """Called for each candidate as soon as its result is available."""

    def on_batch(self, scheduler: Tuning, task: TaskRecord, batch: Batch) -> None:
        """Called after a batch of candidates of one task."""

    def on_race(self, scheduler: Tuning, task: TaskRecord, race: Batch) -> None:
        """Called after the best candidates of a task were measured in turn.

        ``race.won`` is the number of the winner, for which ``on_result`` is called next.
        """

    def apply(
        self,
        task_scheduler: Tuning,
        task_id: int,
        measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        """Called after a batch with all of it, if it is defined; else as the two methods above."""
        task = task_scheduler.tasks[task_id]
        for each in zip(measure_candidates, builder_results, runner_results):
            self.on_result(task_scheduler, task, Trial(*each))
        self.on_batch(task_scheduler, task, Batch(measure_candidates, runner_results))

    @staticmethod
    def create(
        kind: Sequence[MeasureCallback | str] | MeasureCallback | str | None = "default",
    ) -> list[MeasureCallback]:
        """Return callbacks: instances, those of these names, or those of every run.

        Raises ``TuneError`` for anything else.
        """
        if kind is None or kind == "default":
            return default_callbacks()
        items = [kind] if isinstance(kind, (str, MeasureCallback)) else list(kind)
        return [MEASURE_CALLBACKS.instance(item, MeasureCallback) for item in items]


def defines_apply(callback: MeasureCallback) -> bool:
    """Tell whether a callback is to be called with whole batches."""
    return type(callback).apply is not MeasureCallback.apply


MeasureCallback.CallbackListType = list[MeasureCallback] | MeasureCallback | Literal["default"]

PyMeasureCallback = MeasureCallback
"""The name under which TVM's users derive from it."""

MEASURE_CALLBACKS: Registry[Callable[[], MeasureCallback]] = Registry("callback", TuneError)
"""Callbacks by name."""

_DEFAULT = ("add-to-database", "update-cost-model", "remove-build-artifact")


def default_callbacks() -> list[MeasureCallback]:
    """Return callbacks that save measurements, learn from them and remove what builds left."""
    return [MEASURE_CALLBACKS.get(name)() for name in _DEFAULT]
