"""Tune TensorIR functions, and apply what was found."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence

from tilewright.ir import IRModule
from tilewright.meta_schedule.arg_info import scalar_names
from tilewright.meta_schedule.builder import Builder
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.database.record import normalized
from tilewright.meta_schedule.measure_callback import MeasureCallback
from tilewright.meta_schedule.progress import Progress
from tilewright.meta_schedule.runner import Runner
from tilewright.meta_schedule.search_strategy import SearchStrategy
from tilewright.meta_schedule.size_family import SHARE, compare_sizes
from tilewright.meta_schedule.sizes import Symbols, check_names, sizes_of, spread
from tilewright.meta_schedule.task_scheduler import TaskScheduler
from tilewright.meta_schedule.tune import builder_and_runner, deadline, tune_tasks
from tilewright.meta_schedule.tune_context import (
    Space,
    TuneContext,
    drawn_seed,
    own_space,
    own_strategy,
)
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

_TRIALS = 64


def tune_tir(
    mod: IRModule | PrimFunc,
    target: Target | str,
    work_dir: str | os.PathLike[str] | None = None,
    max_trials_global: int | None = None,
    *,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 32,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
    cost_model: CostModel | str = "xgb",
    measure_callbacks: Sequence[MeasureCallback | str] | MeasureCallback | str = "default",
    task_scheduler: TaskScheduler | str = "gradient",
    space: Space = "post-order-apply",
    strategy: SearchStrategy | str = "evolutionary",
    module_equality: str = "structural",
    task_name: str = "main",
    seed: int | None = 0,
    progress: Progress | None = None,
    time_budget: float | None = None,
    min_improvement: float = 0.0,
    max_lag: float = math.inf,
    symbols: Symbols | None = None,
    num_tuning_cores: int | str | None = None,
    special_space: Mapping[str, Space] | None = None,
    post_optimization: bool = False,
    start_from_rules: bool | None = None,
) -> Database:
    """Tune every TensorIR function of a module; see :func:`tune_tasks` for the options.

    Without ``max_trials_global`` and ``time_budget`` there are 64 trials.

    Each function has its own copy of ``space`` and ``strategy``; ``special_space`` has other spaces
    for functions of these names. What the rules make is measured as well, unless the space is of
    one's own (a function, a generator of one's own): ``start_from_rules`` says otherwise.

    ``symbols`` are the sizes, by name, that functions with symbolic ones are measured at. One may
    have several values: the function is tuned at each, and gets schedules for ranges of it
    (``size_family``), for which a quarter of ``time_budget`` is kept.

    The same ``seed`` searches in the same way; ``None`` or -1 draws one.

    Raises ``TuneError`` if there is no function to tune, or none of a name in ``special_space`` or
    with a size in ``symbols``.
    """
    if isinstance(mod, PrimFunc):
        mod = IRModule({task_name: mod})
    functions = {n: f for n, f in mod.functions.items() if isinstance(f, PrimFunc)}
    if not functions:
        raise TuneError("the module has no TensorIR function to tune")
    symbol, values = spread(symbols)
    check_names(symbols, (name for func in functions.values() for name in scalar_names(func)))
    seed = drawn_seed(seed)
    builder, runner = builder_and_runner(builder, runner, num_tuning_cores)
    tasks = [
        TuneContext(
            function,
            target=target,
            space_generator=own_space(name, space, special_space, functions),
            search_strategy=own_strategy(strategy),
            task_name=name + at,
            rand_state=seed + number,
            symbols=sizes,
            start_from_rules=start_from_rules,
        )
        for number, (name, function) in enumerate(functions.items())
        for at, sizes in sizes_of(normalized(function), symbols)
    ]
    end = deadline(time_budget)
    if time_budget is not None and symbol is not None:
        time_budget *= 1.0 - SHARE
    if max_trials_global is None and time_budget is None:
        max_trials_global = _TRIALS
    opened = tune_tasks(
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
        post_optimization=post_optimization,
        progress=progress,
        time_budget=time_budget,
        min_improvement=min_improvement,
        max_lag=max_lag,
    )
    if symbol is not None:
        compare_sizes(tasks, symbol, values, opened, builder, runner, progress, end)
    return opened


def compile_tir(
    database: Database, mod: IRModule | PrimFunc, target: Target | str
) -> Schedule | None:
    """Return the best schedule that a database has for a function, replayed, or ``None``."""
    return database.query_schedule(mod, Target(target))
