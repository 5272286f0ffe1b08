"""Records that end the process when they are run in a graph: noted before, so set aside after.

Tuning runs candidates in processes of their own, but graphs in its own one: what crashes or hangs
there ends the run, and would do so again whenever it goes on. So what is about to be run is written
to the log of runs. If the process ends during that, a run that goes on finds it without an end.
Of several records that were run together nobody knows which it was: they are run one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from tilewright.meta_schedule.resume import Whole


class Attempts:
    """What a run has tried in its graph, and tries now.

    Records are known by their workload and their digest (``key``). ``deadly`` are those that ended
    the process, ``suspects`` those that may have.
    """

    def __init__(self, whole: Whole | None = None) -> None:
        self._whole = whole
        self.deadly: set[str] = set()
        self.suspects: set[str] = set()
        innocent: set[str] = set()
        pending: frozenset[str] = frozenset()
        for event in () if whole is None else whole.attempts:
            if event["kind"] == "begin":
                self._blame(pending, innocent)
            elif event["kind"] == "tried" and len(pending) == 1:
                innocent |= pending
            trying = event["kind"] == "trying"
            pending = frozenset(event["records"] or ()) if trying else frozenset()
        self.suspects -= innocent | self.deadly

    def _blame(self, pending: frozenset[str], innocent: Collection[str]) -> None:
        left = pending.difference(innocent)
        if len(pending) <= 1 or not left:  # else all of them did no harm alone
            self.deadly |= pending
        elif len(left) == 1:
            self.deadly |= left
        else:
            self.suspects |= left

    @staticmethod
    def key(workload: str, digest: str) -> str:
        """Return what a record is known by."""
        return f"{workload}:{digest}"

    @contextmanager
    def trying(self, records: Collection[str]) -> Iterator[None]:
        """Note that records are run until the end of the block, however that comes."""
        if self._whole is None or not records:
            yield
            return
        self._whole.log("trying", records=sorted(records))
        try:
            yield
        finally:
            self._whole.log("tried")
