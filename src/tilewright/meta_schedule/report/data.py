"""What a report shows of a work directory: its tasks, from their logs and from the database."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.meta_schedule.arg_info import argument_bytes
from tilewright.meta_schedule.database import Database, JSONDatabase, TuningRecord
from tilewright.meta_schedule.report.explain import race_ratio
from tilewright.meta_schedule.task import known_flops
from tilewright.meta_schedule.times import robust_seconds
from tilewright.meta_schedule.trial_log import Event, TaskLog, read_logs, read_runs
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.target import Target

logger = logging.getLogger("tilewright.meta_schedule")

MOST_TASKS = 200
"""A report has so many tasks at most: those that took most trials."""


@dataclass
class TaskData:
    """One task: its log (empty without one) and the best record of the database, if there is one.

    ``record`` is that of the log's target; ``flops`` and ``nbytes`` are 0 if nothing tells.
    """

    name: str
    workload: str
    log: TaskLog = field(default_factory=TaskLog)
    record: TuningRecord | None = None
    flops: float = 0.0
    nbytes: float = 0.0

    @property
    def trials(self) -> list[Event]:
        """What was measured, or failed, in order."""
        return self.log.of_kind("trial")

    @property
    def best_seconds(self) -> float:
        """The time of the best schedule; infinity if none was measured."""
        if self.record is not None:
            return self.record.best_seconds
        times = [robust_seconds(trial["seconds"]) for trial in self.trials if trial["seconds"]]
        return min(times, default=math.inf)

    @property
    def target(self) -> Target | None:
        """What it was tuned for, as the record says."""
        return None if self.record is None else self.record.target

    @property
    def rejected(self) -> Counter[str]:
        """Candidates that became no records, by reason, of all runs."""
        last: dict[str | None, Event] = {}
        for event in self.log.of_kind("batch"):
            last[event["run"]] = event
        found: Counter[str] = Counter()
        for event in last.values():
            for reason, count in (event["rejected"] or {}).items():
                found[reason] += int(count)
        return found

    @property
    def race(self) -> Event | None:
        """The last race of its best candidates."""
        races = self.log.of_kind("race")
        return races[-1] if races else None

    @property
    def gain(self) -> float | None:
        """How many times as long as the best the rules' schedule takes; ``None`` if unknown."""
        entries = [] if self.race is None else self.race["entries"] or []
        winner = next((entry for entry in entries if entry["won"]), None)
        rule = next((entry for entry in entries if entry["origin"] == "rule"), None)
        if winner is not None and rule is not None:
            return race_ratio(rule, winner)
        times = [x["seconds"] for x in self.trials if x["origin"] == "rule" and x["seconds"]]
        best = self.best_seconds
        return robust_seconds(times[-1]) / best if times and 0 < best < math.inf else None

    def curve(self) -> list[tuple[int, float]]:
        """The best time after each trial at which it improved, and at the end."""
        points: list[tuple[int, float]] = []
        best, number = math.inf, 0
        for number, trial in enumerate(self.trials, 1):
            if trial["seconds"] and robust_seconds(trial["seconds"]) < best:
                if points:
                    points.append((number, best))
                best = robust_seconds(trial["seconds"])
                points.append((number, best))
        if points:
            points.append((number, best))
        return points

    def predictions(self) -> list[tuple[float, float, Event]]:
        """The cost model's scores before measuring, and the times; of those that have both."""
        return [
            (trial["predicted"], robust_seconds(trial["seconds"]), trial)
            for trial in self.trials
            if trial["seconds"] and trial["predicted"] is not None
        ]


@dataclass
class ReportData:
    """All that a report shows of one work directory."""

    name: str
    tasks: list[TaskData]
    runs: list[Event]
    left_out: int = 0
    """Lines of logs that couldn't be read."""
    more: int = 0
    """Tasks beyond ``MOST_TASKS``."""
    database: Database | None = None


def read(work_dir: str | os.PathLike[str], database: Database | None = None) -> ReportData:
    """Read the logs of a work directory, and the database in it, or the one given.

    Raises ``TuneError`` if it has neither.
    """
    path = Path(work_dir)
    logs = read_logs(path)
    if database is None and path.is_dir():
        found_here = JSONDatabase(work_dir=path)
        database = found_here if found_here.path_workload.exists() else None
    if not logs and database is None:
        raise TuneError(f"{work_dir} has no logs and no database of a tuning run")
    tasks: dict[str, list[TaskData]] = {}
    for log in logs:
        tasks.setdefault(log.workload, []).append(_from_log(log))
    for record in [] if database is None else database.best_records():
        _add_record(tasks, record)
    found = sorted(chain.from_iterable(tasks.values()), key=lambda task: -len(task.trials))
    left_out = sum(log.left_out for log in logs)
    shown = sorted(found[:MOST_TASKS], key=lambda task: (task.name, task.workload))
    more = max(0, len(found) - MOST_TASKS)
    return ReportData(str(work_dir), shown, read_runs(path), left_out, more, database)


def _from_log(log: TaskLog) -> TaskData:
    start = log.of_kind("start")[-1]
    return TaskData(log.task, log.workload, log, None, start["flops"] or 0, start["bytes"] or 0)


def _add_record(tasks: dict[str, list[TaskData]], record: TuningRecord) -> None:
    """Join a workload's best record to its tasks; of several targets the log's, or the first."""
    if record.workload.hash not in tasks:
        task = TaskData(record.summary, record.workload.hash)
        tasks[record.workload.hash] = [task]
        task.nbytes = argument_bytes(record.args_info or ())
        try:
            task.flops = known_flops(record.workload.mod["main"])
        except TilewrightError as error:
            logger.info("workload %s can't be read: %s", record.workload.hash, error)
    for task in tasks[record.workload.hash]:
        logged = [start["target"] for start in task.log.of_kind("start")]
        if task.record is None or (logged and str(record.target) == logged[-1]):
            task.record = record


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's coefficient; ``None`` if all of one are equal."""
    if len(first) < 3:
        return None
    ranks = _ranks(first), _ranks(second)
    if any(np.ptp(item) == 0 for item in ranks):
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Ranks; equals have the mean of theirs."""
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse], dtype=np.float64)
