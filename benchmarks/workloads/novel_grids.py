"""Operators on grids that no library has a kernel for (``novel``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.workload import Array, Input, Workload, data
from benchmarks.workloads import novel_loops as loops
from benchmarks.workloads.novel import novel_workload as _workload
from tilewright import te, topi
from tilewright.ir import and_, if_then_else, or_
from tilewright.tir import op as tir


def _heat(n: int) -> Workload:
    def build(x: te.Tensor) -> te.Tensor:
        inner = n - 2
        return te.compute(
            (inner, inner, inner),
            lambda i, j, k: x[i + 1, j + 1, k + 1] * 0.4
            + (x[i, j + 1, k + 1] + x[i + 2, j + 1, k + 1] + x[i + 1, j, k + 1]
               + x[i + 1, j + 2, k + 1] + x[i + 1, j + 1, k] + x[i + 1, j + 1, k + 2]) * 0.1,
            name="heat",
        )  # fmt: skip

    def step(x: Any) -> Any:
        c = slice(1, -1)
        around = x[:-2, c, c] + x[2:, c, c] + x[c, :-2, c] + x[c, 2:, c] + x[c, c, :-2]
        return x[c, c, c] * 0.4 + (around + x[c, c, 2:]) * 0.1

    return _workload(
        f"heat step {n}x{n}x{n}", [data(n, n, n)], build, step, lambda torch, F, x: step(x),
        8 * (n - 2) ** 3,
        loops=loops.heat,
    )  # fmt: skip


def _lattice_boltzmann(n: int) -> Workload:
    """D2Q9: move along the velocities with periodic borders, then relax (BGK)."""
    moves = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    shares = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4

    def build(f: te.Tensor) -> te.Tensor:
        def came(q: int, y: Any, x: Any) -> Any:
            dx, dy = moves[q]
            return f[q, (y + (n - dy)) % n, (x + (n - dx)) % n] * 0.05 + 1.0

        def total(weights: Sequence[int]) -> Callable[[Any, Any], Any]:
            def at(y: Any, x: Any) -> Any:
                terms = [came(q, y, x) * float(w) for q, w in enumerate(weights) if w]
                return sum(terms[1:], terms[0])

            return at

        rho = te.compute((n, n), total([1] * 9), name="rho")
        ux = te.compute((n, n), total([m[0] for m in moves]), name="ux")
        uy = te.compute((n, n), total([m[1] for m in moves]), name="uy")

        def relaxed(q: Any, y: Any, x: Any) -> Any:
            made = None
            u, v = ux[y, x] / rho[y, x], uy[y, x] / rho[y, x]
            for number, (dx, dy) in enumerate(moves):
                along = u * float(dx) + v * float(dy)
                rest = 1.0 + 3.0 * along + 4.5 * along * along - 1.5 * (u * u + v * v)
                own = came(number, y, x)
                value = own + (rho[y, x] * rest * shares[number] - own) * 0.6
                made = value if made is None else if_then_else(q == number, value, made)
            return made

        return te.compute((9, n, n), relaxed, name="relaxed")

    def step(xp: Any, roll: Callable[..., Any], f: Any) -> Any:
        came = [roll(f[q], (dy, dx), (0, 1)) * 0.05 + 1.0 for q, (dx, dy) in enumerate(moves)]
        rho = sum(came)
        u, v = (sum(m[axis] * c for m, c in zip(moves, came) if m[axis]) / rho for axis in range(2))
        made = []
        for (dx, dy), share, own in zip(moves, shares, came):
            along = u * dx + v * dy
            rest = 1.0 + 3.0 * along + 4.5 * along * along - 1.5 * (u * u + v * v)
            made.append(own + (rho * rest * share - own) * 0.6)
        return xp.stack(made)

    return _workload(
        f"lattice Boltzmann step {n}x{n}", [Input((9, n, n), "float32")], build,
        lambda f: step(np, np.roll, f), lambda torch, F, f: step(torch, torch.roll, f),
        150 * n * n,
        loops=loops.lattice_boltzmann,
    )  # fmt: skip


def _haar(n: int) -> Workload:
    half = n // 2

    def build(x: te.Tensor) -> te.Tensor:
        def band(b: Any, i: Any, j: Any) -> Any:
            p, q, r, s = (x[2 * i + di, 2 * j + dj] for di in range(2) for dj in range(2))
            low, high = if_then_else(b % 2 == 0, p + q, p - q), (r + s, r - s)
            other = if_then_else(b % 2 == 0, high[0], high[1])
            return if_then_else(b < 2, low + other, low - other) * 0.5

        return te.compute((4, half, half), band, name="bands")

    def step(xp: Any, x: Any) -> Any:
        p, q, r, s = x[::2, ::2], x[::2, 1::2], x[1::2, ::2], x[1::2, 1::2]
        return xp.stack([p + q + r + s, p - q + r - s, p + q - r - s, p - q - r + s]) * 0.5

    return _workload(
        f"Haar wavelet {n}x{n}", [data(n, n)], build, lambda x: step(np, x),
        lambda torch, F, x: step(torch, x), 4 * n * n,
        loops=loops.haar,
    )  # fmt: skip


def _bilateral(n: int, radius: int) -> Workload:
    width = 2 * radius + 1

    def build(x: te.Tensor) -> te.Tensor:
        out = n - 2 * radius

        def near(i: Any, j: Any, di: Any, dj: Any) -> Any:
            d = x[i + di, j + dj] - x[i + radius, j + radius]
            return tir.exp(d * d * -0.5)

        axes = [te.reduce_axis((0, width), name) for name in ("di", "dj", "ei", "ej")]
        total = te.compute(
            (out, out),
            lambda i, j: te.sum(
                near(i, j, axes[0], axes[1]) * x[i + axes[0], j + axes[1]], axis=axes[:2]
            ),
            name="total",
        )
        weights = te.compute(
            (out, out), lambda i, j: te.sum(near(i, j, axes[2], axes[3]), axis=axes[2:]),
            name="weights",
        )  # fmt: skip
        return te.compute((out, out), lambda i, j: total[i, j] / weights[i, j], name="filtered")

    def step(xp: Any, x: Any) -> Any:
        out, total, weights = n - 2 * radius, 0.0, 0.0
        middle = x[radius:-radius, radius:-radius]
        for i in range(width):
            for j in range(width):
                part = x[i : i + out, j : j + out]
                weight = xp.exp((part - middle) ** 2 * -0.5)
                total, weights = total + weight * part, weights + weight
        return total / weights

    return _workload(
        f"bilateral filter {width}x{width} of {n}x{n}", [data(n, n)], build, lambda x: step(np, x),
        lambda torch, F, x: step(torch, x), 2 * 14 * width * width * n * n,
        loops=loops.bilateral,
    )  # fmt: skip


def _disparity(n: int, disparities: int, width: int) -> Workload:
    out = n - width + 1

    def build(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        i, j = te.reduce_axis((0, width), "i"), te.reduce_axis((0, width), "j")
        return te.compute(
            (disparities, out, out),
            lambda d, y, x: te.sum(tir.abs(a[y + i, x + j] - b[y + i, x + j + d]), axis=[i, j]),
            name="costs",
        )

    def step(xp: Any, absolute: Callable[..., Any], a: Any, b: Any) -> Any:
        made = []
        for d in range(disparities):
            far = absolute(a - b[:, d : d + n])
            made.append(sum(far[y : y + out, x : x + out] for y in range(width)
                            for x in range(width)))  # fmt: skip
        return xp.stack(made)

    return _workload(
        f"stereo costs {n}x{n}, {disparities} disparities, windows of {width}",
        [data(n, n), data(n, n + disparities)], build, lambda a, b: step(np, np.abs, a, b),
        lambda torch, F, a, b: step(torch, torch.abs, a, b),
        3 * disparities * width * width * out * out,
        loops=loops.disparity,
    )  # fmt: skip


def _correlation(channels: int, n: int, width: int) -> Workload:
    """What moved where: products of an image's channels and those of shifted ones."""

    def build(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        c = te.reduce_axis((0, channels), "c")
        return te.compute(
            (width, width, n, n),
            lambda dy, dx, y, x: te.sum(a[c, y, x] * b[c, y + dy, x + dx], axis=c),
            name="volume",
        )

    def step(xp: Any, a: Any, b: Any) -> Any:
        shifts = [(dy, dx) for dy in range(width) for dx in range(width)]
        made = xp.stack([(a * b[:, dy : dy + n, dx : dx + n]).sum(0) for dy, dx in shifts])
        return made.reshape(width, width, n, n)

    return _workload(
        f"correlation of {channels} channels {n}x{n}, {width}x{width} shifts",
        [data(channels, n, n), data(channels, n + width - 1, n + width - 1)], build,
        lambda a, b: step(np, a, b), lambda torch, F, a, b: step(torch, a, b),
        2 * channels * width**2 * n**2, loops=loops.correlation,
    )  # fmt: skip


def _dilation(n: int, width: int) -> Workload:
    out = n - width + 1

    def build(x: te.Tensor, s: te.Tensor) -> te.Tensor:
        i, j = te.reduce_axis((0, width), "i"), te.reduce_axis((0, width), "j")
        return te.compute(
            (out, out), lambda y, c: te.max(x[y + i, c + j] + s[i, j], axis=[i, j]), name="dilated"
        )

    def step(high: Callable[..., Any], x: Any, s: Any) -> Any:
        made = None
        for i in range(width):
            for j in range(width):
                part = x[i : i + out, j : j + out] + s[i, j]
                made = part if made is None else high(made, part)
        return made

    return _workload(
        f"dilation of {n}x{n} by {width}x{width}", [data(n, n), data(width, width)], build,
        lambda x, s: step(np.maximum, x, s), lambda torch, F, x, s: step(torch.maximum, x, s),
        2 * width**2 * out**2, loops=loops.dilation,
    )  # fmt: skip


def _box_blur(rows: int, n: int) -> Workload:
    """Means of 32 neighbours, by differences of running sums."""
    width = 32

    def build(x: te.Tensor) -> te.Tensor:
        sums = topi.cumsum(x, axis=1)
        return te.compute(
            (rows, n - width),
            lambda i, j: (sums[i, j + width] - sums[i, j]) * (1 / width),
            name="means",
        )

    def step(sums: Any) -> Any:
        return (sums[:, width:] - sums[:, :-width]) * (1 / width)

    return _workload(
        f"box blur of {rows} rows of {n} by running sums", [data(rows, n)], build,
        lambda x: step(x.cumsum(1)), lambda torch, F, x: step(x.cumsum(1)), 3 * rows * n,
        loops=loops.box_blur, tolerance=1e-3,
    )  # fmt: skip


def _distance_transform(rows: int, n: int) -> Workload:
    def build(f: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, n), "k")
        return te.compute(
            (rows, n),
            lambda i, j: te.min(f[i, k] + ((j - k) * (j - k)).astype("float32") * 0.01, axis=k),
            name="nearest",
        )

    def reference(f: Array) -> Array:
        at = np.arange(n)
        return np.stack([(row + (at[:, None] - at) ** 2 * 0.01).min(1) for row in f])

    def torch_way(torch: Any, F: Any, f: Any) -> Any:
        at = torch.arange(n, dtype=torch.float32)
        return (f[:, None] + (at[:, None] - at) ** 2 * 0.01).amin(2)

    return _workload(
        f"distance transform of {rows} rows of {n}", [data(rows, n)], build, reference, torch_way,
        3 * rows * n * n,
        loops=loops.distance_transform,
    )  # fmt: skip


def _life(n: int) -> Workload:
    cells = Input((n, n), "int32", low=0, high=2)

    def build(x: te.Tensor) -> te.Tensor:
        out = n - 2

        def alive(i: Any, j: Any) -> Any:
            around = [x[i + a, j + b] for a in range(3) for b in range(3) if (a, b) != (1, 1)]
            count = sum(around[1:], around[0])
            stays = and_(x[i + 1, j + 1] == 1, count == 2)
            return or_(count == 3, stays).astype("int32")

        return te.compute((out, out), alive, name="alive")

    def step(x: Any) -> Any:
        out = n - 2
        around = sum(
            x[a : a + out, b : b + out] for a in range(3) for b in range(3) if (a, b) != (1, 1)
        )
        return (around == 3) | ((around == 2) & (x[1:-1, 1:-1] == 1))

    return _workload(
        f"game of life {n}x{n}", [cells], build, lambda x: step(x).astype(np.int64),
        lambda torch, F, x: step(x).to(torch.int32), 11 * n * n, out_dtype="int32",
        numpy=lambda x: step(x).astype(np.int32),
        loops=loops.life,
    )  # fmt: skip


WORKLOADS: tuple[Workload, ...] = (
    _heat(128),
    _lattice_boltzmann(256),
    _haar(1024),
    _bilateral(256, 2),
    _disparity(256, 16, 5),
    _correlation(32, 64, 9),
    _dilation(512, 7),
    _box_blur(1024, 1024),
    _distance_transform(256, 256),
    _life(1024),
)
