"""The interface of callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tilewright.meta_schedule.builder import BuilderResult
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.meta_schedule.task_record import TaskRecord


class Tuning(Protocol):
    """The tuning run that callbacks receive: a ``TaskScheduler``."""

    tasks: list[TaskRecord]
    database: Database | None
    cost_model: CostModel | None


class MeasureCallback:
    """Base of callbacks. Override what you need."""

    def on_result(
        self,
        scheduler: Tuning,
        task: TaskRecord,
        candidate: MeasureCandidate,
        built: BuilderResult,
        result: RunnerResult,
    ) -> None:
        """Called for each candidate as soon as its result is available."""

    def on_batch(
        self,
        scheduler: Tuning,
        task: TaskRecord,
        candidates: Sequence[MeasureCandidate],
        results: Sequence[RunnerResult],
    ) -> None:
        """Called after a batch of candidates of one task."""
