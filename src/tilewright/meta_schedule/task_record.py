"""The progress of each task of a tuning run."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from tilewright.meta_schedule.builder import BuilderResult
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import Reference
from tilewright.meta_schedule.tune_context import TuneContext


@dataclass(frozen=True, eq=False)
class TopCandidate:
    """A candidate that agreed with the reference, and its time when it was first measured."""

    seconds: float
    candidate: MeasureCandidate
    build: BuilderResult


@dataclass(eq=False)
class TaskRecord:
    """The progress of a task: trials, best time (seconds), failures by reason.

    ``error`` says why the whole task was given up, if it was.
    """

    context: TuneContext
    weight: float = 1.0
    trials: int = 0
    best_seconds: float = math.inf
    best_history: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    finished: bool = False
    spent_seconds: float = 0.0
    reference: Reference | None = None
    error: str | None = None
    prepared: bool = False
    top_candidates: list[TopCandidate] = field(default_factory=list)
    rule: TopCandidate | None = None

    @property
    def name(self) -> str:
        """The task's name."""
        return self.context.task_name

    @property
    def rejected(self) -> Counter[str]:
        """Counts of candidates that did not become records, by reason."""
        return self.failures + self.context.rejected
