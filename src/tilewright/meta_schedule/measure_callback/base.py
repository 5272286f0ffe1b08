"""What a callback may define."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.meta_schedule.builder import BuilderResult
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import RunnerResult

if TYPE_CHECKING:
    from tilewright.meta_schedule.task_scheduler.base import TaskRecord, TaskScheduler


class MeasureCallback:
    """Base of callbacks. Override what you need."""

    def on_result(
        self,
        scheduler: TaskScheduler,
        task: TaskRecord,
        candidate: MeasureCandidate,
        built: BuilderResult,
        result: RunnerResult,
    ) -> None:
        """Called for each candidate as soon as its result is there."""

    def on_batch(
        self,
        scheduler: TaskScheduler,
        task: TaskRecord,
        candidates: Sequence[MeasureCandidate],
        results: Sequence[RunnerResult],
    ) -> None:
        """Called after a batch of candidates of one task."""
