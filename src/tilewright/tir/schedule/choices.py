"""Choices that rules make by an estimate, and that a search may override.

A rule calls ``sch.choices.choose(key, options)`` with its own preference first, which is what it
gets by default. A search gives a schedule ``Choices(wanted)``: the rule gets the wanted options,
and the search learns which choices there are. A key identifies one choice in one function: repeated
calls get the same answer, so keys include the name of the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """The wanted options of one function, by key (default: the first).

    All copies of a schedule share one of these. ``counts`` records the choices of a search: the
    number of options, by key. Without ``wanted`` nobody searches, and nothing is recorded.
    """

    def __init__(self, wanted: Mapping[str, int] | None = None, *, function: str = "main") -> None:
        self.wanted = dict(wanted or {})
        self.is_search = wanted is not None
        self.function = function
        """The name of the function that is scheduled, for messages."""
        self.counts: dict[str, int] = {}

    def choose(self, key: str, options: Sequence[T]) -> T:
        """Return the first option, or the one that a search wants."""
        if not self.is_search or len(options) < 2:
            return options[0]
        self.counts[key] = max(len(options), self.counts.get(key, 0))
        return options[min(self.wanted.get(key, 0), len(options) - 1)]

    def preferring(self, key: str, options: Sequence[T]) -> list[T]:
        """Return the options in order, but first the one that a search wants."""
        if len(options) < 2:
            return list(options)
        first = self.choose(key, range(len(options)))
        return [options[first], *options[:first], *options[first + 1 :]]


def others_after(first: T, options: Sequence[T]) -> list[T]:
    """Return ``first`` and then the options that differ from it."""
    return [first, *(option for option in options if option != first)]
