"""Disks that are full and clocks that jump: what was acknowledged is there, in the right order.

A case opens a database, lets its files grow by so many bytes and no more, and commits records under
a clock that jumps back and forth by years. When the disk is full, commits must fail with an error
of the project. Then there is room again: all that was acknowledged must be there, the best first
whatever the clock said, and more must be taken.
"""

from __future__ import annotations

import importlib.util
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from tilewright import te
from tilewright.meta_schedule.database import Database, TuningRecord, open_place
from tilewright.meta_schedule.database.record import provenance
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.testing.hostile.databases import quiet
from tilewright.testing.hostile.kind import Case, Fault, Kind, Limits, emptied_folder
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver4 -num-cores=2")
SQL = importlib.util.find_spec("sqlalchemy") is not None
_ROUNDS = 40
_CHECKED = {"against": "unscheduled program"}


@dataclass(frozen=True)
class Plan:
    """How many bytes files may hold (0: no limit), at once how many records are committed.

    ``clocks`` are what the clock says, one after the other, in seconds since 1970.
    """

    room: int
    batch: int
    clocks: tuple[float, ...]
    sql: bool


def make(rng: Random) -> Case:
    """Draw how much room there is, and a clock."""
    sql = SQL and rng.random() < 0.5
    room = 0 if rng.random() < 0.2 else int(rng.uniform(0.05, 1.0) * (300_000 if sql else 60_000))
    clocks = tuple(rng.choice((0.0, 1e9, 1.8e9, 9e10)) + rng.random() * 1e6 for _ in range(7))
    label = f"{'SQLite' if sql else 'text'}, {'full' if room else 'room enough'}"
    return Case(label, Plan(room, rng.choice((1, 1, 8)), clocks, sql))


@contextmanager
def _limited(room: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes; Python ignores the signal that tells of it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if room:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def _jumping(clocks: tuple[float, ...]) -> Iterator[None]:
    """Let the clock say one thing after the other."""
    real, said = time.time, [0]

    def now() -> float:
        said[0] += 1
        return clocks[said[0] % len(clocks)]

    time.time = now
    try:
        yield
    finally:
        time.time = real


def _function(n: int) -> PrimFunc:
    a = te.placeholder((n, 4), name="A")
    return te.create_prim_func([a, te.compute((n, 4), lambda i, j: a[i, j] * 2.0, name="B")])


def check(plan: Plan) -> str:
    """Commit until the disk is full, and look at what is there."""
    folder = emptied_folder()
    place = f"sqlite:///{folder / 'records.db'}" if plan.sql else str(folder)
    acknowledged: list[float] = []
    with quiet(), _jumping(plan.clocks):
        with _limited(plan.room):
            failures = _fill(place, plan, acknowledged)
        _check_records(open_place(place), set(acknowledged), failures * plan.batch)
        database = open_place(place)
        _commit(database, [0.5])
        _check_records(database, {*acknowledged, 0.5}, failures * plan.batch)
        _check_records(open_place(place), {*acknowledged, 0.5}, failures * plan.batch)
    if plan.room and not failures:
        return "room enough"
    return "all kept" if not failures else "full, all kept" if acknowledged else "full at once"


def _commit(database: Database, seconds: list[float]) -> None:
    workload = database.commit_workload(_function(8))
    trace = Schedule(workload.mod).trace
    database.commit_tuning_records(
        TuningRecord(trace, workload, (each,), TARGET, None, provenance(_CHECKED))
        for each in seconds
    )


def _fill(place: str, plan: Plan, acknowledged: list[float]) -> int:
    """Commit records; return how often that failed."""
    failures = 0
    database: Database | None = None
    for number in range(_ROUNDS):
        # Not in the order of their times.
        seconds = [1.0 + (number * 17 % _ROUNDS) + n / 100 for n in range(plan.batch)]
        try:
            database = database or open_place(place)
            _commit(database, seconds)
        except TuneError:
            failures += 1
            continue
        acknowledged += seconds
    return failures


def _check_records(database: Database, acknowledged: set[float], unsure: int) -> None:
    found = [r.run_secs[0] for r in database.records() if r.run_secs]
    if lost := acknowledged - set(found):
        raise Fault(f"{len(lost)} of {len(acknowledged)} records are lost")
    if len(found) > len(acknowledged) + unsure or len(set(found)) != len(found):
        raise Fault(f"{len(found)} records are there, {len(acknowledged)} were acknowledged")
    workload = database.find_workload(_function(8))
    best = [] if workload is None else database.get_top_k(workload, 2**31, TARGET)
    times = [record.best_seconds for record in best]
    if times != sorted(found):
        raise Fault("the order of records isn't that of their times")


# Files are what this is about: none of that is a fault.
KIND = Kind(make, check, Limits(seconds=60.0, memory=0, watch=False))
