"""Records that end the process when they are run in a graph: noted before, so set aside after.

Tuning runs candidates in processes of their own, but graphs in its own one: what crashes or hangs
there ends the run, and would do so again whenever it goes on. So what is about to be run is written
to the log of runs. If the process ends during that, a run that goes on finds it without an end.
Of several records that were run together nobody knows which it was: they are run one by one.

Nor does anybody know why the process ended. SIGINT and SIGTERM stop a run in order, but SIGKILL may
be the user's, the system's that had no memory left for others, or for this very record, and a hang
ends by SIGKILL as well. So once is no proof: a record is blamed when the process ended twice while
it was run alone, and several together when it ended twice although each had done no harm alone.
A crash thus ends a run twice, or thrice if it comes among others first; a kill from outside costs
a record its place only if it meets the same one again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from tilewright.meta_schedule.resume import Whole

_PROOF = 2  # ends of the process


class Attempts:
    """What a run has tried in its graph, and tries now.

    Records are known by their workload and their digest (``key``). ``deadly`` are those that ended
    the process twice, ``suspects`` those that may end it.
    """

    def __init__(self, whole: Whole | None = None) -> None:
        self._whole = whole
        self.deadly: set[str] = set()
        self.suspects: set[str] = set()
        innocent: set[str] = set()
        ended: Counter[frozenset[str]] = Counter()
        pending: frozenset[str] = frozenset()
        for event in () if whole is None else whole.attempts:
            if event["kind"] == "begin":
                ended[pending] += 1
                self._blame(pending, innocent, proven=ended[pending] >= _PROOF)
            elif event["kind"] == "tried" and len(pending) == 1:
                innocent |= pending
            trying = event["kind"] == "trying"
            pending = frozenset(event["records"] or ()) if trying else frozenset()
        self.suspects -= innocent | self.deadly

    def _blame(self, pending: frozenset[str], innocent: Collection[str], *, proven: bool) -> None:
        left = pending.difference(innocent)
        if proven and (len(pending) == 1 or not left):
            self.deadly |= pending
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
