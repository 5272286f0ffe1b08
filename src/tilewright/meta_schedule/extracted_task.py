"""Tasks of a whole module: its distinct TensorIR functions, weighted by how often they run."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.ir import GlobalVar, IRModule, pre_order, structural_equal
from tilewright.meta_schedule.database.record import equality, normalized
from tilewright.meta_schedule.search_strategy import SearchStrategy
from tilewright.meta_schedule.sizes import Symbols, sizes_of
from tilewright.meta_schedule.task import known_flops
from tilewright.meta_schedule.tune_context import (
    Space,
    TuneContext,
    drawn_seed,
    number_of_cores,
    own_space,
    own_strategy,
)
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED

_NO_NAME = re.compile(r"[^\w.-]")
"""What names of files don't have."""


@dataclass(frozen=True)
class ExtractedTask:
    """A function to tune: its name in the program, its one-function module, how often it runs.

    ``dispatched`` are the modules that its records are for: its own, and those of other functions
    that are equal to it under the ``module_equality`` it was extracted with.
    """

    task_name: str
    mod: IRModule
    target: Target
    dispatched: tuple[IRModule, ...]
    weight: int

    @property
    def flops(self) -> float:
        """Floating-point operations of one call."""
        return known_flops(self.mod["main"])


def extract_tasks(
    mod: IRModule,
    target: Target | str,
    *,
    module_equality: str = "structural",
    op_names: Sequence[str] | None = None,
) -> list[ExtractedTask]:
    """Return the distinct functions of a module, in order of appearance.

    The weight counts the calls from other functions (1 for a function that is never called).
    Functions that are equal under ``module_equality`` are one task. ``op_names`` keeps functions
    with one of these words in their name. Functions that are already scheduled are not tasks.
    """
    target = Target(target)
    digest, _ = equality(module_equality)
    calls = Counter(
        item.name
        for function in mod.functions.values()
        if not isinstance(function, PrimFunc)
        for item in pre_order(function)
        if isinstance(item, GlobalVar)
    )
    found: dict[str, ExtractedTask] = {}
    for name, function in mod.functions.items():
        if not isinstance(function, PrimFunc) or function.attrs.get(IS_SCHEDULED):
            continue
        if op_names is not None and not any(word in name for word in op_names):
            continue
        task_mod = normalized(function)
        key = digest(task_mod)
        weight = max(1, calls[name])
        if key not in found:
            found[key] = ExtractedTask(name, task_mod, target, (task_mod,), weight)
            continue
        known = found[key]
        same = any(structural_equal(task_mod, item) for item in known.dispatched)
        dispatched = known.dispatched if same else (*known.dispatched, task_mod)
        found[key] = replace(known, weight=known.weight + weight, dispatched=dispatched)
    return list(found.values())


def contexts_of(
    tasks: Sequence[ExtractedTask],
    *,
    space: Space = "post-order-apply",
    strategy: SearchStrategy | str = "evolutionary",
    seed: int | None = 0,
    symbols: Symbols | None = None,
    special_space: Mapping[str, Space] | None = None,
    constant_bytes: int = 0,
    start_from_rules: bool | None = None,
) -> tuple[list[TuneContext], list[float]]:
    """Return tuning contexts and weights of extracted tasks.

    Each task has its own copy of ``space`` and ``strategy``; ``special_space`` has other spaces
    for tasks of these names. ``symbols`` are the sizes, by name, that functions with symbolic ones
    are measured at; a function has a context for each of several values. ``constant_bytes`` are
    those of the graph that the tasks are of; ``start_from_rules`` is the contexts'.

    Raises ``TuneError`` if ``special_space`` names no task.
    """
    names, seed = [task.task_name for task in tasks], drawn_seed(seed)
    contexts: list[TuneContext] = []
    weights: list[float] = []
    for task in tasks:
        values = sizes_of(task.mod, symbols)
        for at, sizes in values:
            contexts.append(
                TuneContext(
                    task.mod,
                    target=task.target,
                    space_generator=own_space(task.task_name, space, special_space, names),
                    search_strategy=own_strategy(strategy),
                    task_name=task.task_name + at,
                    rand_state=seed + len(contexts),
                    symbols=sizes,
                    constant_bytes=constant_bytes,
                    start_from_rules=start_from_rules,
                )
            )
            weights.append(task.weight / len(values))
    return contexts, weights


def extracted_tasks_to_tune_contexts(
    extracted_tasks: Sequence[ExtractedTask],
    work_dir: str | os.PathLike[str],
    space: Space = "post-order-apply",
    strategy: SearchStrategy | str = "evolutionary",
    num_threads: int | str = "physical",
    seed: int | None = 0,
) -> tuple[list[TuneContext], list[float]]:
    """Return contexts and weights of extracted tasks, each with a log file in ``work_dir/logs``.

    Raises ``TuneError`` if the folder can't be written.
    """
    contexts, weights = contexts_of(extracted_tasks, space=space, strategy=strategy, seed=seed)
    folder = Path(work_dir) / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TuneError(f"the work directory {work_dir} can't be written: {error}") from error
    for number, context in enumerate(contexts):
        context.num_threads = number_of_cores(num_threads)
        context.logger = logging.Logger(f"tilewright.meta_schedule.task_{number}", logging.INFO)
        name = f"task_{number:02d}_{_NO_NAME.sub('_', context.task_name)[:100]}.log"
        context.logger.addHandler(logging.FileHandler(folder / name, delay=True))
    return contexts, weights
