"""The progress of each task of a tuning run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.meta_schedule.builder import BuilderResult
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import Reference, RunnerResult
from tilewright.meta_schedule.tune_context import TuneContext

# How many steps say what the next one may gain, and what it is expected to gain in any case.
_LATELY, _LEAST_STEP = 4, 0.02


@dataclass(frozen=True, eq=False)
class TopCandidate:
    """A candidate that agreed with the reference, and its time when it was first measured.

    It has no ``build`` if that was in a run that ended early.
    """

    seconds: float
    candidate: MeasureCandidate
    build: BuilderResult | None


@dataclass(eq=False)
class TaskRecord:
    """The progress of a task: trials, best time (seconds), failures by reason.

    ``error`` says why the whole task was given up, if it was, and ``ended`` why it has ended.
    """

    context: TuneContext
    weight: float = 1.0
    trials: int = 0
    best_seconds: float = math.inf
    best_history: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    finished: bool = False
    ended: str = ""
    spent_seconds: float = 0.0
    first_seconds: float = 0.0
    """How long it took until the first trial's result was there."""
    reference: Reference | None = None
    error: str | None = None
    prepared: bool = False
    top_candidates: list[TopCandidate] = field(default_factory=list)
    rule: TopCandidate | None = None
    asked: int = 0
    """How many candidates the last batch was to have; a search may find fewer."""
    last_results: list[RunnerResult] = field(default_factory=list)
    """The results of the last batch."""
    steps: list[float] = field(default_factory=list)
    """By how much (relative) each new best time was better than the one before."""

    def took(self, seconds: float) -> None:
        """Note a time; the first ones of a database or a rule are no improvement."""
        if seconds >= self.best_seconds:
            return
        if math.isfinite(self.best_seconds):
            self.steps.append(1.0 - seconds / self.best_seconds)
        self.best_seconds = seconds

    def expected_gain(self, trials: int) -> float:
        """How much (relative) so many further trials are expected to improve the best time.

        Of equally good draws the best of ``n`` is beaten among the next ``m`` with the probability
        ``m / (n + m)``, and then by about as much as lately. A search draws better ones later on,
        so what was gained lately is taken for at least ``_LEAST_STEP``. Infinite while nothing is
        known.
        """
        if not math.isfinite(self.best_seconds) or self.trials == 0:
            return math.inf
        lately = self.steps[-_LATELY:]
        step = max(_LEAST_STEP, sum(lately) / len(lately)) if lately else _LEAST_STEP
        return step * trials / (self.trials + trials)

    @property
    def state(self) -> str:
        """Whether the task goes on, or why not."""
        if self.error is not None:
            return "given up"
        if not self.finished:
            return "going on"
        return f"ended: {self.ended}" if self.ended else "ended"

    @property
    def ctx(self) -> TuneContext:
        """The task's context, as TVM calls it."""
        return self.context

    @property
    def task_weight(self) -> float:
        """The task's weight, as TVM calls it."""
        return self.weight

    @property
    def name(self) -> str:
        """The task's name."""
        return self.context.task_name

    @property
    def rejected(self) -> Counter[str]:
        """Counts of candidates that did not become records, by reason."""
        return self.failures + self.context.rejected


def statistics(tasks: Sequence[TaskRecord]) -> str:
    """Return a table of tasks: trials, failures, the best times, and why they have ended."""
    lines = [f"{'task':<32} {'weight':>7} {'trials':>7} {'failed':>7} {'best':>12}  state"]
    for task in tasks:
        best = f"{task.best_seconds * 1e6:.2f} us" if math.isfinite(task.best_seconds) else "none"
        failed = sum(task.failures.values())
        lines.append(
            f"{task.name:<32} {task.weight:>7g} {task.trials:>7} {failed:>7} {best:>12}  "
            f"{task.state}"
        )
    known = [task for task in tasks if math.isfinite(task.best_seconds)]
    total = sum(task.weight * task.best_seconds for task in known)
    lines.append(f"{len(known)} of {len(tasks)} tasks: {total * 1e6:.2f} us by weight")
    return "\n".join(lines)
