"""The last comparison of a tuned model: whole graphs, every kernel among its neighbours.

A kernel that is measured alone finds its operands in the caches and leaves them as it likes; in a
graph its neighbours do that. So the graph is built by the rules alone, and with the records of a
database, with algorithms and layouts of convolutions by estimate or by measured times: whichever is
faster by rule (``GraphRace.choose_ways``), since the search has to know which functions there are.
Each function gets the one of its best records that is the fastest in its place
(``record_choice``), or the rules' schedule; then the graphs are called in turns. What wins is kept
as a ``GraphChoice``, and the rules win unless something is clearly faster: a tuned model is not
slower than an untuned one.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from tilewright.ir import IRModule, dtypes, structural_equal, structural_hash
from tilewright.meta_schedule.arg_info import TensorInfo, random_arguments
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.database.graph_choice import GraphChoice
from tilewright.meta_schedule.progress import Progress
from tilewright.meta_schedule.task_scheduler.final_ranking import gain
from tilewright.meta_schedule.times import clearly_faster
from tilewright.relax.execution.executable import Executable, build
from tilewright.relax.expr import Function
from tilewright.relax.tuning.attempts import Attempts
from tilewright.relax.tuning.record_choice import (
    Nominee,
    gains,
    nominees,
    served_best,
    turns,
    with_nominees,
    workload_hash,
)
from tilewright.runtime import cpu, cuda, tensor
from tilewright.support.errors import TilewrightError
from tilewright.support.text import human_time
from tilewright.target import Target

logger = logging.getLogger("tilewright.meta_schedule")

# How often kernels are measured in place, and graphs in turns; and how long a graph's turn is.
_IN_PLACE, _ROUNDS, _TURN_SECONDS = 8, 24, 0.03
# How many turns there are however little time is left: as many as can tell which is faster.
_FEW = 5
# How many records of a function are measured in place, and which share of a budget of time that may
# take, and turns of whole graphs as much.
_BEST, _SHARE = 4, 0.15
# What a race costs: builds of each way, in those of the graph by rule (most kernels are known by
# then), and a call in which each kernel is timed, in calls.
_BUILDS, _PROFILED = 0.8, 1.2
# By how much of its time a graph must be faster than by rule, beside being clearly faster.
_MARGIN = 0.005
# The largest difference between two ways, relative to the largest value.
_TOLERANCE = {64: 1e-6, 32: 1e-3, 16: 5e-2, 8: 0.5}
# Where graphs for GPUs race.
_GPU = cuda(0)

Lower = Callable[[bool], IRModule]
"""Lowers the graph to tensor functions, with measured or estimated ways of convolutions."""


@dataclass(frozen=True)
class _Way:
    """A graph that was built, and what choice it stands for."""

    name: str
    choice: GraphChoice
    executable: Executable
    functions: IRModule


def graph_hash(mod: IRModule) -> str:
    """Return what a graph is known by: its structural hash, constants by shape and dtype."""
    return structural_hash(mod, ignore_ndarray=True)


class GraphRace:
    """The comparison of a graph's ways; ``symbols`` are sizes by name.

    ``lower`` makes tensor functions of the graph.
    """

    def __init__(
        self,
        mod: IRModule,
        lower: Lower,
        target: Target,
        *,
        symbols: Mapping[str, int] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.mod, self.lower, self.target = mod, lower, target
        self.symbols, self.progress = symbols or {}, progress or Progress()
        self.graph = graph_hash(mod)
        self.ways: tuple[bool, ...] = (False, True)
        """Whether convolutions go by measured times, in the ways that are compared."""
        self.most = _BEST
        """How many records of each function are measured in their place."""
        self._by_rule: _Way | None = None
        self._build_seconds = 0.0

    @property
    def by_rule(self) -> _Way:
        """The graph built by the rules alone."""
        if self._by_rule is None:
            start = time.monotonic()
            choice = GraphChoice(self.graph, self.target, False, ())
            self._by_rule = _built(choice, self.lower(False))
            self._build_seconds = time.monotonic() - start
        return self._by_rule

    def seconds(self, budget: float, *, measured_ways: bool) -> float:
        """Estimate how long ``run`` takes, by building the graph by rule, and running it.

        ``measured_ways``: algorithms of convolutions may be others by measured times. If a share of
        the ``budget`` isn't enough for several records of each function, fewer are measured, and
        graphs have fewer turns.
        """
        executable = self.by_rule.executable
        inputs = _inputs(executable, self.symbols)
        if inputs is None or not self._has_no_effects():
            return 0.0
        try:
            call = _turn(executable, inputs)
        except TilewrightError:
            return 0.0  # said when it is to be run
        ways = 2 if measured_ways else 1
        # A record of each function: a graph that is built, and run in turns with the one by rule.
        another = ways * (_BUILDS * self._build_seconds + 2 * _IN_PLACE * _PROFILED * call)
        self.most = max(1, int(min(_BEST, _SHARE * budget / another - 1)))
        # Two graphs in turns, before the search and in the end: as often as a share allows.
        each = ways * 2 * (max(_TURN_SECONDS, call) + call)
        rounds = max(_FEW * each, min(_ROUNDS * each, _SHARE * budget))
        return (1 + self.most) * another + rounds

    def _has_no_effects(self) -> bool:
        return all(f.is_pure for f in self.mod.functions.values() if isinstance(f, Function))

    def choose_ways(
        self, database: Database, known: GraphChoice | None, *, until: float = math.inf
    ) -> bool:
        """Return whether convolutions go by the measured times of a database.

        Alone a convolution finds its images in the caches, and conversions cost little; so the
        graph by rule is measured both ways, and only the faster one gets records and is compared in
        the end. What is ``known`` isn't measured again. The database keeps what was found, so that
        the graph suits its records even if the run is interrupted.
        """
        measured = self._measured_are_faster(until) if known is None else known.measured_ways
        if measured is None:
            return True
        self.ways = (measured,)
        if known is None:
            database.commit_graph_choice(GraphChoice(self.graph, self.target, measured, ()))
        return measured

    def _measured_are_faster(self, until: float) -> bool | None:
        """``None`` if there is nothing to choose, or the graph can't be run."""
        way = self._base(True)
        inputs = _inputs(self.by_rule.executable, self.symbols)
        if way is None or inputs is None or not self._has_no_effects():
            return None
        try:
            agreeing = [self.by_rule, *_that_agree(self.by_rule, [way], inputs)]
            return _fastest(agreeing, inputs, self.progress, until).measured_ways
        except TilewrightError:
            return None  # said when it is to be run

    def run(
        self, database: Database, *, until: float = math.inf, attempts: Attempts | None = None
    ) -> GraphChoice | None:
        """Measure the graph by rule and with the records of a database; return what wins.

        After ``until`` (``time.monotonic``) there are only as many rounds as it takes to tell.
        ``attempts`` are told which records are run, and know which ones had better not be.
        ``None`` if there are no records, the graph can't be run with random inputs, or its calls
        have effects.
        """
        if not self._has_no_effects():
            self._say_not_measured("its calls have effects")
            return None
        by_rule = self.by_rule
        bases = [base for base in map(self._base, self.ways) if base is not None]
        attempts = attempts or Attempts()
        named = [
            _harmless(x, nominees(x.functions, database, self.target, self.most), attempts)
            for x in bases
        ]
        everything = sorted({x for base, some in zip(bases, named) for x in _hashes(base, some)})
        if not everything and all(base is by_rule for base in bases):
            return None
        inputs = _inputs(by_rule.executable, self.symbols)
        if inputs is None:
            self._say_not_measured("its inputs' sizes are open")
            return None
        rules = replace(by_rule, choice=replace(by_rule.choice, by_rule=tuple(everything)))
        try:
            named = [_survivors(base, some, inputs, attempts) for base, some in zip(bases, named)]
            ways = [_tuned(base, some, inputs, until, attempts) for base, some in zip(bases, named)]
            ways = [way for way in ways if way.executable is not by_rule.executable]
            with attempts.trying({Attempts.key(*x) for way in ways for x in way.choice.records}):
                agreeing = _that_agree(rules, ways, inputs)
                return _fastest([rules, *agreeing], inputs, self.progress, until)
        except TilewrightError as error:
            self._say_not_measured(str(error))
            return None

    def _base(self, measured: bool) -> _Way | None:
        """The graph by rule, one of its ways; ``None`` if that is the other one."""
        if not measured:
            return self.by_rule
        lowered = self.lower(True)
        if structural_equal(lowered, self.by_rule.functions):
            return None if False in self.ways else self.by_rule
        made = _built(GraphChoice(self.graph, self.target, True, ()), lowered)
        return replace(made, name="convolutions as measured")

    def _say_not_measured(self, why: str) -> None:
        self.progress.message(f"the graph isn't measured as a whole: {why}")


def _built(choice: GraphChoice, functions: IRModule) -> _Way:
    """Build a graph of tensor functions."""
    return _Way("by rule", choice, build(functions, choice.target, relax_pipeline=None), functions)


def _hashes(base: _Way, named: Iterable[str]) -> set[str]:
    """The hashes of the workloads of functions of a graph."""
    return {workload_hash(base.functions[name]) for name in named}


def _harmless(
    base: _Way, named: Mapping[str, Sequence[Nominee]], attempts: Attempts
) -> dict[str, list[Nominee]]:
    """Leave out records that have ended the process. Who has none left goes by rule."""
    found = {}
    for name, some in named.items():
        workload = workload_hash(base.functions[name])
        kept = [x for x in some if Attempts.key(workload, x.digest) not in attempts.deadly]
        for item in some:
            if item not in kept:
                logger.warning(
                    "the record %s of workload %s ended the process when it was run in the graph; "
                    "it isn't used for it",
                    item.digest[:12],
                    workload[:12],
                )
        found[name] = kept
    return found


def _survivors(
    base: _Way,
    named: Mapping[str, Sequence[Nominee]],
    inputs: Mapping[str, Sequence[object]],
    attempts: Attempts,
) -> dict[str, list[Nominee]]:
    """Run records one by one that may have ended the process, and leave out what can't be run."""
    found = {}
    for name, some in named.items():
        workload = workload_hash(base.functions[name])
        kept = []
        for item in some:
            key = Attempts.key(workload, item.digest)
            if key in attempts.suspects:
                try:
                    with attempts.trying([key]):
                        _turn(_with_records(base, named, {name: item}).executable, inputs)
                except TilewrightError as error:
                    logger.warning("record %s can't be run: %s", item.digest[:12], error)
                    continue
                attempts.suspects.discard(key)
            kept.append(item)
        found[name] = kept
    return found


def _tuned(
    base: _Way,
    named: Mapping[str, Sequence[Nominee]],
    inputs: Mapping[str, Sequence[object]],
    until: float,
    attempts: Attempts,
) -> _Way:
    """Give each function the record that is the fastest in its place, if it is faster than by rule.

    Kernels aren't timed one by one on a GPU: there each has its best record.

    Raises ``RunError`` if the graph can't be run with the inputs.
    """

    def built(chosen: Mapping[str, Nominee]) -> _Way:
        return _with_records(base, named, chosen)

    workloads = {name: workload_hash(base.functions[name]) for name in named}

    def trying(some: Mapping[str, Nominee]) -> AbstractContextManager[None]:
        return attempts.trying({Attempts.key(workloads[n], x.digest) for n, x in some.items()})

    def gained(way: _Way) -> dict[str, float]:
        rounds = turns(_IN_PLACE, _FEW, until)
        return gains(base.executable, way.executable, inputs, rounds, workloads)

    if base.executable.device_kind == "cuda":
        return built({name: some[0] for name, some in named.items() if some})
    found = list[dict[str, float]]()
    for place in range(max(map(len, named.values()), default=0)):
        # One at a time: each has constants of its own.
        some = {name: some[place] for name, some in named.items() if place < len(some)}
        with trying(some):
            try:
                way = built(some)
            except TilewrightError as error:
                logger.warning("records of a graph can't be built, they aren't used: %s", error)
                found.append({})
                continue
            found.append(gained(way))
    chosen = served_best(named, found)
    with trying(chosen):
        tuned = built(chosen)
        # The best of several may have been lucky, so they are looked at again.
        again = gained(tuned) if chosen else {}
    kept = {name: item for name, item in chosen.items() if again.get(name, 0.0) >= 1.0}
    return tuned if len(kept) == len(chosen) else built(kept)


def _with_records(
    base: _Way, named: Mapping[str, Sequence[Nominee]], chosen: Mapping[str, Nominee]
) -> _Way:
    """Build a graph some of whose functions are scheduled by records, the others by rule."""
    records = {workload_hash(base.functions[n]): item.digest for n, item in chosen.items()}
    by_rule = _hashes(base, named) - set(records)
    choice = replace(
        base.choice, by_rule=tuple(sorted(by_rule)), records=tuple(sorted(records.items()))
    )
    if not chosen:
        return replace(base, choice=choice)
    made = _built(choice, with_nominees(base.functions, chosen))
    return replace(made, name=f"{base.name}, with records")


def _inputs(executable: Executable, symbols: Mapping[str, int]) -> dict[str, list[Any]] | None:
    """Random inputs of each graph function; ``None`` if a size isn't known."""
    made = {}
    for name, signature in executable.signatures.items():
        infos = []
        for item in signature.inputs:
            shape = [symbols.get(n, n) if isinstance(n, str) else n for n in item.shape]
            if any(isinstance(n, str) for n in shape):
                return None
            infos.append(TensorInfo(item.dtype, tuple(map(int, shape))))
        made[name] = random_arguments(infos)
        if executable.device_kind == "cuda":
            made[name] = [tensor(item, device=_GPU) for item in made[name]]
    return made


def _that_agree(
    rules: _Way, ways: Sequence[_Way], inputs: Mapping[str, Sequence[object]]
) -> list[_Way]:
    """The ways with the results of the one by rule."""
    agreed = []
    for way in ways:
        pairs = [
            (expected, found)
            for name, values in inputs.items()
            for expected, found in zip(
                _flat(rules.executable[name](*values)), _flat(way.executable[name](*values))
            )
        ]
        if all(_close(expected, found) for expected, found in pairs):
            agreed.append(way)
        else:
            logger.warning("the graph %s has other results than by rule; it isn't used", way.name)
    return agreed


def _flat(result: object) -> list[Any]:
    return [x for item in result for x in _flat(item)] if isinstance(result, tuple) else [result]


def _close(expected: object, found: object) -> bool:
    a, b = np.asarray(expected), np.asarray(found)
    if not dtypes.is_float(str(a.dtype)):
        return True  # positions of nearly equal numbers may differ
    a, b = a.astype("float64"), b.astype("float64")
    known = np.isfinite(a)
    if not np.isfinite(b[known]).all():
        return False
    scale = float(np.abs(a[known]).max(initial=0.0)) or 1.0
    limit = _TOLERANCE[dtypes.bits_of(str(np.asarray(expected).dtype))] * scale
    return bool((np.abs(a[known] - b[known]) <= limit).all())


def _fastest(
    ways: Sequence[_Way],
    inputs: Mapping[str, Sequence[object]],
    progress: Progress,
    until: float,
) -> GraphChoice:
    """Call the graphs in turns; the first one wins unless another is clearly faster."""
    seconds: list[list[float]] = [[] for _ in ways]
    for turn in turns(_ROUNDS, _FEW, until):
        order = range(len(ways)) if turn % 2 == 0 else reversed(range(len(ways)))
        for number in order:
            seconds[number].append(_turn(ways[number].executable, inputs))
    best = min(range(len(ways)), key=lambda number: median(seconds[number]))
    if best and not (
        clearly_faster(seconds[best], seconds[0])
        and gain(seconds[0], seconds[best]) >= 1.0 + _MARGIN
    ):
        best = 0
    text = ", ".join(f"{way.name} {human_time(median(t))}" for way, t in zip(ways, seconds))
    progress.message(f"whole graphs: {text}; {ways[best].name} is kept")
    return ways[best].choice


def _turn(executable: Executable, inputs: Mapping[str, Sequence[object]]) -> float:
    """Mean seconds of a call of all graph functions, after one to warm up."""
    calls = [(executable[name], values) for name, values in inputs.items()]
    count, end = 0, 0.0
    place = _GPU if executable.device_kind == "cuda" else cpu()
    for call, values in calls:
        call(*values)
    place.sync()
    start = time.perf_counter()
    while count == 0 or end - start < _TURN_SECONDS:
        for call, values in calls:
            call(*values)
        place.sync()
        count, end = count + 1, time.perf_counter()
    return (end - start) / count
