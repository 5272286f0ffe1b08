"""Tuning whole models: extract tasks, tune them, build with the results."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from tilewright.ir import IRModule
from tilewright.meta_schedule import extracted_task
from tilewright.meta_schedule.arg_info import scalar_names
from tilewright.meta_schedule.builder import Builder
from tilewright.meta_schedule.database import Database, MemoryDatabase
from tilewright.meta_schedule.extracted_task import ExtractedTask, contexts_of
from tilewright.meta_schedule.passes import Applied, MetaScheduleApplyDatabase
from tilewright.meta_schedule.progress import Progress
from tilewright.meta_schedule.resume import run_digest, whole_run
from tilewright.meta_schedule.runner import Runner, passing_bytes
from tilewright.meta_schedule.search_strategy import SearchStrategy
from tilewright.meta_schedule.size_family import SHARE, compare_sizes
from tilewright.meta_schedule.sizes import Symbols, check_names, spread
from tilewright.meta_schedule.task_scheduler import TaskScheduler
from tilewright.meta_schedule.time_limit import ending
from tilewright.meta_schedule.tune import (
    POST_OPTIMIZATION,
    builder_and_runner,
    check_options,
    deadline,
    open_database,
    trial_budget,
    tune_tasks,
)
from tilewright.meta_schedule.tune_context import Space, TuneContext, drawn_seed
from tilewright.relax.analysis import (
    defined_symbolic_vars,
    free_symbolic_vars,
    has_operators,
)
from tilewright.relax.execution.executable import Executable, build
from tilewright.relax.expr import Function
from tilewright.relax.pipeline import get_pipeline
from tilewright.relax.transform import BindParams
from tilewright.relax.transform.layout_free import constant_bytes
from tilewright.relax.tuning.attempts import Attempts
from tilewright.relax.tuning.conv_algorithms import (
    Alternatives,
    AlternativesRace,
    alternatives_within,
    extract_alternatives,
)
from tilewright.relax.tuning.graph_race import GraphRace, graph_hash
from tilewright.support.errors import TuneError
from tilewright.support.registry import near_matches
from tilewright.target import Target
from tilewright.tir import PrimFunc

#: The share of a run's trials for ways to compute convolutions.
ALTERNATIVES = 0.25


def to_tensor_functions(
    mod: IRModule,
    target: Target | str | None = None,
    params: Mapping[str, object] | None = None,
    *,
    database: Database | None = None,
) -> IRModule:
    """Bind parameters; run the ``zero`` pipeline unless the graph calls tensor functions only.

    Convolution algorithms are chosen by the times in ``database`` (or the current one).
    """
    if params:
        mod = _bound(mod, params)
    if any(map(has_operators, mod.functions.values())):
        with nullcontext() if database is None else database:
            mod = get_pipeline("zero", target)(mod)
    return mod


def _constant_bytes(mod: IRModule, target: Target, comparison: GraphRace | None) -> int:
    """How many bytes pass by a CPU's caches between two calls of a function; see ``in_graph``."""
    if target.kind != "llvm":
        return 0
    if comparison is not None:
        return constant_bytes(comparison.by_rule.functions)
    return constant_bytes(to_tensor_functions(mod, target, database=MemoryDatabase()))


def _bound(mod: IRModule, params: Mapping[str, object]) -> IRModule:
    """Bind parameters by name in every graph that has them."""
    unknown, known = dict(params), set[str]()
    for name, function in mod.functions.items():
        if isinstance(function, Function) and not function.is_primitive:
            names = {param.name for param in function.params}
            known |= names
            own = {key: value for key, value in params.items() if key in names}
            if own:
                mod = BindParams(name, own)(mod)
            unknown = {key: value for key, value in unknown.items() if key not in own}
    if unknown:
        first = next(iter(unknown))
        raise TuneError(f"no graph has a parameter {first!r}; {near_matches(first, sorted(known))}")
    return mod


def extract_tasks(
    mod: IRModule,
    target: Target | str,
    params: Mapping[str, object] | None = None,
    module_equality: str = "structural",
    *,
    op_names: Sequence[str] | None = None,
    database: Database | None = None,
) -> list[ExtractedTask]:
    """Return the distinct tensor functions of a model, each with how often it runs.

    A graph of operators is legalised and fused first, so the tasks are the functions that a build
    with this database would compile. ``params`` are bound to the graph's parameters of these names.
    """
    return extracted_task.extract_tasks(
        to_tensor_functions(mod, target, params, database=database),
        target,
        module_equality=module_equality,
        op_names=op_names,
    )


def sizes_in(mod: IRModule) -> list[str]:
    """The names of a module's symbolic sizes, and of scalar parameters of its tensor functions."""
    names: list[str] = []
    for function in mod.functions.values():
        if isinstance(function, Function):
            sizes = [*defined_symbolic_vars(function), *free_symbolic_vars(function)]
            names += [var.name for var in sizes]
        elif isinstance(function, PrimFunc):
            names += scalar_names(function)
    return list(dict.fromkeys(names))


def tune_relax(
    mod: IRModule,
    params: Mapping[str, Any] | None,
    target: Target | str,
    work_dir: str | os.PathLike[str] | None,
    max_trials_global: int | None = None,
    max_trials_per_task: int | None = None,
    op_names: Sequence[str] | None = None,
    *,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
    space: Space = "post-order-apply",
    strategy: SearchStrategy | str = "evolutionary",
    seed: int | None = 0,
    module_equality: str = "structural",
    num_tuning_cores: int | str | None = None,
    special_space: Mapping[str, Space] | None = None,
    post_optimization: bool = False,
    alternatives: float = ALTERNATIVES,
    task_scheduler: TaskScheduler | str = "gradient",
    time_budget: float | None = None,
    symbols: Symbols | None = None,
    race: bool = True,
    start_from_rules: bool | None = None,
    **options: Any,
) -> Database:
    """Tune a model's tasks into the database of ``work_dir``; return the database.

    Up to the fraction ``alternatives`` of the trials measures which algorithms are fastest for
    convolutions (``conv_algorithms``), since that decides which functions there are. Each task has
    its own copy of ``space`` and ``strategy``; ``special_space`` has other spaces for tasks of
    these names. A space of one's own is all that is measured, unless ``start_from_rules`` asks for
    what the rules make. ``num_tuning_cores`` are the processes of the builder ``"local"``.
    With ``post_optimization``, the last quarter of the trials goes to coordinate descent around the
    best of each task. ``symbols`` are the sizes, by name, that functions with symbolic ones are
    measured at; one may have several values, see ``tune_tir``. Whole graphs are compared before the
    search, with convolutions by estimate and as measured, and in the end (``race``, see
    ``graph_race``); the database keeps what wins. Unless a runner says otherwise, candidates for
    CPUs find constants in as far caches as in a graph of so many bytes of them. It all ends after
    ``max_trials_global`` trials, and what follows them, or ``time_budget`` seconds. Other options
    are those of :func:`tilewright.meta_schedule.tune_tasks`.

    A run in ``work_dir`` that ended early, whatever it was doing, goes on if it is asked for again,
    with what is left of its trials and seconds.
    """
    check_options(options)
    seed = drawn_seed(seed)
    end = deadline(time_budget)
    trials = trial_budget(max_trials_global, time_budget)
    most = share_of_trials(trials, alternatives)
    builder, runner = builder_and_runner(builder, runner, num_tuning_cores)
    opened = open_database(database, work_dir, module_equality)
    if params:
        mod = _bound(mod, params)
    scheduler, progress = TaskScheduler.create(task_scheduler), options.get("progress")
    symbol, values = spread(symbols)
    check_names(symbols, sizes_in(mod))
    comparison = _graph_race(mod, target, opened, values[-1], progress) if race else None
    constants = _constant_bytes(mod, Target(target), comparison)
    runner = runner.in_graph(constants)
    settings = {
        **options, "strategy": strategy, "space": space, "scheduler": scheduler,
        "start_from_rules": start_from_rules,
    }  # fmt: skip
    settings.pop("progress", None)
    digest = run_digest(
        (), (), graph_hash(mod), Target(target), op_names, seed, symbols, post_optimization,
        sorted(special_space or ()), runner.settings(),
        *(f"{key}={_name(value)}" for key, value in sorted(settings.items())),
    )  # fmt: skip
    convolutions = alternatives_to_measure(mod, target, opened, op_names) if most else []
    until = end
    if comparison is not None and math.isfinite(end):
        budget = end - time.monotonic()
        until -= comparison.seconds(budget, measured_ways=bool(convolutions))

    def part(share: float) -> float:
        """When a share of the remaining time is over."""
        now = time.monotonic()
        return until if share == 1.0 or math.isinf(until) else now + share * (until - now)

    with whole_run(work_dir, digest) as whole:
        end, until = end - whole.clock.before, until - whole.clock.before
        ways = AlternativesRace(Target(target), opened, builder, runner, progress or Progress())
        with ending(until, builder, runner):
            measured_now = ways.run(
                convolutions,
                max(0, most - whole.alternatives),
                part(alternatives),
                whole.spend,
            )
        by_times = True
        if comparison is not None:
            known = None if measured_now else opened.graph_choice(comparison.graph, Target(target))
            by_times = comparison.choose_ways(opened, known, until=part(alternatives))
        times = opened if by_times else MemoryDatabase()
        tasks = extract_tasks(mod, target, op_names=op_names, database=times)

        def search(how: SearchStrategy | str, count: int, until: float) -> list[TuneContext]:
            contexts, weights = contexts_of(
                tasks,
                space=space,
                strategy=how,
                seed=seed,
                symbols=symbols,
                special_space=special_space,
                constant_bytes=constants,
                start_from_rules=start_from_rules,
            )
            tune_tasks(
                contexts,
                weights,
                work_dir=work_dir,
                max_trials_global=count,
                max_trials_per_task=max_trials_per_task,
                builder=builder,
                runner=runner,
                database=opened,
                task_scheduler=scheduler,
                time_budget=None if math.isinf(until) else max(1e-3, until - time.monotonic()),
                part_of=whole,
                **options,
            )
            return contexts

        rest = max(0, trials - whole.alternatives)
        last = int(rest * POST_OPTIMIZATION) if post_optimization else 0
        share = 1.0 if symbol is None else 1.0 - SHARE
        share *= 1.0 - POST_OPTIMIZATION if last else 1.0
        contexts = search(strategy, rest - last, part(share))
        if last and not scheduler.interrupted:
            search("coordinate-descent", last, part(1.0 if symbol is None else 1.0 - SHARE))
        if symbol is not None and not scheduler.interrupted:
            compare_sizes(contexts, symbol, values, opened, builder, runner, progress, until)
        if comparison is not None and not scheduler.interrupted:
            _race_graphs(comparison, opened, end, Attempts(whole))
        whole.finished = not scheduler.interrupted
    return opened


def _name(value: object) -> str:
    """What a setting is known by in the next process."""
    return str(value) if isinstance(value, str | int | float) else type(value).__name__


def race_graph(
    mod: IRModule,
    target: Target | str,
    database: Database,
    *,
    symbols: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> None:
    """Compare whole graphs, by rule and with a database's records; keep what wins in it.

    A graph that only calls tensor functions has no other way, and neither has one whose sizes
    aren't known, by ``symbols`` or at all.
    """
    comparison = _graph_race(mod, target, database, symbols, progress)
    if comparison is not None:
        _race_graphs(comparison, database, math.inf, Attempts())


def _graph_race(
    mod: IRModule,
    target: Target | str,
    database: Database,
    symbols: Mapping[str, int] | None,
    progress: Progress | None,
) -> GraphRace | None:
    """The comparison of a graph's ways; ``None`` if there is no graph."""
    if not any(isinstance(function, Function) for function in mod.functions.values()):
        return None
    resolved = Target(target)

    def lower(measured: bool) -> IRModule:
        return to_tensor_functions(
            mod, resolved, database=database if measured else MemoryDatabase()
        )

    return GraphRace(mod, lower, resolved, symbols=symbols, progress=progress)


def _race_graphs(
    comparison: GraphRace, database: Database, until: float, attempts: Attempts
) -> None:
    choice = comparison.run(database, until=until, attempts=attempts)
    if choice is not None:
        database.commit_graph_choice(choice)


def share_of_trials(trials: int, share: float) -> int:
    """Return how many trials measuring convolution algorithms may take.

    Raises ``TuneError`` for a share outside of ``[0, 1]``.
    """
    if not 0.0 <= share <= 1.0:
        raise TuneError(f"the share of trials for alternatives is from 0 to 1, got {share}")
    return int(share * trials)


def alternatives_to_measure(
    mod: IRModule, target: Target | str, database: Database, op_names: Sequence[str] | None = None
) -> list[Alternatives]:
    """Return the convolutions of a graph that several algorithms compute.

    A graph that only calls tensor functions has nothing left to choose. ``op_names`` limits this to
    convolutions in functions with one of these words in their name, fused as a build with this
    database would.
    """
    if not any(map(has_operators, mod.functions.values())):
        return []
    found = extract_alternatives(mod, Target(target))
    if op_names is not None and found:
        tasks = extract_tasks(mod, target, op_names=op_names, database=database)
        found = alternatives_within(found, [task.mod for task in tasks])
    return found


def compile_relax(
    database: Database,
    mod: IRModule,
    target: Target | str,
    params: Mapping[str, object] | None = None,
    enable_warning: bool = False,
    *,
    adapt: str = "never",
) -> Executable:
    """Build a model with the schedules that a database has for its functions.

    If the whole graph was measured (``race_graph``), with those that served it. With
    ``enable_warning``, functions without a record are logged, and why they have none. ``adapt`` is
    ``MetaScheduleApplyDatabase``'s: whether records of similar functions are used.
    """
    resolved = Target(target)
    mod, _ = apply_database(
        database, mod, resolved, params, enable_warning=enable_warning, adapt=adapt
    )
    return build(mod, resolved, relax_pipeline=None)


def apply_database(
    database: Database,
    mod: IRModule,
    target: Target,
    params: Mapping[str, object] | None = None,
    *,
    enable_warning: bool = False,
    adapt: str = "never",
) -> tuple[IRModule, list[Applied]]:
    """Return a model as tensor functions with a database's schedules, and what became of each.

    Of a graph that was measured as a whole (``race_graph``) those are used that served it.
    """
    if params:
        mod = _bound(mod, params)
    mod, applying = _to_be_applied(database, mod, target, adapt, enable_warning)
    mod = applying(mod)
    return mod, applying.report


def explained_functions(
    database: Database, mod: IRModule, target: Target, *, adapt: str = "never"
) -> dict[str, tuple[PrimFunc, Applied]]:
    """Return the tensor functions of a model, before scheduling, and what becomes of each."""
    mod, applying = _to_be_applied(database, mod, target, adapt)
    applying(mod)
    return {item.name: (mod[item.name], item) for item in applying.report}


def _to_be_applied(
    database: Database, mod: IRModule, target: Target, adapt: str, enable_warning: bool = False
) -> tuple[IRModule, MetaScheduleApplyDatabase]:
    """Return a model as tensor functions, and the pass that gives them a database's schedules."""
    choice = database.graph_choice(graph_hash(mod), target)
    by_times = choice is None or choice.measured_ways
    mod = to_tensor_functions(mod, target, database=database if by_times else MemoryDatabase())
    graphs = any(isinstance(function, Function) for function in mod.functions.values())
    return mod, MetaScheduleApplyDatabase(
        enable_warning=enable_warning,
        database=database,
        target=target,
        leave=() if choice is None else choice.by_rule,
        chosen=None if choice is None else dict(choice.records),
        adapt=adapt,
        cold=passing_bytes(constant_bytes(mod), target) > 0 if graphs else None,
    )
