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

logger = logging.getLogger("tilewright.meta_schedule")


def rejected_text(task: TaskRecord) -> str:
    """Render the rejected candidates of a task: ``wrong 1, build 2``."""
    return ", ".join(f"{reason} {count}" for reason, count in sorted(task.rejected.items())) or "-"


def best_text(task: TaskRecord) -> str:
    """Render the best time of a task."""
    return human_time(task.best_seconds) if math.isfinite(task.best_seconds) else "-"


def task_table(tasks: Sequence[TaskRecord], title: str | None = None) -> Table:
    """Return a table of tasks: weight, trials, best time and rate, rejected by reason."""
    table = Table(title=title)
    table.add_column("task")
    for column in ("weight", "trials", "best", "GFLOP/s"):
        table.add_column(column, justify="right")
    table.add_column("rejected")
    for task in tasks:
        rate = task.context.flops / task.best_seconds / 1e9
        table.add_row(
            task.name,
            f"{task.weight:g}",
            str(task.trials),
            best_text(task),
            f"{rate:.1f}" if rate > 0 else "-",
            rejected_text(task),
        )
    return table


class Progress:
    """Shows nothing; the base of progress displays."""

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
        rest = spent / done * (self._total - done) if done else math.nan
        eta = f", about {human_time(rest)} left" if done and rest > 1 else ""
        title = f"{done}/{self._total} trials, {spent:.0f} s{eta}: {self._doing}"
        return task_table(self._tasks, title)

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
            f"rejected {rejected_text(task)}",
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
