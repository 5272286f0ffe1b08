"""Display of a tuning run: one live table on a terminal, lines elsewhere."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tilewright.meta_schedule.task_record import TaskRecord
from tilewright.support.text import human_time

MORE_TRIALS = 32
"""So many further trials the expected gains are for."""

logger = logging.getLogger("tilewright.meta_schedule")


def rejected_text(task: TaskRecord) -> str:
    """Render the rejected candidates of a task: ``wrong 1, build 2``."""
    return ", ".join(f"{reason} {count}" for reason, count in sorted(task.rejected.items())) or "-"


def best_text(task: TaskRecord) -> str:
    """Render the best time of a task."""
    return human_time(task.best_seconds) if math.isfinite(task.best_seconds) else "-"


def gain_text(gain: float) -> str:
    """Render an expected gain; infinite ones aren't known."""
    return f"{gain:.1%}" if math.isfinite(gain) else "-"


def whole_gain(tasks: Sequence[TaskRecord]) -> float:
    """By how much so many more trials of each task would shorten all of them together.

    Infinite while nothing is known of some task that can still be tuned.
    """
    weights = [task.weight * task.best_seconds for task in tasks if task.error is None]
    gains = [task.expected_gain(MORE_TRIALS) for task in tasks if task.error is None]
    if not weights or not all(map(math.isfinite, [*weights, *gains])) or not sum(weights):
        return math.inf
    return sum(weight * gain for weight, gain in zip(weights, gains)) / sum(weights)


def task_table(tasks: Sequence[TaskRecord], title: str | None = None) -> Table:
    """Return a table of tasks: weight, trials, best time and rate, rejected by reason.

    ``to gain`` is by how much ``MORE_TRIALS`` are expected to shorten the best time. The last
    column is there if a task has ended before its trials were spent.
    """
    table = Table(title=title)
    table.add_column("task")
    for column in ("weight", "trials", "best", "GFLOP/s", "to gain"):
        table.add_column(column, justify="right")
    table.add_column("rejected")
    some_ended = any(task.ended for task in tasks)
    if some_ended:
        table.add_column("state")
    for task in tasks:
        rate = task.context.flops / task.best_seconds / 1e9
        table.add_row(
            task.name,
            f"{task.weight:g}",
            str(task.trials),
            best_text(task),
            f"{rate:.1f}" if rate > 0 else "-",
            gain_text(task.expected_gain(MORE_TRIALS)),
            rejected_text(task),
            *([task.state] if some_ended else []),
        )
    return table


class Progress:
    """Shows nothing; the base of progress displays.

    ``until`` is when the run ends at the latest, by ``time.monotonic``; its owner sets it.
    """

    until = math.inf

    @contextmanager
    def running(self, tasks: Sequence[TaskRecord], max_trials: int) -> Iterator[None]:
        """Show the run while the block lasts."""
        yield

    def working(self, task: TaskRecord, what: str) -> None:
        """Note what a task is doing."""

    def measured(self, task: TaskRecord) -> None:
        """Note one more trial."""

    def message(self, text: str) -> None:
        """Show the user a message."""
        logger.info("%s", text)


class ConsoleProgress(Progress):
    """A live table on a terminal; a line per batch elsewhere.

    A ``transient`` table disappears at the end, for callers that print the result themselves.
    """

    def __init__(self, console: Console | None = None, *, transient: bool = False) -> None:
        self.console = console or Console(file=sys.stdout)
        self.transient = transient
        self._live: Live | None = None
        self._tasks: Sequence[TaskRecord] = ()
        self._total = 0
        self._start = 0.0
        self._doing = ""
        self._last_task: TaskRecord | None = None

    @contextmanager
    def running(self, tasks: Sequence[TaskRecord], max_trials: int) -> Iterator[None]:
        """Show the run while the block lasts."""
        self._tasks, self._total, self._start = tasks, max_trials, time.monotonic()
        if not self.console.is_interactive:
            try:
                yield
            finally:
                self._print_lines()
            return
        with Live(console=self.console, refresh_per_second=4, transient=self.transient) as live:
            self._live = live
            try:
                yield
            finally:
                self._doing = "done"
                live.update(self._table())
                self._live = None

    def _table(self) -> Table:
        done = sum(task.trials for task in self._tasks)
        spent = time.monotonic() - self._start
        parts = [f"{done}/{self._total} trials, {spent:.0f} s"]
        rest = self.until - time.monotonic()
        if done:
            rest = min(rest, spent / done * (self._total - done))
        if 1 < rest < math.inf:
            parts.append(f"about {human_time(rest)} left")
        gain = whole_gain(self._tasks)
        if math.isfinite(gain):
            parts.append(f"{gain_text(gain)} to gain by {MORE_TRIALS} more trials of each")
        return task_table(self._tasks, f"{', '.join(parts)}: {self._doing}")

    def working(self, task: TaskRecord, what: str) -> None:
        """Note what a task is doing."""
        self._doing = f"{task.name}: {what}"
        if self._live is not None:
            self._live.update(self._table())
        elif what == "searching":
            self._print_lines()
            self._last_task = task

    def _print_lines(self) -> None:
        """Print one line for the task whose batch has ended."""
        task, self._last_task = self._last_task, None
        if task is None:
            return
        done = sum(item.trials for item in self._tasks)
        self.console.print(
            f"[{done}/{self._total}] {task.name}: best {best_text(task)}, {task.trials} trials, "
            f"rejected {rejected_text(task)}, "
            f"to gain {gain_text(task.expected_gain(MORE_TRIALS))}",
            markup=False,
            highlight=False,
        )

    def measured(self, task: TaskRecord) -> None:
        """Note one more trial."""
        if self._live is not None:
            self._live.update(self._table())

    def message(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, markup=False, highlight=False)
