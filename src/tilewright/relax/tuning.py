"""Tuning whole models: extract tasks, tune them, build with what was found."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import IRModule
from tilewright.meta_schedule import extracted_task
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.extracted_task import ExtractedTask, contexts_of
from tilewright.meta_schedule.passes import MetaScheduleApplyDatabase
from tilewright.meta_schedule.tune import tune_tasks
from tilewright.relax.analysis import has_operators
from tilewright.relax.executable import Executable, build
from tilewright.relax.expr import Function
from tilewright.relax.pipeline import get_pipeline
from tilewright.relax.transform import BindParams
from tilewright.support.errors import TuneError
from tilewright.support.registry import near_matches
from tilewright.target import Target


def to_tensor_functions(
    mod: IRModule, target: Target | str | None = None, params: Mapping[str, Any] | None = None
) -> IRModule:
    """Bind parameters; run the ``zero`` pipeline unless the graph calls tensor functions only."""
    if params:
        mod = _bound(mod, params)
    if any(map(has_operators, mod.functions.values())):
        mod = get_pipeline("zero", target)(mod)
    return mod


def _bound(mod: IRModule, params: Mapping[str, Any]) -> IRModule:
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
    params: Mapping[str, Any] | None = None,
    *,
    module_equality: str = "structural",
    op_names: Sequence[str] | None = None,
) -> list[ExtractedTask]:
    """Return the different tensor functions of a model with how often each runs.

    A graph of operators is legalised and fused first, so the tasks are the functions that a build
    would compile. ``params`` are bound to the graph's parameters of these names.
    """
    return extracted_task.extract_tasks(
        to_tensor_functions(mod, target, params),
        target,
        module_equality=module_equality,
        op_names=op_names,
    )


def tune_relax(
    mod: IRModule,
    params: Mapping[str, Any] | None,
    target: Target | str,
    work_dir: str | os.PathLike[str] | None,
    max_trials_global: int,
    *,
    op_names: Sequence[str] | None = None,
    seed: int = 0,
    **options: Any,
) -> Database:
    """Tune a model's tasks into the database of ``work_dir``; return the database.

    Other options are those of :func:`tilewright.meta_schedule.tune.tune_tasks`.
    """
    tasks = extract_tasks(mod, target, params, op_names=op_names)
    contexts, weights = contexts_of(tasks, seed=seed)
    return tune_tasks(
        contexts, weights, work_dir=work_dir, max_trials_global=max_trials_global, **options
    )


def compile_relax(
    database: Database,
    mod: IRModule,
    target: Target | str,
    params: Mapping[str, Any] | None = None,
) -> Executable:
    """Build a model with the schedules that a database has for its functions."""
    resolved = Target(target)
    mod = to_tensor_functions(mod, resolved, params)
    mod = MetaScheduleApplyDatabase(database=database, target=resolved)(mod)
    return build(mod, resolved, pipeline=None)
