"""Vectors as the generator for C-like languages has them: a text for each lane.

GPUs compute lane by lane, and C has no vectors of its own, so that a vector is the list of what
its lanes are. Where memory or an instruction takes several lanes at once, the vector also knows
itself in that form: as 32-bit words, or as a value of a vector type of the dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import dtypes


class Vector:
    """The lanes of a vector, and other forms of the same value where they exist."""

    __slots__ = ("_lanes", "_make", "dtype", "whole", "words")

    def __init__(
        self,
        dtype: str,
        lanes: Sequence[str] | None = None,
        *,
        make: Callable[[int], str] | None = None,
        words: Sequence[str] | None = None,
        whole: str | None = None,
    ) -> None:
        """Make a vector of lanes, or of ``make(number)`` for each lane that is asked for."""
        self.dtype = dtype
        count = dtypes.lanes_of(dtype)
        self._lanes: list[str | None] = [None] * count if lanes is None else list(lanes)
        self._make = make
        self.words = None if words is None else list(words)
        """As 32-bit words in the form that memory has them: names that may be repeated."""
        self.whole = whole
        """As the name of a value of the dialect's vector type, in the form that memory has it."""

    def __len__(self) -> int:
        return len(self._lanes)

    def lane(self, number: int) -> str:
        """Return the text of a lane."""
        found = self._lanes[number]
        if found is None:
            assert self._make is not None
            found = self._lanes[number] = self._make(number)
        return found

    def lanes(self) -> list[str]:
        """Return the texts of all lanes."""
        return [self.lane(number) for number in range(len(self))]


Value = str | Vector
"""The text of a scalar, or a vector."""


def lane_of(value: Value, number: int) -> str:
    """Return a lane of a vector; a scalar is the same for all lanes."""
    return value.lane(number) if isinstance(value, Vector) else value
