"""Columns that are transformed side by side, several of them in the lanes of vectors.

Columns at the end go with columns before them, so that all lanes have one::

    10 columns, 8 lanes:   0 1 2 3 4 5 6 7
                               2 3 4 5 6 7 8 9   of which the last two are written
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tilewright.ir import Expr, as_int, call, maximum, minimum
from tilewright.tir import IfThenElse, Stmt


class Columns(NamedTuple):
    """``number`` columns, of which up to ``most`` are transformed together."""

    number: Expr
    most: int

    @property
    def together(self) -> int:
        """Columns in the lanes of vectors."""
        known = as_int(self.number)
        return self.most if known is None else max(1, min(self.most, known))

    @property
    def groups(self) -> Expr:
        """How often that many."""
        return (self.number + (self.together - 1)) // self.together

    @property
    def _are_whole(self) -> bool:
        known = as_int(self.number)
        return known is not None and known % self.together == 0

    def _first(self, group: Expr) -> Expr:
        """The column in the first lane."""
        start = group * self.together
        if self._are_whole:
            return start
        first = minimum(start, self.number - self.together)
        return maximum(first, 0) if as_int(self.number) is None else first

    def read(self, group: Expr, lane: Expr | None) -> Expr:
        """The column that a lane of a group has; ``None`` is the only one."""
        column = self._first(group) if lane is None else self._first(group) + lane
        return column if as_int(self.number) is not None else minimum(column, self.number - 1)

    def written(self, group: Expr, lane: Expr, write: Callable[[Expr, Expr, bool], Stmt]) -> Stmt:
        """What ``write`` does for a column, its lane, and whether all lanes of the group count."""
        start = group * self.together
        column = start + lane
        if self._are_whole:
            return write(column, lane, True)
        all_lanes = call("ignore_loop_partition", start + self.together <= self.number)
        rest = IfThenElse(column < self.number, write(column, column - self._first(group), False))
        return IfThenElse(all_lanes, write(column, lane, True), rest)
