"""Schedules from records of other shapes, fusions and targets.

Records of programs that are alike are candidates, the nearest first: equal structure before equal
reductions in another fusion, small differences of extents before large ones, the same target before
others of its kind and vector width. A rule makes its recorded choices again on the program at
hand; any other schedule is replayed with tiles that fit. Either way the schedule is correct by
construction, and nobody knows how fast it is: see ``adapted_race.py`` for that.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from tilewright import dlight
from tilewright.ir import IRModule, structural_hash
from tilewright.meta_schedule.database import Database, TuningRecord, Workload
from tilewright.meta_schedule.database.adapting import adapted_schedule
from tilewright.meta_schedule.database.base import serves
from tilewright.meta_schedule.database.likeness import KINDS, distance, key_of
from tilewright.meta_schedule.database.record import normalized
from tilewright.support.errors import ScheduleError, TilewrightError
from tilewright.support.text import human_time
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Choices, Schedule
from tilewright.tir.schedule.choices import RULE

logger = logging.getLogger("tilewright.meta_schedule")

# What another fusion and another CPU count, in factors of e by which an extent differs.
_OTHER_FUSION, _OTHER_CPU = 1.0, 0.2
# Records that are farther away say nothing about this program.
FARTHEST = math.log(1024.0)
NONE_FITS = "no record of a similar program fits and is ahead of what the rules make"
# How many similar workloads are looked at, and how many records of each.
_WORKLOADS, _RECORDS = 8, 2


@dataclass(frozen=True, eq=False)
class Adapted:
    """A schedule that a record of another program or target led to; ``why`` says which one."""

    schedule: Schedule
    record: TuningRecord
    distance: float
    why: str


@dataclass(frozen=True)
class Near:
    """A record of another program or target, how far away that is, and in what it is alike."""

    distance: float
    kind: str
    record: TuningRecord


def adapted_schedules(
    database: Database, mod: IRModule | PrimFunc, target: Target, most: int = 4
) -> list[Adapted]:
    """Return up to ``most`` different schedules from the records nearest to a function."""
    return adapted_from(nearest_records(database, mod, target), mod, target, most)


def adapted_from(
    nearest: Iterable[Near], mod: IRModule | PrimFunc, target: Target, most: int
) -> list[Adapted]:
    """Return up to ``most`` different schedules for a function from records, in their order."""
    mod = normalized(mod)
    made: list[Adapted] = []
    programs: set[str] = set()
    for near in nearest:
        if len(made) >= most:
            break
        record = near.record
        try:
            schedule = _adapted(record, mod, target)
            why = _origin(record, mod, near.kind, target)  # its workload may be no program
        except TilewrightError as error:
            logger.info("a record of %s is not adapted: %s", record.workload, error)
            continue
        program = structural_hash(schedule.mod) if schedule is not None else ""
        if schedule is not None and program not in programs:
            programs.add(program)
            made.append(Adapted(schedule, record, near.distance, why))
    return made


def nearest_records(database: Database, mod: IRModule | PrimFunc, target: Target) -> list[Near]:
    """Return records of other programs and targets, the nearest first."""
    mod = normalized(mod)
    text, own = mod.script(), structural_hash(mod)
    places: dict[Workload, tuple[float, str]] = {}
    for number, kind in enumerate(KINDS):
        key = key_of(kind, text)
        for workload in database.alike(kind, key) if key else ():
            apart = distance(kind, workload.text, text) + (_OTHER_FUSION if number else 0.0)
            if workload not in places and apart <= FARTHEST:
                places[workload] = apart, kind
    nearest = sorted(places, key=lambda workload: places[workload][0])[:_WORKLOADS]
    found: list[Near] = []
    for workload in nearest:
        apart, kind = places[workload]
        usable = (
            Near(apart + more, kind, record)
            for record in _ahead_of_rules(database.get_top_k(workload, 2**31))
            if (more := _target_distance(record.target, target)) is not None
            if not (workload.hash == own and serves(record.target, target))
        )
        found += islice(usable, _RECORDS)
    return sorted(found, key=lambda near: near.distance)


def _ahead_of_rules(ranked: Iterable[TuningRecord]) -> Iterator[TuningRecord]:
    """Yield the records, best first, that are ahead of the rules' own schedule where they are from.

    What comes after it was slower than by rule there, too; but neither times of two targets compare
    nor those with cold and warm caches.
    """
    behind: list[tuple[Target | None, bool]] = []
    for record in ranked:
        place = record.target, record.cold
        if place in behind:
            continue
        if set(record.answers) == {RULE}:
            behind.append(place)
        else:
            yield record


def _target_distance(own: Target | None, target: Target) -> float | None:
    """How far a target is from that of a record; ``None`` if its schedules say nothing here."""
    if own is None:
        return 0.0
    if own.kind != target.kind or own.vector_bits != target.vector_bits:
        return None
    cores = abs(math.log(max(1, own.num_cores) / max(1, target.num_cores)))
    return cores + (_OTHER_CPU if own.mcpu != target.mcpu else 0.0)


def _adapted(record: TuningRecord, mod: IRModule, target: Target) -> Schedule | None:
    """Return the schedule for a module; ``None`` if that is what the rules make anyway.

    Raises ``ScheduleError`` if there is none.
    """
    answers = record.answers
    if not answers:
        own = record.workload.mod
        return adapted_schedule(record.trace, own, mod, target, record.target)
    made = by_answers(mod, target, answers)
    return None if set(made.choices.answers) == {RULE} else made


def by_answers(mod: IRModule, target: Target, answers: Mapping[str, str]) -> Schedule:
    """Return the schedule of the rule that ``answers`` names, which chooses as they say.

    Where an answer is none of the options, the option most like it is taken.

    Raises ``ScheduleError`` if the rule doesn't apply.
    """
    func = mod["main"]
    assert isinstance(func, PrimFunc)
    start = dlight.start_schedule(func, record=True, name="main")
    for rule in dlight.kernels_and_rules(target) if start is not None else ():
        if type(rule).__name__ != answers.get(RULE):
            continue
        assert start is not None
        trial = start.copy()
        trial.choices = Choices(recalled=answers)
        made = dlight.first_applied(trial, (rule,), target)
        if isinstance(made, Schedule):
            made.choices.answers[RULE] = type(rule).__name__
            return made
    raise ScheduleError(f"the rule {answers.get(RULE)!r} doesn't apply")


def _origin(record: TuningRecord, mod: IRModule, kind: str, target: Target) -> str:
    """Say where a schedule comes from."""
    parts = []
    if kind != next(iter(KINDS)):
        parts.append("another fusion")
    own, here = _shapes(record.workload.mod), _shapes(mod)
    if own != here:
        parts.append(f"shapes {own}")
    if record.target is not None and record.target != target:
        parts.append(f"target {record.target}")
    what = ", ".join(parts) or "an equal program"
    return f"from {what} ({human_time(record.best_seconds)} there)"


def _shapes(mod: IRModule) -> str:
    func = mod["main"]
    assert isinstance(func, PrimFunc)
    return " ".join("x".join(map(repr, buffer.shape)) or "1" for buffer in func.buffers)
