"""Tune tasks: what all entry points come to."""

from __future__ import annotations

import hashlib
import inspect
import logging
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.meta_schedule.arg_info import ASSUMED_SIZE
from tilewright.meta_schedule.builder import Builder
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import Database, MemoryDatabase, is_url, open_place
from tilewright.meta_schedule.measure_callback import KeepTrialLog, MeasureCallback
from tilewright.meta_schedule.profiler import Profiler
from tilewright.meta_schedule.progress import Progress
from tilewright.meta_schedule.resume import Whole, alone, interrupted_run, run_digest
from tilewright.meta_schedule.runner import Runner
from tilewright.meta_schedule.search_strategy import SearchStrategy
from tilewright.meta_schedule.task_scheduler import TaskScheduler
from tilewright.meta_schedule.trial_log import MOST_TRIALS, RunClock
from tilewright.meta_schedule.tune_context import CORES, TuneContext
from tilewright.meta_schedule.tuning_session import TuningSession
from tilewright.support.errors import TuneError
from tilewright.support.registry import near_matches

POST_OPTIMIZATION = 0.25
"""The share of trials and seconds that ``post_optimization`` spends on coordinate descent."""

logger = logging.getLogger("tilewright.meta_schedule")


def open_database(
    database: Database | str = "json",
    work_dir: str | os.PathLike[str] | None = None,
    module_equality: str = "structural",
) -> Database:
    """Return a database: the one given, ``"json"`` in ``work_dir``, ``"memory"``, or by a URL.

    Raises ``TuneError`` for anything else.
    """
    if isinstance(database, Database):
        return database
    if database == "memory" or (database == "json" and work_dir is None):
        return MemoryDatabase(module_equality)
    place = database if is_url(database) else work_dir if database == "json" else None
    if place is not None:
        made = open_place(place, module_equality=module_equality)
        made.check_writable()  # better now than after the first measurement
        return made
    raise TuneError(
        f"unknown database {database!r}; known: json, memory, a URL such as sqlite:///records.db, "
        "or an instance"
    )


def builder_and_runner(
    builder: Builder | str, runner: Runner | str, num_tuning_cores: int | str | None = None
) -> tuple[Builder, Runner]:
    """Return instances; ``"local"`` and the names of plug-ins make them.

    The builder ``"local"`` builds on ``num_tuning_cores``. Raises ``TuneError`` for anything else.
    """
    cores = CORES[num_tuning_cores]() if num_tuning_cores in CORES else num_tuning_cores
    if cores is not None and (builder != "local" or not isinstance(cores, int) or cores < 1):
        raise TuneError(
            "num_tuning_cores is a positive number of processes of the builder 'local', "
            "'physical' or 'logical'; give an instance LocalBuilder(max_workers=...) its own"
        )
    if isinstance(builder, str):
        options = {} if cores is None else {"max_workers": cores}
        builder = Builder.create(builder, **options)
    if isinstance(runner, str):
        runner = Runner.create(runner)
    if not (isinstance(builder, Builder) and isinstance(runner, Runner)):
        raise TuneError("builder and runner are names or instances of Builder and Runner")
    return builder, runner


def check_options(options: Iterable[str]) -> None:
    """Raise ``TuneError`` for a name that is no option of ``tune_tasks``, before time is spent."""
    known = [name for name in inspect.signature(tune_tasks).parameters if name != "part_of"]
    for name in options:
        if name not in known:
            raise TuneError(f"tuning has no option {name!r}; {near_matches(name, known)}")


def seconds_of(time_budget: float | None) -> float:
    """Return a time budget as seconds; infinite if it is no limit (``None``, infinity).

    Raises ``TuneError`` for what is no positive number, or too large for one.
    """
    if time_budget is None:
        return math.inf
    known = isinstance(time_budget, int | float) and not isinstance(time_budget, bool)
    try:
        seconds = float(time_budget) if known else math.nan
    except OverflowError:
        seconds = math.nan
    if not seconds > 0:
        raise TuneError(
            f"time_budget is a positive number of seconds, got {_said(time_budget)}; without a "
            "limit it is None"
        )
    return seconds


def _said(value: object) -> str:
    """Return what a message says of a value; Python refuses to write very long integers."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


def deadline(time_budget: float | None) -> float:
    """Return when so many seconds are over, by ``time.monotonic``; never, if ``None``.

    Raises ``TuneError`` if they aren't positive.
    """
    return time.monotonic() + seconds_of(time_budget)


def trial_budget(trials: int | None, time_budget: float | None) -> int:
    """Return the number of trials: no limit if only the time has one.

    Raises ``TuneError`` if there is no limit at all.
    """
    if trials is None and math.isinf(seconds_of(time_budget)):
        raise TuneError("max_trials_global or time_budget must say when tuning ends")
    return MOST_TRIALS if trials is None else trial_count("max_trials_global", trials)


def trial_count(name: str, trials: int) -> int:
    """Return a number of trials, but no more than there could ever be time for.

    Raises ``TuneError`` if it is none.
    """
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 0:
        raise TuneError(f"{name} is a number of trials, not negative, got {_said(trials)}")
    return min(trials, MOST_TRIALS)


def tune_tasks(
    tasks: Sequence[TuneContext],
    task_weights: Sequence[float] | None = None,
    *,
    work_dir: str | os.PathLike[str] | None = None,
    max_trials_global: int | None = None,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 32,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
    cost_model: CostModel | str = "xgb",
    measure_callbacks: Sequence[MeasureCallback | str] | MeasureCallback | str = "default",
    task_scheduler: TaskScheduler | str = "gradient",
    module_equality: str = "structural",
    post_optimization: bool = False,
    progress: Progress | None = None,
    time_budget: float | None = None,
    min_improvement: float = 0.0,
    max_lag: float = math.inf,
    num_tuning_cores: int | str | None = None,
    start_from_rules: bool | None = None,
    part_of: Whole | None = None,
) -> Database:
    """Tune tasks into a database and return it.

    The run ends after ``max_trials_global`` trials or ``time_budget`` seconds, and a task before
    that after ``max_trials_per_task`` trials, or if its next batch is expected to gain less than
    ``min_improvement`` (relative; 0.01 is one per cent). The seconds are for everything, the final
    comparison of the best candidates included. A search whose best is more than ``max_lag`` times
    as slow as what the rules make gets no more trials; with the rules' other choices tried, its
    task ends, and the table says so. Unless it is given, a task gets the trials that are asked for.
    ``start_from_rules`` says of all tasks whether what the rules make is measured, too; without it,
    each context says so itself.

    Records and a log go to ``work_dir`` (without one, records stay in memory). The search starts
    from the database's existing records; a cost model requested by name starts from what it learned
    in ``work_dir`` before, and keeps there what it learns. ``num_tuning_cores`` are the processes
    of the builder ``"local"``, as a number or as ``"physical"`` or ``"logical"`` cores (default:
    the latter). Raises ``TuneError`` before anything is measured if the work directory can't be
    written, or neither trials nor seconds are limited.

    A run in ``work_dir`` that ended early, killed or by Ctrl-C, goes on if it is asked for again:
    what it measured is known, counts as trials, and its seconds are part of the budget. If it is
    ``part_of`` a run of several searches, that one goes on. With ``post_optimization``, the last
    quarter of trials and seconds goes to coordinate descent around the best of each task.
    """
    if not tasks:
        raise TuneError("there is nothing to tune: no tasks")
    if start_from_rules is not None:
        for task in tasks:
            task.choose_rules(start_from_rules)
    if post_optimization:
        return _tune_and_descend(
            tasks, task_weights, max_trials_global, time_budget, task_scheduler,
            work_dir=work_dir, max_trials_per_task=max_trials_per_task,
            num_trials_per_iter=num_trials_per_iter, builder=builder, runner=runner,
            database=database, cost_model=cost_model, measure_callbacks=measure_callbacks,
            module_equality=module_equality, progress=progress, min_improvement=min_improvement,
            max_lag=max_lag, num_tuning_cores=num_tuning_cores, part_of=part_of,
        )  # fmt: skip
    until = deadline(time_budget)
    trials = trial_budget(max_trials_global, time_budget)
    builder, runner = builder_and_runner(builder, runner, num_tuning_cores)
    model = CostModel.create(cost_model)
    callbacks = MeasureCallback.create(measure_callbacks)
    session = TuningSession(
        builder,
        runner,
        None,
        model,
        trials,
        trials
        if max_trials_per_task is None
        else trial_count("max_trials_per_task", max_trials_per_task),
        num_trials_per_iter,
        callbacks,
        progress or Progress(),
        until,
        min_improvement,
        max_lag,
    )
    _say_what_is_assumed(tasks)
    # Opened last, so that a run that makes no sense leaves no folder.
    opened = open_database(database, work_dir, module_equality)
    kept = None
    if work_dir is not None and isinstance(cost_model, str):
        kept = _model_file(Path(work_dir), tasks)
    scheduler = TaskScheduler.create(task_scheduler)
    weights = [1.0] * len(tasks) if task_weights is None else task_weights
    profiler = Profiler.current() or Profiler()
    session = replace(session, database=opened, seconds=seconds_of(time_budget))
    logged = _logged(work_dir, tasks, weights, session, scheduler, profiler, part_of)
    with log_file(work_dir), logged as begun, profiler:
        if model is not None and kept is not None and kept.exists():
            try:
                model.load(kept)
            except TuneError as error:
                logger.warning("the cost model begins anew: %s", error.message)
        scheduler.spend(tasks, weights, begun)
        # A run that goes on later learns all of it again.
        if model is not None and kept is not None and model.trained and not scheduler.interrupted:
            with Profiler.timeit("cost model"):
                try:
                    model.save(kept)
                except OSError as error:
                    logger.warning("what the cost model learned can't be kept: %s", error)
        logger.info("where the time went:\n%s", profiler.table())
    return opened


def _tune_and_descend(
    tasks: Sequence[TuneContext],
    weights: Sequence[float] | None,
    max_trials: int | None,
    time_budget: float | None,
    scheduler: TaskScheduler | str,
    **options: Any,
) -> Database:
    """Tune; spend the last share on neighbours of the best of each task."""
    trials, end = trial_budget(max_trials, time_budget), deadline(time_budget)
    last = int(trials * POST_OPTIMIZATION)
    made = TaskScheduler.create(scheduler)
    first = None if time_budget is None else time_budget * (1.0 - POST_OPTIMIZATION)
    opened = tune_tasks(
        tasks, weights, max_trials_global=trials - last, time_budget=first, task_scheduler=made,
        **options,
    )  # fmt: skip
    left = None if time_budget is None else end - time.monotonic()
    if made.interrupted or last < 1 or (left is not None and left <= 0.0):
        return opened
    again = [task.clone() for task in tasks]
    for task in again:
        task.search_strategy = SearchStrategy.create("coordinate-descent")
    return tune_tasks(
        again, weights, max_trials_global=last, time_budget=left, task_scheduler=made,
        **{**options, "database": opened},
    )  # fmt: skip


@contextmanager
def _logged(
    work_dir: str | os.PathLike[str] | None,
    tasks: Sequence[TuneContext],
    weights: Sequence[float],
    session: TuningSession,
    scheduler: TaskScheduler,
    profiler: Profiler,
    whole: Whole | None,
) -> Iterator[TuningSession]:
    """Keep a log of trials in ``work_dir``; a run that ended early goes on from its log.

    If the run is a part of a whole, that has the lock, and the seconds.
    """
    if work_dir is None or session.database is None:
        yield session
        return
    digest = run_digest(
        tasks, weights, session.num_trials_per_iter, session.min_improvement, session.max_lag,
        type(session.cost_model).__name__, type(scheduler).__name__, session.runner.settings(),
    )  # fmt: skip
    part = None if whole is None else whole.next_part()
    finished = False
    with alone(work_dir, digest) if part is None else nullcontext(True) as own:
        past = None
        if own:
            past = interrupted_run(
                work_dir, part or digest, tasks, session.database, ended=part is not None
            )
        if past is not None:
            count = sum(len(r) for of_task in past.results.values() for r in of_task.values())
            session.progress.message(
                f"the run that ended after {count} trials and {past.seconds:.0f} s goes on"
            )
        run, batches, before = part, None, 0.0
        if past is not None:
            run, batches, before = past.run, past.batches, past.seconds
        clock = RunClock(before)
        if whole is not None and part is not None:
            before, clock = 0.0, whole.clock  # the whole knows how much is left
        log = KeepTrialLog(work_dir, run, batches, clock)
        if own:  # else nobody could go on with it
            log.begin(part or digest)
        try:
            yield replace(
                session, callbacks=[log, *session.callbacks], remembered=past,
                until=session.until - before,
            )  # fmt: skip
            finished = not scheduler.interrupted
        finally:
            log.end(profiler.get(), finished=finished)


def _model_file(work_dir: Path, tasks: Sequence[TuneContext]) -> Path:
    """Where the cost model of a run's targets is kept: times on others mean something else."""
    targets = sorted({str(task.target) for task in tasks})
    digest = hashlib.sha256("\n".join(targets).encode()).hexdigest()[:12]
    return work_dir / f"cost_model_{digest}.npz"


def _say_what_is_assumed(tasks: Sequence[TuneContext]) -> None:
    names = sorted({name for task in tasks for name in task.assumed})
    if names:
        logger.warning(
            "sizes that aren't known are measured at %d: %s%s; give others by symbols={%r: ...}",
            ASSUMED_SIZE, ", ".join(names[:8]), ", ..." if len(names) > 8 else "", names[0],
        )  # fmt: skip


@contextmanager
def log_file(work_dir: str | os.PathLike[str] | None) -> Iterator[None]:
    """Keep the details of a run in ``work_dir/tuning.log``.

    Raises ``TuneError`` if the folder can't be written.
    """
    if work_dir is None:
        yield
        return
    try:
        Path(work_dir).mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(Path(work_dir) / "tuning.log")
    except OSError as error:
        raise TuneError(
            f"the work directory {work_dir} can't be written: {error.strerror or error}; "
            "choose another work_dir or change its permissions"
        ) from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("tilewright")
    level = root.level
    root.addHandler(handler)
    if root.getEffectiveLevel() > logging.INFO:
        root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()
