"""Search in the neighbourhood of the rules' schedule.

Rules (``dlight``) decide by estimates: tile sizes, numbers of accumulators, prefetches.
``Schedule.choices`` collects these decisions. The first candidate is the rules' preference; then
come its neighbours, which differ in one choice, nearest options first; then those of the fastest
measured candidates. A few trials suffice, since everything else about such a candidate is as good
as the rules can make it.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tilewright.dlight import Choices, ScheduleRule, first_applied, start_schedule
from tilewright.ir import IRModule, structural_hash
from tilewright.meta_schedule.arg_info import ArgInfo
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.database.record import normalized
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule, Trace
from tilewright.tir.schedule.choices import RULE

logger = logging.getLogger("tilewright.meta_schedule")

# The fastest so many have their neighbours tried.
_CENTRES = 3

Wanted = frozenset[tuple[str, int]]
"""Options that differ from the rules' own, by key."""


class RuleChoices:
    """The rules' schedule of a function, and its alternatives under other choices.

    ``rejected`` counts choices that led to no schedule.
    """

    def __init__(
        self,
        func: PrimFunc,
        args_info: tuple[ArgInfo, ...],
        rules: tuple[ScheduleRule, ...],
        target: Target,
        name: str = "main",
    ) -> None:
        self.func, self.args_info, self.target, self.name = func, args_info, target, name
        self.rules = rules
        self.start = start_schedule(func, record=True, name=name)
        self.seconds: dict[Wanted, float] = {}
        """Times of what was tried; infinity for what failed or isn't known yet."""
        self.rejected: Counter[str] = Counter()
        self._counts: dict[Wanted, Mapping[str, int]] = {}
        self._issued: dict[MeasureCandidate, Wanted] = {}
        self._programs: set[str] = set()
        self._recorded: dict[str, float] = {}

    def warm_start(self, database: Database, mod: IRModule) -> None:
        """Learn the results in a database, so that they aren't measured again."""
        if database.has_workload(mod):
            workload = database.commit_workload(mod)
            for record in reversed(database.get_top_k(workload, 2**31, self.target)):
                if record.args_info in (None, self.args_info):  # of this size, if there are many
                    self._recorded[_text(record.trace)] = record.best_seconds

    @property
    def best_seconds(self) -> float:
        """The shortest time of a candidate from here."""
        return min(self.seconds.values(), default=math.inf)

    def candidates(self, count: int) -> list[MeasureCandidate]:
        """Return up to ``count`` untried candidates, the most promising first."""
        return list(self.each_candidate(count))

    def each_candidate(self, count: int) -> Iterator[MeasureCandidate]:
        """Yield up to ``count`` untried candidates, the most promising first."""
        made = 0
        for wanted in self._proposals():
            if made >= count:
                break
            if wanted in self.seconds:
                continue
            self.seconds[wanted] = math.inf
            sch = self.schedule(wanted)
            if sch is None:
                continue
            recorded = self._recorded.get(_text(sch.trace))
            program = _program(sch)
            if recorded is not None:
                self.seconds[wanted] = recorded
                self._programs.add(program)
            elif program not in self._programs:
                self._programs.add(program)
                made += 1
                candidate = MeasureCandidate(
                    sch, self.args_info, by_rule=not wanted, origin=_described(wanted)
                )
                self._issued[candidate] = wanted
                yield candidate

    def claim(self, sch: Schedule) -> bool:
        """Whether a schedule from elsewhere is new; from then on it is not proposed here."""
        program = _program(sch)
        if program in self._programs or _text(sch.trace) in self._recorded:
            return False
        self._programs.add(program)
        return True

    def notify(
        self, candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Record the results of measured candidates."""
        for candidate, result in zip(candidates, results):
            wanted = self._issued.pop(candidate, None)
            if wanted is not None:
                self.seconds[wanted] = result.seconds

    def schedule(self, wanted: Wanted) -> Schedule | None:
        """Return the schedule for some choices, if they lead to one."""
        if self.start is None:
            return None
        skip = dict(wanted).get(RULE, 0)
        for number, rule in enumerate(self.rules):
            start, choices = self.start.copy(), Choices(dict(wanted), function=self.name)
            start.choices = choices
            sch = first_applied(start, (rule,), self.target)
            if not isinstance(sch, Schedule):
                continue
            if not wanted:
                self.rules = self.rules[number:]  # those before don't apply
            elif skip == 0 and number > 0 and RULE not in dict(wanted):
                break  # the rule doesn't like the choice
            if skip == 0:
                self._counts[wanted] = {**choices.counts, RULE: min(2, len(self.rules))}
                choices.answers[RULE] = type(rule).__name__
                return sch
            skip -= 1
        if wanted:
            self.rejected["rule"] += 1
            logger.info("task %s: the rules can't do %s", self.name, sorted(wanted))
        return None

    def _proposals(self) -> Iterator[Wanted]:
        """Yield choices to try, in order; continues from new results."""
        default: Wanted = frozenset()
        yield default
        known = [item for item in self.seconds.items() if math.isfinite(item[1])]
        centres = [wanted for wanted, _ in sorted(known, key=lambda item: item[1])[:_CENTRES]]
        for centre in centres or [default]:
            yield from self._neighbours(centre)

    def _neighbours(self, centre: Wanted) -> Iterator[Wanted]:
        """Choices that differ in one option, the nearest options of all keys first."""
        counts = self._counts.get(centre, {})
        options = dict(centre)
        for step in range(1, max(counts.values(), default=0)):
            for key, count in counts.items():
                own = options.get(key, 0)
                for option in (own - step, own + step):
                    if 0 <= option < count:
                        changed = {**options, key: option}
                        yield frozenset(item for item in changed.items() if item[1])


def _described(wanted: Wanted) -> str:
    """Say which of a rule's choices are others than its own."""
    parts = [
        "the next rule" if key == RULE else f"option {option} of {key}"
        for key, option in sorted(wanted)
    ]
    return f"rule, with {', '.join(parts)}"


def _program(sch: Schedule) -> str:
    """What a program is known by, whatever the rules were told of its graph."""
    return structural_hash(normalized(sch.mod))


def _text(trace: Trace) -> str:
    return repr(trace.simplified().as_json())
