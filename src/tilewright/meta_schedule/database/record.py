"""Workloads and tuning records: the contents of a database."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tilewright import script
from tilewright.ir import GLOBAL_SYMBOL, Expr, IRModule, Mutator, structural_equal, structural_hash
from tilewright.meta_schedule.arg_info import ArgInfo, arg_infos
from tilewright.meta_schedule.database.schema import (
    LATEST,
    LaterFormat,
    RecordData,
    read_record,
    read_workload,
)
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.times import robust_seconds
from tilewright.support.errors import ParseError, ScheduleError, TilewrightError, TuneError
from tilewright.support.registry import near_matches
from tilewright.support.version import __version__
from tilewright.target import Target
from tilewright.tir import Block, PrimFunc
from tilewright.tir.analysis import verify
from tilewright.tir.attrs import CONSTANT_BYTES, OP_PATTERN
from tilewright.tir.schedule import Schedule, Trace

_BLOCK = re.compile(r'T\.block\("([^"]+)"')

Equality = tuple[Callable[[IRModule], str], Callable[[IRModule, IRModule], bool]]
"""How modules are keyed and compared: a hash and an equality that agree."""


def _anchor(mod: IRModule) -> tuple[object, ...]:
    """Return the blocks that dominate the work: those with reductions, or all if none has any."""
    found: list[Block] = []
    for function in mod.functions.values():
        if isinstance(function, PrimFunc):
            collector = _BlockCollector()
            collector.visit(function.body)
            found += collector.blocks
    reductions = [block for block in found if any(v.kind == "reduce" for v in block.iter_vars)]
    return tuple(block.replace(name="", annotations={}) for block in (reductions or found))


class _BlockCollector(Mutator):
    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def visit_Block(self, node: Block) -> Block:
        if node.name != "root":
            self.blocks.append(node)
        return self.generic_visit(node)

    def visit_Expr(self, node: Expr) -> Expr:
        return node


MODULE_EQUALITIES: dict[str, Equality] = {
    "structural": (structural_hash, structural_equal),
    "ignore-ndarray": (
        lambda mod: structural_hash(mod, ignore_ndarray=True),
        lambda a, b: structural_equal(a, b, ignore_ndarray=True),
    ),
    "anchor-block": (
        lambda mod: structural_hash(_anchor(mod)),
        lambda a, b: structural_equal(_anchor(a), _anchor(b), map_free_vars=True),
    ),
}


def equality(name: str) -> Equality:
    """Return a module equality by name.

    Raises ``TuneError`` for an unknown name.
    """
    found = MODULE_EQUALITIES.get(name)
    if found is None:
        raise TuneError(
            f"unknown module_equality {name!r}; {near_matches(name, list(MODULE_EQUALITIES))}"
        )
    return found


# A power of two, so that nothing is rounded: the longest cold time comes before any warm one.
COLD_FIRST = 2.0**-90

_OF_SURROUNDINGS = {CONSTANT_BYTES, GLOBAL_SYMBOL, OP_PATTERN}


def normalized(mod: IRModule | PrimFunc) -> IRModule:
    """Return the one-function module ``main`` without attributes of its context.

    That is the key of a task: neither the function's global name nor a graph pass's annotation of
    its kind, or of how large all constants of the graph are, makes it a different program.
    """
    if isinstance(mod, PrimFunc):
        mod = IRModule({"main": mod})
    if len(mod) == 1:
        (function,) = mod.functions.values()
        for attr in _OF_SURROUNDINGS & set(function.attrs):
            function = function.without_attr(attr)
        return IRModule({"main": function}, mod.attrs)
    return mod.clone()  # a key doesn't change when its user's module does


class Workload:
    """A module to be tuned: the module or its script, and its structural hash."""

    __slots__ = ("__weakref__", "_mod", "_text", "hash")

    def __init__(
        self, mod: IRModule | None, hash_: str | None = None, text: str | None = None
    ) -> None:
        assert mod is not None or (hash_ is not None and text is not None)
        # A copy, and a copy for those who ask: a module may be changed in place.
        self._mod = None if mod is None else mod.clone()
        self._text = text
        self.hash = structural_hash(mod) if hash_ is None else hash_

    @property
    def mod(self) -> IRModule:
        """A copy of the module; it is parsed from its script and verified on first use.

        Raises ``ParseError`` or ``VerifyError`` if it is not a valid module.
        """
        if self._mod is None:
            assert self._text is not None
            mod = script.parse(self._text)
            if not isinstance(mod, IRModule):
                raise ParseError(f"workload {self.hash}: its script is no module")
            verify(mod)
            self._mod = mod
        return self._mod.clone()

    @property
    def text(self) -> str:
        """The module as script."""
        if self._text is None:
            self._text = self.mod.script()
        return self._text

    def is_written_as(self, mod: IRModule) -> bool:
        """Whether a module has this one's script; then it is taken for this one's."""
        if self._mod is None and mod.script() == self._text:
            self._mod = mod.clone()
        own = self._mod
        return own is not None and own.functions is mod.functions and own.attrs is mod.attrs

    def as_json(self) -> list[object]:
        """Return JSON data: hash and script."""
        return [self.hash, self.text]

    @staticmethod
    def from_json(json_obj: object) -> Workload:
        """Inverse of ``as_json``; the script is parsed when it is needed."""
        return Workload(None, *read_workload(json_obj))

    def __repr__(self) -> str:
        return f"Workload({self.hash[:12]})"


def provenance(
    verified: Mapping[str, object] | None = None,
    *,
    timing: Mapping[str, object] | None = None,
    beat: Sequence[str] = (),
    equal: Sequence[str] = (),
    origin: str | None = None,
    answers: Mapping[str, str] | None = None,
    sizes: Sequence[int] = (),
) -> dict[str, object]:
    """Return the origin of a record: version, machine, time, how it was verified and timed.

    ``beat`` are the digests of the schedules that it won a race against, ``equal`` those of them
    that were no slower beyond noise; ``origin`` says what made the schedule, ``answers`` what a
    rule was told to choose (``Schedule.choices.answers``), ``sizes`` at which values of a symbolic
    size it was compared and served all of them best.
    """
    return {
        "version": __version__,
        "machine": f"{platform.machine()} {platform.system()}",
        "time": round(time.time(), 6),
        "verified": dict(verified or {}),
        **({"timing": dict(timing)} if timing else {}),
        **({"beat": list(beat)} if beat else {}),
        **({"equal": list(equal)} if equal else {}),
        **({"origin": origin} if origin else {}),
        **({"answers": dict(answers)} if answers else {}),
        **({"sizes": list(sizes)} if sizes else {}),
    }


def trace_digest(trace: Trace) -> str:
    """Return what a schedule is known by in the origins of others: a hash of its instructions."""
    text = json.dumps(trace.simplified().as_json(), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class TuningRecord:
    """One measured schedule of a workload.

    ``run_secs`` are seconds per call, one per repeat; ``None`` if it was not measured.
    """

    trace: Trace
    workload: Workload
    run_secs: tuple[float, ...] | None = None
    target: Target | None = None
    args_info: tuple[ArgInfo, ...] | None = None
    provenance: Mapping[str, object] = field(default_factory=dict)

    @property
    def best_seconds(self) -> float:
        """The ``robust_seconds`` of the measured times; infinity if there is none."""
        return robust_seconds(self.run_secs) if self.run_secs else math.inf

    @property
    def counted_seconds(self) -> float:
        """The time that records are compared by: an untrusted timing counts with its longest."""
        if not self.run_secs:
            return math.inf
        return (
            max(self.run_secs)
            if self._verdict.get("trusted_timing") is False
            else (self.best_seconds)
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """The values of a symbolic size at which it was compared, and served all of them best."""
        said = self.provenance.get("sizes")
        return tuple(x for x in said if type(x) is int) if isinstance(said, list) else ()

    @property
    def cold(self) -> bool:
        """Whether it was measured with cold caches, as functions of graphs are."""
        timing = self.provenance.get("timing")
        return isinstance(timing, Mapping) and timing.get("caches") == "cold"

    @property
    def rank(self) -> float:
        """What is ordered by: ``counted_seconds``; less than zero if it served several sizes.

        Times with cold caches don't compare with those with warm ones: what fetches its constants
        ahead loses in the one and wins in the other. Since most records serve functions of graphs,
        those that were measured cold come first, unless a race of both says otherwise. Who knows
        where a function will find its constants gets what was measured so first
        (``Database.each_replayed``).
        """
        seconds = self.counted_seconds
        served = self.sizes and 0.0 < seconds < math.inf
        rank = -1.0 / seconds if served else seconds
        if not self.cold:
            return rank
        return rank / COLD_FIRST if served else rank * COLD_FIRST

    @property
    def verified(self) -> bool:
        """Whether it says against what its results were checked."""
        return bool(self._verdict)

    @property
    def _verdict(self) -> Mapping[str, object]:
        said = self.provenance.get("verified")
        return said if isinstance(said, Mapping) else {}

    @property
    def beat(self) -> tuple[str, ...]:
        """The digests of the schedules that it won a race against."""
        said = self.provenance.get("beat")
        return tuple(x for x in said if isinstance(x, str)) if isinstance(said, list) else ()

    @property
    def answers(self) -> dict[str, str]:
        """What a rule was told to choose for this schedule, if a rule made it."""
        said = self.provenance.get("answers")
        if not isinstance(said, Mapping):
            return {}
        return {k: v for k, v in said.items() if isinstance(k, str) and isinstance(v, str)}

    @cached_property
    def digest(self) -> str:
        """The ``trace_digest`` of its schedule."""
        return trace_digest(self.trace)

    @property
    def time(self) -> float | None:
        """When it was measured, in seconds since 1970, if known."""
        said = self.provenance.get("time")
        if isinstance(said, bool) or not isinstance(said, (int, float)) or not 0 <= said <= LATEST:
            return None
        return float(said)

    @property
    def summary(self) -> str:
        """The blocks of its program and the shapes of its arguments, in a line."""
        infos = self.args_info or ()
        shapes = ["x".join(map(str, getattr(info, "shape", ()))) or "scalar" for info in infos]
        # From the text, for parsing hundreds of programs takes seconds.
        names = dict.fromkeys(x for x in _BLOCK.findall(self.workload.text) if x != "root")
        return f"{'+'.join(names) or 'function'} ({', '.join(shapes)})"

    def is_valid(self) -> bool:
        """Whether the record holds a real measurement."""
        return bool(self.run_secs) and all(0 < t < 1e9 for t in self.run_secs or ())

    def as_measure_candidate_module(self) -> IRModule:
        """Replay the trace on the workload and return the scheduled module."""
        return self.schedule().mod

    def schedule(self, mod: IRModule | None = None) -> Schedule:
        """Replay the trace on the workload's module (or an equal one).

        Raises ``ScheduleError`` if it doesn't fit.
        """
        sch = Schedule(self.workload.mod if mod is None else normalized(mod))
        try:
            self.trace.apply_to_schedule(sch)
        except TilewrightError:
            raise
        except Exception as error:
            # A record may be a stranger's: whatever comes of it, the build goes on without it.
            raise ScheduleError(
                f"the record can't be replayed: {type(error).__name__}: {error}"
            ) from error
        sch.choices.answers.update(self.answers)
        return sch

    def as_measure_candidate(self) -> MeasureCandidate:
        """Return its schedule and arguments as a candidate, to be measured anew."""
        infos = self.args_info
        if infos is None:
            infos = arg_infos(self.workload.mod["main"])
        return MeasureCandidate(self.schedule(), infos)

    def as_json(self) -> list[object]:
        """Return JSON data, without the workload."""
        infos = self.args_info
        if infos is None:
            infos = arg_infos(self.workload.mod["main"])
        return [
            self.trace.as_json(),
            list(self.run_secs) if self.run_secs else None,
            None if self.target is None else self.target.export(),
            [info.as_json() for info in infos],
            dict(self.provenance),
        ]

    def says_the_same(self, other: TuningRecord) -> bool:
        """Whether another record has all the same data, the workload aside."""
        if (self.run_secs or None) != (other.run_secs or None):
            return False  # most differ here
        (trace, _, *rest), (trace2, _, *rest2) = self.as_json(), other.as_json()
        # As text: Python has ``True == 1``.
        return json.dumps([trace, *rest]) == json.dumps([trace2, *rest2])

    def as_row(self, workload_index: int) -> list[object]:
        """Return JSON data behind the index of the workload in a database."""
        return [workload_index, self.as_json()]

    @staticmethod
    def from_json(json_obj: object, workload: Workload) -> TuningRecord:
        """Inverse of ``as_json``; ``TuneError`` if the data are not a record."""
        return TuningRecord.from_row([0, json_obj], [workload])

    @staticmethod
    def from_row(data: object, workloads: Sequence[Workload | None]) -> TuningRecord:
        """Inverse of ``as_row``; ``TuneError`` if the data are not a record."""
        found = TuningRecord.data_from_json(data)
        workload = workloads[found.workload] if found.workload < len(workloads) else None
        return TuningRecord.from_data(found, workload)

    @staticmethod
    def data_from_json(data: object) -> RecordData:
        """Check ``as_row``'s data; the workload stays a number. ``TuneError`` if they are none."""
        try:
            return read_record(data)
        except LaterFormat:
            raise
        except TilewrightError as error:
            raise TuneError(f"not a tuning record: {error}") from error

    @staticmethod
    def from_data(found: RecordData, workload: Workload | None) -> TuningRecord:
        """Return the record of checked data; ``TuneError`` if its workload is missing."""
        if workload is None:
            raise TuneError(f"the record belongs to workload {found.workload}, which is missing")
        return TuningRecord(
            found.trace, workload, found.run_secs, found.target, found.args_info, found.provenance
        )
