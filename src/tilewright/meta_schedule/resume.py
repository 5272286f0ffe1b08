"""Going on with a run that ended early: what it did is done again, but nothing is measured twice.

A search depends on its seed and on results. So populations, cost model and random generators are as
they were once the same candidates have been drawn again and given the results that the log of
trials (``trial_log``) has of them. What the run itself has added to the database is hidden from the
search until that is drawn again.

A run that is the same (tasks, seeds, strategies …) and whose log has no end goes on, with what is
left of its budget. The tuning of a model is a ``Whole`` of several searches, which are its parts:
as long as it has no end, they go on too, even those that have come to theirs.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.meta_schedule.database import Database, Filtered, TuningRecord
from tilewright.meta_schedule.database.record import trace_digest
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import REASONS, RunnerResult
from tilewright.meta_schedule.trial_log import (
    FOLDER,
    RUNS,
    Event,
    RunClock,
    append,
    file_name,
    new_run,
    read_log,
)
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.support.version import __version__

logger = logging.getLogger("tilewright.meta_schedule")

_MOST_DIGITS = 9  # of the number of a part, in the log of a stranger

Results = Mapping[str, Sequence[RunnerResult]]
"""Results of schedules, by what these are known by."""


def run_digest(tasks: Sequence[TuneContext], weights: Sequence[float], *others: object) -> str:
    """Return what a run is known by: two of the same tasks, seeds and strategies do the same."""
    known = [
        [
            task.task_name,
            task.hash,
            str(task.target),
            task.rand_state,
            task.start_from_rules,
            type(task.search_strategy).__name__,
        ]
        for task in tasks
    ]
    text = json.dumps([__version__, known, list(weights), [str(item) for item in others]])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class Remembered:
    """What a run did before it ended: results, and sizes of batches, by the name of a task's log.

    ``run`` is its name; ``seconds`` is how long it took. A batch's size is how many candidates it
    was to have. ``later`` are results of later parts of the same whole.
    """

    run: str
    seconds: float = 0.0
    results: dict[str, dict[str, list[RunnerResult]]] = field(default_factory=dict)
    batches: dict[str, list[int]] = field(default_factory=dict)
    later: dict[str, dict[str, list[RunnerResult]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._left = {name: deque(sizes) for name, sizes in self.batches.items()}

    def batch(self, task: TuneContext) -> int | None:
        """Return how large the next batch of a task was; ``None`` if there was none."""
        left = self._left.get(file_name(task))
        return left.popleft() if left else None

    def result(self, task: TuneContext, candidate: MeasureCandidate) -> RunnerResult | None:
        """Return what a candidate was found to be; ``None`` if it wasn't measured."""
        found = self.results.get(file_name(task), {}).get(trace_digest(candidate.sch.trace))
        if found:
            return found.pop(0)
        self._left.clear()  # the end of what the run did, or something else is done this time
        return None

    def knows(self, task: TuneContext) -> bool:
        """Whether a task had a batch."""
        return bool(self.batches.get(file_name(task)))

    @property
    def goes_on(self) -> bool:
        """Whether there is a batch that is done again."""
        return any(self._left.values())

    def without_own(self, database: Database, tasks: Iterable[TuneContext]) -> Database:
        """Return a view of a database without what the run itself measured and hasn't drawn yet."""
        hidden: defaultdict[str, list[Results]] = defaultdict(list)
        for task in tasks:  # several may be of one program, at different sizes
            name = file_name(task)
            hidden[task.hash] += [self.results.get(name, {}), self.later.get(name, {})]

        def is_old(record: TuningRecord) -> bool:
            return not any(x.get(record.digest) for x in hidden.get(record.workload.hash, ()))

        return Filtered(database, is_old)


def interrupted_run(
    work_dir: str | os.PathLike[str],
    digest: str,
    tasks: Sequence[TuneContext],
    database: Database,
    *,
    ended: bool = False,
) -> Remembered | None:
    """Return what the last run of a digest did, if it ended early (or at all, if ``ended``).

    Of what could be measured only that counts which the database has: the run may have been killed
    before it was there, or the database is another one.
    """
    folder = Path(work_dir) / FOLDER
    run, seconds = _last_run(folder, digest, ended=ended)
    if run is None:
        return None
    results: dict[str, dict[str, list[RunnerResult]]] = {}
    later: dict[str, dict[str, list[RunnerResult]]] = {}
    batches: dict[str, list[int]] = {}
    for name, task in {file_name(task): task for task in tasks}.items():
        events = read_log(folder / name).events
        own = [event for event in events if event["run"] == run]
        seconds = max(seconds, _spent(own))
        batches[name] = [x["size"] for x in own if x["kind"] == "batch" and x["size"]]
        later[name] = _results(x for x in events if _is_later(x["run"], run))
        kept = _digests_in(database, task)
        results[name] = {
            trace: [result for result in found if trace in kept or not result.run_secs]
            for trace, found in _results(own).items()
        }
    return Remembered(run, seconds, results, batches, later)


def _results(events: Iterable[Event]) -> dict[str, list[RunnerResult]]:
    """Return the results of trials, by their schedules."""
    found: defaultdict[str, list[RunnerResult]] = defaultdict(list)
    for event in events:
        if event["kind"] == "trial" and event["trace"]:
            found[event["trace"]].append(_result(event))
    return dict(found)


def _last_run(folder: Path, digest: str, *, ended: bool) -> tuple[str | None, float]:
    """Return the last run of a digest, unless it has ended, and the seconds that it took."""
    run: str | None = None
    events = read_log(folder / RUNS).events
    for event in events:
        if event["kind"] == "begin" and event["digest"] == digest and event["run"]:
            run = event["run"]
        elif event["kind"] in ("run", "end") and event["run"] == run and event["finished"]:
            run = run if ended else None
    return run, _spent(event for event in events if event["run"] == run)


def _is_later(other: str | None, part: str) -> bool:
    """Whether a run is a later part of the same whole."""
    whole, number = _part(part)
    other_whole, other_number = _part(other or "")
    return bool(whole) and whole == other_whole and other_number > number


def _part(run: str) -> tuple[str, int]:
    """Return the whole that a run is a part of, and its number; an empty name if it is none."""
    whole, _, number = run.rpartition("/")
    known = number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
    return (whole, int(number)) if known else ("", 0)


def _digests_in(database: Database, task: TuneContext) -> frozenset[str]:
    workload = database.find_workload(task.mod)
    if workload is None:
        return frozenset()
    return frozenset(x.digest for x in database.get_top_k(workload, 2**31, task.target))


def _spent(events: Iterable[Event]) -> float:
    """Return the seconds that a run had taken at its last event; no clock on the wall counts."""
    return max((event["spent"] or 0.0 for event in events), default=0.0)


def _result(event: Event) -> RunnerResult:
    seconds = event["seconds"]
    if seconds and min(seconds) > 0.0:
        return RunnerResult(tuple(seconds))
    reason = event["reason"] if event["reason"] in REASONS else "run"
    return RunnerResult(None, event["error"], reason)


@contextmanager
def alone(work_dir: str | os.PathLike[str], digest: str) -> Iterator[bool]:
    """Hold the lock of a run, as far as nobody else does; yields whether that is so.

    The system takes it away from a process that dies, whatever becomes of those forked by it.
    """
    path = Path(work_dir) / FOLDER / f"run-{digest}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        yield False  # who can't write there leaves no log to go on from
        return
    _HELD.add(handle)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        _HELD.discard(handle)
        os.close(handle)


_HELD: set[int] = set()


def _let_go() -> None:
    """Close the locks that a forked process has inherited: it may outlive the one that has them."""
    while _HELD:
        os.close(_HELD.pop())


os.register_at_fork(after_in_child=_let_go)


class Whole:
    """A run of several searches: each ``tune_tasks`` that is told of it is a part, by number.

    Its ``clock`` knows how long it took before it ended early, ``alternatives`` how many trials
    went to ways to compute convolutions, ``attempts`` are its beginnings and ends, and what it ran
    in the graph. Whoever comes to its end says so by ``finished``.
    """

    def __init__(self, folder: Path | None = None, run: str = "", seconds: float = 0.0) -> None:
        self._folder, self.run, self.clock = folder, run, RunClock(seconds)
        self.alternatives, self.finished = 0, False
        self.attempts: list[Event] = []
        self._parts = 0

    def next_part(self) -> str | None:
        """Return what the next search is known by; ``None`` if parts aren't known by number."""
        self._parts += 1
        return f"{self.run}/{self._parts}" if self.run else None

    def spend(self, trials: int) -> None:
        """Note trials of ways to compute convolutions."""
        self.alternatives += trials
        self.log("alternatives", trials=trials)

    def log(self, kind: str, **values: object) -> None:
        """Append to the log of runs, if there is one."""
        if self._folder is None:
            return
        try:
            append(self._folder / RUNS, kind, run=self.run, **self.clock.stamp(), **values)
        except OSError as error:
            self._folder = None
            logger.warning("the run couldn't go on if it ended early: %s", error)


@contextmanager
def whole_run(work_dir: str | os.PathLike[str] | None, digest: str) -> Iterator[Whole]:
    """Begin a run of several searches, or go on with the last one of a digest that ended early.

    Without a folder, or while another process has that run, its parts aren't known by number.
    """
    if work_dir is None:
        yield Whole()
        return
    with alone(work_dir, digest) as own:
        if not own:
            yield Whole()
            return
        folder = Path(work_dir) / FOLDER
        run, seconds = _last_run(folder, digest, ended=False)
        events: list[Event] = []
        if run is not None:
            events = [
                event
                for path in sorted(folder.glob("*.jsonl"))
                for event in read_log(path).events
                if event["run"] and event["run"].partition("/")[0] == run
            ]
        made = Whole(folder, run or new_run(), max(seconds, _spent(events)))
        if run is not None:
            spent = (event["trials"] or 0 for event in events if event["kind"] == "alternatives")
            made.alternatives = sum(spent)
        made.log("begin", digest=digest)
        kinds = ("begin", "trying", "tried", "end")
        made.attempts = [
            event
            for event in read_log(folder / RUNS).events
            if event["run"] == made.run and event["kind"] in kinds
        ]
        try:
            yield made
        finally:
            made.log("end", finished=made.finished)
