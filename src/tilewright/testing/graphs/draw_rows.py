"""Rows that are searched, scanned and rolled; diagonals and strided views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.relax import op
from tilewright.testing.graphs.draw_moves import MOST, elements
from tilewright.testing.graphs.graph import Graph, Sizes, Value

Array = np.ndarray[Any, Any]


def _of_known_shape(g: Graph, ndim: int = 1) -> Value | None:
    return g.pick(lambda v: v.numbers is not None and v.ndim >= ndim and elements(v.shape) <= MOST)


def draw_roll(g: Graph) -> list[Value] | None:
    """Elements around the ends of an axis."""
    x = g.pick(lambda v: v.ndim > 0 and elements(v.shape) <= MOST)
    if x is None:
        return None
    axis, shift = g.rng.randrange(x.ndim), g.rng.choice([-9, -1, 0, 1, 2, 17])
    return g.emit(
        "roll", [x], lambda a: op.roll(a, shift, axis), lambda size, a: np.roll(a, shift, axis)
    )


def draw_diagonal(g: Graph) -> list[Value] | None:
    """A diagonal that is taken, or made."""
    x = _of_known_shape(g)
    if x is None:
        return None
    offset = g.rng.choice([-2, -1, 0, 0, 1, 3])
    if x.ndim > 1 and g.rng.random() < 0.6:
        first, second = g.rng.sample(range(x.ndim), 2)
        return g.emit(
            "diagonal", [x], lambda a: op.diagonal(a, offset, first, second),
            lambda size, a: np.diagonal(a, offset, first, second),
        )  # fmt: skip
    if elements(x.shape) > 300:
        return None

    def meaning(size: Sizes, a: Array) -> Array:
        length = a.shape[-1] + abs(offset)
        made = np.zeros((*a.shape[:-1], length, length), a.dtype)
        where = np.arange(a.shape[-1])
        made[..., where + max(0, -offset), where + max(0, offset)] = a
        return made

    return g.emit("diag_embed", [x], lambda a: op.diag_embed(a, offset), meaning)


def draw_as_strided(g: Graph) -> list[Value] | None:
    """Elements at strides of memory, also the same ones again."""
    x = _of_known_shape(g)
    if x is None or not 0 < elements(x.shape) <= MOST:
        return None
    total = elements(x.shape)
    size, stride, left = [], [], total - 1
    for _ in range(g.rng.randint(1, 3)):
        stride.append(g.rng.choice([0, 1, 1, 2, 5]))
        most = left // stride[-1] if stride[-1] else 4
        size.append(g.rng.randint(1, min(most, 8) + 1))
        left -= (size[-1] - 1) * stride[-1]
    offset = g.rng.randint(0, left)

    def meaning(size_of: Sizes, a: Array) -> Array:
        places = offset + sum(
            np.arange(n).reshape([-1 if k == axis else 1 for k in range(len(size))]) * step
            for axis, (n, step) in enumerate(zip(size, stride))
        )
        return a.ravel()[places]

    return g.emit("as_strided", [x], lambda a: op.as_strided(a, size, stride, offset), meaning)


def draw_search(g: Graph) -> list[Value] | None:
    """Where values would be in a sorted row; one-hot vectors of that."""
    x = g.pick(lambda v: v.dtype in ("float32", "int32", "int64") and elements(v.shape) <= MOST)
    if x is None:
        return None
    length, right = g.rng.choice([0, 1, 3, 8, 20]), g.rng.random() < 0.5
    row = g.fresh([length], x.dtype, likes="tame")

    def meaning(size: Sizes, row: Array, a: Array) -> Array:
        return np.searchsorted(np.sort(row), a, "right" if right else "left")

    made = g.emit(
        "searchsorted", [row, x], lambda r, a: op.searchsorted(op.sort(r), a, right), meaning
    )
    if g.rng.random() < 0.5 or elements(x.shape) > 500:
        return made
    depth = g.rng.randint(0, 5)
    return g.emit(
        "one_hot", made, lambda i: op.one_hot(i, 2, -1, depth, 0, "float32"),
        lambda size, i: np.stack([np.where(i == k, 2, -1) for k in range(depth)])
        if depth
        else np.zeros((0, *i.shape)),
    )  # fmt: skip


def draw_running_extremum(g: Graph) -> list[Value] | None:
    """``cummax`` and ``cummin``, with places."""
    x = g.pick(lambda v: v.ndim > 0 and elements(v.shape) <= MOST)
    if x is None:
        return None
    axis, name = g.rng.randrange(x.ndim), g.rng.choice(["cummax", "cummin"])

    def meaning(size: Sizes, a: Array) -> list[Array]:
        rows = np.moveaxis(a, axis, -1)
        values, places = rows.copy(), np.zeros(rows.shape, "int64")
        for row in np.ndindex(rows.shape[:-1]):
            best = 0
            for k, value in enumerate(rows[row]):
                known = rows[row][best]
                better = value >= known if name == "cummax" else value <= known
                best = k if better or value != value else best
                values[row][k], places[row][k] = rows[row][best], best
        return [np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)]

    return g.emit(name, [x], lambda a: getattr(op, name)(a, axis), meaning)


def draw_logcumsumexp(g: Graph) -> list[Value] | None:
    """Sums of exponentials, as logarithms."""
    x = g.pick(lambda v: v.ndim > 0 and v.dtype == "float32" and elements(v.shape) <= MOST)
    if x is None:
        return None
    axis = g.rng.randrange(x.ndim)
    return g.emit(
        "logcumsumexp", [x], lambda a: op.logcumsumexp(a, axis),
        lambda size, a: np.logaddexp.accumulate(a.astype("float64"), axis),
        noise=16, reduces=True, absolute=16,
    )  # fmt: skip


DRAWERS: dict[str, tuple[Callable[[Graph], object], float]] = {
    "roll": (draw_roll, 0.4),
    "diagonal": (draw_diagonal, 0.4),
    "as_strided": (draw_as_strided, 0.3),
    "search": (draw_search, 0.4),
    "running_extremum": (draw_running_extremum, 0.4),
    "logcumsumexp": (draw_logcumsumexp, 0.2),
}
