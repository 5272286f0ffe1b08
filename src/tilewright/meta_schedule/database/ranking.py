"""The order of a workload's records: the first that replays is the one that is used.

Times decide, the clock on the wall never does. Two schedules that met in a race are an exception:
the winner comes before the loser, however lucky the loser was when it was measured alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilewright.meta_schedule.database.record import TuningRecord
from tilewright.target import Target


def best_first(
    records: Iterable[TuningRecord], target: Target | None = None
) -> Iterator[TuningRecord]:
    """Yield the records of one workload, best first; equals stay in their order.

    Checked records come before unchecked ones, those for ``target`` itself before others, since
    times of two machines don't compare; then the shorter ``counted_seconds``, raced ones first
    among equals. Before a record comes, recursively, whatever beat its schedule in a race. Where
    each won once, times decide.
    """
    ordered = sorted(
        records,
        key=lambda item: (
            not item.verified,
            target is not None and item.target != target,
            item.counted_seconds,
            not item.beat,
        ),
    )
    races = {(item.digest, loser) for item in ordered if item.beat for loser in item.beat}
    better: dict[str, list[int]] = {}
    for number, item in enumerate(ordered):
        if item.beat:  # of one schedule, what was measured in a race counts
            better.setdefault(item.digest, []).append(number)
        for loser in item.beat:
            if (loser, item.digest) not in races:
                better.setdefault(loser, []).append(number)
    given: set[int] = set()
    for first in range(len(ordered)):
        while first not in given:
            number, climbed = first, {first}
            while (above := _above(ordered, number, better, given | climbed)) is not None:
                number = above
                climbed.add(number)
            given.add(number)
            yield ordered[number]


def _above(
    ordered: list[TuningRecord], number: int, better: dict[str, list[int]], known: set[int]
) -> int | None:
    """Return the first record that beat this one on its target, but for those that are known."""
    if not better:
        return None
    loser = ordered[number]
    own = {loser.digest} if loser.beat else set()
    return next(
        (
            winner
            for winner in better.get(loser.digest, ())
            if winner not in known
            and ordered[winner].digest not in own
            and ordered[winner].target == loser.target
        ),
        None,
    )
