"""Reductions, places of extrema, running sums, sorting, softmax and norms."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tilewright.ir import as_int
from tilewright.relax import Expr, op
from tilewright.testing.graphs.data import FLOATS
from tilewright.testing.graphs.graph import Graph, Sizes, Value
from tilewright.testing.graphs.width import product, wide

_Pair = tuple[Callable[..., Expr], Callable[..., object]]

_SUMS = {"sum": op.sum, "mean": op.mean, "prod": op.prod, "variance": op.variance, "std": op.std}
_EXTREMA = {"max": op.max, "min": op.min}
_TRUTH = {"all": op.all, "any": op.any}
_NUMPY: dict[str, Callable[..., object]] = {
    "sum": np.sum, "mean": np.mean, "prod": product, "variance": np.var, "std": np.std,
    "max": np.max, "min": np.min, "all": np.all, "any": np.any,
}  # fmt: skip


def _axes(g: Graph, x: Value) -> int | tuple[int, ...] | None:
    if x.ndim == 0 or g.rng.random() < 0.15:
        return None
    axes = sorted(g.rng.sample(range(x.ndim), g.rng.randint(1, x.ndim)))
    axes = [axis - x.ndim if g.rng.random() < 0.2 else axis for axis in axes]
    return axes[0] if len(axes) == 1 and g.rng.random() < 0.7 else tuple(axes)


def _extents(x: Value, axes: int | tuple[int, ...] | None) -> list[int | None]:
    chosen = range(x.ndim) if axes is None else ((axes,) if isinstance(axes, int) else axes)
    return [as_int(x.shape[axis]) for axis in chosen]


def draw_reduction(g: Graph) -> list[Value] | None:
    """Sums, products, extrema, truth over axes."""
    x = g.pick()
    if x is None:
        return None
    axes, keep = _axes(g, x), g.rng.random() < 0.4
    if x.dtype == "bool":
        table: Mapping[str, Callable[..., Expr]] = _TRUTH
    elif x.dtype in FLOATS:
        table = {**_SUMS, **_EXTREMA}
    else:
        table = {"sum": op.sum, "prod": op.prod, **_EXTREMA}
    name = g.rng.choice(list(table))
    # Of nothing there is no greatest element, no mean.
    if name not in ("sum", "prod", "all", "any") and not all(_extents(x, axes)):
        return None
    build, numpy = table[name], _NUMPY[name]
    exact = name in (*_EXTREMA, *_TRUTH) or x.dtype not in FLOATS

    def meaning(size: Sizes, a: np.ndarray) -> object:
        if a.dtype.kind in "iu" and name in ("sum", "prod"):
            return numpy(a, axis=axes, keepdims=keep, dtype=a.dtype)
        return numpy(wide(a), axis=axes, keepdims=keep)

    return g.emit(
        name, [x], lambda a: build(a, axes, keep), meaning, noise=0.0 if exact else 32,
        reduces=not exact, absolute=8 if name in ("variance", "std") else 0,
        either_zero=name in _EXTREMA,
    )  # fmt: skip


def draw_extremum_place(g: Graph) -> list[Value] | None:
    """``argmax`` and ``argmin``."""
    x = g.pick(lambda v: v.dtype != "bool" and v.numbers is not None and 0 not in v.numbers)
    if x is None:
        return None
    axis = None if x.ndim == 0 or g.rng.random() < 0.2 else g.rng.randrange(x.ndim)
    keep, dtype = g.rng.random() < 0.3, g.rng.choice(["int64", "int32"])
    names: list[_Pair] = [(op.argmax, np.argmax), (op.argmin, np.argmin)]
    build, numpy = g.rng.choice(names)
    return g.emit(
        numpy.__name__, [x], lambda a: build(a, axis, keep, dtype),
        lambda size, a: numpy(wide(a), axis=axis, keepdims=keep),
    )  # fmt: skip


def draw_scan(g: Graph) -> list[Value] | None:
    """``cumsum`` and ``cumprod``."""
    x = g.pick(lambda v: v.ndim > 0 and v.dtype != "bool")
    if x is None:
        return None
    axis = g.rng.randrange(x.ndim)
    both: list[_Pair] = [(op.cumsum, np.cumsum), (op.cumprod, np.cumprod)]
    build, numpy = g.rng.choice(both)
    units = 64.0 if x.dtype in FLOATS else 0.0
    return g.emit(
        numpy.__name__, [x], lambda a: build(a, axis),
        lambda size, a: numpy(wide(a), axis=axis, dtype=None if units else a.dtype),
        noise=units, reduces=units > 0,
    )  # fmt: skip


def order_of(a: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Places in stable order, NaN as the greatest."""
    ranks = _dense_ranks(wide(a), axis)
    return np.argsort(-ranks if descending else ranks, axis, kind="stable")


def _dense_ranks(keys: np.ndarray, axis: int) -> np.ndarray:
    """The same number for the same key, greater for a greater one."""

    def of_row(row: np.ndarray) -> np.ndarray:
        return np.unique(row, return_inverse=True)[1].reshape(row.shape).astype(np.int64)

    return np.apply_along_axis(of_row, axis, keys) if keys.size else keys.astype(np.int64)


def draw_sort(g: Graph) -> list[Value] | None:
    """``sort``, ``argsort`` and ``topk``."""
    x = g.pick(lambda v: v.ndim > 0 and v.dtype != "bool")
    if x is None:
        return None
    axis, down = g.rng.randrange(x.ndim), g.rng.random() < 0.5
    kind = g.rng.choice(["sort", "argsort", "topk"])
    if kind == "sort":
        return g.emit(
            kind, [x], lambda a: op.sort(a, axis, down),
            lambda size, a: np.take_along_axis(a, order_of(a, axis, down), axis),
            either_zero=True,  # zeros are equal: which sign comes first is open
        )  # fmt: skip
    dtype = g.rng.choice(["int32", "int64"])
    if kind == "argsort":
        return g.emit(
            kind, [x], lambda a: op.argsort(a, axis, down, dtype),
            lambda size, a: order_of(a, axis, down),
        )  # fmt: skip
    extent = as_int(x.shape[axis])
    if extent is None:
        return None
    k = g.rng.randint(1, extent) if extent else 0

    def meaning(size: Sizes, a: np.ndarray) -> list[np.ndarray]:
        places = np.take(order_of(a, axis, down), range(k), axis)
        return [np.take_along_axis(a, places, axis), places]

    return g.emit(kind, [x], lambda a: op.topk(a, k, axis, "both", down, dtype), meaning)


# ---- softmax and norms -------------------------------------------------------------------------


def _softmax(a: np.ndarray, axis: int) -> object:
    if not a.size:
        return a
    powers = np.exp(a - a.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def _log_softmax(a: np.ndarray, axis: int) -> object:
    if not a.size:
        return a
    moved = a - a.max(axis, keepdims=True)
    return moved - np.log(np.exp(moved).sum(axis, keepdims=True))


def draw_softmax(g: Graph) -> list[Value] | None:
    """``softmax`` and ``log_softmax``."""
    x = g.pick(lambda v: v.ndim > 0 and v.dtype in FLOATS)
    if x is None:
        return None
    axis = g.rng.randint(-x.ndim, x.ndim - 1)
    build, meaning = g.rng.choice([(op.nn.softmax, _softmax), (op.nn.log_softmax, _log_softmax)])
    return g.emit(
        build.name if hasattr(build, "name") else meaning.__name__, [x],
        lambda a: build(a, axis), lambda size, a: meaning(wide(a), axis), noise=32, reduces=True,
        absolute=16 if meaning is _log_softmax else 0,
    )  # fmt: skip


def _stretch(a: np.ndarray, ndim: int, axes: tuple[int, ...]) -> np.ndarray:
    """A tensor of some axes, with ones for the others."""
    shape = [1] * ndim
    for axis, extent in zip(axes, a.shape):
        shape[axis] = extent
    return wide(a).reshape(shape)


def draw_norm(g: Graph) -> list[Value] | None:
    """Layer, RMS, batch and group normalisation."""
    x = g.pick(
        lambda v: v.ndim > 1 and v.dtype in FLOATS and v.numbers is not None and 0 not in v.numbers
    )
    if x is None:
        return None
    assert x.numbers is not None
    kind = g.rng.choice(["layer_norm", "rms_norm", "batch_norm", "group_norm"])
    eps, ndim = 1e-3, x.ndim
    axes = tuple(sorted(g.rng.sample(range(ndim), g.rng.randint(1, 2))))
    shape = [x.numbers[axis] for axis in axes]
    if kind == "layer_norm":
        scales = [g.fresh(shape, x.dtype, likes="tame") for _ in range(g.rng.randint(1, 2))]

        def layer(size: object, a: np.ndarray, *rest: np.ndarray) -> object:
            w = wide(a)
            made = (w - w.mean(axes, keepdims=True)) / np.sqrt(w.var(axes, keepdims=True) + eps)
            made = made * _stretch(rest[0], ndim, axes)
            return made + _stretch(rest[1], ndim, axes) if len(rest) > 1 else made

        return g.emit(
            kind, [x, *scales],
            lambda a, s, b=None: op.nn.layer_norm(a, s, b, axes=axes, epsilon=eps), layer,
            noise=64, reduces=True,
        )  # fmt: skip
    if kind == "rms_norm":
        weight = g.fresh(shape, x.dtype, likes="tame")

        def rms(size: object, a: np.ndarray, s: np.ndarray) -> object:
            w = wide(a)
            return w / np.sqrt((w * w).mean(axes, keepdims=True) + eps) * _stretch(s, ndim, axes)

        return g.emit(
            kind, [x, weight], lambda a, s: op.nn.rms_norm(a, s, axes=axes, epsilon=eps), rms,
            noise=64, reduces=True,
        )  # fmt: skip
    channels = x.numbers[1]
    scale, shift = (g.fresh([channels], x.dtype, likes="tame") for _ in range(2))
    if kind == "batch_norm":
        mean = g.fresh([channels], x.dtype, likes="tame")
        var = g.fresh([channels], x.dtype, likes="positive")

        def batch(size: object, a: np.ndarray, *rest: np.ndarray) -> object:
            s, b, m, v = (_stretch(item, ndim, (1,)) for item in rest)
            return (wide(a) - m) / np.sqrt(v + eps) * s + b

        return g.emit(
            kind, [x, scale, shift, mean, var],
            lambda a, s, b, m, v: op.nn.batch_norm(a, s, b, m, v, 1, eps, training=False)[0], batch,
            noise=1000 if x.dtype in ("float32", "float64") else 8, reduces=True,
        )  # fmt: skip
    groups = g.rng.choice([n for n in (1, 2, 3, 4) if channels % n == 0])

    def group(size: object, a: np.ndarray, s: np.ndarray, b: np.ndarray) -> object:
        w = wide(a).reshape(a.shape[0], groups, -1)
        made = (w - w.mean(2, keepdims=True)) / np.sqrt(w.var(2, keepdims=True) + eps)
        return made.reshape(a.shape) * _stretch(s, ndim, (1,)) + _stretch(b, ndim, (1,))

    return g.emit(
        kind, [x, scale, shift],
        lambda a, s, b: op.nn.group_norm(a, s, b, groups, 1, range(2, ndim), eps), group,
        noise=64, reduces=True,
    )  # fmt: skip


DRAWERS: dict[str, tuple[Callable[[Graph], object], float]] = {
    "reduction": (draw_reduction, 3.0),
    "extremum_place": (draw_extremum_place, 0.6),
    "scan": (draw_scan, 0.5),
    "sort": (draw_sort, 0.9),
    "softmax": (draw_softmax, 0.8),
    "norm": (draw_norm, 1.0),
}
