"""Measuring algorithms for a model's convolutions, so that builds need not estimate.

Each convolution of known size with constant filters is measured directly and by Winograd's
filtering, on plain images and on channels in blocks, with the conversions between them
(``transform.conv_alternatives``). All alternatives of one convolution are measured in turn, as the
rules schedule them, and each is checked against its unscheduled program; the results are database
records. They cost trials: the most expensive convolutions go first.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.ir import IRModule, structural_hash
from tilewright.meta_schedule.builder import Builder, BuilderInput
from tilewright.meta_schedule.database import Database, TuningRecord, measured_alike
from tilewright.meta_schedule.database.record import equality, provenance
from tilewright.meta_schedule.packing import split_packing
from tilewright.meta_schedule.progress import Progress
from tilewright.meta_schedule.runner import (
    NoReferenceError,
    Runner,
    RunnerInput,
    RunnerResult,
)
from tilewright.meta_schedule.task_scheduler.base import make_reference
from tilewright.meta_schedule.time_limit import OutOfTimeError
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.relax.expr import Constant, Function, RelaxCall
from tilewright.relax.pipeline import simplify
from tilewright.relax.registry import is_call_to
from tilewright.relax.transform.conv_alternatives import (
    allowed_tiles,
    operator_task,
    standing_alone,
    winograd_serves,
    winograd_task,
)
from tilewright.relax.transform.select_conv_layout import CONV_LAYOUT, blocked_layouts
from tilewright.support.errors import TuneError
from tilewright.support.text import human_time
from tilewright.target import Target
from tilewright.tir.analysis import estimate_flops
from tilewright.tir.schedule import Schedule

logger = logging.getLogger("tilewright.meta_schedule")

# How often all ways of a convolution are measured in turn. The shortest times count, so many of
# them: what disturbs a measurement makes it longer. Where they differ by more than this, all is
# measured once more, up to so many times.
_ROUNDS, _SHORTEST, _SPREAD, _REPEATS = 8, 3, 0.05, 3


@dataclass
class Alternatives:
    """A convolution: its algorithms and the conversions they need, as tensor functions by name.

    ``weight`` says how often the model has it.
    """

    name: str
    ways: dict[str, IRModule]
    conversions: dict[str, IRModule]
    weight: int = 1

    @property
    def cost(self) -> float:
        """Arithmetic of all its occurrences."""
        direct = next(iter(self.ways.values()))
        return self.weight * float(estimate_flops(direct["main"]))


def extract_alternatives(mod: IRModule, target: Target) -> list[Alternatives]:
    """Return the distinct convolutions of a graph that have several algorithms."""
    if target.kind != "llvm" or not any(isinstance(f, Function) for f in mod.functions.values()):
        return []
    found: dict[frozenset[str], Alternatives] = {}
    for function in simplify(target)(mod).functions.values():
        if not isinstance(function, Function):
            continue
        for binding in function.bindings:
            call = binding.value
            if not isinstance(call, RelaxCall) or not is_call_to(call, "nn.conv2d"):
                continue
            made = _alternatives(call, target)
            if made is None:
                continue
            key = frozenset(map(structural_hash, made.ways.values()))
            if key in found:
                found[key].weight += 1
            else:
                found[key] = made
    return list(found.values())


def _name(call: RelaxCall) -> str:
    sizes = ["x".join(map(str, arg.shape)) for arg in call.args]
    return f"conv2d of {sizes[0]} by {sizes[1]}"


def _alternatives(call: RelaxCall, target: Target) -> Alternatives | None:
    """The algorithms for a convolution, if there are several; the direct one comes first."""
    if not isinstance(call.args[1], Constant):
        return None
    calls = {"NCHW": call}
    conversions: list[RelaxCall] = []
    mode = CONV_LAYOUT.value()
    layouts = None if mode == "NCHW" else blocked_layouts(call, target)
    if layouts is not None:
        parts = standing_alone(call, layouts)
        conversions = [part for part in parts if not is_call_to(part, "nn.conv2d")]
        calls.update((layouts[-1], part) for part in parts if is_call_to(part, "nn.conv2d"))
    ways: dict[str, IRModule | None] = {}
    for name, item in calls.items():
        ways[name] = operator_task(item)
        for tile in allowed_tiles() if winograd_serves(item, target) else ():
            ways[f"{name} by F({tile}x{tile}, 3x3)"] = winograd_task(item, tile)
    known = {name: task for name, task in ways.items() if task is not None}
    if len(known) < max(2, len(ways)):
        return None
    others = {f"conversion {n}": operator_task(item) for n, item in enumerate(conversions)}
    return Alternatives(
        _name(call), known, {name: task for name, task in others.items() if task is not None}
    )


def alternatives_within(
    found: Sequence[Alternatives], tasks: Sequence[IRModule]
) -> list[Alternatives]:
    """Return the convolutions that occur in some tasks, whatever is fused with them.

    A task computes a convolution if its dominant block is that of one of the convolution's
    algorithms.
    """
    digest, _ = equality("anchor-block")
    wanted = set(map(digest, tasks))
    return [item for item in found if not wanted.isdisjoint(map(digest, item.ways.values()))]


@dataclass
class AlternativesRace:
    """Measures algorithms for convolutions, and records their times in a database."""

    target: Target
    database: Database
    builder: Builder
    runner: Runner
    progress: Progress = field(default_factory=Progress)

    def run(
        self,
        found: Sequence[Alternatives],
        max_trials: int,
        until: float = math.inf,
        spend: Callable[[int], None] = lambda trials: None,
    ) -> int:
        """Measure algorithms for convolutions; return how many trials that took.

        What the database knows isn't measured again. A convolution is measured only if all its
        algorithms fit in ``max_trials``, and none after ``until`` (``time.monotonic``). ``spend``
        is told of the trials of each.
        """
        left = max_trials
        try:
            for item in sorted(found, key=lambda item: -item.cost):
                if time.monotonic() >= until:
                    break
                missing = self.missing(item)
                if 0 < len(missing) <= left:
                    left -= len(missing)
                    self.measure(item, missing)
                    spend(len(missing))
        except OutOfTimeError:
            self.progress.message("there was no time to measure all ways of convolutions")
        finally:
            self.runner.close()
            self.builder.close()
        return max_trials - left

    def missing(self, item: Alternatives) -> dict[str, IRModule]:
        """The algorithms to measure: all of them if one has no record, for comparable times."""
        ways = item.ways if any(map(self.is_unknown, item.ways.values())) else {}
        others = {name: task for name, task in item.conversions.items() if self.is_unknown(task)}
        return {**ways, **others}

    def is_unknown(self, task: IRModule) -> bool:
        """Whether the database has no record of a function, measured as this run measures."""
        known = measured_alike(self.database, self.runner.cold)
        return known.query_tuning_record(task, self.target) is None

    def measure(self, item: Alternatives, tasks: Mapping[str, IRModule]) -> None:
        """Measure some functions in turn, and record their times."""
        contexts = {
            name: TuneContext(task, target=self.target, task_name=f"{item.name}, {name}")
            for name, task in tasks.items()
        }
        prepared = {name: self.prepared(context) for name, context in contexts.items()}
        entries = {name: entry for name, entry in prepared.items() if entry is not None}
        try:
            results = self.raced([entry.input for entry in entries.values()])
        except NoReferenceError as error:
            logger.warning("%s: its ways can't be compared: %s", item.name, error)
            return
        times = {}
        for (name, entry), result in zip(entries.items(), results):
            if result.run_secs is None:
                logger.warning("%s, %s: %s: %s", item.name, name, result.reason, result.error)
            else:
                record = self.record(contexts[name], entry.schedule, result)
                times[name] = record.best_seconds
        text = ", ".join(f"{name} {human_time(seconds)}" for name, seconds in times.items())
        self.progress.message(f"{item.name}: {text or 'no way could be measured'}")

    def raced(self, inputs: Sequence[RunnerInput]) -> list[RunnerResult]:
        """Measure in turn, until the shortest times agree."""
        seconds: list[list[float]] = [[] for _ in inputs]
        results: list[RunnerResult] = []
        for _ in range(_REPEATS):
            results = self.runner.race(inputs, _ROUNDS)
            for known, result in zip(seconds, results):
                known += result.run_secs or ()
                known.sort()
            if all(not k or k[:_SHORTEST][-1] <= (1.0 + _SPREAD) * k[0] for k in seconds):
                break
        return [
            result if result.run_secs is None else replace(result, run_secs=tuple(k[:_SHORTEST]))
            for k, result in zip(seconds, results)
        ]

    def prepared(self, context: TuneContext) -> _Entry | None:
        """Compile a function scheduled by the rules, and unscheduled."""
        schedule = context.rule_schedule()
        if schedule is None:
            logger.warning("%s: no rule schedules it", context.task_name)
            return None
        (built,) = self.builder.build([BuilderInput(schedule.mod, context.target)])
        if built.module is None:
            logger.warning("%s: it can't be compiled: %s", context.task_name, built.error)
            return None
        try:
            reference = make_reference(context, self.builder)
        except OutOfTimeError:
            raise
        except TuneError as error:
            logger.warning("%s: %s", context.task_name, error)
            return None
        packed = split_packing(schedule.mod)[1]
        return _Entry(
            schedule, RunnerInput(module=built.module, reference=reference, packed=packed)
        )

    def record(
        self, context: TuneContext, schedule: Schedule, result: RunnerResult
    ) -> TuningRecord:
        """Commit a record of what was measured."""
        made = TuningRecord(
            schedule.trace.simplified(),
            self.database.commit_workload(context.mod),
            result.run_secs,
            context.target,
            context.args_info,
            provenance(result.verdict, timing=result.timing),
        )
        self.database.commit_tuning_record(made)
        return made


@dataclass(frozen=True)
class _Entry:
    schedule: Schedule
    input: RunnerInput
