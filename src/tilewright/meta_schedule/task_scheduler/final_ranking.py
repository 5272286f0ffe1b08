"""The last comparison of a task: its best candidates, the database's, and the rules' schedule.

Candidates are first measured one at a time, minutes apart, while other programs run; the lowest of
sixty-four such times is partly luck. So the best few are rebuilt where necessary and measured in
turn, in one process. The rules' schedule is among them, and a candidate replaces it only if it is
clearly faster.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.ir import Call, pre_order, structural_hash
from tilewright.meta_schedule.arg_info import ArgInfo, TensorInfo, arg_infos, size_names
from tilewright.meta_schedule.builder import Builder, BuilderInput, BuilderResult
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.database.record import normalized, trace_digest
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.packing import split_packing
from tilewright.meta_schedule.runner import (
    NoReferenceError,
    Reference,
    Runner,
    RunnerInput,
    RunnerResult,
)
from tilewright.meta_schedule.runner.traits import traits_of
from tilewright.meta_schedule.task_record import TaskRecord, TopCandidate
from tilewright.meta_schedule.times import clearly_faster
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.support.errors import TuneError
from tilewright.tir.schedule import Schedule

logger = logging.getLogger("tilewright.meta_schedule")

# A schedule of symbolic sizes must be right, and not slower than the rules' one, at these as well.
OTHER_SIZES = (1, 13, 100, 300)
# Larger tensors than these aren't made for that, unless those that were asked for are as large.
_MOST_ELEMENTS = 1 << 24

# By how much of its time a candidate must beat the rules' schedule to be used in its place.
MARGIN = 0.02


# What an entrant costs: seconds to be built and checked and of each turn, and the calls in these.
_ENTRANT_SECONDS, _TURN_SECONDS, _CALLS, _CALLS_OF_TURN = 0.02, 4.5e-3, 8, 2.2


@dataclass(frozen=True, eq=False)
class Entrant:
    """A schedule in the last comparison; ``by_rule`` marks the rules' schedule."""

    candidate: MeasureCandidate
    build: BuilderResult
    by_rule: bool = False


def ranking_seconds(task: TaskRecord, rounds: int) -> float:
    """Estimate how long the last comparison of a task takes."""
    if len(task.top_candidates) < 2 or task.error is not None or rounds < 1:
        return 0.0  # one is compared with a known one at most
    count = len(task.top_candidates) + 2  # by rule, and the known one
    races = 1 + len(OTHER_SIZES) * bool(size_names(task.context.mod["main"]))
    return count * races * entrant_seconds(task.best_seconds, rounds)


def entrant_seconds(call: float, rounds: int) -> float:
    """Estimate what an entrant whose calls take so long adds to a comparison."""
    if rounds < 1:
        return 0.0
    return _ENTRANT_SECONDS + _CALLS * call + rounds * (_TURN_SECONDS + _CALLS_OF_TURN * call)


def entrants(
    context: TuneContext,
    top_candidates: Sequence[TopCandidate],
    rule: TopCandidate | None,
    database: Database | None,
    builder: Builder,
) -> list[Entrant]:
    """Return the entrants, without duplicate programs: the rules' schedule comes first."""
    found: dict[str, Entrant] = {}

    def add(candidate: MeasureCandidate, build: BuilderResult | None, by_rule: bool) -> None:
        key = structural_hash(normalized(candidate.sch.mod))
        if key in found:
            return
        if build is None or _is_gone(build):
            (build,) = builder.build([BuilderInput(candidate.sch.mod, context.target)])
        if build.module is not None:
            found[key] = Entrant(candidate, build, by_rule)

    if rule is not None:
        add(rule.candidate, rule.build, True)
    elif (schedule := context.rule_schedule()) is not None:
        add(MeasureCandidate(schedule, context.args_info, by_rule=True), None, True)
    for item in top_candidates:
        add(item.candidate, item.build, False)
    known = None if database is None else _known(context, database)
    if known is not None:
        add(MeasureCandidate(known, context.args_info, origin="record"), None, False)
    return list(found.values())


def _is_gone(build: BuilderResult) -> bool:
    """Whether what a builder left was removed when it had been measured."""
    return build.artifact_path is not None and not Path(build.artifact_path).exists()


def _known(context: TuneContext, database: Database) -> Schedule | None:
    """The best schedule that the database holds for a task, if it replays."""
    return database.query_schedule(context.mod, context.target)


def winner(
    entries: Sequence[Entrant], results: Sequence[RunnerResult], margin: float = MARGIN
) -> tuple[Entrant, RunnerResult] | None:
    """Return the winner and its result, which says whom it beat; ``None`` if none could be run.

    Times of one round are comparable, so ratios of times are compared, round by round.
    """
    times = {n: result.run_secs for n, result in enumerate(results) if result.run_secs}
    if not times:
        return None
    best = min(times, key=lambda number: statistics.median(times[number]))
    base = next((number for number in times if entries[number].by_rule), None)
    if base is not None and base != best and gain(times[base], times[best]) < 1.0 + margin:
        best = base
    digests = {n: trace_digest(entries[n].candidate.sch.trace) for n in times}
    beaten = [number for number in times if digests[number] != digests[best]]
    equal = [number for number in beaten if not clearly_faster(times[best], times[number])]
    return entries[best], replace(
        results[best],
        beat=tuple(digests[number] for number in beaten),
        equal=tuple(digests[number] for number in equal),
    )


def elsewhere(
    context: TuneContext,
    reference: Reference,
    entries: Sequence[Entrant],
    results: Sequence[RunnerResult],
    runner: Runner,
    rounds: int,
) -> list[RunnerResult]:
    """Run the entrants at other sizes too, where sizes are symbolic.

    Returns their results, as failures for those that are wrong at some size, or slower there than
    the rules' schedule.
    """
    made = list(results)
    names = size_names(context.mod["main"])
    base = next((number for number, entry in enumerate(entries) if entry.by_rule), None)
    for size in OTHER_SIZES if names else ():
        func = context.mod["main"]
        try:
            infos = arg_infos(func, dict.fromkeys(names, size))
        except TuneError as error:
            logger.info("task %s: not compared at %d: %s", context.task_name, size, error)
            continue
        if _elements(infos) > max(_MOST_ELEMENTS, 4 * _elements(context.args_info)):
            logger.info("task %s: not compared at %d: too large", context.task_name, size)
            continue
        key, traits = f"{reference.key}@{size}", traits_of(func, infos)
        other = replace(reference, key=key, args_info=infos, traits=traits)
        inputs = [runner_input(entry.candidate, entry.build, other) for entry in entries]
        try:
            found = runner.race(inputs, rounds)
        except NoReferenceError as error:
            logger.info("task %s: not compared at %d: %s", context.task_name, size, error)
            continue
        by_rule = None if base is None else found[base].run_secs
        for number, result in enumerate(found):
            if not result.run_secs:
                made[number] = replace(result, error_msg=f"at size {size}: {result.error}")
            elif by_rule and gain(result.run_secs, by_rule) > 1.0 + MARGIN:
                slower = (
                    f"at size {size} it takes {gain(result.run_secs, by_rule):.2f} times as long"
                )
                made[number] = RunnerResult(None, slower, "slower")
    return made


def _elements(infos: Sequence[ArgInfo]) -> int:
    return sum(math.prod(info.shape) for info in infos if isinstance(info, TensorInfo))


def runner_input(
    candidate: MeasureCandidate,
    build: BuilderResult,
    reference: Reference,
    best: float | None = None,
) -> RunnerInput:
    """Return what a runner gets: a module that was built, and the reference to check it with."""
    assert build.module is not None
    mod = candidate.sch.mod
    varies = any(
        isinstance(item, Call) and item.op.name == "atomic_add"
        for item in pre_order(mod["main"].body)
    )
    return RunnerInput(
        build.artifact_path,
        module=build.module,
        reference=reference,
        best_seconds=best,
        packed=split_packing(mod)[1],
        varies=varies,
    )


def gain(old: Sequence[float], new: Sequence[float]) -> float:
    """The speedup of the new schedule: in most rounds, and by the shortest times.

    Another tenant that uses half of the caches slows some programs more than others, so the
    shortest times must agree with the others.
    """
    rounds = [a / b for a, b in zip(old, new)]
    return min(statistics.median(rounds), min(old) / min(new))
