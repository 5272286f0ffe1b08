"""Tasks of a whole module: its distinct TensorIR functions, weighted by how often they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir import GlobalVar, IRModule, pre_order
from tilewright.meta_schedule.database.record import equality, normalized
from tilewright.meta_schedule.space_generator import SpaceGenerator
from tilewright.meta_schedule.task import known_flops
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Schedule


@dataclass(frozen=True)
class ExtractedTask:
    """A function to tune: its name in the program, its one-function module, how often it runs."""

    task_name: str
    mod: IRModule
    target: Target
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
        if key in found:
            known = found[key]
            found[key] = ExtractedTask(known.task_name, known.mod, target, known.weight + weight)
        else:
            found[key] = ExtractedTask(name, task_mod, target, weight)
    return list(found.values())


def contexts_of(
    tasks: Sequence[ExtractedTask],
    *,
    space: SpaceGenerator | str | Callable[[Schedule], object] = "post-order-apply",
    strategy: str = "evolutionary",
    seed: int = 0,
    symbols: Mapping[str, int] | None = None,
) -> tuple[list[TuneContext], list[float]]:
    """Return tuning contexts and weights of extracted tasks.

    ``symbols`` are the sizes, by name, that functions with symbolic ones are measured at.
    """
    contexts = [
        TuneContext(
            task.mod,
            target=task.target,
            space_generator=space,
            search_strategy=strategy,
            task_name=task.task_name,
            seed=seed + number,
            symbols=symbols,
        )
        for number, task in enumerate(tasks)
    ]
    return contexts, [float(task.weight) for task in tasks]
