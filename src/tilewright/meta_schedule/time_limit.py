"""The end of a run's time: what builders and runners don't wait for any longer."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.support.errors import TuneError


class OutOfTimeError(TuneError):
    """The seconds that a run was given are over, and an answer isn't there."""


class TimeLimited:
    """What may be told when the time is over: ``until``, by ``time.monotonic``.

    It raises ``OutOfTimeError`` then, and ends its processes. A kind that can't stop in the middle
    of something goes on until its answer is there.
    """

    until = math.inf

    @property
    def seconds_left(self) -> float:
        """Seconds until the time is over; negative afterwards."""
        return self.until - time.monotonic()

    def check_time(self) -> None:
        """Raise ``OutOfTimeError`` if the time is over."""
        if self.seconds_left <= 0.0:
            raise OutOfTimeError("the seconds that were given are over")


@contextmanager
def ending(until: float, *limited: TimeLimited) -> Iterator[None]:
    """Limit builders and runners to a time for the length of a block."""
    before = [item.until for item in limited]
    try:
        for item in limited:
            item.until = min(item.until, until)
        yield
    finally:
        for item, old in zip(limited, before):
            item.until = old
