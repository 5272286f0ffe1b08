"""Whether strangers use our cores: a short loop of plain Python takes longer then.

A virtual machine's core is often one of a real core's two hardware threads. While somebody else's
program runs on the other one, for tenths of a second at a time, ours shares decoder, caches and
vector units with it and takes up to twice as long; but not every program alike: a bare loop of
multiply-adds loses a twentieth, so letting candidates take turns doesn't cancel it. The operating
system shows nothing of it. Plain Python suffers most, and undisturbed takes the same time within a
few per cent, so a loop before and after what is measured tells whether that may count.
"""

from __future__ import annotations

import os
import time

#: Turns of the loop, about a twentieth of a millisecond, and how many loops: the first may be slow
#: since what was measured has emptied the caches.
_TURNS, _LOOPS = 3000, 3

#: So many cores are looked at, of those that may be used.
_CORES = 8

#: The loop may take so many times the shortest time seen; disturbed it takes about twice as long.
_SLACK = 1.3


def tick() -> float:
    """Return the loop's seconds on the slowest of the cores that this thread may use.

    Of more than eight cores, eight that lie apart are looked at.
    """
    if not hasattr(os, "sched_getaffinity"):
        return _loop()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        return _loop()
    try:
        return max(_loop_on(core) for core in cores[:: -(-len(cores) // _CORES)])
    finally:
        os.sched_setaffinity(0, cores)


def is_quiet(seconds: float, fastest: float) -> bool:
    """Whether a tick of so many seconds is one of undisturbed cores, given the fastest tick."""
    return seconds <= _SLACK * fastest


class Watch:
    """Looks at the cores, and remembers the fastest tick."""

    def __init__(self) -> None:
        self.fastest = float("inf")

    def quiet(self) -> bool:
        """Whether nobody disturbs the cores now, as far as the fastest tick so far tells."""
        seconds = tick()
        self.fastest = min(self.fastest, seconds)
        return is_quiet(seconds, self.fastest)


def _loop_on(core: int) -> float:
    os.sched_setaffinity(0, {core})
    return _loop()


def _loop() -> float:
    least = float("inf")
    for _ in range(_LOOPS):
        start, total = time.perf_counter(), 0
        for number in range(_TURNS):
            total += number
        least = min(least, time.perf_counter() - start)
    return least
