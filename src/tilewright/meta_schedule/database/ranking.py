"""The order of a workload's records: the first that replays is the one that is used.

Times decide, the clock on the wall never does. Two schedules that met in a race are an exception:
the winner comes before the loser, however lucky the loser was when it was measured alone. Times at
different values of a symbolic size don't compare: what served several of them best comes before
what was measured at one, unless that has beaten it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from tilewright.target import Target


class Ranked(Protocol):
    """What a record is ranked by."""

    @property
    def verified(self) -> bool: ...
    @property
    def target(self) -> Target | None: ...
    @property
    def rank(self) -> float: ...
    @property
    def beat(self) -> tuple[str, ...]: ...
    @property
    def digest(self) -> str: ...


_T = TypeVar("_T", bound=Ranked)


def best_first(records: Iterable[_T], target: Target | None = None) -> Iterator[_T]:
    """Yield the records of one workload, best first; equals stay in their order.

    Checked records come before unchecked ones, those for ``target`` itself before others, since
    times of two machines don't compare; then the lower ``rank``, which is the counted time, and
    below zero for what served several sizes best; raced ones first among equals. Before a record
    comes, recursively, whatever beat its schedule in a race. Where each won once, times decide.
    """
    ordered = by_time(records, target)
    return races_first(ordered, [item for item in ordered if item.beat])


def by_time(records: Iterable[_T], target: Target | None = None) -> list[_T]:
    """Return records in the order of ``best_first``, but for the races."""
    return sorted(
        records,
        key=lambda item: (
            not item.verified,
            target is not None and not _same(item.target, target),
            item.rank,
            not item.beat,
        ),
    )


def races_first(ordered: Iterable[_T], winners: Iterable[_T]) -> Iterator[_T]:
    """Yield records that come in order of their times, the winners of races before the losers.

    ``winners`` are those of them, the same objects in the same order, that won any.
    """
    winners = list(winners)
    races = {(item.digest, loser) for item in winners for loser in item.beat}
    better: dict[str, list[_T]] = {}
    for item in winners:
        better.setdefault(item.digest, []).append(item)  # of one schedule, what was raced counts
        for loser in item.beat:
            if (loser, item.digest) not in races:
                better.setdefault(loser, []).append(item)
    given: set[int] = set()  # of winners: nothing else is given before its turn
    for first in ordered:
        while id(first) not in given:
            item, known = first, given.copy() if better else given
            while (above := _above(item, better, known)) is not None:
                known.add(id(item))
                item = above
            if item.beat:
                given.add(id(item))
            yield item
            if item is first:
                break


def _same(a: Target | None, b: Target | None) -> bool:
    return a is b or a == b  # comparing targets writes their text


def _above(loser: _T, better: dict[str, list[_T]], known: set[int]) -> _T | None:
    """Return the first record that beat this one on its target, but for those that are known."""
    own = {loser.digest} if loser.beat else set()
    return next(
        (
            winner
            for winner in better.get(loser.digest, ())
            if winner is not loser
            and id(winner) not in known
            and winner.digest not in own
            and _same(winner.target, loser.target)
        ),
        None,
    )
