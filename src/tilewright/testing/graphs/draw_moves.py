"""Operators that move elements: shapes, joins, cuts, look-ups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from tilewright.ir import Expr, as_int
from tilewright.relax import op
from tilewright.testing.graphs.data import FLOATS
from tilewright.testing.graphs.graph import Graph, Sizes, Value

MOST = 6000
"""Elements that a value may have."""


def elements(numbers: tuple[Expr, ...] | tuple[int, ...]) -> int:
    """Number of elements of a shape, symbolic extents left out."""
    total = 1
    for extent in numbers:
        known = as_int(extent)
        total *= 8 if known is None else known
    return total


def _any(g: Graph, ndim: int = 0) -> Value | None:
    return g.pick(lambda v: v.ndim >= ndim and elements(v.shape) <= MOST)


def _axis(g: Graph, x: Value) -> int:
    axis = g.rng.randrange(x.ndim)
    return axis - x.ndim if g.rng.random() < 0.3 else axis


def draw_reshape(g: Graph) -> list[Value] | None:
    """Other shapes of as many elements: joined axes, split ones, ``-1``."""
    x = _any(g)
    if x is None:
        return None
    numbers = x.numbers
    if numbers is None or g.rng.random() < 0.3:
        if x.ndim < 2:
            return None
        first = g.rng.randrange(x.ndim - 1)
        last = g.rng.randrange(first + 1, x.ndim)
        return g.emit(
            "flatten", [x], lambda a: op.flatten(a, first, last),
            lambda size, a: a.reshape(
                *a.shape[:first], int(np.prod(a.shape[first : last + 1])), *a.shape[last + 1 :]
            ),
        )  # fmt: skip
    total = elements(numbers)
    factors = [f for f in (2, 3, 4, 5, 7, 8) if total % f == 0 and total]
    shape = [total]
    for _ in range(g.rng.randint(0, 3)):
        found = [f for f in factors if shape[-1] % f == 0]
        if not found:
            break
        f = g.rng.choice(found)
        shape = [*shape[:-1], f, shape[-1] // f]
    g.rng.shuffle(shape)
    if g.rng.random() < 0.2:
        shape.insert(g.rng.randrange(len(shape) + 1), 1)
    asked = list(shape)
    if total and g.rng.random() < 0.3:
        asked[g.rng.randrange(len(asked))] = -1
    return g.emit("reshape", [x], lambda a: op.reshape(a, asked), lambda size, a: a.reshape(shape))


def draw_permute(g: Graph) -> list[Value] | None:
    """Axes in another order."""
    x = _any(g, 2)
    if x is None:
        return None
    axes = list(range(x.ndim))
    g.rng.shuffle(axes)
    return g.emit(
        "permute_dims", [x], lambda a: op.permute_dims(a, axes), lambda size, a: a.transpose(axes)
    )


def draw_unit_axes(g: Graph) -> list[Value] | None:
    """``expand_dims`` and ``squeeze``."""
    x = _any(g)
    if x is None or x.ndim > 5:
        return None
    ones = [axis for axis, extent in enumerate(x.shape) if as_int(extent) == 1]
    if ones and g.rng.random() < 0.5:
        axis = g.rng.choice(ones)
        return g.emit(
            "squeeze", [x], lambda a: op.squeeze(a, axis), lambda size, a: np.squeeze(a, axis)
        )
    axis = g.rng.randint(-x.ndim - 1, x.ndim)
    return g.emit(
        "expand_dims", [x], lambda a: op.expand_dims(a, axis),
        lambda size, a: np.expand_dims(a, axis),
    )  # fmt: skip


def draw_broadcast_to(g: Graph) -> list[Value] | None:
    """Repeated along axes of extent one, and along new ones."""
    x = g.pick(lambda v: v.numbers is not None and elements(v.shape) <= 600 and v.ndim < 5)
    if x is None:
        return None
    assert x.numbers is not None
    shape = [g.rng.choice([1, 2, 5]) if extent == 1 else extent for extent in x.numbers]
    shape = [*([g.rng.randint(1, 4)] if g.rng.random() < 0.5 else []), *shape]
    return g.emit(
        "broadcast_to", [x], lambda a: op.broadcast_to(a, shape),
        lambda size, a: np.broadcast_to(a, shape),
    )  # fmt: skip


def draw_concat(g: Graph) -> list[Value] | None:
    """Tensors joined along an axis that is there, or along a new one."""
    x = _any(g)
    if x is None:
        return None
    if x.ndim == 0 or g.rng.random() < 0.3:
        y = g.fresh(x.shape, x.dtype)
        axis = g.rng.randint(0, x.ndim)
        return g.emit(
            "stack", [x, y, x], lambda *a: op.stack(list(a), axis),
            lambda size, *a: np.stack(a, axis),
        )  # fmt: skip
    axis = _axis(g, x)
    shape: list[Any] = list(x.shape)
    if as_int(shape[axis]) is not None:
        shape[axis] = g.rng.choice([0, 1, 2, 5])
    others = [g.fresh(shape, x.dtype) for _ in range(g.rng.randint(1, 2))]
    parts = [x, *others]
    g.rng.shuffle(parts)
    return g.emit(
        "concat", parts, lambda *a: op.concat(list(a), axis),
        lambda size, *a: np.concatenate(a, axis),
    )  # fmt: skip


def draw_split(g: Graph) -> list[Value] | None:
    """Cut into equal parts, or at places."""
    x = g.pick(lambda v: v.numbers is not None and v.ndim > 0)
    if x is None:
        return None
    assert x.numbers is not None
    axis = _axis(g, x)
    extent = x.numbers[axis]
    parts = [n for n in (1, 2, 3, 4) if extent % n == 0]
    where: int | tuple[int, ...] = g.rng.choice(parts)
    if g.rng.random() < 0.5:
        where = tuple(sorted(g.rng.randint(0, extent) for _ in range(g.rng.randint(1, 3))))
    return g.emit(
        "split", [x], lambda a: op.split(a, where, axis), lambda size, a: np.split(a, where, axis)
    )


def draw_slice(g: Graph) -> list[Value] | None:
    """Python's slices, bounds from either end and beyond."""
    x = _any(g, 1)
    if x is None:
        return None
    axes = sorted(g.rng.sample(range(x.ndim), g.rng.randint(1, min(2, x.ndim))))
    begin, end, strides = [], [], []
    for axis in axes:
        extent = as_int(x.shape[axis])
        strides.append(g.rng.choice([1, 1, 1, 2, 3, -1, -2]))
        if extent is None:
            begin.append(0 if strides[-1] > 0 else -1)
            end.append(2**31 - 1 if strides[-1] > 0 else -(2**31))
        else:
            begin.append(g.rng.randint(-extent - 2, extent + 2))
            end.append(g.rng.randint(-extent - 2, extent + 2))
    cuts = dict(zip(axes, zip(begin, end, strides)))

    def meaning(size: Sizes, a: np.ndarray) -> np.ndarray:
        return a[tuple(slice(*cuts[n]) if n in cuts else slice(None) for n in range(a.ndim))]

    return g.emit(
        "strided_slice", [x], lambda a: op.strided_slice(a, axes, begin, end, strides), meaning
    )


def draw_flip(g: Graph) -> list[Value] | None:
    """An axis backwards."""
    x = _any(g, 1)
    if x is None:
        return None
    axis = _axis(g, x)
    return g.emit("flip", [x], lambda a: op.flip(a, axis), lambda size, a: np.flip(a, axis))


def draw_repeat(g: Graph) -> list[Value] | None:
    """``repeat`` and ``tile``."""
    x = g.pick(lambda v: v.ndim > 0 and elements(v.shape) <= 800)
    if x is None:
        return None
    if g.rng.random() < 0.5:
        axis, times = _axis(g, x), g.rng.randint(1, 3)
        return g.emit(
            "repeat", [x], lambda a: op.repeat(a, times, axis),
            lambda size, a: np.repeat(a, times, axis),
        )  # fmt: skip
    reps = tuple(g.rng.randint(1, 3) for _ in range(g.rng.randint(1, min(x.ndim + 1, 4))))
    return g.emit("tile", [x], lambda a: op.tile(a, reps), lambda size, a: np.tile(a, reps))


def draw_take(g: Graph) -> list[Value] | None:
    """Look-ups along an axis, or in the flat tensor; indices in and out of range."""
    x = g.pick(lambda v: v.numbers is not None and v.ndim > 0 and 0 < elements(v.shape) <= MOST)
    if x is None:
        return None
    assert x.numbers is not None
    axis = None if g.rng.random() < 0.2 else g.rng.randrange(x.ndim)
    extent = elements(x.numbers) if axis is None else x.numbers[axis]
    mode = g.rng.choice(["clip", "wrap", "fast"])
    likes = f"index:{extent}" if mode == "fast" or g.rng.random() < 0.5 else "tame"
    shape = [g.rng.choice([0, 1, 2, 3, 6]) for _ in range(g.rng.randint(0, 2))]
    where = g.fresh(shape, g.rng.choice(["int32", "int64"]), likes=likes)
    numpy_mode: Literal["wrap", "clip"] = "wrap" if mode == "wrap" else "clip"
    return g.emit(
        "take", [x, where], lambda a, i: op.take(a, i, axis, mode),
        lambda size, a, i: np.take(a, i, axis, mode=numpy_mode),
    )  # fmt: skip


def draw_gather(g: Graph) -> list[Value] | None:
    """One element for each index."""
    x = g.pick(lambda v: v.numbers is not None and v.ndim > 0 and 0 < elements(v.shape) <= MOST)
    if x is None:
        return None
    assert x.numbers is not None
    axis = g.rng.randrange(x.ndim)
    shape = list(x.numbers)
    shape[axis] = g.rng.randint(1, 5)
    dtype = g.rng.choice(["int32", "int64"])
    where = g.fresh(shape, dtype, likes=f"index:{x.numbers[axis]}")
    return g.emit(
        "gather_elements", [x, where], lambda a, i: op.gather_elements(a, i, axis),
        lambda size, a, i: np.take_along_axis(a, i, axis),
    )  # fmt: skip


def draw_triangle(g: Graph) -> list[Value] | None:
    """``tril`` and ``triu``."""
    x = _any(g, 2)
    if x is None:
        return None
    k = g.rng.randint(-2, 2)
    if g.rng.random() < 0.5:
        return g.emit("tril", [x], lambda a: op.tril(a, k), lambda size, a: np.tril(a, k))
    return g.emit("triu", [x], lambda a: op.triu(a, k), lambda size, a: np.triu(a, k))


def draw_pad(g: Graph) -> list[Value] | None:
    """Elements around."""
    x = g.pick(lambda v: 0 < v.ndim <= 4 and elements(v.shape) <= 2000)
    if x is None:
        return None
    widths = [g.rng.choice([0, 0, 1, 3]) for _ in range(2 * x.ndim)]
    value = g.rng.choice([0, 0, 1, 2])
    pairs = list(zip(widths[0::2], widths[1::2]))
    value = bool(value) if x.dtype == "bool" else value
    return g.emit(
        "pad", [x], lambda a: op.nn.pad(a, widths, pad_value=value),
        lambda size, a: np.pad(a, pairs, constant_values=a.dtype.type(value)),
    )  # fmt: skip


def draw_layout(g: Graph) -> list[Value] | None:
    """Axes in another order with one of them in blocks."""
    x = g.pick(lambda v: v.ndim == 2 and v.numbers is not None and 0 < elements(v.shape) <= MOST)
    if x is None or x.dtype == "bool":
        return None
    assert x.numbers is not None
    block = g.rng.choice([2, 4])
    rows, columns = x.numbers
    if columns < block:  # the map's greatest index would not be reached
        return None
    index_map: object = lambda i, j: (j // block, i, j % block)

    def meaning(size: Sizes, a: np.ndarray) -> np.ndarray:
        blocks = -(-columns // block)
        made = np.zeros((rows, blocks * block), a.dtype)
        made[:, :columns] = a
        return made.reshape(rows, blocks, block).transpose(1, 0, 2)

    zero = 0.0 if x.dtype in FLOATS else 0
    return g.emit(
        "layout_transform", [x], lambda a: op.layout_transform(a, index_map, zero), meaning
    )


def draw_full(g: Graph) -> list[Value] | None:
    """Tensors from nothing, of the shape of another."""
    x = _any(g)
    if x is None:
        return None
    value = g.rng.choice([0, 1, 3])
    dtype = g.rng.choice(["float32", "int32", "float16", "int64"])
    return g.emit(
        "full_like", [x], lambda a: op.full_like(a, value, dtype),
        lambda size, a: np.full(a.shape, value, dtype),
    )  # fmt: skip


DRAWERS: dict[str, tuple[Callable[[Graph], object], float]] = {
    "reshape": (draw_reshape, 1.5),
    "permute": (draw_permute, 1.5),
    "unit_axes": (draw_unit_axes, 0.8),
    "broadcast_to": (draw_broadcast_to, 0.6),
    "concat": (draw_concat, 1.0),
    "split": (draw_split, 0.8),
    "slice": (draw_slice, 1.0),
    "flip": (draw_flip, 0.6),
    "repeat": (draw_repeat, 0.6),
    "take": (draw_take, 0.8),
    "gather": (draw_gather, 0.5),
    "triangle": (draw_triangle, 0.5),
    "pad": (draw_pad, 0.7),
    "layout": (draw_layout, 0.3),
    "full": (draw_full, 0.3),
}
