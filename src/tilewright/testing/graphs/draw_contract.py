"""Products of matrices, convolutions, pooling, attention, resizing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import Expr, as_int
from tilewright.relax import op
from tilewright.testing.graphs.data import FLOATS
from tilewright.testing.graphs.draw_moves import elements
from tilewright.testing.graphs.graph import Graph, Sizes, Value
from tilewright.testing.graphs.width import wide

_PRODUCTS = ("float32", "float16", "bfloat16", "float64", "int32", "int64")


def draw_matmul(g: Graph) -> list[Value] | None:
    """Products of matrices, vectors and batches."""
    x = g.pick(lambda v: v.ndim > 0 and v.dtype in _PRODUCTS and elements(v.shape) <= 6000)
    if x is None:
        return None
    inner = as_int(x.shape[-1])
    if inner is None:
        return None
    columns = g.rng.choice([1, 3, 7, 16, 17, 33])
    kind = g.rng.choice(["matrix", "matrix", "vector", "batch", "transposed"])
    turned = False
    shape: list[Expr | int] = [inner, columns]
    if kind == "vector":
        shape = [inner]
    elif kind == "batch" and x.ndim > 2:
        shape = [*x.shape[:-2], inner, columns]
    elif kind == "transposed":
        shape, turned = [columns, inner], True
    w = g.fresh(shape, x.dtype, likes="tame", constant=0.5)
    is_float = x.dtype in FLOATS

    def meaning(size: Sizes, a: np.ndarray, b: np.ndarray) -> object:
        return np.matmul(wide(a), wide(b.swapaxes(-1, -2) if turned else b))

    return g.emit(
        "matmul", [x, w], lambda a, b: op.matmul(a, b, None, turned), meaning,
        noise=32 if is_float else 0, reduces=is_float,
    )  # fmt: skip


def draw_small_product(g: Graph) -> list[Value] | None:
    """Products of narrow numbers with a wide result."""
    dtype, out = g.rng.choice(
        [("int8", "int32"), ("uint8", "int32"), ("float16", "float32"), ("bfloat16", "float32")]
    )
    rows = g.extent if g.extent is not None else g.rng.choice([1, 4, 9, 33])
    inner, columns = g.rng.choice([3, 16, 37, 64]), g.rng.choice([1, 8, 19, 32])
    a = g.fresh([rows, inner], dtype, likes="tame", constant=0)
    b = g.fresh([inner, columns], dtype, likes="tame", constant=0.6)
    is_float = dtype in FLOATS

    def meaning(size: Sizes, p: np.ndarray, q: np.ndarray) -> object:
        kind = np.float64 if is_float else np.int32
        return np.matmul(p.astype(kind), q.astype(kind))

    return g.emit(
        f"matmul_{dtype}", [a, b], lambda p, q: op.matmul(p, q, out), meaning,
        noise=32 if is_float else 0, reduces=is_float,
    )  # fmt: skip


# ---- windows -----------------------------------------------------------------------------------


def _patches(a: np.ndarray, window: Sequence[int], strides: Sequence[int], reach: Sequence[int],
             out: Sequence[int]) -> np.ndarray:  # fmt: skip
    """What each place of a window sees: ``[place, N, C, *out]``; the image is padded already."""
    parts = []
    for place in itertools.product(*map(range, window)):
        index = [slice(None), slice(None)]
        for at, step, far, extent in zip(place, strides, reach, out):
            index.append(slice(at * far, at * far + (extent - 1) * step + 1, step))
        parts.append(a[tuple(index)])
    return np.stack(parts)


def _convolve(
    a: np.ndarray, w: np.ndarray, strides: list[int], pads: list[int], reach: list[int],
    groups: int,
) -> object:  # fmt: skip
    spatial = w.ndim - 2
    a = np.pad(a, [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:])])
    window = w.shape[2:]
    out = [
        (a.shape[2 + i] - (window[i] - 1) * reach[i] - 1) // strides[i] + 1 for i in range(spatial)
    ]
    seen = _patches(a, window, strides, reach, out)
    seen = seen.reshape(len(seen), a.shape[0], groups, w.shape[1], *out)
    taps = w.reshape(groups, w.shape[0] // groups, w.shape[1], len(seen))
    made = np.einsum("kngc...,gock->ngo...", seen, taps)
    return made.reshape(a.shape[0], w.shape[0], *out)


def draw_conv(g: Graph) -> list[Value] | None:
    """Convolutions over one to three axes, with groups, strides, dilation, uneven padding."""
    spatial = g.rng.choice([1, 2, 2, 2, 3])
    x = g.pick(
        lambda v: (
            v.ndim == spatial + 2
            and v.dtype in ("float32", "float16", "bfloat16")
            and all(as_int(e) for e in v.shape[1:])
        )
    )
    if x is None:
        channels = g.rng.choice([1, 3, 4, 8, 16])
        batch = g.extent if g.extent is not None and g.rng.random() < 0.7 else g.rng.choice([1, 2])
        sides = [g.rng.choice([1, 5, 8, 13]) for _ in range(spatial)]
        x = g.fresh([batch, channels, *sides], g.rng.choice(["float32", "float32", "float16"]),
                    likes="tame", constant=0)  # fmt: skip
    channels = as_int(x.shape[1]) or 1
    groups = g.rng.choice([n for n in (1, 1, 2, channels) if channels % n == 0])
    filters = groups * g.rng.choice([1, 2, 5, 8])
    window, strides, reach, pads = [], [], [], [0] * (2 * spatial)
    for i in range(spatial):
        window.append(g.rng.choice([1, 2, 3, 3, 5]))
        strides.append(g.rng.choice([1, 1, 2, 3]))
        reach.append(g.rng.choice([1, 1, 1, 2]))
        need = (window[i] - 1) * reach[i] + 1
        pads[i], pads[spatial + i] = g.rng.choice([0, 1, need // 2]), g.rng.choice([0, 1, 2])
        extent = as_int(x.shape[2 + i]) or 1
        pads[i] += max(0, need - extent - pads[i] - pads[spatial + i])
    w = g.fresh([filters, channels // groups, *window], x.dtype, likes="tame", constant=0.7)
    build = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[spatial]
    steps: int | tuple[int, ...] = strides[0] if spatial == 1 else tuple(strides)
    far: object = reach[0] if spatial == 1 else tuple(reach)
    # Winograd's filtering may be chosen for constant weights: its error is larger.
    return g.emit(
        f"conv{spatial}d", [x, w],
        lambda a, b: build(a, b, strides=steps, padding=tuple(pads), dilation=far, groups=groups),
        lambda size, a, b: _convolve(wide(a), wide(b), strides, pads, reach, groups),
        noise=256, reduces=True,
    )  # fmt: skip


def draw_conv_transpose(g: Graph) -> list[Value] | None:
    """Transposed convolutions over one and two axes."""
    spatial = g.rng.choice([1, 2])
    channels, batch = g.rng.choice([1, 3, 8]), g.rng.choice([1, 2])
    sides = [g.rng.choice([1, 4, 7]) for _ in range(spatial)]
    x = g.fresh([batch, channels, *sides], "float32", likes="tame", constant=0)
    groups = g.rng.choice([1, 1, channels])
    window = [g.rng.choice([1, 2, 3, 4]) for _ in range(spatial)]
    steps = [g.rng.choice([1, 2, 3]) for _ in range(spatial)]
    extra = [g.rng.randrange(step) for step in steps]
    pads = [g.rng.randrange(size) for size in window]
    for i in range(spatial):
        full = (sides[i] - 1) * steps[i] + window[i] + extra[i]
        pads[i] = min(pads[i], max((full - 1) // 2, 0))
    w = g.fresh([channels, g.rng.choice([1, 2, 4]), *window], "float32", likes="tame", constant=0.7)
    build = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose}[spatial]

    def meaning(size: Sizes, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        whole: list[Any] = [slice(None)] * 3
        a, b = wide(a), wide(b)
        each = b.shape[1]
        full = [(sides[i] - 1) * steps[i] + window[i] + extra[i] for i in range(spatial)]
        made = np.zeros((batch, groups, each, *full))
        grouped = a.reshape(batch, groups, -1, *sides)
        taps = b.reshape(groups, -1, each, *window)
        for place in itertools.product(*map(range, window)):
            index = list(whole)
            for at, step, extent in zip(place, steps, sides):
                index.append(slice(at, at + (extent - 1) * step + 1, step))
            tap = taps[(*whole, *place)]
            made[tuple(index)] += np.einsum("ngc...,gco->ngo...", grouped, tap)
        made = made.reshape(batch, groups * each, *full)
        cut = [slice(pads[i], full[i] - pads[i]) for i in range(spatial)]
        return made[(slice(None), slice(None), *cut)]

    return g.emit(
        f"conv{spatial}d_transpose", [x, w],
        lambda a, b: build(a, b, strides=tuple(steps), padding=tuple(pads),
                           output_padding=tuple(extra), groups=groups),
        meaning, noise=256, reduces=True,
    )  # fmt: skip


def _pooled_extent(extent: int, size: int, step: int, pad: int, ceil: bool) -> int:
    free = extent + 2 * pad - size
    count = free // step + 1
    # A last window that is cut off counts if it begins inside of the image or its left padding.
    if ceil and free % step and count * step < extent + pad:
        count += 1
    return count


def draw_pool(g: Graph) -> list[Value] | None:
    """Windows of one and two axes: greatest element and mean."""
    spatial = g.rng.choice([1, 2, 2])
    x = g.pick(
        lambda v: v.ndim == spatial + 2 and v.dtype in FLOATS and all(map(as_int, v.shape[1:]))
    )
    if x is None:
        sides = [g.rng.choice([2, 5, 8, 9]) for _ in range(spatial)]
        batch = g.extent if g.extent is not None else 2
        x = g.fresh([batch, g.rng.choice([1, 3, 16]), *sides], "float32", constant=0)
    sides = [as_int(e) or 1 for e in x.shape[2:]]
    window = [g.rng.randint(1, min(3, side)) for side in sides]
    steps = [g.rng.randint(1, 3) for _ in sides]
    pads = [g.rng.randint(0, size // 2) for size in window]
    ceil, count_pad = g.rng.random() < 0.3, g.rng.random() < 0.4
    largest = g.rng.random() < 0.5
    out = [_pooled_extent(*item, ceil) for item in zip(sides, window, steps, pads)]

    def meaning(size: Sizes, a: np.ndarray) -> object:
        a = wide(a)
        beyond = [
            max(0, (out[i] - 1) * steps[i] + window[i] - sides[i] - pads[i]) for i in range(spatial)
        ]
        around = [(0, 0), (0, 0), *zip(pads, beyond)]
        ones = [1] * spatial
        if largest:
            padded = np.pad(a, around, constant_values=-np.inf)
            return _patches(padded, window, steps, ones, out).max(0)
        total = _patches(np.pad(a, around), window, steps, ones, out).sum(0)
        counted = np.zeros((1, 1, *(s + p + b for s, p, b in zip(sides, pads, beyond))))
        if count_pad:  # the padding counts, what lies beyond it doesn't
            inner = [slice(0, s + 2 * p) for s, p in zip(sides, pads)]
        else:
            inner = [slice(p, p + s) for s, p in zip(sides, pads)]
        counted[(slice(None), slice(None), *inner)] = 1
        return total / np.maximum(_patches(counted, window, steps, ones, out).sum(0), 1)

    tables = {1: (op.nn.max_pool1d, op.nn.avg_pool1d), 2: (op.nn.max_pool2d, op.nn.avg_pool2d)}
    build = tables[spatial][0 if largest else 1]
    options = {"count_include_pad": count_pad}

    return g.emit(
        f"{'max' if largest else 'avg'}_pool{spatial}d", [x],
        lambda a: build(a, pool_size=tuple(window), strides=tuple(steps), padding=tuple(pads),
                        ceil_mode=ceil, **options),
        meaning, noise=0 if largest else 16, reduces=not largest, either_zero=largest,
    )  # fmt: skip


def draw_adaptive_pool(g: Graph) -> list[Value] | None:
    """Windows chosen by the size of the result."""
    x = g.pick(
        lambda v: (
            v.ndim == 4 and v.dtype in FLOATS and all(e and e > 0 for e in map(as_int, v.shape))
        )
    )
    if x is None:
        return None
    out = (g.rng.randint(1, 4), g.rng.randint(1, 4))
    largest = g.rng.random() < 0.4

    def meaning(size: Sizes, a: np.ndarray) -> np.ndarray:
        a = wide(a)
        rows = [
            (i * a.shape[2] // out[0], -(-(i + 1) * a.shape[2] // out[0])) for i in range(out[0])
        ]
        cols = [
            (j * a.shape[3] // out[1], -(-(j + 1) * a.shape[3] // out[1])) for j in range(out[1])
        ]
        made = np.empty((*a.shape[:2], *out))
        for i, (r0, r1) in enumerate(rows):
            for j, (c0, c1) in enumerate(cols):
                part = a[:, :, r0:r1, c0:c1]
                made[:, :, i, j] = part.max((2, 3)) if largest else part.mean((2, 3))
        return made

    build = op.nn.adaptive_max_pool2d if largest else op.nn.adaptive_avg_pool2d
    return g.emit(
        "adaptive_pool2d", [x], lambda a: build(a, out), meaning, noise=0 if largest else 16,
        reduces=not largest, either_zero=largest,
    )  # fmt: skip


# ---- attention, images -------------------------------------------------------------------------


def draw_attention(g: Graph) -> list[Value] | None:
    """Attention with groups of heads, masks of either kind, either layout."""
    rng = g.rng
    dtype = rng.choice(["float32", "float32", "float16", "bfloat16"])
    heads = rng.choice([1, 2, 4])
    key_heads = rng.choice([n for n in (1, heads) if heads % n == 0])
    batch, depth, out = rng.choice([1, 2]), rng.choice([4, 8, 16, 20]), rng.choice([4, 8, 17])
    queries: Expr | int = rng.choice([0, 1, 3, 9, 17])
    keys: Expr | int = rng.choice([1, 5, 8, 33])
    if g.extent is not None:
        queries = g.extent if rng.random() < 0.6 else queries
        keys = g.extent if rng.random() < 0.5 else keys
    layout = rng.choice(["BHSD", "BSHD"])

    def shape(h: int, s: Expr | int, d: int) -> list[Expr | int]:
        return [batch, h, s, d] if layout == "BHSD" else [batch, s, h, d]

    q = g.fresh(shape(heads, queries, depth), dtype, likes="tame", constant=0)
    k = g.fresh(shape(key_heads, keys, depth), dtype, likes="tame", constant=0.1)
    v = g.fresh(shape(key_heads, keys, out), dtype, likes="tame", constant=0.1)
    operands = [q, k, v]
    masked = rng.choice(["", "", "bool", "add"])
    if masked:
        kind = "bool" if masked == "bool" else dtype
        operands.append(g.fresh([batch, rng.choice([1, heads]), queries, keys], kind, likes="tame"))
    causal = rng.choice([None, None, "TopLeft", "BottomRight"])

    def meaning(
        size: Sizes, a: np.ndarray, b: np.ndarray, c: np.ndarray, mask: np.ndarray | None = None
    ) -> object:
        a, b, c = (wide(item if layout == "BHSD" else item.swapaxes(1, 2)) for item in (a, b, c))
        b, c = (np.repeat(item, a.shape[1] // item.shape[1], 1) for item in (b, c))
        scores = np.matmul(a, b.swapaxes(-1, -2)) / math.sqrt(depth)
        if mask is not None:
            scores = np.where(mask, scores, -np.inf) if masked == "bool" else scores + wide(mask)
        if causal:
            m, n = scores.shape[-2:]
            seen = np.tril(np.ones((m, n), bool), 0 if causal == "TopLeft" else n - m)
            scores = np.where(seen, scores, -np.inf)
        top = scores.max(-1, keepdims=True, initial=-np.inf)
        powers = np.exp(scores - np.where(np.isneginf(top), 0, top))
        total = powers.sum(-1, keepdims=True)
        made = np.matmul(powers / np.where(total == 0, 1, total), c)
        return made if layout == "BHSD" else made.swapaxes(1, 2)

    return g.emit(
        "attention", operands,
        lambda a, b, c, m=None: op.nn.scaled_dot_product_attention(
            a, b, c, m, causal_mask=causal, layout=layout
        ),
        meaning, noise=256 if dtype == "float32" else 2, reduces=True,
    )  # fmt: skip


def draw_resize(g: Graph) -> list[Value] | None:
    """Images of other sizes, by the nearest pixel or between four."""
    x = g.pick(
        lambda v: v.ndim == 4 and v.dtype in ("float32", "float64")
        and all(e and e > 0 for e in map(as_int, v.shape))
    )  # fmt: skip
    if x is None:
        return None
    size = (g.rng.randint(1, 9), g.rng.randint(1, 9))

    def along(a: np.ndarray, axis: int, out: int) -> np.ndarray:
        extent = a.shape[axis]
        source = np.maximum((np.arange(out) + 0.5) * (extent / out) - 0.5, 0)
        first = np.minimum(source.astype(int), extent - 1)
        second = np.minimum(first + 1, extent - 1)
        shape = [-1 if n == axis else 1 for n in range(4)]
        part = (source - first).reshape(shape)
        made: np.ndarray = np.take(a, first, axis) * (1 - part) + np.take(a, second, axis) * part
        return made

    return g.emit(
        "resize2d", [x], lambda a: op.image.resize2d(a, size),
        lambda s, a: along(along(wide(a), 2, size[0]), 3, size[1]), noise=512, reduces=True,
    )  # fmt: skip


DRAWERS: dict[str, tuple[Callable[[Graph], object], float]] = {
    "matmul": (draw_matmul, 2.5),
    "small_product": (draw_small_product, 0.5),
    "conv": (draw_conv, 1.5),
    "conv_transpose": (draw_conv_transpose, 0.4),
    "pool": (draw_pool, 0.8),
    "adaptive_pool": (draw_adaptive_pool, 0.3),
    "attention": (draw_attention, 0.7),
    "resize": (draw_resize, 0.3),
}


def image_input(g: Graph) -> Value:
    """An image, for graphs that begin with one."""
    batch = g.extent if g.extent is not None else g.rng.choice([1, 2])
    sides = [g.rng.choice([4, 7, 10])] * 2
    return g.fresh([batch, g.rng.choice([3, 8, 16]), *sides], "float32", likes="tame", constant=0)
