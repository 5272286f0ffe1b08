"""Writers of databases that are killed: what they were told is kept is there afterwards.

A case starts one or two processes that write into one database, or one that tunes, lets each say
what has been acknowledged, and kills them at a random moment. Then the database must open, hold
all that was acknowledged, lose at most a line per writer, and take more; a run that goes on keeps
all records, in their order, and measures nothing twice. The database is a folder of text files or,
where SQLAlchemy is installed, a file of SQLite.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from random import Random

from tilewright import te
from tilewright.meta_schedule import tune_tir
from tilewright.meta_schedule.database import Database, TuningRecord, is_url, open_place
from tilewright.meta_schedule.measure_callback import AddToDatabase, MeasureCallback, Trial
from tilewright.meta_schedule.measure_callback.base import Tuning
from tilewright.meta_schedule.task_record import TaskRecord
from tilewright.target import Target
from tilewright.testing.hostile.kind import Case, Fault, Kind, Limits, emptied_folder
from tilewright.testing.hostile.kind import folder as own_folder
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

_PATIENCE = 30.0
_TRIALS = 8  # of a run that goes on
SQL = importlib.util.find_spec("sqlalchemy") is not None
TARGET = Target("llvm -mcpu=znver4 -num-cores=2")


@dataclass(frozen=True)
class Plan:
    """How many processes write, whether one tunes, and when they are killed.

    That is so many ``seconds`` after the first record is acknowledged, or after the start.
    """

    writers: int
    seconds: float
    tunes: bool
    after_first: bool
    sql: bool


def make(rng: Random) -> Case:
    """Draw when the kill comes: mostly soon, for a write is short."""
    after_first, sql = rng.random() < 0.8, SQL and rng.random() < 0.4
    kind = "SQLite" if sql else "text"
    if rng.random() < 0.15:
        return Case(f"tuner, {kind}", Plan(1, rng.uniform(0.0, 3.0), True, after_first, sql))
    writers = rng.choice((1, 2, 2))
    plan = Plan(writers, rng.expovariate(10.0), False, after_first, sql)
    return Case(f"{writers} writers, {kind}", plan)


def _function(n: int) -> PrimFunc:
    a = te.placeholder((n, 4), name="A")
    return te.create_prim_func([a, te.compute((n, 4), lambda i, j: a[i, j] * 2.0, name="B")])


def _matmul() -> PrimFunc:
    a, b = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
    k = te.reduce_axis((0, 16), "k")
    return te.create_prim_func(
        [a, b, te.compute((16, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]
    )


def _write(number: int, place: str, acknowledged: Connection) -> None:
    """Commit records until the end; tell the time of each that is kept."""
    database = open_place(place)
    count = 0
    while True:
        count += 1
        workload = database.commit_workload(_function(count % 7 + number + 1))
        sch = Schedule(workload.mod)
        sch.vectorize(sch.get_loops("B")[1])
        seconds = number + count * 1e-6
        database.commit_tuning_record(TuningRecord(sch.trace, workload, (seconds,), TARGET))
        acknowledged.send(seconds)


class _Tell(MeasureCallback):
    """Tells what was kept; called after ``AddToDatabase``."""

    def __init__(self, acknowledged: Connection) -> None:
        self.acknowledged = acknowledged

    def on_result(self, scheduler: Tuning, task: TaskRecord, trial: Trial) -> None:
        """Send the time of a record."""
        if trial.result.run_secs:
            self.acknowledged.send(trial.result.run_secs[0])


def _tune(_: int, place: str, acknowledged: Connection) -> None:
    _run(place, 1000, _Tell(acknowledged))


def _run(place: str, trials: int, *callbacks: MeasureCallback) -> Database:
    made: Database = tune_tir(
        _matmul(),
        Target("native"),
        work_dir=own_folder() / "run" if is_url(place) else place,
        database=place if is_url(place) else "json",
        max_trials_global=trials,
        num_trials_per_iter=4,
        measure_callbacks=[AddToDatabase(), *callbacks],
    )
    return made


def check(plan: Plan) -> str:
    """Write, kill, and look at what is left."""
    folder = emptied_folder()
    place = f"sqlite:///{folder / 'records.db'}" if plan.sql else str(folder)
    context = multiprocessing.get_context("fork")
    running = []
    for number in range(plan.writers):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        process = context.Process(
            target=_tune if plan.tunes else _write, args=(number, place, theirs)
        )
        process.start()
        theirs.close()
        running.append((process, ours))
    if plan.after_first:
        wait([ours for _, ours in running], timeout=_PATIENCE)
    time.sleep(plan.seconds)
    for process, _ in running:
        process.kill()
    acknowledged: set[float] = set()
    for process, ours in running:
        process.join()
        acknowledged.update(_all(ours))
        ours.close()
    return _check_records(place, acknowledged, plan)


def _all(connection: Connection) -> list[float]:
    found = []
    while True:
        try:
            found.append(connection.recv())
        except (EOFError, OSError):  # the last message may be cut off
            return found


def _check_records(place: str, acknowledged: set[float], plan: Plan) -> str:
    folder = own_folder()
    if plan.tunes:
        _go_on(place)
    for _ in range(2):  # what was appended to the remains is read again
        database = open_place(place)
        found = {r.run_secs[0] for r in database.get_all_tuning_records() if r.run_secs}
        if not acknowledged <= found:
            raise Fault(f"{len(acknowledged - found)} of {len(acknowledged)} records are lost")
        aside = [line for path in folder.glob("*.corrupt") for line in path.open("rb")]
        if len(aside) > 2 * plan.writers:
            raise Fault(f"{len(aside)} lines can't be read after {plan.writers} kills")
        workload = database.commit_workload(_function(3))
        seconds = 1000.0 + len(found)
        trace = Schedule(workload.mod).trace
        database.commit_tuning_record(TuningRecord(trace, workload, (seconds,), TARGET))
        acknowledged.add(seconds)
    kept = len(acknowledged) - 2
    return "nothing written" if not kept else "torn line" if aside else "all kept"


def _go_on(place: str) -> None:
    """Tune on: what there is stays as it is, and nothing is measured twice."""
    kept = _keys(open_place(place))
    found = _keys(_run(place, _TRIALS))
    if found[: len(kept)] != kept:
        raise Fault("the run that went on has changed what there was")
    if len(found) != max(len(kept), _TRIALS):  # what was done counts
        raise Fault(f"{len(kept)} records were there, now {len(found)}, of {_TRIALS} trials")
    if len(set(found)) != len(found):
        raise Fault(f"{len(found) - len(set(found))} schedules were measured twice")


def _keys(database: Database) -> list[str]:
    """Schedules that were measured; the final race measures the best ones again."""
    return [record.digest for record in database.records() if not record.beat]


# Killed processes are what this is about: none of that is a fault.
KIND = Kind(make, check, Limits(seconds=60.0, memory=0, watch=False))
