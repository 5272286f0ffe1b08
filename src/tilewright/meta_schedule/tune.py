"""The entry points: tune tasks or one function, and apply the results."""

from __future__ import annotations

import inspect
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tilewright.ir import IRModule
from tilewright.meta_schedule.arg_info import ASSUMED_SIZE
from tilewright.meta_schedule.builder import Builder, LocalBuilder
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import Database, JSONDatabase, MemoryDatabase
from tilewright.meta_schedule.measure_callback import MeasureCallback, default_callbacks
from tilewright.meta_schedule.progress import Progress
from tilewright.meta_schedule.runner import LocalRunner, Runner
from tilewright.meta_schedule.search_strategy import SearchStrategy
from tilewright.meta_schedule.space_generator import SpaceGenerator
from tilewright.meta_schedule.task_scheduler import TaskScheduler
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.meta_schedule.tuning_session import TuningSession
from tilewright.support.errors import TuneError
from tilewright.support.registry import near_matches
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

logger = logging.getLogger("tilewright.meta_schedule")


def open_database(
    database: Database | str = "json",
    work_dir: str | os.PathLike[str] | None = None,
    module_equality: str = "structural",
) -> Database:
    """Return a database: the one given, ``"json"`` in ``work_dir``, or ``"memory"``.

    Raises ``TuneError`` for anything else.
    """
    if isinstance(database, Database):
        return database
    if database == "memory" or (database == "json" and work_dir is None):
        return MemoryDatabase(module_equality)
    if database == "json":
        assert work_dir is not None
        made = JSONDatabase(work_dir=work_dir, module_equality=module_equality)
        made.check_writable()  # better now than after the first measurement
        return made
    raise TuneError(f"unknown database {database!r}; known: json, memory, or an instance")


def builder_and_runner(builder: Builder | str, runner: Runner | str) -> tuple[Builder, Runner]:
    """Return instances; the name ``"local"`` makes one.

    Raises ``TuneError`` for anything else.
    """
    if builder == "local":
        builder = LocalBuilder()
    if runner == "local":
        runner = LocalRunner()
    if not (isinstance(builder, Builder) and isinstance(runner, Runner)):
        raise TuneError("builder and runner are 'local' or instances of Builder and Runner")
    return builder, runner


def callbacks(given: Sequence[MeasureCallback] | str | None) -> list[MeasureCallback]:
    """Return the callbacks given; ``None`` and ``"default"`` are those of every run.

    Raises ``TuneError`` for anything else.
    """
    if given is None or given == "default":
        return default_callbacks()
    items = [given] if isinstance(given, (str, MeasureCallback)) else list(given)
    made = [item for item in items if isinstance(item, MeasureCallback)]
    if len(made) < len(items):
        raise TuneError(
            f"measure_callbacks are 'default' or instances of MeasureCallback, got {items!r}"
        )
    return made


def check_options(options: Iterable[str]) -> None:
    """Raise ``TuneError`` for a name that is no option of ``tune_tasks``, before time is spent."""
    known = list(inspect.signature(tune_tasks).parameters)
    for name in options:
        if name not in known:
            raise TuneError(f"tuning has no option {name!r}; {near_matches(name, known)}")


def tune_tasks(
    tasks: Sequence[TuneContext],
    task_weights: Sequence[float] | None = None,
    *,
    work_dir: str | os.PathLike[str] | None = None,
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 32,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
    cost_model: CostModel | str = "xgb",
    measure_callbacks: Sequence[MeasureCallback] | str | None = None,
    task_scheduler: TaskScheduler | str = "gradient",
    module_equality: str = "structural",
    progress: Progress | None = None,
    max_seconds: float | None = None,
) -> Database:
    """Tune tasks into a database and return it.

    Records and a log go to ``work_dir`` (without one, records stay in memory). The search starts
    from the database's existing records. After ``max_seconds`` no batch of trials begins; the last
    one and the final ranking of the best candidates still take their time. Raises ``TuneError``
    before anything is measured if the work directory can't be written.
    """
    if not tasks:
        raise TuneError("there is nothing to tune: no tasks")
    builder, runner = builder_and_runner(builder, runner)
    session = TuningSession(
        builder,
        runner,
        None,
        CostModel.create(cost_model),
        max_trials_global,
        max_trials_global if max_trials_per_task is None else max_trials_per_task,
        num_trials_per_iter,
        callbacks(measure_callbacks),
        progress or Progress(),
        math.inf if max_seconds is None else time.monotonic() + max_seconds,
    )
    _say_what_is_assumed(tasks)
    # Opened last, so that a run that makes no sense leaves no folder.
    opened = open_database(database, work_dir, module_equality)
    with log_file(work_dir):
        TaskScheduler.create(task_scheduler).tune(
            tasks,
            [1.0] * len(tasks) if task_weights is None else task_weights,
            replace(session, database=opened),
        )
    return opened


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


def tune_tir(
    mod: IRModule | PrimFunc,
    target: Target | str,
    work_dir: str | os.PathLike[str] | None = None,
    max_trials_global: int = 64,
    *,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 32,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
    cost_model: CostModel | str = "xgb",
    measure_callbacks: Sequence[MeasureCallback] | str | None = None,
    task_scheduler: TaskScheduler | str = "gradient",
    space: SpaceGenerator | str | Callable[[Schedule], object] = "post-order-apply",
    strategy: SearchStrategy | str = "evolutionary",
    module_equality: str = "structural",
    task_name: str = "main",
    seed: int = 0,
    progress: Progress | None = None,
    max_seconds: float | None = None,
    symbols: Mapping[str, int] | None = None,
) -> Database:
    """Tune every TensorIR function of a module; see :func:`tune_tasks` for the options.

    ``symbols`` are the sizes, by name, that functions with symbolic ones are measured at.

    Raises ``TuneError`` if there is no such function, or instances of a space or strategy would be
    shared by several.
    """
    if isinstance(mod, PrimFunc):
        mod = IRModule({task_name: mod})
    functions = {n: f for n, f in mod.functions.items() if isinstance(f, PrimFunc)}
    if not functions:
        raise TuneError("the module has no TensorIR function to tune")
    if len(functions) > 1 and not (isinstance(space, str) and isinstance(strategy, str)):
        raise TuneError("for several functions name the space and the strategy, don't share one")
    tasks = [
        TuneContext(
            function,
            target=target,
            space_generator=space,
            search_strategy=strategy,
            task_name=name,
            seed=seed + number,
            symbols=symbols,
        )
        for number, (name, function) in enumerate(functions.items())
    ]
    return tune_tasks(
        tasks,
        work_dir=work_dir,
        max_trials_global=max_trials_global,
        max_trials_per_task=max_trials_per_task,
        num_trials_per_iter=num_trials_per_iter,
        builder=builder,
        runner=runner,
        database=database,
        cost_model=cost_model,
        measure_callbacks=measure_callbacks,
        task_scheduler=task_scheduler,
        module_equality=module_equality,
        progress=progress,
        max_seconds=max_seconds,
    )


def compile_tir(
    database: Database, mod: IRModule | PrimFunc, target: Target | str
) -> Schedule | None:
    """Return the best schedule that a database has for a function, replayed, or ``None``."""
    return database.query_schedule(mod, Target(target))
