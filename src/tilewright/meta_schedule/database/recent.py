"""What a database holds in memory of what it has read."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

LAST = 256
"""Objects that stay though nothing refers to them."""


class Recent(Generic[T]):
    """Objects by number, as long as something refers to them; the last ones a while longer."""

    def __init__(self) -> None:
        self._alive: WeakValueDictionary[int, T] = WeakValueDictionary()
        self._last: deque[T] = deque(maxlen=LAST)

    def get(self, number: int) -> T | None:
        """Return an object that is still there."""
        return self._alive.get(number)

    def add(self, number: int, value: T) -> None:
        """Keep an object."""
        self._alive[number] = value
        self._last.append(value)
