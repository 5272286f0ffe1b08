"""Times candidates: no longer than it matters, and while nobody disturbs the cores."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from tilewright.meta_schedule.runner.base import EvaluatorConfig
from tilewright.meta_schedule.times import is_steady
from tilewright.runtime import Tensor, fetch, flush_cache, measure
from tilewright.support.interference import SLACK, Watch

# A candidate that is to be given up as slow gets so many calls or so much time before.
_RACE_CALLS, _RACE_SECONDS = 20, 2e-3

# One whose first value is so many times the best known time needs no more of them: it tells the
# cost model enough, and nobody else asks.
_FAR = 1.05

# A single call is unreliable, so that's the shortest of so many where calls are timed one by one.
_FIRST_CALLS = 3

# Waiting for undisturbed cores: at least this share of the patience that was asked for, and this
# share of it for a candidate that is far from the best.
_LEAST_SHARE, _SHARE_IF_FAR = 1 / 16, 0.25

Function = Callable[..., object]


class Timing(NamedTuple):
    """Seconds per call (one value per repeat), and whether they can be relied on.

    ``slowdown``: how many times as long as on undisturbed cores a loop of Python took meanwhile.
    """

    seconds: tuple[float, ...]
    trusted: bool
    slowdown: float = 1.0


class Patience:
    """How much waiting for undisturbed cores is worth: less and less while it doesn't help.

    A neighbour may slow a virtual machine for tenths of a second or for hours.
    """

    def __init__(self) -> None:
        self.share = 1.0

    def learn(self, helped: bool) -> None:
        """Take into account whether the cores became undisturbed in the time they were given."""
        self.share = min(1.0, 2 * self.share) if helped else max(_LEAST_SHARE, self.share / 2)


def cool(arguments: Sequence[object], constants: Collection[int], config: EvaluatorConfig) -> None:
    """Flush caches; read what isn't constant where only constants are to be cold."""
    flush_cache(config.flush_cache_bytes)
    for place, argument in enumerate(arguments) if config.cold_constants else ():
        if place not in constants and isinstance(argument, Tensor):
            fetch(argument.numpy())


class Stopwatch:
    """Times functions of one process; ``watch`` tells whether the cores are disturbed."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.patience = Patience()

    def time(
        self,
        function: Function,
        arguments: Sequence[object],
        best: float | None,
        config: EvaluatorConfig,
        constants: Collection[int] = (),
    ) -> Timing:
        """Call a function until its time is known as well as it has to be.

        ``constants`` are the positions of arguments that never change.
        """
        function(*arguments)
        waiting = _Waiting(self.watch, 1e-3 * config.patience_ms * self.patience.share)
        timing = self._time(function, arguments, best, config, waiting, constants)
        if waiting.helped is not None:
            self.patience.learn(waiting.helped)
        return timing

    def _time(
        self,
        function: Function,
        arguments: Sequence[object],
        best: float | None,
        config: EvaluatorConfig,
        waiting: _Waiting,
        constants: Collection[int],
    ) -> Timing:
        if best is not None:
            limit = config.race_factor * best
            self.watch.begin()
            fastest = _fastest_call(function, arguments, limit)
            while fastest > limit and not waiting.undisturbed() and waiting.more(far=True):
                fastest = min(fastest, _fastest_call(function, arguments, limit))
            if fastest > limit:
                return Timing((fastest,), True, waiting.slowdown)
        kept: tuple[float, ...] = ()
        rough = Timing((), False)
        attempts = 1 + config.retries
        while attempts:
            self.watch.begin()
            values = _values(function, arguments, best, config, constants)
            if waiting.undisturbed():
                kept += values
                if is_steady(kept, config.max_spread):
                    return Timing(kept, True, waiting.slowdown)
                attempts -= 1
                continue
            if not rough.seconds or min(values) < min(rough.seconds):
                rough = Timing(values, False, waiting.slowdown)
            if not waiting.more(far=best is not None and min(values) > _FAR * best):
                attempts -= 1
        return Timing(kept, False, waiting.slowdown) if kept else rough


class _Waiting:
    """The waiting for one candidate; ``helped`` if it had to wait, unless it wasn't worth it."""

    def __init__(self, watch: Watch, seconds: float) -> None:
        self.watch, self.seconds = watch, seconds
        self.begin = time.perf_counter()
        self.slowdown = 1.0
        self.helped: bool | None = None
        self._waited = False

    def undisturbed(self) -> bool:
        """Whether the cores were undisturbed since the watch began."""
        self.slowdown = self.watch.slowdown()
        undisturbed = self.slowdown <= SLACK
        if undisturbed and self._waited:
            self.helped = True
        return undisturbed

    def more(self, *, far: bool) -> bool:
        """Whether to wait longer."""
        self._waited = True
        share = _SHARE_IF_FAR if far else 1.0
        if time.perf_counter() - self.begin < share * self.seconds:
            return True
        if not far:
            self.helped = False
        return False


def _fastest_call(function: Function, arguments: Sequence[object], limit: float) -> float:
    """Return the shortest of enough calls to tell whether it is below ``limit``.

    One call of a short function is unreliable: it may have to wake a pool thread.
    """
    fastest = math.inf
    end = time.perf_counter() + _RACE_SECONDS
    for _ in range(_RACE_CALLS):
        start = time.perf_counter()
        function(*arguments)
        stop = time.perf_counter()
        fastest = min(fastest, stop - start)
        if fastest <= limit or stop > end:
            break
    return fastest


def _values(
    function: Function,
    arguments: Sequence[object],
    best: float | None,
    config: EvaluatorConfig,
    constants: Collection[int],
) -> tuple[float, ...]:
    """Return few values of a candidate that is far from the best, else ``config.repeat``."""
    flushed = config.flush_cache_bytes > 0

    def before(*arguments: object) -> None:
        cool(arguments, constants, config)

    def some(number: int, repeat: int, warmup: int = 0) -> tuple[tuple[float, ...], int]:
        found = measure(
            function, arguments, number=number, repeat=repeat, warmup=warmup,
            min_repeat_ms=0.0 if flushed else config.min_repeat_ms,
            before=before if flushed else None,
        )  # fmt: skip
        return found.results, found.number

    # Looking for disturbances has moved the thread to other cores and emptied the nearest caches:
    # code, and what is to be warm, would come from far ones in the first call.
    first = min(_FIRST_CALLS, config.repeat) if flushed else 1
    values, number = some(config.number, first, warmup=int(flushed))
    if config.repeat == first or (best is not None and min(values) > _FAR * best):
        return values
    return values + some(number, config.repeat - first)[0]
