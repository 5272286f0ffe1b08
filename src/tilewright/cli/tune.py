"""``tilewright tune MODEL``."""

from __future__ import annotations

import math
from typing import Any

import click
from rich.console import Console

from tilewright.cli.model import load_model
from tilewright.cli.options import json_option, print_json, target_option, work_dir_option
from tilewright.meta_schedule.extracted_task import contexts_of
from tilewright.meta_schedule.measure_callback import MeasureCallback, default_callbacks
from tilewright.meta_schedule.progress import ConsoleProgress, Progress, task_table
from tilewright.meta_schedule.task_scheduler import TaskRecord, TaskScheduler
from tilewright.meta_schedule.tune import tune_tasks
from tilewright.relax.tuning import extract_tasks
from tilewright.target import Target


@click.command("tune")
@click.argument("model")
@click.option("--trials", type=click.IntRange(min=0), default=256, show_default=True,
              help="Candidates to measure in all.")  # fmt: skip
@click.option("--trials-per-task", type=click.IntRange(min=1), help="At most so many for one task.")
@click.option("--op", "ops", multiple=True, help="Only functions with this word in their name.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the search.")
@target_option
@work_dir_option
@json_option
def tune_command(
    model: str,
    trials: int,
    trials_per_task: int | None,
    ops: tuple[str, ...],
    seed: int,
    target: Target,
    work_dir: str,
    as_json: bool,
) -> None:
    """Search fast schedules for a model's functions, and keep them in a database.

    MODEL is a .pt2 file or module:function that returns a model and example inputs. Ctrl-C stops
    cleanly; everything measured is kept, and the next run starts from it.
    """
    console = Console(stderr=as_json)
    loaded = load_model(model)
    tasks = extract_tasks(loaded.mod, target, op_names=ops or None)
    if not tasks:
        raise click.UsageError("there is nothing to tune" + (f" named {list(ops)}" if ops else ""))
    records = run_tuning(
        tasks, console, work_dir=work_dir, trials=trials, trials_per_task=trials_per_task, seed=seed
    )
    if as_json:
        print_json({"work_dir": work_dir, "target": str(target), "tasks": describe(records)})
    else:
        console.print(task_table(records, f"tuned into {work_dir}"))


def run_tuning(
    tasks: Any,
    console: Console | None,
    *,
    work_dir: str,
    trials: int,
    trials_per_task: int | None = None,
    seed: int = 0,
    **options: Any,
) -> list[TaskRecord]:
    """Tune extracted tasks with progress on a console; return how far each task came."""
    contexts, weights = contexts_of(tasks, seed=seed)
    scheduler = TaskScheduler.create("gradient")
    callbacks: list[MeasureCallback] = default_callbacks()
    tune_tasks(
        contexts,
        weights,
        work_dir=work_dir,
        max_trials_global=trials,
        max_trials_per_task=trials_per_task,
        task_scheduler=scheduler,
        measure_callbacks=callbacks,
        progress=Progress() if console is None else ConsoleProgress(console),
        **options,
    )
    return scheduler.tasks


def describe(records: list[TaskRecord]) -> list[dict[str, Any]]:
    """Return tasks as plain data."""
    return [
        {
            "task": record.name,
            "weight": record.weight,
            "trials": record.trials,
            "best_seconds": record.best_seconds if math.isfinite(record.best_seconds) else None,
            "flops": record.context.flops,
            "rejected": dict(record.rejected),
        }
        for record in records
    ]
