"""Choices that rules make by an estimate, and that a search may override.

A rule calls ``choose(key, options)`` with its own preference first, which is what it gets by
default. While a search explores alternatives (``with Choices(wanted):``), it gets the wanted
option, and the search learns which choices there are. A key identifies one choice in one function:
repeated calls get the same answer, so keys include the name of the block.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

_local = threading.local()


class Choices:
    """The wanted options, by key (default: the first); ``counts`` records the choices."""

    def __init__(self, wanted: Mapping[str, int] | None = None) -> None:
        self.wanted = dict(wanted or {})
        self.counts: dict[str, int] = {}

    def __enter__(self) -> Choices:
        self._before = _active()
        _local.choices = self
        return self

    def __exit__(self, *_: object) -> None:
        _local.choices = self._before

    def option(self, key: str, count: int) -> int:
        """Return the number of the wanted option, below ``count``; record the choice."""
        self.counts[key] = max(count, self.counts.get(key, 0))
        return min(self.wanted.get(key, 0), count - 1)


def _active() -> Choices | None:
    return getattr(_local, "choices", None)


def choose(key: str, options: Sequence[T]) -> T:
    """Return the first option, or the one that a search wants."""
    active = _active()
    if active is None or len(options) < 2:
        return options[0]
    return options[active.option(key, len(options))]


def preferring(key: str, options: Sequence[T]) -> list[T]:
    """Return the options in order, but first the one that a search wants."""
    if len(options) < 2:
        return list(options)
    first = choose(key, range(len(options)))
    return [options[first], *options[:first], *options[first + 1 :]]


def others_after(first: T, options: Sequence[T]) -> list[T]:
    """Return ``first`` and then the options that differ from it."""
    return [first, *(option for option in options if option != first)]


def is_exploring() -> bool:
    """Whether a search is exploring, so that listing more options pays off."""
    return _active() is not None
