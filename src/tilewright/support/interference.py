"""Interference: whether other programs use our cores, which slows a short loop of Python.

A virtual machine's core is often one of a real core's two hardware threads. While another
program runs on the other one, for tenths of a second at a time, ours shares decoder, caches and
vector units with it and takes up to twice as long; but not every program alike: a bare loop of
multiply-adds loses a twentieth, so letting candidates take turns doesn't cancel it. The operating
system shows nothing of it. Plain Python suffers most, and undisturbed takes the same time within a
few per cent, so a loop before and after what is measured tells whether that may count. Our own
machine's programs may take the core away as well: that the system counts for each thread.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: Turns of the loop, about a twentieth of a millisecond, and how many loops: the first may be slow
#: since what was measured has emptied the caches.
_TURNS, _LOOPS = 3000, 3

#: Square roots that keep a real core's only divider busy for some 30 microseconds, and how often.
_ROOTS, _TIMES = 32_768, 4

#: So many cores are looked at, of those that may be used.
_CORES = 8

#: What Linux counts for a thread: nanoseconds on a core, nanoseconds of waiting for one, turns.
_WAITED = Path("/proc/thread-self/schedstat")

#: A thread's state, and which field behind its name is the core.
_STATE, _CORE_FIELD = Path("/proc/thread-self/stat"), 36

#: Share of the time that a thread may wait for a core.
_WAITING = 0.02

#: The loop may take so many times the shortest time seen; disturbed it takes about twice as long.
SLACK = 1.3


def tick(threads: int = 1) -> float:
    """Return the loop's seconds on the slowest of the cores that this thread may use.

    For what runs on several threads they are longer by the factor by which the cores slow each
    other down. Of more than eight cores, eight that lie apart are looked at. The thread ends on the
    core where it was: threads of a pool sit on the others.
    """
    if not hasattr(os, "sched_getaffinity"):
        return _loop()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        return _loop()
    own = _core()
    looked_at = cores[:: -(-len(cores) // _CORES)]
    try:
        slowest = max(_loop_on(core) for core in looked_at)
        return slowest if threads == 1 else slowest * _sharing(looked_at[:threads])
    finally:
        os.sched_setaffinity(0, {own} if own in cores else cores)
        os.sched_setaffinity(0, cores)


def run_delay() -> float:
    """Return the seconds that this thread was ready to run but had no core (Linux: run delay).

    Always 0 where the system doesn't tell.
    """
    try:
        return int(_WAITED.read_text().split()[1]) * 1e-9
    except OSError:
        return 0.0


def is_undisturbed(seconds: float, fastest: float) -> bool:
    """Whether a tick of so many seconds is one of undisturbed cores, given the fastest tick."""
    return seconds <= SLACK * fastest


class Watch:
    """Tells whether what was done since it began, or was last asked, may count.

    ``threads`` is how many it used; ``fastest`` is the shortest tick so far.
    """

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self.fastest = float("inf")
        self.begin()

    def begin(self) -> None:
        """Forget what was before."""
        self._since, self._waited = time.perf_counter(), run_delay()

    def tick(self) -> float:
        """Return the seconds of a tick now; infinite if this thread had to wait for a core."""
        now, waiting = time.perf_counter(), run_delay()
        delayed = waiting - self._waited > _WAITING * (now - self._since)
        seconds = tick(self.threads)
        self.fastest = min(self.fastest, seconds)
        self.begin()
        return float("inf") if delayed else seconds

    def slowdown(self) -> float:
        """Return how many times as long as on undisturbed cores the loop takes now, at least 1."""
        seconds = self.tick()
        return max(1.0, seconds / self.fastest)

    def undisturbed(self) -> bool:
        """Whether nobody disturbed this thread."""
        return self.slowdown() <= SLACK


def _core() -> int:
    """Return the core that this thread runs on; -1 where the system doesn't tell."""
    try:
        return int(_STATE.read_text().rpartition(")")[2].split()[_CORE_FIELD])
    except OSError:
        return -1


def _loop_on(core: int) -> float:
    os.sched_setaffinity(0, {core})
    return _loop()


def _sharing(cores: list[int]) -> float:
    """Return how many times as long the cores take if all work at once; this thread ends on one."""
    ready: list[float] = []
    least: list[float] = []

    def work(core: int) -> None:
        # A core that is taken away meanwhile: then this runs elsewhere, and the others go on.
        with suppress(OSError):
            os.sched_setaffinity(0, {core})
        numbers = np.full(_ROOTS, 1.5)
        ready.append(_least(numbers))
        # Nobody measures before all run, and nobody stops before all have measured.
        while len(ready) < len(cores):
            _roots(numbers)
        least.append(_least(numbers))
        while len(least) < len(cores):
            _roots(numbers)

    others = [threading.Thread(target=work, args=(core,)) for core in cores[1:]]
    alone = _least(np.full(_ROOTS, 1.5))
    for other in others:
        other.start()
    work(cores[0])
    for other in others:
        other.join()
    return max(1.0, max(least) / min(alone, *ready))


def _least(numbers: NDArray[np.float64]) -> float:
    return min(_roots(numbers) for _ in range(_TIMES))


def _roots(numbers: NDArray[np.float64]) -> float:
    """Return the seconds of taking the roots; other threads may run Python meanwhile."""
    start = time.perf_counter()
    np.sqrt(numbers, out=numbers)
    return time.perf_counter() - start


def _loop() -> float:
    least = float("inf")
    for _ in range(_LOOPS):
        start, total = time.perf_counter(), 0
        for number in range(_TURNS):
            total += number
        least = min(least, time.perf_counter() - start)
    return least
