"""A quick comparison of adapted schedules with what the rules make, on this machine."""

from __future__ import annotations

import logging

from tilewright.ir import IRModule, structural_hash
from tilewright.meta_schedule.adapted import NONE_FITS, Adapted, adapted_schedules
from tilewright.meta_schedule.builder import Builder, BuilderInput
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.measure_callback.default import commit_measured
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import Reference, Runner, RunnerResult
from tilewright.meta_schedule.task_scheduler.base import make_reference
from tilewright.meta_schedule.task_scheduler.final_ranking import (
    Entrant,
    elsewhere,
    runner_input,
    winner,
)
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

logger = logging.getLogger("tilewright.meta_schedule")

# So often each schedule is measured, in turns.
_ROUNDS = 6


def best_adapted(
    database: Database, mod: IRModule, target: Target, builder: Builder, runner: Runner
) -> tuple[Adapted | None, str]:
    """Return the adapted schedule that is clearly faster than the rules' one, and what happened.

    All are checked against the unscheduled program. What wins becomes a record of the database,
    if it takes any, so it is found and not measured again.
    """
    found = adapted_schedules(database, mod, target)
    if not found:
        return None, NONE_FITS
    try:
        context = TuneContext(mod, target=target)
        entries = _entries(context, found, builder)
        reference = make_reference(context, builder)
        won = _winner(context, entries, reference, runner)
    except TuneError as error:
        return None, f"adapted schedules can't be measured: {error.message}"
    if won is None:
        return None, f"none of {len(found)} adapted schedules could be run"
    entry, result = won
    try:
        commit_measured(database, context, entry.candidate, result)
    except TilewrightError as error:
        logger.info("what was measured isn't kept: %s", error)
    if entry.by_rule:
        return None, f"none of {len(found)} adapted schedules is clearly faster"
    return next(item for item in found if item.schedule is entry.candidate.sch), "measured"


def _entries(context: TuneContext, found: list[Adapted], builder: Builder) -> list[Entrant]:
    """Build what is compared, each program once: what the rules make comes first."""
    by_rule = context.rule_schedule() or Schedule(context.mod)
    schedules = {
        structural_hash(sch.mod): sch for sch in (*(x.schedule for x in found[::-1]), by_rule)
    }
    unique = list(schedules.values())[::-1]
    unique.sort(key=lambda sch: sch is not by_rule)
    built = builder.build([BuilderInput(sch.mod, context.target) for sch in unique])
    return [
        Entrant(MeasureCandidate(sch, context.args_info), build, sch is by_rule)
        for sch, build in zip(unique, built)
        if build.module is not None
    ]


def _winner(
    context: TuneContext, entries: list[Entrant], reference: Reference, runner: Runner
) -> tuple[Entrant, RunnerResult] | None:
    inputs = [runner_input(entry.candidate, entry.build, reference) for entry in entries]
    results = runner.race(inputs, _ROUNDS)
    return winner(entries, elsewhere(context, reference, entries, results, runner, _ROUNDS))
