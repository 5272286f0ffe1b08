"""Reads and writes where indices say: negative, outside and repeated ones among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tilewright.relax import op
from tilewright.testing.graphs.data import FLOATS
from tilewright.testing.graphs.draw_moves import elements
from tilewright.testing.graphs.graph import Graph, Sizes, Value

Array = np.ndarray[Any, Any]

_MOST = 400
"""Elements of an operand: NumPy's meaning updates one after the other."""


def _of_known_shape(g: Graph, ndim: int = 1) -> Value | None:
    return g.pick(
        lambda v: v.numbers is not None and v.ndim >= ndim and 0 < elements(v.shape) <= _MOST
    )


def _indices(g: Graph, shape: Iterable[int], extent: int) -> Value:
    """Indices of an axis, or small numbers on both sides of zero."""
    likes = g.rng.choice([f"index:{extent}", "tame"])
    return g.fresh(list(shape), g.rng.choice(["int32", "int64"]), likes=likes)


def _counted(index: Array, extent: int) -> Array:
    index = index.astype("int64")
    return np.where(index < 0, index + extent, index)


def _clamped(index: Array, extent: int) -> Array:
    return np.clip(_counted(index, extent), 0, extent - 1)


def _write(made: Array, at: tuple[object, ...], value: object, reduction: str) -> None:
    """Update one element, unless it is outside."""
    place = tuple(int(_counted(np.asarray(p), n)) for p, n in zip(at, made.shape))
    if not all(0 <= p < n for p, n in zip(place, made.shape)):
        return
    if reduction == "add":
        made[place] = made[place] | value if made.dtype == bool else made[place] + value
    elif reduction in ("min", "max"):
        made[place] = getattr(np, f"{reduction}imum")(made[place], value)
    else:
        made[place] = value


def draw_scatter_elements(g: Graph) -> list[Value] | None:
    """One update for each index along an axis."""
    x = _of_known_shape(g)
    if x is None:
        return None
    assert x.numbers is not None
    axis = g.rng.randrange(x.ndim)
    shape = [g.rng.randint(1, extent) for extent in x.numbers]
    shape[axis] = g.rng.choice([0, 1, 2, 5, 9])
    i, u = _indices(g, shape, x.numbers[axis]), g.fresh(shape, x.dtype)
    reduction = g.rng.choice(["update", "update", "add", "min", "max"])

    def meaning(size: Sizes, x: Array, i: Array, u: Array) -> Array:
        made = x.copy()
        for n in np.ndindex(i.shape):
            _write(made, (*n[:axis], i[n], *n[axis + 1 :]), u[n], reduction)
        return made

    sums = reduction == "add" and x.dtype in FLOATS
    return g.emit(
        "scatter_elements", [x, i, u],
        lambda x, i, u: op.scatter_elements(x, i, u, axis, reduction), meaning,
        noise=4 if sums else 0, reduces=sums, either_zero=reduction in ("min", "max"),
    )  # fmt: skip


def draw_scatter_nd(g: Graph) -> list[Value] | None:
    """Updates of elements or slices at indices of several axes, and their look-up."""
    x = _of_known_shape(g)
    if x is None:
        return None
    numbers = x.numbers
    assert numbers is not None
    depth = g.rng.randint(1, x.ndim)
    outer = [g.rng.choice([1, 2, 3, 0]) for _ in range(g.rng.randint(0, 2))]
    i = _indices(g, (*outer, depth), min(numbers[:depth]))
    if g.rng.random() < 0.4:

        def gathered(size: Sizes, x: Array, i: Array) -> Array:
            return x[tuple(_clamped(i[..., n], x.shape[n]) for n in range(depth))]

        return g.emit("gather_nd", [x, i], op.gather_nd, gathered)
    u = g.fresh([*outer, *numbers[depth:]], x.dtype)

    def meaning(size: Sizes, x: Array, i: Array, u: Array) -> Array:
        made = x.copy()
        for n in np.ndindex(i.shape[:-1]):
            for rest in np.ndindex(x.shape[depth:]):
                _write(made, (*i[n], *rest), u[(*n, *rest)], "update")
        return made

    return g.emit("scatter_nd", [x, i, u], op.scatter_nd, meaning)


def draw_index_put(g: Graph) -> list[Value] | None:
    """Indices for neighbouring axes, which broadcast: reads and writes."""
    x = _of_known_shape(g)
    if x is None:
        return None
    numbers = x.numbers
    assert numbers is not None
    axis = g.rng.randrange(x.ndim)
    count = g.rng.randint(1, min(2, x.ndim - axis))
    length = g.rng.choice([1, 2, 3, 7])
    tables = [_indices(g, [length], numbers[axis])]
    if count == 2:
        tables.append(_indices(g, g.rng.choice([[], [2, 1], [length]]), numbers[axis + 1]))
    common = np.broadcast_shapes(*(table.numbers or () for table in tables))
    last = axis + count
    if g.rng.random() < 0.4:

        def read(size: Sizes, x: Array, *tables: Array) -> Array:
            where = [_clamped(t, x.shape[axis + n]) for n, t in enumerate(tables)]
            return x[(slice(None),) * axis + tuple(where)]

        return g.emit("index_tensor", [x, *tables], lambda x, *t: op.index_tensor(x, t, axis), read)
    shape = [*numbers[:axis], *common, *numbers[last:]]
    values = g.fresh(shape[g.rng.randint(0, len(shape)) :], x.dtype)
    accumulate = g.rng.random() < 0.3

    def meaning(size: Sizes, x: Array, values: Array, *tables: Array) -> Array:
        made, full = x.copy(), np.broadcast_to(values, shape)
        given, middle = np.broadcast_arrays(*tables), axis + len(common)
        for n in np.ndindex(*shape):
            at = (*n[:axis], *(t[n[axis:middle]] for t in given), *n[middle:])
            _write(made, at, full[n], "add" if accumulate else "update")
        return made

    sums = accumulate and x.dtype in FLOATS
    return g.emit(
        "index_put", [x, values, *tables],
        lambda x, v, *t: op.index_put(x, t, v, accumulate, axis), meaning,
        noise=4 if sums else 0, reduces=sums,
    )  # fmt: skip


def draw_slice_scatter(g: Graph) -> list[Value] | None:
    """A slice that is replaced."""
    x = g.pick(lambda v: v.numbers is not None and v.ndim > 0 and elements(v.shape) <= 6000)
    if x is None:
        return None
    assert x.numbers is not None
    axis = g.rng.randrange(x.ndim)
    extent, step = x.numbers[axis], g.rng.choice([1, 1, 1, 2, 3])
    start, end = (g.rng.randint(-extent - 1, extent + 2) for _ in range(2))
    shape = list(x.numbers)
    shape[axis] = len(range(*slice(start, end, step).indices(extent)))

    def meaning(size: Sizes, x: Array, u: Array) -> Array:
        made = x.copy()
        made[(slice(None),) * axis + (slice(start, end, step),)] = u
        return made

    return g.emit(
        "slice_scatter", [x, g.fresh(shape, x.dtype)],
        lambda x, u: op.slice_scatter(x, u, start, end, step, axis), meaning,
    )  # fmt: skip


DRAWERS: dict[str, tuple[Callable[[Graph], object], float]] = {
    "scatter_elements": (draw_scatter_elements, 0.5),
    "scatter_nd": (draw_scatter_nd, 0.5),
    "index_put": (draw_index_put, 0.6),
    "slice_scatter": (draw_slice_scatter, 0.4),
}
