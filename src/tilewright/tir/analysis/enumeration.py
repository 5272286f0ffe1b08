"""Counting by running through all instances of a small loop nest at once, with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Range,
    Select,
    Sub,
    Var,
)

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
            low = np.broadcast_to(_values(item.min, columns), rows)
            extent = np.broadcast_to(_values(item.extent, columns), rows)
            counts = np.maximum(extent, 0)
            rows = int(counts.sum())
            if rows > ENUMERATION_LIMIT:
                return None
            columns = {v: np.repeat(column, counts) for v, column in columns.items()}
            first = np.repeat(np.cumsum(counts) - counts, counts)
            columns[var] = np.repeat(low, counts) + np.arange(rows) - first
        keep = np.ones(rows, bool)
        for condition in conditions:
            keep &= np.broadcast_to(_values(condition, columns), rows)
        table = [np.broadcast_to(_values(index, columns), rows)[keep] for index in indices]
    except _NotEnumerable:
        return None
    count = int(keep.sum())
    if not indices:
        return Points(count, np.zeros((min(count, 1), 0), np.int64))
    return Points(count, np.unique(np.stack(table, axis=1), axis=0))


class _NotEnumerable(Exception):
    """A value depends on something that has no number."""


_NUMPY: dict[type, Callable[[Any, Any], Any]] = {
    Add: np.add,
    Sub: np.subtract,
    Mul: np.multiply,
    Min: np.minimum,
    Max: np.maximum,
    LT: np.less,
    LE: np.less_equal,
    GT: np.greater,
    GE: np.greater_equal,
    EQ: np.equal,
    NE: np.not_equal,
    And: np.logical_and,
    Or: np.logical_or,
}


def _values(expr: Any, columns: Mapping[Var, Any]) -> Any:
    """Evaluate an index expression for all rows at once."""
    kind = type(expr)
    if kind is IntImm:
        return np.asarray(bool(expr.value) if expr.dtype == "bool" else expr.value)
    if kind is Var and expr in columns:
        return columns[expr]
    if kind in _NUMPY:
        return _NUMPY[kind](_values(expr.a, columns), _values(expr.b, columns))
    if kind is FloorDiv or kind is FloorMod:
        a, b = _values(expr.a, columns), _values(expr.b, columns)
        if np.any(b == 0):
            raise _NotEnumerable
        return a // b if kind is FloorDiv else a % b
    if kind is Not:
        return np.logical_not(_values(expr.a, columns))
    if kind is Select or (kind is Call and expr.op.name == "if_then_else"):
        return np.where(*(_values(item, columns) for item in expr.child_nodes()))
    if kind is Call and expr.op.name == "likely":
        return _values(expr.args[0], columns)
    raise _NotEnumerable
