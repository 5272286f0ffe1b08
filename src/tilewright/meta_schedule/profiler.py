"""``Profiler``: where the time of a tuning run goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class Profiler:
    """Seconds by activity, of all that is measured inside of ``with profiler:``.

    Activities may be nested; then each has the time of those inside of it, too.
    """

    _open: ClassVar[list[Profiler]] = []

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._started = 0.0
        self._depth = 0

    def get(self) -> dict[str, float]:
        """Return the seconds of each activity; ``"total"`` is the time inside of the ``with``."""
        made = dict(self._seconds)
        if self._depth:
            made["total"] = made.get("total", 0.0) + time.monotonic() - self._started
        return made

    def table(self) -> str:
        """Return the activities as lines, the longest first, with their share of the total."""
        seconds = self.get()
        total = seconds.get("total", 0.0)
        width = max(map(len, seconds), default=0)
        return "\n".join(
            f"{name:<{width}}  {spent:9.3f} s  {spent / total if total else 0.0:6.1%}"
            for name, spent in sorted(seconds.items(), key=lambda item: -item[1])
        )

    def __enter__(self) -> Profiler:
        if not self._depth:
            self._started = time.monotonic()
        self._depth += 1
        Profiler._open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Profiler._open.pop()
        self._depth -= 1
        if not self._depth:
            self._add("total", time.monotonic() - self._started)

    def _add(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    @staticmethod
    def current() -> Profiler | None:
        """Return the profiler of the innermost ``with``, if there is one."""
        return Profiler._open[-1] if Profiler._open else None

    @staticmethod
    @contextmanager
    def timeit(name: str) -> Iterator[None]:
        """Add the time of the block to an activity of the current profiler."""
        profiler = Profiler.current()
        start = time.monotonic()
        try:
            yield
        finally:
            if profiler is not None:
                profiler._add(name, time.monotonic() - start)
