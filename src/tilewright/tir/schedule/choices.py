"""Choices that rules make by an estimate, and that a search may override.

A rule calls ``sch.choices.choose(key, options)`` with its own preference first, which is what it
gets by default. A search gives a schedule ``Choices(wanted)``: the rule gets the wanted options,
and the search learns which choices there are. A key identifies one choice in one function: repeated
calls get the same answer, so keys include the name of the block.

What was chosen against a rule's preference is kept as text (``answers``). With it a rule makes the
same choices for another function (``recalled``), or those most like them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

RULE = "rule"
"""The key under which answers have the name of the rule that was applied."""

_LONGEST = 500
_WORD = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?")


class Choices:
    """The wanted options of one function, by key (default: the first).

    All copies of a schedule share one of these. ``counts`` records the choices of a search: the
    number of options, by key. Without ``wanted`` nobody searches, and nothing is recorded.
    ``recalled`` are the answers of another schedule, which count where nothing else is wanted.
    """

    def __init__(
        self,
        wanted: Mapping[str, int] | None = None,
        *,
        recalled: Mapping[str, str] | None = None,
        function: str = "main",
    ) -> None:
        self.wanted = dict(wanted or {})
        self.is_search = wanted is not None
        self.recalled = dict(recalled or {})
        self.function = function
        """The name of the function that is scheduled, for messages."""
        self.counts: dict[str, int] = {}
        self.offered: dict[str, tuple[object, ...]] = {}
        """The options of a search's choices, the rule's own first; to be read by people."""
        self.answers: dict[str, str] = {}
        """The options that were taken in place of the rules' own, as text, by key."""

    def choose(self, key: str, options: Sequence[T]) -> T:
        """Return the first option, or the one that a search wants."""
        return options[self._position(key, options)]

    def preferring(self, key: str, options: Sequence[T]) -> list[T]:
        """Return the options in order, but first the one that a search wants."""
        first = self._position(key, options)
        return [options[first], *options[:first], *options[first + 1 :]] if options else []

    def _position(self, key: str, options: Sequence[object]) -> int:
        if len(options) < 2:
            return 0
        position = 0
        if self.is_search:
            self.counts[key] = max(len(options), self.counts.get(key, 0))
            self.offered.setdefault(key, tuple(options))
            position = min(self.wanted.get(key, 0), len(options) - 1)
        if position == 0 and key in self.recalled:
            position = most_alike(self.recalled[key], [repr(option) for option in options])
        if position and len(text := repr(options[position])) <= _LONGEST:
            self.answers[key] = text
        return position


def most_alike(text: str, others: Sequence[str]) -> int:
    """Return the position of an equal text, else of the one with the most words and numbers alike.

    Of several that are equally like it that is the first.
    """
    if text in others:
        return others.index(text)
    own = _words_and_numbers(text)
    return min(range(len(others)), key=lambda n: _distance(own, _words_and_numbers(others[n])))


def _words_and_numbers(text: str) -> tuple[Counter[str], list[float]]:
    return Counter(_WORD.findall(text)), [float(number) for number in _NUMBER.findall(text)]


def _distance(a: tuple[Counter[str], list[float]], b: tuple[Counter[str], list[float]]) -> float:
    """How many words differ, plus by how many factors of e the numbers differ."""
    words = sum(((a[0] - b[0]) + (b[0] - a[0])).values())
    numbers = sum(abs(math.log((1 + x) / (1 + y))) for x, y in zip(a[1], b[1]))
    return words + numbers + abs(len(a[1]) - len(b[1]))


def others_after(first: T, options: Sequence[T]) -> list[T]:
    """Return ``first`` and then the options that differ from it."""
    return [first, *(option for option in options if option != first)]
