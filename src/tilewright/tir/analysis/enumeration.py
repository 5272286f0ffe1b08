"""Counting by running through all instances of a small loop nest at once, with NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tilewright.arith import NotEvaluable, evaluate
from tilewright.ir import Expr, Range, Var

ENUMERATION_LIMIT = 1 << 16
"""Nests of more instances than this are not enumerated."""


@dataclass(frozen=True)
class Points:
    """How many instances there are, and the different values of the indices in them, as rows."""

    count: int
    places: Any


def enumerate_points(
    domain: Mapping[Var, Range], conditions: Sequence[Expr], indices: Sequence[Expr] = ()
) -> Points | None:
    """Run through all values of the variables with NumPy; ``None`` if that can't be done."""
    columns: dict[Var, Any] = {}
    rows = 1
    try:
        for var, item in domain.items():
            low = np.broadcast_to(evaluate(item.min, columns), rows)
            extent = np.broadcast_to(evaluate(item.extent, columns), rows)
            counts = np.maximum(extent, 0)
            rows = int(counts.sum())
            if rows > ENUMERATION_LIMIT:
                return None
            columns = {v: np.repeat(column, counts) for v, column in columns.items()}
            first = np.repeat(np.cumsum(counts) - counts, counts)
            columns[var] = np.repeat(low, counts) + np.arange(rows) - first
        keep = np.ones(rows, bool)
        for condition in conditions:
            keep &= np.broadcast_to(evaluate(condition, columns), rows)
        table = [np.broadcast_to(evaluate(index, columns), rows)[keep] for index in indices]
    except NotEvaluable:
        return None
    count = int(keep.sum())
    if not indices:
        return Points(count, np.zeros((min(count, 1), 0), np.int64))
    return Points(count, _distinct(np.stack(table, axis=1)))


def _distinct(rows: Any) -> Any:
    """The different rows of a table, in order, as ``np.unique(rows, axis=0)`` finds them.

    Rows in a small box are numbered, which takes a tenth of the time of comparing rows.
    """
    if not len(rows) or not np.can_cast(rows.dtype, np.int64):
        return np.unique(rows, axis=0)
    numbers = rows.astype(np.int64)  # differences of bytes may not be bytes
    low = numbers.min(axis=0)
    sizes = [int(high) - int(least) + 1 for high, least in zip(numbers.max(axis=0), low)]
    if prod(sizes) > 8 * ENUMERATION_LIMIT:
        return np.unique(rows, axis=0)
    found = np.zeros(sizes, bool)
    found[tuple((numbers - low).T)] = True
    return (np.stack(np.nonzero(found), axis=1) + low).astype(rows.dtype)
