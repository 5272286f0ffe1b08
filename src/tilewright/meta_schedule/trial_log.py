"""What a tuning run leaves beside its database, for reports: a log of each task, and one of runs.

``logs/NAME-DIGEST.jsonl`` has a line for each trial, batch and race of one task;
``logs/runs.jsonl`` one for each run. Lines are JSON objects with a ``kind``, appended by one write
each, so that several runs may write at once and a kill tears one line at most. Only ``EVENTS`` are
read, and of these only the fields listed there, by type and range: the files may be a stranger's.
Lines of other kinds, and those that can't be read, are counted and left out.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.meta_schedule.tune_context import TuneContext

logger = logging.getLogger("tilewright.meta_schedule")

FOLDER = "logs"
RUNS = "runs.jsonl"

_MOST_BYTES = 64 << 20
"""Of each file; later lines aren't read."""
_LONGEST_LINE = 1 << 20
_LONGEST_TEXT = 2000
_MOST_ITEMS = 10_000
MOST_TRIALS = 1 << 30
"""Of a run: more than anybody has time for."""

Event = dict[str, Any]


def _text(value: object) -> str | None:
    return value[:_LONGEST_TEXT] if type(value) is str else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) <= 1e300 else None


def _positive(value: object) -> float | None:
    number = _number(value)
    return number if number is not None and number >= 0 else None


def _count(value: object) -> int | None:
    if type(value) is not int:
        return None
    return value if 0 <= value <= MOST_TRIALS else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _times(value: object) -> tuple[float, ...] | None:
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_ITEMS:
        return None
    found = [_positive(item) for item in value]
    return None if None in found else tuple(x for x in found if x is not None)


def _numbers_by_name(value: object) -> dict[str, float] | None:
    if not isinstance(value, dict) or len(value) > _MOST_ITEMS:
        return None
    found = {key[:_LONGEST_TEXT]: _positive(item) for key, item in value.items()}
    return None if None in found.values() else {k: x for k, x in found.items() if x is not None}


def _texts(value: object) -> list[str] | None:
    if not isinstance(value, list) or len(value) > _MOST_ITEMS:
        return None
    return [found for item in value if (found := _text(item)) is not None]


def _entries(value: object) -> list[Event] | None:
    if not isinstance(value, list) or len(value) > _MOST_ITEMS:
        return None
    return [_fields(item, _ENTRY) for item in value if isinstance(item, dict)]


Reader = Callable[[object], object]

_RESULT: dict[str, Reader] = {
    "trace": _text, "origin": _text, "seconds": _times, "reason": _text, "error": _text,
}  # fmt: skip
_ENTRY: dict[str, Reader] = {**_RESULT, "won": _flag}
# ``time`` is for people: a clock on the wall may jump. ``spent`` are the run's seconds until then.
_COMMON: dict[str, Reader] = {"run": _text, "time": _positive, "spent": _positive}

EVENTS: dict[str, dict[str, Reader]] = {
    # A run begins with a task: its name, its workload's hash, and what the database knew of it.
    "start": {
        "task": _text, "workload": _text, "target": _text, "flops": _positive, "bytes": _positive,
        "weight": _positive, "known": _positive, "model": _text,
    },
    # A candidate was measured, or not; ``predicted`` is the cost model's score before that.
    "trial": {**_RESULT, "predicted": _number},
    # A batch ended for which ``size`` candidates were asked: all rejected so far, by reason.
    "batch": {"rejected": _numbers_by_name, "best": _positive, "size": _count},
    # The best were measured in turn.
    "race": {"entries": _entries},
    # A run begins, or goes on: what it is known by (``resume``).
    "begin": {"digest": _text},
    # Beside the searches of a model: trials of ways to compute convolutions; and its end.
    "alternatives": {"trials": _count},
    "end": {"finished": _flag},
    # Records are run in the graph, within this process; and nothing came of that.
    "trying": {"records": _texts},
    "tried": {},
    # A run ended, early unless it is ``finished``: seconds by phase.
    "run": {
        "phases": _numbers_by_name, "trials": _count, "tasks": _count, "finished": _flag,
    },
}  # fmt: skip
"""The kinds of lines and their fields; what is no such value is ``None``."""


def _fields(item: Mapping[str, object], readers: Mapping[str, Reader]) -> Event:
    return {name: read(item.get(name)) for name, read in readers.items()}


def file_name(task: TuneContext) -> str:
    """Return the name of a task's log: readable, and unlike that of any other task.

    Tasks of one program may differ in their targets, or in the sizes that they are measured at.
    """
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", task.task_name).lstrip(".")[:60] or "task"
    known = (task.task_name, task.hash, str(task.target), str(task.args_info))
    digest = hashlib.sha256(json.dumps(known).encode()).hexdigest()
    return f"{plain}-{digest[:12]}.jsonl"


@dataclass(frozen=True)
class RunClock:
    """The seconds that a run has taken: ``before`` it went on, and since then without jumps."""

    before: float = 0.0
    start: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        """The seconds until now."""
        return self.before + time.monotonic() - self.start

    def stamp(self) -> dict[str, float]:
        """Return what each event of the run says of when it was."""
        return {"time": round(time.time(), 3), "spent": round(self.spent, 3)}


def new_run() -> str:
    """Return a name that no other run has, whatever the clock and the process's number are."""
    return f"{time.time():.3f}-{secrets.token_hex(4)}"


def append(path: Path, kind: str, **values: object) -> None:
    """Append a line. ``None`` and numbers that aren't finite are left out. May raise ``OSError``.

    A line that a killed writer left without its end is ended first.
    """
    kept = {
        key: value
        for key, value in values.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }
    data = json.dumps({"kind": kind, **kept}, separators=(",", ":"), allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, b"\n" * torn + data.encode() + b"\n")
    finally:
        os.close(handle)


@dataclass
class TaskLog:
    """The log of one task over all runs: its events in order, and how many lines were left out."""

    events: list[Event] = field(default_factory=list)
    left_out: int = 0

    def of_kind(self, kind: str) -> list[Event]:
        """Return the events of one kind."""
        return [event for event in self.events if event["kind"] == kind]

    @property
    def task(self) -> str:
        """The task's name."""
        return next((x["task"] for x in self.of_kind("start") if x["task"]), "?")

    @property
    def workload(self) -> str:
        """The hash of the task's workload; empty if no line tells."""
        return next((x["workload"] for x in self.of_kind("start") if x["workload"]), "")


def read_log(path: Path) -> TaskLog:
    """Read a log; a file that can't be read is empty."""
    made = TaskLog()
    for line in _lines(path):
        event = _event(line)
        if event is None:
            made.left_out += 1
        else:
            made.events.append(event)
    return made


def _lines(path: Path) -> Iterator[bytes]:
    left = _MOST_BYTES
    try:
        if not path.is_file():
            return
        with path.open("rb") as file:
            while left > 0:
                line = file.readline(_LONGEST_LINE)
                if not line:
                    return
                left -= len(line)
                yield line
    except OSError as error:
        logger.warning("the log %s can't be read: %s", path, error.strerror or error)
        return
    logger.warning("the log %s is longer than %d bytes; the rest isn't read", path, _MOST_BYTES)


def _event(line: bytes) -> Event | None:
    try:
        data = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in EVENTS:
        return None
    return {"kind": kind, **_fields(data, {**_COMMON, **EVENTS[kind]})}


def read_logs(work_dir: str | os.PathLike[str]) -> list[TaskLog]:
    """Read the logs of all tasks in a work directory, by name."""
    files = sorted(Path(work_dir, FOLDER).glob("*.jsonl"))
    found = [read_log(path) for path in files if path.name != RUNS]
    return sorted((log for log in found if log.workload), key=lambda log: (log.task, log.workload))


def read_runs(work_dir: str | os.PathLike[str]) -> list[Event]:
    """Read how the runs of a work directory spent their time, in order."""
    return read_log(Path(work_dir, FOLDER, RUNS)).of_kind("run")
