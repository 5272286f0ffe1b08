"""Choices that rules make by an estimate, and that a search may make otherwise.

A rule asks ``choose(key, options)`` with its own preference first, and that is what it gets. While
a search explores what a rule could do (``with Choices(wanted):``), it gets the option wanted, and
the search learns which choices there are. A key stands for one choice in one function: asked again,
it is answered alike, so keys name the block that they are about.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

_local = threading.local()


class Choices:
    """Options wanted, by key (the first one where none is); ``counts`` says what was asked."""

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
        """Return the number of the option wanted, one of so many; note that it was asked for."""
        self.counts[key] = max(count, self.counts.get(key, 0))
        return min(self.wanted.get(key, 0), count - 1)


def _active() -> Choices | None:
    return getattr(_local, "choices", None)


def choose(key: str, options: Sequence[T]) -> T:
    """Return the first of some options, or the one that a search wants."""
    active = _active()
    if active is None or len(options) < 2:
        return options[0]
    return options[active.option(key, len(options))]


def preferring(key: str, options: Sequence[T]) -> list[T]:
    """Return options in their order, the one that a search wants before the others."""
    if len(options) < 2:
        return list(options)
    first = choose(key, range(len(options)))
    return [options[first], *options[:first], *options[first + 1 :]]


def others_after(first: T, options: Sequence[T]) -> list[T]:
    """Return ``first`` and then the options that differ from it."""
    return [first, *(option for option in options if option != first)]


def is_exploring() -> bool:
    """Whether a search asks, so that it is worthwhile to list more options."""
    return _active() is not None
