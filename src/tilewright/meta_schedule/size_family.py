"""Several schedules for one symbolic size, which chooses among them when the program runs.

A program is tuned at several values of a size. What was best at each of them is measured at all of
them, and between two values where the winner changes, so that limits lie near where the winner
changes. The rules' schedule keeps its place wherever nothing else is clearly faster. What comes of
it is one record: a schedule by ``size_variants``, or the single one that serves all sizes best.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from tilewright.ir import structural_hash
from tilewright.meta_schedule.arg_info import arg_infos, size_names
from tilewright.meta_schedule.builder import Builder, BuilderInput
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.database.record import trace_digest
from tilewright.meta_schedule.measure_callback.default import commit_measured
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.progress import Progress
from tilewright.meta_schedule.runner import Reference, Runner, RunnerResult
from tilewright.meta_schedule.runner.traits import traits_of
from tilewright.meta_schedule.task_scheduler.base import make_reference
from tilewright.meta_schedule.task_scheduler.final_ranking import (
    MARGIN,
    Entrant,
    gain,
    runner_input,
)
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.support.text import human_time
from tilewright.tir.layout_rewrite import split_layout_rewrite
from tilewright.tir.schedule import Schedule

logger = logging.getLogger("tilewright.meta_schedule")

# Records of each value that take part, how often each is measured, and how many sizes between.
_RECORDS, _ROUNDS, _BETWEEN = 2, 8, 3
# Winners at sizes closer than this factor need no other size between them.
_CLOSE = 1.5
SHARE = 0.25
"""The share of a time budget for comparisons at several sizes."""
# A record of all sizes is ahead of so many others.
_MOST_BEATEN = 500

Times = dict[int, list[tuple[float, ...] | None]]
"""For each size the times of the entrants."""


@dataclass
class _Race:
    """The schedules of a program, compared at sizes."""

    context: TuneContext
    symbol: str
    fixed: Mapping[str, int]
    entries: list[Entrant]
    reference: Reference
    runner: Runner
    results: dict[int, list[RunnerResult]]

    def at(self, size: int, entries: Sequence[Entrant]) -> list[RunnerResult]:
        """Measure schedules in turns at one size."""
        func = self.context.mod["main"]
        infos = arg_infos(func, {**self.fixed, self.symbol: size})
        key, traits = f"{self.reference.key}@{size}", traits_of(func, infos)
        other = replace(self.reference, key=key, args_info=infos, traits=traits)
        inputs = [runner_input(entry.candidate, entry.build, other) for entry in entries]
        return self.runner.race(inputs, _ROUNDS)

    def measure(self, size: int) -> None:
        """Measure all schedules at one size, unless that was done."""
        if size not in self.results:
            self.results[size] = self.at(size, self.entries)

    def winners(self) -> dict[int, int]:
        """The number of the schedule for each size: another one must be clearly faster."""
        able = [
            n for n in range(len(self.entries)) if all(r[n].run_secs for r in self.results.values())
        ]
        found: dict[int, int] = {}
        before: int | None = next(iter(able), None)
        if before is None:
            raise TuneError("no schedule could be run at all sizes")
        for size in sorted(self.results):
            times = {n: self.results[size][n].run_secs or () for n in able}
            best = min(able, key=lambda n: median(times[n]))
            if gain(times[before], times[best]) >= 1.0 + MARGIN:
                before = best
            found[size] = before
        return found


def compare_sizes(
    tasks: Sequence[TuneContext],
    symbol: str,
    sizes: Sequence[Mapping[str, int]],
    database: Database,
    builder: Builder,
    runner: Runner,
    progress: Progress | None = None,
    until: float = math.inf,
) -> None:
    """Compare what was measured at several sizes, and record what serves all of them best.

    ``sizes`` are those of the tasks; programs without the symbol are left alone. What isn't begun
    at ``until``, by ``time.monotonic``, isn't done.
    """
    progress = progress or Progress()
    last = {task.hash: task for task in tasks if symbol in size_names(task.mod["main"])}
    try:
        for context in last.values():  # that of the largest size
            if time.monotonic() >= until:
                said = "sizes aren't compared: the time is over"
            else:
                try:
                    said = _race_entries(context, symbol, sizes, database, builder, runner)
                except TilewrightError as error:
                    said = f"sizes aren't compared: {error.message}"
            if said:
                progress.message(f"task {context.task_name.partition('@')[0]}: {said}")
    finally:
        runner.close()
        builder.close()


def _race_entries(
    context: TuneContext,
    symbol: str,
    sizes: Sequence[Mapping[str, int]],
    database: Database,
    builder: Builder,
    runner: Runner,
) -> str:
    entries = _alike_in_packing(_entries(context, sizes, database, builder))
    if len(entries) < 2:
        return ""
    fixed = {key: value for key, value in sizes[0].items() if key != symbol}
    reference = make_reference(context, builder)
    race = _Race(context, symbol, fixed, entries, reference, runner, {})
    for size in sizes:
        race.measure(size[symbol])
    for _ in range(_BETWEEN):
        found = race.winners()
        open_pairs = [
            (a, b) for a, b in pairwise(sorted(found)) if found[a] != found[b] and b > _CLOSE * a
        ]
        if not open_pairs:
            break
        a, b = max(open_pairs, key=lambda pair: pair[1] / pair[0])
        race.measure(math.isqrt(a * b))
    return _recorded(race, sizes, database, builder)


def _recorded(
    race: _Race, sizes: Sequence[Mapping[str, int]], database: Database, builder: Builder
) -> str:
    """Record the schedule for all sizes; return what it is."""
    found, context = race.winners(), race.context
    chosen, limits = [found[min(found)]], list[int]()
    for a, b in pairwise(sorted(found)):
        if found[a] != found[b]:
            limits.append(max(a, math.isqrt(a * b)))
            chosen.append(found[b])
    entry = race.entries[chosen[0]]
    largest = sizes[-1][race.symbol]
    result = race.results[largest][chosen[-1]]
    text = "one schedule serves all sizes best"
    if limits:
        sch = Schedule(context.mod)
        traces = [
            json.dumps(race.entries[n].candidate.sch.trace.simplified().as_json()) for n in chosen
        ]
        sch.size_variants("root", race.symbol, limits, traces)
        (built,) = builder.build([BuilderInput(sch.mod, context.target)])
        if built.module is None:
            raise TuneError(f"the variants can't be compiled: {built.error}")
        origin = f"variants by {race.symbol}, up to {', '.join(map(str, limits))} and above"
        infos = arg_infos(context.mod["main"], sizes[-1])
        entry = Entrant(MeasureCandidate(sch, infos, origin=origin), built)
        for size in sorted({1, *limits, *(n + 1 for n in limits), largest}):
            (result,) = race.at(size, [entry])
            if not result.run_secs:
                raise TuneError(f"the variants fail at {race.symbol} = {size}: {result.error}")
        text = f"{origin}; {human_time(median(result.run_secs or ()))} at {largest}"
    own = trace_digest(entry.candidate.sch.trace)
    workload = database.commit_workload(context.mod)
    others = database.get_top_k(workload, _MOST_BEATEN, context.target)
    beat = tuple({record.digest for record in others} - {own})
    commit_measured(
        database, context, entry.candidate, replace(result, beat=beat), sizes=sorted(race.results)
    )
    return text


def _entries(
    context: TuneContext, sizes: Sequence[Mapping[str, int]], database: Database, builder: Builder
) -> list[Entrant]:
    """Build what is compared, each program once: what the rules make, and the best of each size."""
    by_rule = context.rule_schedule()
    schedules: dict[str, Schedule] = {}
    if by_rule is not None:
        schedules[structural_hash(by_rule.mod)] = by_rule
    workload = database.find_workload(context.mod)
    records = [] if workload is None else database.get_top_k(workload, 2**31, context.target)
    for size in sizes:
        infos = arg_infos(context.mod["main"], size)
        own = [record for record in records if record.args_info == infos]
        for record in own[:_RECORDS]:
            try:
                sch = record.schedule(context.mod)
            except TilewrightError as error:
                logger.info("a record does not replay: %s", error)
                continue
            if all(inst.name != "size_variants" for inst in sch.trace.insts):
                schedules.setdefault(structural_hash(sch.mod), sch)
    built = builder.build([BuilderInput(sch.mod, context.target) for sch in schedules.values()])
    return [
        Entrant(MeasureCandidate(sch, context.args_info, origin="record"), build, sch is by_rule)
        for sch, build in zip(schedules.values(), built)
        if build.module is not None
    ]


def _alike_in_packing(entries: Sequence[Entrant]) -> list[Entrant]:
    """Those that pack constant operands as the first one: only they can share a program."""

    def packing(entry: Entrant) -> list[tuple[int, str]]:
        _, packers = split_layout_rewrite(entry.candidate.sch.mod["main"])
        return sorted((place, structural_hash(packer)) for place, packer in packers.items())

    return [entry for entry in entries if packing(entry) == packing(entries[0])]
