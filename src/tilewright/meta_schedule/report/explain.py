"""Why a function has its schedule: facts about a record, or about what the rules do.

One collection of facts serves the command line (``tilewright explain``), its JSON and the report.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from typing import Any

from tilewright import dlight
from tilewright.driver.peak import Peaks
from tilewright.meta_schedule.arg_info import ArgInfo, arg_infos, argument_bytes
from tilewright.meta_schedule.database import Database, TuningRecord
from tilewright.meta_schedule.database.record import trace_digest
from tilewright.meta_schedule.feature import candidate_evaluation
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.report.roofline import floor_of
from tilewright.meta_schedule.task import known_flops
from tilewright.meta_schedule.times import clearly_faster, confidence_interval, robust_seconds
from tilewright.meta_schedule.trial_log import Event, TaskLog
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.scheduling import Choices, first_applied, start_schedule
from tilewright.support.errors import TilewrightError
from tilewright.support.text import human_time
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import BlockRV, ExprRV, LoopRV, Schedule
from tilewright.tir.schedule.loop_tree import loop_tree

_MOST_TIMES = 1000
_MOST_OPTIONS, _LONGEST_OPTION, _MOST_RIVALS = 6, 80, 8


@dataclass
class Explanation:
    """Facts by title, and the schedule: a tree of loops, its trace, the program as script."""

    facts: dict[str, list[str]] = field(default_factory=dict)
    tree: str = ""
    trace: str = ""
    script: str = ""

    def add(self, title: str, *lines: str) -> None:
        """Add what isn't empty."""
        kept = [line for line in lines if line]
        if kept:
            self.facts.setdefault(title, []).extend(kept)

    def show(self, schedule: Schedule) -> None:
        """Set the program that is shown, as a tree of loops and as script."""
        self.tree, self.script = loop_tree(schedule.mod["main"]), schedule.mod.script()

    def text(self, *, script: bool = False) -> str:
        """Render for a terminal; with the ``script`` of the scheduled program at the end."""
        width = max(map(len, self.facts), default=0) + 2
        lines = [
            f"{title if number == 0 else '':{width}}{line}"
            for title, found in self.facts.items()
            for number, line in enumerate(found)
        ]
        parts = [("loops", self.tree), ("trace", self.trace)]
        if script:
            parts.append(("script", self.script))
        for title, text in parts:
            if text:
                lines += ["", f"{title}:", text.rstrip()]
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        """Return plain data."""
        return {
            "facts": self.facts, "loops": self.tree, "trace": self.trace, "script": self.script,
        }  # fmt: skip


@dataclass(frozen=True)
class ByRule:
    """What the rules make of a function: the rule, why those before it don't apply, its choices."""

    schedule: Schedule
    rule: str
    refused: tuple[str, ...]
    offered: Mapping[str, tuple[object, ...]]


def by_rule(func: PrimFunc, target: Target) -> ByRule | None:
    """Schedule a function by rule; ``None`` if no rule applies, or the target has none."""
    start = start_schedule(func, record=True) if target.kind == "llvm" else None
    if start is None:
        return None
    refused: list[str] = []
    for rule in dlight.kernels_and_rules(target):
        attempt, choices = start.copy(), Choices({})
        attempt.choices = choices
        made = first_applied(attempt, (rule,), target)
        if isinstance(made, Schedule):
            return ByRule(made, rule.name, tuple(refused), choices.offered)
        refused.append(made.reason)
    return None


def interval(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the confidence interval of times; of very many, of the first ones."""
    return confidence_interval(seconds[:_MOST_TIMES])


def interval_text(seconds: Sequence[float]) -> str:
    """Render times: the one that counts, and between which it lies."""
    text = human_time(robust_seconds(seconds))
    if len(seconds) == 1:
        return f"{text} (measured once)"
    low, high = interval(seconds)
    return f"{text} ({human_time(low)} to {human_time(high)}, from {len(seconds)} values)"


def explain_record(
    record: TuningRecord,
    *,
    database: Database | None = None,
    log: TaskLog | None = None,
    peaks: Peaks | None = None,
    with_rules: bool = True,
) -> Explanation:
    """Say why a record's schedule is what it is, and how good.

    ``database`` and ``log`` tell of its rivals, ``peaks`` how near it is to the machine's limits.
    Without ``with_rules`` it isn't compared with what the rules make today. A record that can't be
    read or replayed is explained as far as possible, with the error among the facts.
    """
    made = Explanation()
    made.add("function", record.summary, f"workload {record.workload.hash}")
    made.add("target", str(record.target) if record.target else "any")
    target = record.target or Target("native")
    try:
        func: PrimFunc = record.workload.mod["main"]
        own = by_rule(func, target) if with_rules else None
    except TilewrightError as error:
        made.add("problem", f"its program can't be read: {error}")
        return made
    made.add("schedule", *_origin(record, own))
    made.add("time", *_times(record))
    infos = record.args_info or arg_infos(func)
    _add_limits(made, func, infos, target, record.best_seconds, peaks)
    made.add("beat", *_beaten(record, database, log))
    made.add("checked", *_verdict(record))
    made.trace = str(record.trace)
    try:
        scheduled = record.schedule()
    except TilewrightError as error:
        made.add("problem", f"it doesn't replay: {error}")
        return made
    made.show(scheduled)
    if own is not None:
        made.add("estimate", *_estimates(func, infos, target, scheduled, own.schedule))
        made.add("by rule", *_rule_lines(own))
    return made


def explain_rule(
    func: PrimFunc, target: Target, name: str, *, why: str = "", peaks: Peaks | None = None
) -> Explanation:
    """Say what the rules make of a function, and ``why`` no record serves it."""
    made = Explanation()
    made.add("function", name)
    made.add("target", str(target))
    made.add("schedule", f"by rule: {why}" if why else "by rule")
    own = by_rule(func, target)
    infos = arg_infos(func)
    _add_limits(made, func, infos, target, None, peaks)
    if own is None:
        made.add("by rule", "no rule applies: it stays as it is")
        return made
    scheduled = own.schedule
    made.add("estimate", *_estimates(func, infos, target, scheduled, None))
    made.add("by rule", *_rule_lines(own))
    made.show(scheduled)
    if scheduled.trace is not None:
        made.trace = str(scheduled.trace)
    return made


# ---- the facts -----------------------------------------------------------------------------------


def _origin(record: TuningRecord, own: ByRule | None) -> list[str]:
    said = record.provenance.get("origin")
    if own is not None and trace_digest(own.schedule.trace) == record.digest:
        return [f"what the rules make ({own.rule})"]
    if said == "rule":
        return ["what the rules made when it was measured; they make another one now"]
    if isinstance(said, str) and said.startswith("rule, with "):
        return [f"by rule, with other options than its own: {said.removeprefix('rule, with ')}"]
    if said == "search":
        return ["found by the search, which made it from its sketches"]
    return [str(said) if isinstance(said, str) else "the record doesn't say what made it"]


def _times(record: TuningRecord) -> list[str]:
    if not record.run_secs:
        return ["not measured"]
    lines = [interval_text(record.run_secs)]
    verdict = record.provenance.get("verified")
    if isinstance(verdict, Mapping) and verdict.get("trusted_timing") is False:
        counted = human_time(record.counted_seconds)
        lines.append(f"not trusted, the machine was too noisy: counts as {counted}")
    if record.sizes:
        lines.append(f"compared at sizes {', '.join(map(str, record.sizes))}: serves all of them")
    origin = record.provenance
    timing = origin.get("timing")
    if isinstance(timing, Mapping):
        if timing.get("caches") == "cold":
            lines.append("with cold caches")
        if isinstance(timing.get("slowdown"), (int, float)):
            lines.append(f"on cores slowed down {timing['slowdown']:g} times by others")
    when = "" if record.time is None else f"{datetime.fromtimestamp(record.time):%Y-%m-%d %H:%M}"
    parts = [when, *(str(origin[key]) for key in ("machine", "version") if key in origin)]
    if any(parts):
        lines.append("measured " + ", ".join(filter(None, parts)))
    return lines


def _add_limits(
    made: Explanation,
    func: PrimFunc,
    infos: Sequence[ArgInfo],
    target: Target,
    seconds: float | None,
    peaks: Peaks | None,
) -> None:
    """Add what it computes and moves, and the least time for that."""
    flops, nbytes = known_flops(func), argument_bytes(infos)
    rates = ""
    if seconds and math.isfinite(seconds):
        rates = f": {flops / seconds / 1e9:.3g} GFLOP/s, {nbytes / seconds / 1e9:.3g} GB/s"
    made.add("work", f"{flops:.4g} operations, {nbytes} bytes of arguments{rates}")
    if peaks is None:
        return
    floor = floor_of(peaks, target, flops, nbytes, infos)
    share = f": {floor.seconds / seconds:.0%} of the measured time" if seconds else ""
    made.add("limit", f"at least {human_time(floor.seconds)} ({floor.bound}){share}")


def _beaten(record: TuningRecord, database: Database | None, log: TaskLog | None) -> list[str]:
    """Whom it beat, and by how much."""
    race = _race_of(record, log)
    lines = []
    if race is not None:
        lines = [_rival(entry, record, race) for entry in race["entries"] if not entry["won"]]
        lines = ["in a race, measured in turn:", *(f"  {line}" for line in lines[:_MOST_RIVALS])]
    elif record.beat:
        lines.append(f"{len(record.beat)} others in a race; how far isn't known, its log is gone")
    if database is None:
        return lines
    others = database.get_top_k(record.workload, 2**31)
    if len(others) > 1:
        rest = [item for item in others if item.digest != record.digest]
        tail = f"; the next one, measured alone: {human_time(rest[0].best_seconds)}" if rest else ""
        lines.append(f"{len(others)} records are known{tail}")
    return lines


def _race_of(record: TuningRecord, log: TaskLog | None) -> Event | None:
    """The last race that the record's schedule won."""
    for race in reversed([] if log is None else log.of_kind("race")):
        for entry in race["entries"] or ():
            if entry["won"] and entry["trace"] == record.digest:
                return race
    return None


def race_ratio(entry: Event, winner: Event) -> float | None:
    """How many times as long as the winner an entry of a race took; ``None`` if it failed.

    Of the rounds of a race the ratios are compared, since what disturbs one round disturbs both.
    """
    if not entry["seconds"] or not winner["seconds"]:
        return None
    pairs: list[tuple[float, float]] = list(zip(entry["seconds"], winner["seconds"]))
    ratios = [own / best for own, best in pairs if best > 0]
    return statistics.median(ratios) if ratios else None


def _rival(entry: Event, record: TuningRecord, race: Event) -> str:
    winner = next(item for item in race["entries"] if item["won"])
    name = {"rule": "what the rules make", "record": "the best known record"}.get(
        entry["origin"], entry["origin"] or "another"
    )
    ratio = race_ratio(entry, winner)
    if ratio is None:
        return f"{name}: {entry['error'] or entry['reason'] or 'failed'}"
    noise = "" if clearly_faster(winner["seconds"], entry["seconds"]) else ", equal within noise"
    return f"{name}: {ratio:.2f} times as long{noise}"


def _verdict(record: TuningRecord) -> list[str]:
    if not record.verified:
        return ["never: its results may be wrong (tilewright db verify checks records)"]
    said = record.provenance["verified"]
    assert isinstance(said, Mapping)
    lines = [f"against the {said.get('against', 'unscheduled program')}"]
    inputs = said.get("inputs")
    if isinstance(inputs, (list, tuple)):
        lines.append(f"inputs: {', '.join(map(str, inputs))}; seed {said.get('seed')}")
    difference = said.get("relative_difference")
    if isinstance(difference, (int, float)):
        lines.append(f"largest difference: {difference:.3g} of the largest result")
    return lines


def _estimates(
    func: PrimFunc,
    infos: Sequence[ArgInfo],
    target: Target,
    scheduled: Schedule,
    rules: Schedule | None,
) -> list[str]:
    """What the model of the machine expects, without any measurement."""
    context = TuneContext(func, target=target, start_from_rules=False)
    cycles = []
    for sch in (scheduled, rules):
        try:
            if sch is not None:
                candidate = MeasureCandidate(sch, tuple(infos))
                cycles.append(float(candidate_evaluation(context, candidate).cycles[0]))
        except TilewrightError as error:
            return [f"none: {error}"]
    other = f"; of what the rules make {cycles[1]:.4g}" if len(cycles) > 1 else ""
    return [f"the model of the machine expects {cycles[0]:.4g} cycles{other}"]


def _rule_lines(own: ByRule) -> list[str]:
    """The rule, its estimates, and why others weren't used."""
    lines = [f"{own.rule} applies"]
    for key, options in own.offered.items():
        first, *others = _told_apart(options[: _MOST_OPTIONS + 1])
        left = len(options) - 1 - len(others)
        others += [f"{left} more"] if left else []
        if len(first) + sum(map(len, others)) <= _LONGEST_OPTION:
            lines.append(f"  {key}: {first}, rather than {', '.join(others)}")
        else:
            lines += [f"  {key}: {first}", *(f"      rather than {item}" for item in others)]
    lines += [f"not {_shortened(reason, 160)}" for reason in own.refused]
    return lines


def _told_apart(options: Sequence[object]) -> list[str]:
    """Texts of options; of plans with many fields only those that differ."""
    (kind, *others) = {type(option) for option in options}
    if others or not is_dataclass(kind):
        return [_shortened(option) for option in options]
    texts = [dict(_leaves(option)) for option in options]
    names = dict.fromkeys(name for text in texts for name in text)
    differing = [name for name in names if len({text.get(name) for text in texts}) > 1]
    return [
        _shortened(", ".join(f"{x} {text[x]}" for x in differing if x in text) or str(option))
        for text, option in zip(texts, options)
    ]


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The fields of a plan and of what is in it, by dotted names."""
    for item in fields(value):
        inner = getattr(value, item.name)
        path = f"{name}.{item.name}" if name else item.name
        if isinstance(inner, (LoopRV, BlockRV, ExprRV)):
            continue  # handles say nothing to people
        if is_dataclass(inner):
            yield from _leaves(inner, path)
        elif isinstance(inner, float):
            yield path, f"{inner:.4g}"
        else:
            yield path, str(getattr(inner, "name", inner))


def _shortened(value: object, most: int = _LONGEST_OPTION) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= most else text[: most - 1] + "…"
