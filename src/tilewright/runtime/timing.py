"""Measuring the time of a function.

A single function, :func:`measure`, serves users (``Module.time_evaluator``) and the tuner. It
returns all values; interpreting them is left to the caller. Calls with tensors on a GPU are timed
there, by events of the stream.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.runtime.gpu import timing as gpu_timing
from tilewright.runtime.gpu.graphs import device_of
from tilewright.support.errors import RunError

# Bytes that caches hold or fetch at once, at least.
_LINE = 64


@dataclass(frozen=True)
class TimingResult:
    """Seconds per call, one value per repeat, each the mean of ``number`` calls in a row."""

    results: tuple[float, ...]
    number: int

    @property
    def mean(self) -> float:
        """Mean of the repeats."""
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        """Median of the repeats."""
        return statistics.median(self.results)

    @property
    def min(self) -> float:
        """The fastest repeat."""
        return min(self.results)

    @property
    def max(self) -> float:
        """The slowest repeat."""
        return max(self.results)

    @property
    def std(self) -> float:
        """Standard deviation of the repeats (0 for a single one)."""
        return statistics.pstdev(self.results)

    def __str__(self) -> str:
        return (
            f"median {self.median * 1e6:.3f} us, min {self.min * 1e6:.3f} us, "
            f"max {self.max * 1e6:.3f} us ({len(self.results)} x {self.number} calls)"
        )


@lru_cache(maxsize=2)
def _flush_buffer(nbytes: int) -> np.ndarray[Any, Any]:
    return np.zeros(max(nbytes // 8, 1), np.int64)


def flush_cache(nbytes: int) -> None:
    """Evict other data from this core's caches by writing to ``nbytes`` of memory."""
    buffer = _flush_buffer(nbytes)
    buffer += 1


def fetch(array: np.ndarray[Any, Any]) -> None:
    """Bring an array into this core's caches, as far as they hold it, by reading each line."""
    flat = np.asarray(array).reshape(-1).view(np.uint8)
    flat[::_LINE].max(initial=0)


def _timed(
    fn: Callable[..., object],
    args: Sequence[object],
    number: int,
    gpu: int | None,
    flush: int = 0,
    before: Callable[..., object] | None = None,
) -> float:
    if before is not None:
        before(*args)
    if gpu is not None:
        return gpu_timing.timed(fn, args, number, gpu, flush)
    if flush:
        flush_cache(flush)
    calls = itertools.repeat(None, number)
    start = time.perf_counter()
    for _ in calls:
        fn(*args)
    return time.perf_counter() - start


def measure(
    fn: Callable[..., object],
    args: Sequence[object] = (),
    *,
    number: int = 1,
    repeat: int = 3,
    min_repeat_ms: float = 0.0,
    limit_zero_time_iterations: int = 100,
    flush_cache_bytes: int = 0,
    before: Callable[..., object] | None = None,
    warmup: int = 1,
) -> TimingResult:
    """Call ``fn(*args)`` and return the seconds per call.

    Each of ``repeat`` values is the mean over at least ``number`` calls; ``number`` is raised
    until a repeat lasts ``min_repeat_ms``, or until ``limit_zero_time_iterations`` of them took no
    time at all. ``before(*args)`` is called before each repeat. With ``flush_cache_bytes`` the
    caches are flushed before each repeat, and ``number`` is not raised, because only the first call
    runs with a cold cache. Call overhead (0.1 to 0.2 µs for tensors) is included; on a GPU only
    what it waits for.
    """
    if number < 1 or repeat < 1:
        raise RunError(f"number and repeat must be positive, got {number} and {repeat}")
    if min(min_repeat_ms, flush_cache_bytes, warmup, limit_zero_time_iterations) < 0:
        raise RunError(
            "min_repeat_ms, flush_cache_bytes, warmup and limit_zero_time_iterations must not be "
            "negative"
        )
    for _ in range(warmup):
        fn(*args)
    gpu = device_of(args)
    target = min_repeat_ms / 1e3
    results: list[float] = []
    timeless = 0
    if target and not flush_cache_bytes:
        while (elapsed := _timed(fn, args, number, gpu, before=before)) < target:
            timeless += not elapsed
            if not elapsed and timeless >= limit_zero_time_iterations:
                break
            # Aim a little above the target, and grow at most 10 times at once: the first
            # measurements of a fast function are mostly noise.
            factor = min(10.0, max(1.2 * target / max(elapsed, 1e-9), 1.3))
            number = int(number * factor) + 1
        results = [elapsed / number]
    for _ in range(repeat - len(results)):
        results.append(_timed(fn, args, number, gpu, flush_cache_bytes, before) / number)
    return TimingResult(tuple(results), number)


def check_pauses(cooldown_interval_ms: float, repeats_to_cooldown: int) -> None:
    """Raise ``RunError`` for a negative pause, or one after fewer than one repeat."""
    if cooldown_interval_ms < 0 or repeats_to_cooldown < 1:
        raise RunError(
            "cooldown_interval_ms must not be negative and repeats_to_cooldown must be "
            f"positive, got {cooldown_interval_ms} and {repeats_to_cooldown}"
        )


def measure_with_pauses(
    fn: Callable[..., object],
    args: Sequence[object] = (),
    *,
    repeat: int,
    cooldown_interval_ms: float = 0.0,
    repeats_to_cooldown: int = 1,
    **options: Any,
) -> TimingResult:
    """Measure as :func:`measure` does, with a pause after each ``repeats_to_cooldown`` repeats.

    Raises ``RunError`` as :func:`check_pauses` does.
    """
    check_pauses(cooldown_interval_ms, repeats_to_cooldown)
    if not cooldown_interval_ms:
        return measure(fn, args, repeat=repeat, **options)
    parts = [measure(fn, args, repeat=min(repeats_to_cooldown, repeat), **options)]
    while (done := sum(len(part.results) for part in parts)) < repeat:
        time.sleep(cooldown_interval_ms / 1e3)
        parts.append(measure(fn, args, repeat=min(repeats_to_cooldown, repeat - done), **options))
    results = tuple(result for part in parts for result in part.results)
    return TimingResult(results, parts[-1].number)
