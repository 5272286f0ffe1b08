"""Operators that no library has a kernel for, and no rule was written for: what is general?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.workload import Array, Input, Workload, data
from tilewright import te, topi
from tilewright.ir import and_, if_then_else, maximum, minimum, or_
from tilewright.tir import op as tir

FAMILY = "novel"


def _workload(
    name: str,
    inputs: Sequence[Input],
    build: Callable[..., te.Tensor],
    reference: Callable[..., Array],
    torch: Callable[..., Any],
    flops: float,
    **options: Any,
) -> Workload:
    return Workload(
        name, FAMILY, tuple(inputs), build, reference, torch, (), float(flops), **options
    )


# ---- products over other rings ------------------------------------------------------------------


def _max_plus(m: int, n: int, k: int) -> Workload:
    def build(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        r = te.reduce_axis((0, k), "k")
        return te.compute((m, n), lambda i, j: te.max(a[i, r] + b[r, j], axis=r), name="paths")

    return _workload(
        f"max-plus product {m}x{n}x{k}", [data(m, k), data(k, n)], build,
        lambda a, b: np.stack([(row[:, None] + b).max(0) for row in a]),
        lambda torch, F, a, b: (a[:, :, None] + b).amax(1),
        2 * m * n * k,
    )  # fmt: skip


def _manhattan(m: int, n: int, k: int) -> Workload:
    def build(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        r = te.reduce_axis((0, k), "k")
        return te.compute(
            (m, n), lambda i, j: te.sum(tir.abs(a[i, r] - b[j, r]), axis=r), name="distances"
        )

    return _workload(
        f"L1 distances {m}x{n}x{k}", [data(m, k), data(n, k)], build,
        lambda a, b: np.stack([np.abs(row - b).sum(1) for row in a]),
        lambda torch, F, a, b: (a[:, None] - b).abs().sum(2),
        3 * m * n * k,
    )  # fmt: skip


def _hamming(m: int, n: int, k: int) -> Workload:
    words = Input((m, k), "uint32"), Input((n, k), "uint32")

    def build(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        r = te.reduce_axis((0, k), "k")
        return te.compute(
            (m, n),
            lambda i, j: te.sum(
                tir.popcount(tir.bitwise_xor(a[i, r], b[j, r])).astype("int32"), axis=r
            ),
            name="bits",
        )

    def reference(a: Array, b: Array) -> Array:
        wide = [np.unpackbits(x.astype(np.uint32).view(np.uint8), axis=1) for x in (a, b)]
        left, right = (x.astype(np.int64) for x in wide)
        return left.sum(1)[:, None] + right.sum(1) - 2 * (left @ right.T)

    return _workload(
        f"Hamming distances {m}x{n} of {32 * k} bits", words, build, reference, None,
        3 * m * n * k, out_dtype="int32", numpy=None,
    )  # fmt: skip


def _complex_product(n: int) -> Workload:
    def build(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        r = te.reduce_axis((0, n), "k")

        def part(i: Any, j: Any, c: Any) -> Any:
            real = a[0, i, r] * b[0, r, j] - a[1, i, r] * b[1, r, j]
            imaginary = a[0, i, r] * b[1, r, j] + a[1, i, r] * b[0, r, j]
            return te.sum(if_then_else(c == 0, real, imaginary), axis=r)

        return te.compute((2, n, n), lambda c, i, j: part(i, j, c), name="product")

    def reference(a: Array, b: Array) -> Array:
        made = (a[0] + 1j * a[1]) @ (b[0] + 1j * b[1])
        return np.stack([made.real, made.imag])

    def torch_way(torch: Any, F: Any, a: Any, b: Any) -> Any:
        return torch.stack([a[0] @ b[0] - a[1] @ b[1], a[0] @ b[1] + a[1] @ b[0]])

    return _workload(
        f"complex product {n}x{n}x{n} of planes", [data(2, n, n), data(2, n, n)], build, reference,
        torch_way, 8 * n**3,
    )  # fmt: skip


def _banded(n: int, columns: int, half: int) -> Workload:
    width = 2 * half + 1

    def build(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        d = te.reduce_axis((0, width), "d")
        padded = topi.nn.pad(b, (half, 0), (half, 0))
        return te.compute(
            (n, columns), lambda i, j: te.sum(a[i, d] * padded[i + d, j], axis=d), name="banded"
        )

    def reference(a: Array, b: Array) -> Array:
        padded = np.pad(b, ((half, half), (0, 0)))
        return np.asarray(sum(a[:, d, None] * padded[d : d + n] for d in range(width)))

    def torch_way(torch: Any, F: Any, a: Any, b: Any) -> Any:
        padded = F.pad(b, (0, 0, half, half))
        return torch.einsum("id,ijd->ij", a, padded.unfold(0, width, 1))

    return _workload(
        f"banded {n}x{n} ({width} diagonals) times {n}x{columns}",
        [data(n, width), data(n, columns)], build, reference, torch_way, 2 * n * columns * width,
    )  # fmt: skip


def _block_sparse(rows: int, per_row: int, size: int, columns: int) -> Workload:
    total = rows * size

    def build(values: te.Tensor, places: te.Tensor, b: te.Tensor) -> te.Tensor:
        p, k = te.reduce_axis((0, per_row), "p"), te.reduce_axis((0, size), "k")
        return te.compute(
            (rows, size, columns),
            lambda r, i, j: te.sum(values[r, p, i, k] * b[places[r, p] * size + k, j], axis=[p, k]),
            name="sparse",
        )

    def reference(values: Array, places: Array, b: Array) -> Array:
        blocks = b.reshape(rows, size, columns)[places]
        return np.asarray(np.einsum("rpik,rpkj->rij", values, blocks))

    def torch_way(torch: Any, F: Any, values: Any, places: Any, b: Any) -> Any:
        blocks = b.reshape(rows, size, columns)[places.long()]
        return torch.einsum("rpik,rpkj->rij", values, blocks)

    return _workload(
        f"block-sparse {total}x{total} ({per_row} blocks of {size} a row) times {total}x{columns}",
        [data(rows, per_row, size, size), Input((rows, per_row), "int32", low=0, high=rows),
         data(total, columns)],
        build, reference, torch_way, 2 * rows * per_row * size * size * columns,
    )  # fmt: skip


# ---- all pairs ----------------------------------------------------------------------------------


def _n_body(n: int) -> Workload:
    def build(p: te.Tensor, m: te.Tensor) -> te.Tensor:
        j = te.reduce_axis((0, n), "j")

        def pull(c: Any, i: Any) -> Any:
            d = [p[axis, j] - p[axis, i] for axis in range(3)]
            inverse = tir.rsqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + 0.01)
            return te.sum((p[c, j] - p[c, i]) * (m[j] * inverse * inverse * inverse), axis=j)

        return te.compute((3, n), pull, name="forces")

    def reference(p: Array, m: Array) -> Array:
        d = p[:, None, :] - p[:, :, None]
        return np.asarray((d * (m * ((d * d).sum(0) + 0.01) ** -1.5)).sum(2))

    def torch_way(torch: Any, F: Any, p: Any, m: Any) -> Any:
        d = p[:, None, :] - p[:, :, None]
        return (d * (m * ((d * d).sum(0) + 0.01).rsqrt() ** 3)).sum(2)

    return _workload(
        f"N-body forces {n}", [data(3, n), data(n)], build, reference, torch_way, 3 * 16 * n * n,
        tolerance=1e-3,
    )  # fmt: skip


def _kernel_product(n: int, features: int) -> Workload:
    def build(x: te.Tensor, v: te.Tensor) -> te.Tensor:
        j, k = te.reduce_axis((0, n), "j"), te.reduce_axis((0, features), "k")
        far = te.compute(
            (n, n),
            lambda i, o: te.sum((x[i, k] - x[o, k]) * (x[i, k] - x[o, k]), axis=k),
            name="squares",
        )
        return te.compute(
            (n,), lambda i: te.sum(tir.exp(far[i, j] * -0.5) * v[j], axis=j), name="weighted"
        )

    def reference(x: Array, v: Array) -> Array:
        far = ((x[:, None] - x) ** 2).sum(2)
        return np.asarray(np.exp(-0.5 * far) @ v)

    return _workload(
        f"Gaussian kernel of {n} points in {features} times a vector", [data(n, features), data(n)],
        build, reference,
        lambda torch, F, x, v: torch.exp(-0.5 * ((x[:, None] - x) ** 2).sum(2)) @ v,
        n * n * (3 * features + 10),
    )  # fmt: skip


def _rays(rays: int, boxes: int) -> Workload:
    def build(origin: te.Tensor, inverse: te.Tensor, low: te.Tensor, high: te.Tensor) -> te.Tensor:
        b = te.reduce_axis((0, boxes), "b")

        def nearest(r: Any) -> Any:
            near, far = te.const(0.0, "float32"), te.const(1e30, "float32")
            for c in range(3):
                one = (low[c, b] - origin[c, r]) * inverse[c, r]
                other = (high[c, b] - origin[c, r]) * inverse[c, r]
                near = maximum(near, minimum(one, other))
                far = minimum(far, maximum(one, other))
            return te.min(if_then_else(near <= far, near, te.const(1e30, "float32")), axis=b)

        return te.compute((rays,), nearest, name="hits")

    def reference(origin: Array, inverse: Array, low: Array, high: Array) -> Array:
        one = (low[:, None] - origin[:, :, None]) * inverse[:, :, None]
        other = (high[:, None] - origin[:, :, None]) * inverse[:, :, None]
        near = np.maximum(np.minimum(one, other).max(0), 0)
        far = np.maximum(one, other).min(0)
        return np.asarray(np.where(near <= far, near, 1e30).min(1))

    def torch_way(torch: Any, F: Any, origin: Any, inverse: Any, low: Any, high: Any) -> Any:
        one = (low[:, None] - origin[:, :, None]) * inverse[:, :, None]
        other = (high[:, None] - origin[:, :, None]) * inverse[:, :, None]
        near = torch.minimum(one, other).amax(0).clamp(min=0)
        far = torch.maximum(one, other).amin(0)
        return torch.where(near <= far, near, 1e30).amin(1)

    return _workload(
        f"{rays} rays against {boxes} boxes", [data(3, rays)] * 2 + [data(3, boxes)] * 2, build,
        reference, torch_way, 24 * rays * boxes,
    )  # fmt: skip


def _nearest_centre(n: int, centres: int, features: int) -> Workload:
    def build(x: te.Tensor, c: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, features), "k")
        far = te.compute(
            (n, centres),
            lambda i, j: te.sum((x[i, k] - c[j, k]) * (x[i, k] - c[j, k]), axis=k),
            name="squares",
        )
        return topi.min(far, axis=1)

    return _workload(
        f"distance of {n} points to the nearest of {centres} centres in {features}",
        [data(n, features), data(centres, features)], build,
        lambda x, c: ((x[:, None] - c) ** 2).sum(2).min(1),
        lambda torch, F, x, c: ((x[:, None] - c) ** 2).sum(2).amin(1),
        3 * n * centres * features,
    )  # fmt: skip


# ---- grids --------------------------------------------------------------------------------------


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
    )  # fmt: skip


# ---- element by element -------------------------------------------------------------------------


def _horner(n: int, degree: int) -> Workload:
    factors = [((-1) ** k) / math.factorial(min(k, 8)) for k in range(degree + 1)]

    def value(x: Any) -> Any:
        made = x * 0.0 + factors[-1]
        for factor in reversed(factors[:-1]):
            made = made * x + factor
        return made

    return _workload(
        f"polynomial of degree {degree} of {n}", [data(n)],
        lambda x: te.compute((n,), lambda i: value(x[i]), name="polynomial"), value,
        lambda torch, F, x: value(x), 2 * degree * n,
    )  # fmt: skip


def _rational(n: int) -> Workload:
    def value(x: Any) -> Any:
        s = x * x
        top = x * (135135.0 + s * (17325.0 + s * (378.0 + s)))
        return top / (135135.0 + s * (62370.0 + s * (3150.0 + s * 28.0)))

    return _workload(
        f"rational tanh of {n}", [data(n)],
        lambda x: te.compute((n,), lambda i: value(x[i]), name="rational"), value,
        lambda torch, F, x: value(x), 16 * n,
    )  # fmt: skip


def _median(n: int) -> Workload:
    """The median of five neighbours, by a sorting network."""

    def value(low: Callable[..., Any], high: Callable[..., Any], v: Sequence[Any]) -> Any:
        a, b, c, d, e = v
        a, b = low(a, b), high(a, b)
        d, e = low(d, e), high(d, e)
        a, d = low(a, d), high(a, d)
        b, e = low(b, e), high(b, e)
        b, c = low(b, c), high(b, c)
        c, d = low(c, d), high(c, d)
        return high(b, c)

    def part(x: Any, k: int) -> Any:
        return x[k : k + n - 4]

    return _workload(
        f"moving median of 5 over {n}", [data(n)],
        lambda x: te.compute(
            (n - 4,), lambda i: value(minimum, maximum, [x[i + k] for k in range(5)]), name="median"
        ),
        lambda x: value(np.minimum, np.maximum, [part(x, k) for k in range(5)]),
        lambda torch, F, x: value(torch.minimum, torch.maximum, [part(x, k) for k in range(5)]),
        13 * n,
    )  # fmt: skip


def _solves(n: int) -> Workload:
    """Systems of three equations by Cramer's rule."""

    def value(m: Callable[[int, int], Any], b: Callable[[int], Any], row: Any, pick: Any) -> Any:
        def det(c: Sequence[Callable[[int], Any]]) -> Any:
            return (
                c[0](0) * (c[1](1) * c[2](2) - c[1](2) * c[2](1))
                - c[1](0) * (c[0](1) * c[2](2) - c[0](2) * c[2](1))
                + c[2](0) * (c[0](1) * c[1](2) - c[0](2) * c[1](1))
            )

        columns = [lambda i, j=j: m(i, j) for j in range(3)]
        whole = det(columns)
        return pick([det([*columns[:j], b, *columns[j + 1 :]]) / whole for j in range(3)])

    def build(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        def solution(j: Any, s: Any) -> Any:
            return value(
                lambda i, k: a[i, k, s] + (4.0 if i == k else 0.0), lambda i: b[i, s], s,
                lambda x: if_then_else(j == 0, x[0], if_then_else(j == 1, x[1], x[2])),
            )  # fmt: skip

        return te.compute((3, n), solution, name="solutions")

    def direct(xp: Any) -> Callable[..., Any]:
        return lambda a, b: value(
            lambda i, k: a[i, k] + (4.0 if i == k else 0.0), lambda i: b[i], None, xp.stack
        )

    return _workload(
        f"{n} systems of 3 equations", [data(3, 3, n), data(3, n)], build, direct(np),
        lambda torch, F, a, b: direct(torch)(a, b), 60 * n, tolerance=1e-3,
    )  # fmt: skip


def _pooled(batch: int, length: int, width: int) -> Workload:
    """Means of rows of different lengths."""

    def build(x: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        t = te.reduce_axis((0, length), "t")
        total = te.compute(
            (batch, width),
            lambda b, d: te.sum(if_then_else(t < lengths[b], x[b, t, d], 0.0), axis=t),
            name="total",
        )
        return te.compute(
            (batch, width), lambda b, d: total[b, d] / lengths[b].astype("float32"), name="means"
        )

    def reference(x: Array, lengths: Array) -> Array:
        mask = np.arange(length) < lengths[:, None]
        return np.asarray((x * mask[:, :, None]).sum(1) / lengths[:, None])

    def torch_way(torch: Any, F: Any, x: Any, lengths: Any) -> Any:
        mask = torch.arange(length) < lengths[:, None]
        return (x * mask[:, :, None]).sum(1) / lengths[:, None]

    return _workload(
        f"means of {batch} ragged sequences {length}x{width}",
        [data(batch, length, width), Input((batch,), "int32", low=1, high=length + 1)], build,
        reference, torch_way, 2 * batch * length * width,
    )  # fmt: skip


WORKLOADS: tuple[Workload, ...] = (
    _max_plus(256, 256, 256),
    _manhattan(512, 512, 64),
    _hamming(512, 512, 32),
    _complex_product(256),
    _banded(1024, 128, 16),
    _block_sparse(32, 4, 32, 256),
    _n_body(1024),
    _kernel_product(1024, 8),
    _rays(2048, 512),
    _nearest_centre(4096, 64, 16),
    _heat(128),
    _lattice_boltzmann(256),
    _haar(1024),
    _bilateral(256, 2),
    _disparity(256, 16, 5),
    _distance_transform(256, 256),
    _life(1024),
    _horner(1 << 20, 12),
    _rational(1 << 20),
    _median(1 << 20),
    _solves(1 << 16),
    _pooled(32, 256, 256),
)
