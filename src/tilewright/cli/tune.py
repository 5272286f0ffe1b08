"""``tilewright tune MODEL``."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import click
from rich.console import Console

from tilewright.cli.logs import log_options
from tilewright.cli.model import MODEL_HELP, load_model
from tilewright.cli.options import (
    Dynamic,
    Shapes,
    SizesType,
    TimeType,
    database_option,
    dynamic_option,
    shape_option,
    target_option,
    work_dir_option,
)
from tilewright.cli.output import given, json_option, make_console, print_json
from tilewright.ir import IRModule
from tilewright.meta_schedule.arg_info import scalar_names
from tilewright.meta_schedule.builder import Builder, LocalBuilder
from tilewright.meta_schedule.database import SQLDatabase
from tilewright.meta_schedule.extracted_task import ExtractedTask, contexts_of
from tilewright.meta_schedule.farm import RayBuilder, RayRunner
from tilewright.meta_schedule.progress import ConsoleProgress, task_table
from tilewright.meta_schedule.runner import TUNING, EvaluatorConfig, LocalRunner, Runner
from tilewright.meta_schedule.sizes import Symbols, check_names
from tilewright.meta_schedule.task_scheduler import TaskRecord, TaskScheduler
from tilewright.meta_schedule.tune import open_database, tune_tasks
from tilewright.relax.tuning.models import ALTERNATIVES, extract_tasks, tune_relax
from tilewright.support.errors import TuneError
from tilewright.target import Target

_TRIALS = 256

_UNVERIFIED = (
    "without verification: what candidates compute isn't compared with the unscheduled program, so "
    "a fault of a rule or of the compiler may become a fast record with wrong results; these "
    "records are not marked as verified"
)


@click.command("tune", epilog=MODEL_HELP)
@click.argument("model")
@click.option("--trials", type=click.IntRange(min=0),
              help=f"Candidates to measure in all; without a time budget {_TRIALS}.")  # fmt: skip
@click.option("--time-budget", type=TimeType(), metavar="TIME",
              help="Everything is done after this time, such as 90s, 10min or 1h.")  # fmt: skip
@click.option("--min-improvement", type=click.FloatRange(0, 1, max_open=True), default=0.0,
              show_default=True, metavar="SHARE",
              help="A task ends if more trials are expected to gain less; 0.01 is one per "
                   "cent.")  # fmt: skip
@click.option("--trials-per-task", type=click.IntRange(min=1), help="At most so many for one task.")
@click.option("--op", "ops", multiple=True, metavar="WORD",
              help="Only functions with this word in their name; may be repeated.")  # fmt: skip
@click.option("--alternatives", type=click.FloatRange(0, 1), default=ALTERNATIVES,
              show_default=True, metavar="SHARE",
              help="At most this share of the trials measures in which ways convolutions are "
                   "fastest.")  # fmt: skip
@click.option("--race/--no-race", default=True, show_default=True,
              help="In the end compare whole graphs, by rule and with the records; what wins is "
                   "used.")  # fmt: skip
@click.option("--verify/--no-verify", default=True, show_default=True,
              help="Check the results of candidates against the unscheduled program. Without, its "
                   "run is saved, and a wrong candidate that is fast may win; records of checked "
                   "ones come before these.")  # fmt: skip
@click.option("--cold-caches", is_flag=True,
              help="Measure single calls with flushed caches, not many in a row.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the search.")
@click.option("--farm", metavar="ADDRESS",
              help="Build and measure on a farm ('tilewright farm'), or 'local': one of this "
                   "machine. The target is by default that of its devices.")  # fmt: skip
@click.option("--farm-label", metavar="LABEL", help="Measure on the farm's devices of this label.")
@shape_option
@dynamic_option
@click.option("--size", "sizes", type=SizesType(), multiple=True, metavar="NAME=VALUES",
              help="What a symbolic size is tuned at, such as n=16; one may have several values, "
                   "such as n=1,16,128, and gets schedules for ranges.")  # fmt: skip
@target_option
@work_dir_option
@database_option
@json_option
@log_options
def tune_command(
    model: str,
    ops: tuple[str, ...],
    shapes: Shapes,
    dynamic: tuple[Dynamic, ...],
    sizes: tuple[tuple[str, list[int]], ...],
    target: Target,
    work_dir: str,
    database: str | None,
    as_json: bool,
    verify: bool,
    cold_caches: bool,
    farm: str | None,
    farm_label: str | None,
    race: bool,
    trials: int | None,
    trials_per_task: int | None,
    **search: Any,
) -> None:
    """Search for fast schedules of a model's functions, and keep them in a database.

    Ctrl-C or SIGTERM stops cleanly: everything measured is kept, the table is printed, and the exit
    code is 0. The next run with this folder continues from there.
    """
    if farm_label is not None and farm is None:
        raise click.UsageError("--farm-label chooses devices of a farm: say --farm too")
    console = make_console(stderr=as_json)
    flushed = 2 * max(target.l2_bytes, target.l3_bytes) if cold_caches else 0
    if not verify:
        console.print(_UNVERIFIED, markup=False)
    loaded = load_model(model, shapes, dynamic)
    mod = loaded.mod
    if sizes:  # instead of those from bounds
        one = {name: values[0] if len(values) == 1 else values for name, values in sizes}
        symbols: Symbols = one
        functions = [task.mod["main"] for task in _tasks(model, mod, target)]
        check_names(one, (name for func in functions for name in scalar_names(func)))
    else:
        symbols = loaded.symbols
    config = replace(TUNING, verify=verify, flush_cache_bytes=flushed)
    builder, runner = _machines(farm, farm_label, config)
    if isinstance(runner, RayRunner) and not given("target"):
        target = runner.target()
    if race and farm is not None and target != Target("native"):
        console.print("whole graphs aren't compared: this machine isn't one of the devices")
        race = False
    _check_names(_tasks(model, mod, target), ops)
    opened = open_database(database or "json", work_dir)
    scheduler, interrupted = TaskScheduler.create("gradient"), False
    try:
        with _stopped_by_sigterm():
            tune_relax(
                mod,
                None,
                target,
                work_dir,
                _TRIALS if trials is None and search["time_budget"] is None else trials,
                database=opened,
                op_names=ops or None,
                max_trials_per_task=trials_per_task,
                builder=builder,
                runner=runner,
                task_scheduler=scheduler,
                symbols=symbols or None,
                race=race,
                progress=ConsoleProgress(console, transient=True),
                **search,
            )
    except KeyboardInterrupt:
        interrupted = True
    tuned = Tuned(scheduler.tasks, interrupted or scheduler.interrupted)
    place = opened.url if isinstance(opened, SQLDatabase) else work_dir
    if as_json:
        print_json(
            {
                "work_dir": work_dir,
                "database": place,
                "target": str(target),
                "interrupted": tuned.interrupted,
                "tasks": describe(tuned.tasks),
            }
        )
    else:
        console.print(task_table(tuned.tasks, f"tuned into {place}"))
        if tuned.interrupted:
            console.print("stopped early; run the same command again to go on", markup=False)


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Have SIGTERM, with which jobs and containers are ended, do what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not this thread's
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _machines(
    farm: str | None, label: str | None, config: EvaluatorConfig
) -> tuple[Builder, Runner]:
    """Return what builds and measures: this machine, or a farm."""
    if farm is not None:
        return RayBuilder(farm), RayRunner(farm, label, config)
    return LocalBuilder(), LocalRunner(evaluator_config=config)


def _tasks(model: str, mod: IRModule, target: Target) -> list[ExtractedTask]:
    tasks = extract_tasks(mod, target)
    if not tasks:
        raise TuneError(f"{model} has nothing to tune: no tensor functions")
    return tasks


def _chosen(tasks: Sequence[ExtractedTask], ops: Sequence[str]) -> list[ExtractedTask]:
    return [task for task in tasks if not ops or any(word in task.task_name for word in ops)]


def _check_names(tasks: Sequence[ExtractedTask], ops: Sequence[str]) -> None:
    """Refuse words that occur in no function's name, before anything is measured."""
    if not _chosen(tasks, ops):
        names = ", ".join(task.task_name for task in tasks)
        raise click.UsageError(f"no function has {' or '.join(ops)} in its name; there are {names}")


@dataclass(frozen=True)
class Tuned:
    """The progress of each task, and whether the user stopped the run."""

    tasks: list[TaskRecord]
    interrupted: bool


def run_tuning(
    tasks: Sequence[ExtractedTask],
    console: Console,
    *,
    work_dir: str,
    trials: int,
    trials_per_task: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Tuned:
    """Tune extracted tasks with progress on a console."""
    contexts, weights = contexts_of(tasks, seed=seed)
    scheduler = TaskScheduler.create("gradient")
    tune_tasks(
        contexts,
        weights,
        work_dir=work_dir,
        max_trials_global=trials,
        max_trials_per_task=trials_per_task,
        task_scheduler=scheduler,
        progress=ConsoleProgress(console, transient=True),
        **options,
    )
    return Tuned(scheduler.tasks, scheduler.interrupted)


def describe(records: Sequence[TaskRecord]) -> list[dict[str, Any]]:
    """Return tasks as JSON data."""
    return [
        {
            "task": record.name,
            "weight": record.weight,
            "trials": record.trials,
            "best_seconds": record.best_seconds if math.isfinite(record.best_seconds) else None,
            "flops": record.context.flops,
            "rejected": dict(record.rejected),
            "error": record.error,
        }
        for record in records
    ]
