"""The interface of runners."""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, SupportsIndex

from tilewright.meta_schedule.arg_info import ArgInfo
from tilewright.meta_schedule.packing import PackedOperand
from tilewright.meta_schedule.runner.traits import Traits, traits_of_arguments
from tilewright.meta_schedule.time_limit import TimeLimited
from tilewright.meta_schedule.times import confidence, confidence_interval, robust_seconds
from tilewright.runtime import LibraryModule, Module, load_module
from tilewright.support.errors import TuneError
from tilewright.support.interference import SLACK
from tilewright.support.registry import Registry
from tilewright.target import Target

# How many calls are timed that find constants in far caches.
_COLD_CALLS = 7

# With which probability a time lies in the interval that is given for it.
CONFIDENCE = 0.95


def passing_bytes(constant_bytes: int, target: Target) -> int:
    """Return how many bytes pass by between two calls of a function of a graph.

    These are as many as its constants have, and as many of what is computed: at most twice the last
    cache. None, if a core's own caches hold that.
    """
    passing = 2 * min(constant_bytes, target.l3_bytes)
    return passing if passing > target.l2_bytes else 0


@dataclass(frozen=True)
class EvaluatorConfig:
    """How a candidate is timed.

    ``repeat`` values are measured, each the mean over at least ``number`` calls, for
    ``min_repeat_ms``; one is enough
    for a candidate that is far from the best known time, and if its first calls all take more than
    ``race_factor`` times that it isn't measured further. With ``flush_cache_bytes`` caches are
    flushed before each value, which is a single call; ``enable_cpu_cache_flush`` does so with
    twice the host's caches. With ``cold_constants`` what isn't constant is read after that: a graph
    has just computed it, while the constants of all other functions have passed by. If the values
    differ by more than ``max_spread`` (relative), as many are added, up to ``retries`` times. While
    other programs disturb the cores (``support.interference``) measurements are repeated for up to
    ``patience_ms`` per candidate, less where that hasn't helped lately.

    Without ``verify`` candidates aren't checked: whatever computes something else the faster wins.
    Their records aren't verified, so those of checked ones come before them.
    """

    number: int = 3
    repeat: int = 1
    min_repeat_ms: float = 100
    enable_cpu_cache_flush: bool = False
    flush_cache_bytes: int = 0
    cold_constants: bool = False
    race_factor: float = 1.5
    max_spread: float = 0.2
    retries: int = 1
    patience_ms: float = 100.0
    verify: bool = True

    def __post_init__(self) -> None:
        if self.number < 1 or self.repeat < 1 or self.min_repeat_ms < 0:
            raise TuneError("number and repeat are positive, min_repeat_ms isn't negative")
        if self.enable_cpu_cache_flush and not self.flush_cache_bytes:
            host = Target("native")
            flushed = 2 * max(host.l2_bytes, host.l3_bytes)
            object.__setattr__(self, "flush_cache_bytes", flushed)

    def in_graph(self, constant_bytes: int) -> EvaluatorConfig:
        """Return how functions of a graph with so many bytes of constants are timed.

        These pass through the caches between two calls of a function, and as many bytes of what is
        computed; caches don't forget in order, either. Only single calls tell about that, so more
        of them are timed. What a core's own caches hold isn't far: many calls in a row tell more
        about functions of small graphs.
        """
        flushed = passing_bytes(constant_bytes, Target("native"))
        if self.flush_cache_bytes or not flushed:
            return self
        return replace(
            self, number=1, repeat=_COLD_CALLS, flush_cache_bytes=flushed, cold_constants=True
        )


TUNING = EvaluatorConfig(number=1, repeat=3, min_repeat_ms=5.0)
"""How candidates are timed unless somebody says otherwise: many, each for a short time."""


def is_usual(config: EvaluatorConfig) -> bool:
    """Whether nobody has said how candidates are timed; that they aren't checked may be said."""
    return config == replace(TUNING, verify=config.verify)


@dataclass(frozen=True, eq=False)
class Reference:
    """The compiled unscheduled program of a task, with which candidates must agree.

    ``seed`` determines the inputs. ``traits`` say which of them may hold any values, and how large
    differences may be, relative to the largest expected value; ``tolerance`` overrides the latter.
    Without traits only random inputs are tried. A candidate that has no such program is its own:
    it is ``alone``, so it is timed and isn't checked. ``constants`` are the positions of arguments
    that never change.
    """

    key: str
    module: Module | LibraryModule
    args_info: tuple[ArgInfo, ...]
    seed: int = 0
    tolerance: float | None = None
    traits: Traits = None  # type: ignore[assignment]  # set below
    alone: bool = False
    constants: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.traits is None:
            object.__setattr__(self, "traits", traits_of_arguments(self.args_info))


class RunnerInput:
    """A compiled candidate, its reference, and the best time known (seconds).

    It is a library at ``artifact_path`` or a ``module`` (or both: a builder of one's own may leave
    any file for a runner of one's own), for a device of ``device_type`` (``"cpu"``
    or ``"cuda"``), with arguments of ``args_info``. Without a ``reference`` it is only timed.
    ``packed`` are operands that the candidate's own functions pack before it runs. With ``varies``
    it adds up in an order that changes from call to call, so results may be rounded differently.
    """

    def __init__(
        self,
        artifact_path: str | None = None,
        device_type: str | None = None,
        args_info: Sequence[ArgInfo] | None = None,
        *,
        module: Module | LibraryModule | None = None,
        reference: Reference | None = None,
        best_seconds: float | None = None,
        packed: tuple[PackedOperand, ...] = (),
        varies: bool = False,
    ) -> None:
        if module is None:
            if artifact_path is None:
                raise TuneError("RunnerInput needs an artifact_path or a module")
            module = load_module(artifact_path)
        if reference is None:
            if args_info is None:
                raise TuneError("RunnerInput needs args_info or a reference")
            reference = Reference(f"alone {id(self)}", module, tuple(args_info), alone=True)
        self.module, self.reference = module, reference
        self.args_info = reference.args_info if args_info is None else tuple(args_info)
        self.best_seconds, self.packed, self.varies = best_seconds, packed, varies
        self._artifact_path, self._device_type = artifact_path, device_type

    @property
    def device_type(self) -> str:
        """``"cpu"`` or ``"cuda"``."""
        if self._device_type is None:
            target = self.module.target
            return "cuda" if target and Target(target).kind == "cuda" else "cpu"
        return self._device_type

    @property
    def artifact_path(self) -> str:
        """Where it is; the library of a module is written when it is asked for first."""
        if isinstance(self.module, LibraryModule):
            return str(self.module.path)
        if self._artifact_path is None:
            folder = tempfile.mkdtemp(prefix="tilewright-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self._artifact_path = str(self.module.export_library(Path(folder, "candidate.so")))
        return self._artifact_path

    def replaced(self, **changes: Any) -> RunnerInput:
        """Return a copy in which some of the named arguments are others."""
        kept = ("module", "reference", "best_seconds", "packed", "varies")
        options = {name: getattr(self, name) for name in kept} | changes
        return RunnerInput(self._artifact_path, self._device_type, self.args_info, **options)


REASONS = ("build", "build-timeout", "build-crash", "wrong", "run", "crash", "timeout")
"""Why a candidate has no time; the first three come from builders."""


@dataclass(frozen=True)
class RunnerResult:
    """Seconds per call (one value per repeat), or the reason why there are none.

    ``reason`` is ``"wrong"`` (disagrees with the unscheduled program), ``"run"`` (raised an
    error), ``"crash"`` (its process died) or ``"timeout"``. ``error_ratio`` is the largest
    difference from the reference relative to its largest value. ``trusted`` is false if the machine
    was too noisy for the required spread; ``slowdown`` says how many times as long plain code took
    then as on undisturbed cores, and ``cold`` whether caches were flushed. ``beat`` are the digests
    of the schedules that it won the last race of its task against, ``equal`` those of them that
    weren't slower beyond noise. ``verified`` is whether its results were checked, ``inputs`` with
    which kinds of inputs (and ``"again"`` for a second call), made from ``seed``.

    What a runner of one's own gives as times, but isn't positive and finite, is a failure.
    """

    run_secs: tuple[float, ...] | None
    error_msg: str | None = None
    reason: str | None = None
    error_ratio: float | None = None
    trusted: bool = True
    slowdown: float = 1.0
    cold: bool = False
    beat: tuple[str, ...] = ()
    equal: tuple[str, ...] = ()
    verified: bool = True
    inputs: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.run_secs is None:
            return
        seconds: tuple[float, ...] | None
        try:
            seconds = tuple(map(float, self.run_secs))
        except (TypeError, ValueError, OverflowError):
            seconds = ()
        if not seconds or not all(0.0 < x < math.inf for x in seconds):
            seconds = None
            text = self.error_msg or "its times aren't positive numbers of seconds"
            object.__setattr__(self, "error_msg", text)
            object.__setattr__(self, "reason", self.reason or "run")
        object.__setattr__(self, "run_secs", seconds)

    @property
    def error(self) -> str | None:
        """The same as ``error_msg``."""
        return self.error_msg

    def done(self) -> bool:
        """Return true: a result is there, unlike one that a ``RunnerFuture`` promises."""
        return True

    def result(self) -> RunnerResult:
        """Return itself, as a ``RunnerFuture`` gives its result."""
        return self

    @property
    def seconds(self) -> float:
        """The ``robust_seconds`` of the repeats; infinity if there are none."""
        return robust_seconds(self.run_secs) if self.run_secs else math.inf

    @property
    def verdict(self) -> dict[str, object]:
        """How it was verified, for the origin of a record; empty if it wasn't."""
        if not self.verified:
            return {}
        inputs = {"inputs": list(self.inputs), "seed": self.seed} if self.inputs else {}
        return {
            "against": "unscheduled program",
            "relative_difference": self.error_ratio,
            "trusted_timing": self.trusted,
            **inputs,
        }

    @property
    def timing(self) -> dict[str, object]:
        """How its time was measured and how well it is known, for the origin of a record."""
        if not self.run_secs:
            return {}
        low, high = confidence_interval(self.run_secs, CONFIDENCE)
        known = round(confidence(self.run_secs, CONFIDENCE), 3)
        made: dict[str, object] = {"interval": [low, high], "confidence": known}
        if self.slowdown > SLACK:
            made["slowdown"] = round(min(self.slowdown, 1e3), 2)
        if self.cold:
            made["caches"] = "cold"
        return made


class NoReferenceError(TuneError):
    """The unscheduled program of a task can't be run, so its candidates can't be checked."""


class PyRunnerFuture:
    """A result that a runner of one's own will have; subclasses define both methods."""

    def done(self) -> bool:
        """Return whether the result is there."""
        raise NotImplementedError(f"{type(self).__name__} must define done")

    def result(self) -> RunnerResult:
        """Return the result; wait until it is there."""
        raise NotImplementedError(f"{type(self).__name__} must define result")


class RunnerFuture(PyRunnerFuture):
    """A result that ``f_result`` gives, once ``f_done`` says that it is there."""

    def __init__(
        self, f_done: Callable[[], bool], f_result: Callable[[], RunnerResult] | None = None
    ) -> None:
        self._done, self._result = f_done, f_result

    def done(self) -> bool:
        """Return whether the result is there."""
        return bool(self._done())

    def result(self) -> RunnerResult:
        """Return the result. Raises ``TuneError`` if there is no ``f_result``."""
        if self._result is None:
            raise TuneError("this RunnerFuture was made without f_result")
        return self._result()


class LocalRunnerFuture(PyRunnerFuture):
    """A result that is there: the seconds ``res`` of a candidate, or an ``error_message``."""

    def __init__(
        self, res: Sequence[float] | None = None, error_message: str | None = None
    ) -> None:
        if (res is None) == (error_message is None):
            raise TuneError("LocalRunnerFuture needs either res or error_message")
        self._made = RunnerResult(None if res is None else tuple(map(float, res)), error_message)

    def done(self) -> bool:
        """Return true."""
        return True

    def result(self) -> RunnerResult:
        """Return the result."""
        return self._made


Outcome = RunnerResult | PyRunnerFuture
"""What a runner gives for an input: both have ``result()``."""


class _Asked(list[RunnerInput]):
    """Inputs, and how many of them a runner has ``taken``."""

    taken = 0

    def __iter__(self) -> Iterator[RunnerInput]:
        for number, item in enumerate(super().__iter__(), 1):
            self.taken = max(self.taken, number)
            yield item

    def __getitem__(self, place: Any) -> Any:  # of one, or of a slice
        last = place.__index__() % max(1, len(self)) if isinstance(place, SupportsIndex) else -1
        self.taken = max(self.taken, last + 1 or len(self))
        return super().__getitem__(place)


class Runner(TimeLimited):
    """Base of all runners; ``RUNNERS`` has those that can be asked for by name."""

    RunnerType: ClassVar[Any]  # a union, for annotations

    def settings(self) -> str:
        """Return what results depend on: a run that was begun with another text isn't gone on with.

        Subclasses add their options to the name.
        """
        return type(self).__name__

    def in_graph(self, constant_bytes: int) -> Runner:
        """Return a runner for functions of a graph with so many bytes of constants.

        It is this one unless a kind of runner can measure them as the graph would find them, and
        nobody has said how it is to measure.
        """
        return self

    @property
    def cold(self) -> bool:
        """Whether candidates find cold caches, as far as it is known here."""
        return False

    def start(self) -> None:
        """Begin, without waiting, to start processes; those that are missing start when used."""

    def prepare(self, reference: Reference) -> None:
        """Begin, without waiting, what has to be done before candidates of a task can be run."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> Iterable[Outcome]:
        """Check and measure the inputs one at a time; yield each result as soon as it is available.

        A runner may return futures instead, one for each input. A result that is yielded is taken
        before the others are there if its input is the last one that was asked for: else it may
        belong to another, which shows in the number of results.

        Raises ``NoReferenceError`` if an unscheduled program can't be run.
        """
        raise NotImplementedError(f"{type(self).__name__} must define run")

    def run_each(self, inputs: Iterable[RunnerInput]) -> Iterator[RunnerResult]:
        """Do as ``run`` does with inputs that may still be built while others are measured.

        Unless a kind of runner asks for them one by one, all are built before.

        Raises ``TuneError`` if there are more results than inputs, or fewer, before one is given
        that may be another input's.
        """
        asked = _Asked(inputs)
        outcomes = self.run(asked)
        if isinstance(outcomes, Sized):
            self._check_count(len(outcomes), len(asked))
            yield from map(self._result_of, outcomes)
            return
        count, in_step, later = 0, True, list[RunnerResult]()
        for count, outcome in enumerate(outcomes, 1):
            if count > len(asked):
                self._check_count(count, len(asked))
            in_step = in_step and asked.taken == count
            result = self._result_of(outcome)
            if in_step:
                yield result
            else:
                later.append(result)
        self._check_count(count, len(asked))
        yield from later

    def _check_count(self, results: int, inputs: int) -> None:
        if results != inputs:
            less = "fewer" if results < inputs else "more"
            raise TuneError(f"{type(self).__name__} gave {less} results than inputs")

    def race(self, inputs: Sequence[RunnerInput], rounds: int) -> list[RunnerResult]:
        """Check inputs and measure them in turn, one value each per round.

        An input far slower than another of its task may have fewer values.

        Raises ``TuneError`` if results are missing.
        """
        results = list(map(self._result_of, self.run(list(inputs) * rounds)))
        self._check_count(len(results), rounds * len(inputs))
        made = []
        for number in range(len(inputs)):
            own = results[number :: len(inputs)]
            failed = next((result for result in own if not result.run_secs), None)
            seconds = tuple(robust_seconds(r.run_secs) for r in own if r.run_secs)
            made.append(failed or replace(own[0], run_secs=seconds))
        return made

    def _result_of(self, outcome: Outcome) -> RunnerResult:
        result = outcome.result() if isinstance(outcome, Outcome) else outcome
        if not isinstance(result, RunnerResult):
            raise TuneError(
                f"{type(self).__name__} must give a RunnerResult for each input, or a future that "
                f"has one, got {type(result).__name__}"
            )
        return result

    def close(self) -> None:
        """Release processes; the runner starts them again when used."""

    @staticmethod
    def create(kind: str = "local", *args: object, **kwargs: object) -> Runner:
        """Make a runner by name, with options of its own."""
        return RUNNERS.get(kind)(*args, **kwargs)


Runner.RunnerType = Runner | Literal["local", "rpc"]

PyRunner = Runner
"""The name under which TVM's users derive from it."""

RUNNERS: Registry[Callable[..., Runner]] = Registry("runner", TuneError)
"""Runners by name."""
