"""Operators that no library has a kernel for, and no rule was written for: what is general?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.workload import Array, Input, Workload, data
from benchmarks.workloads import novel_loops as loops
from tilewright import te, topi
from tilewright.ir import if_then_else, maximum, minimum
from tilewright.tir import op as tir

FAMILY = "novel"


def novel_workload(
    name: str,
    inputs: Sequence[Input],
    build: Callable[..., te.Tensor],
    reference: Callable[..., Array],
    torch: Callable[..., Any],
    flops: float,
    **options: Any,
) -> Workload:
    """Describe an operator of this family; without ways to write it as a graph."""
    return Workload(
        name, FAMILY, tuple(inputs), build, reference, torch, (), float(flops), **options
    )


# ---- products over other rings ------------------------------------------------------------------


def _max_plus(m: int, n: int, k: int) -> Workload:
    def build(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        r = te.reduce_axis((0, k), "k")
        return te.compute((m, n), lambda i, j: te.max(a[i, r] + b[r, j], axis=r), name="paths")

    return novel_workload(
        f"max-plus product {m}x{n}x{k}", [data(m, k), data(k, n)], build,
        lambda a, b: np.stack([(row[:, None] + b).max(0) for row in a]),
        lambda torch, F, a, b: (a[:, :, None] + b).amax(1),
        2 * m * n * k,
        loops=loops.max_plus,
    )  # fmt: skip


def _manhattan(m: int, n: int, k: int) -> Workload:
    def build(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        r = te.reduce_axis((0, k), "k")
        return te.compute(
            (m, n), lambda i, j: te.sum(tir.abs(a[i, r] - b[j, r]), axis=r), name="distances"
        )

    return novel_workload(
        f"L1 distances {m}x{n}x{k}", [data(m, k), data(n, k)], build,
        lambda a, b: np.stack([np.abs(row - b).sum(1) for row in a]),
        lambda torch, F, a, b: (a[:, None] - b).abs().sum(2),
        3 * m * n * k,
        loops=loops.manhattan,
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

    def torch_way(torch: Any, F: Any, a: Any, b: Any) -> Any:
        v = a[:, None] ^ b
        v = v - ((v >> 1) & 0x55555555)
        v = (v & 0x33333333) + ((v >> 2) & 0x33333333)
        v = (v + (v >> 4)) & 0x0F0F0F0F
        return (((v * 0x01010101) >> 24) & 0xFF).sum(2, dtype=torch.int32)

    return novel_workload(
        f"Hamming distances {m}x{n} of {32 * k} bits", words, build, reference, torch_way,
        3 * m * n * k, out_dtype="int32", numpy=None,
        torch_prepare=lambda torch, a, b: (a.view(torch.int32), b.view(torch.int32)),
        loops=loops.hamming,
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

    return novel_workload(
        f"complex product {n}x{n}x{n} of planes", [data(2, n, n), data(2, n, n)], build, reference,
        torch_way, 8 * n**3,
        loops=loops.complex_product,
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

    return novel_workload(
        f"banded {n}x{n} ({width} diagonals) times {n}x{columns}",
        [data(n, width), data(n, columns)], build, reference, torch_way, 2 * n * columns * width,
        loops=loops.banded,
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

    return novel_workload(
        f"block-sparse {total}x{total} ({per_row} blocks of {size} a row) times {total}x{columns}",
        [data(rows, per_row, size, size), Input((rows, per_row), "int32", low=0, high=rows),
         data(total, columns)],
        build, reference, torch_way, 2 * rows * per_row * size * size * columns,
        loops=loops.block_sparse,
    )  # fmt: skip


def _viterbi(batch: int, states: int) -> Workload:
    def build(scores: te.Tensor, moves: te.Tensor, seen: te.Tensor) -> te.Tensor:
        i = te.reduce_axis((0, states), "i")
        shape = (batch, states)
        best = te.compute(
            shape, lambda b, j: te.max(scores[b, i] + moves[i, j], axis=i), name="best"
        )
        return te.compute(shape, lambda b, j: best[b, j] + seen[b, j], name="scored")

    return novel_workload(
        f"Viterbi step of {batch} sequences, {states} states",
        [data(batch, states), data(states, states), data(batch, states)], build,
        lambda scores, moves, seen: np.stack([(row[:, None] + moves).max(0) for row in scores])
        + seen,
        lambda torch, F, scores, moves, seen: (scores[:, :, None] + moves).amax(1) + seen,
        2 * batch * states * states, loops=loops.viterbi,
    )  # fmt: skip


def _covariance(samples: int, features: int) -> Workload:
    def build(x: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, samples), "k")
        return te.compute(
            (features, features), lambda i, j: te.sum(x[k, i] * x[k, j], axis=k), name="products"
        )

    return novel_workload(
        f"products of {features} columns of {samples} with each other", [data(samples, features)],
        build, lambda x: x.T @ x, lambda torch, F, x: x.T @ x, 2 * samples * features**2,
        loops=loops.covariance,
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

    return novel_workload(
        f"N-body forces {n}", [data(3, n), data(n)], build, reference, torch_way, 3 * 16 * n * n,
        tolerance=1e-3,
        loops=loops.n_body,
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

    return novel_workload(
        f"Gaussian kernel of {n} points in {features} times a vector", [data(n, features), data(n)],
        build, reference,
        lambda torch, F, x, v: torch.exp(-0.5 * ((x[:, None] - x) ** 2).sum(2)) @ v,
        n * n * (3 * features + 10),
        loops=loops.kernel_product,
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

    return novel_workload(
        f"{rays} rays against {boxes} boxes", [data(3, rays)] * 2 + [data(3, boxes)] * 2, build,
        reference, torch_way, 24 * rays * boxes,
        loops=loops.rays,
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

    return novel_workload(
        f"distance of {n} points to the nearest of {centres} centres in {features}",
        [data(n, features), data(centres, features)], build,
        lambda x, c: ((x[:, None] - c) ** 2).sum(2).min(1),
        lambda torch, F, x, c: ((x[:, None] - c) ** 2).sum(2).amin(1),
        3 * n * centres * features,
        loops=loops.nearest_centre,
    )  # fmt: skip


WORKLOADS: tuple[Workload, ...] = (
    _max_plus(256, 256, 256),
    _manhattan(512, 512, 64),
    _hamming(512, 512, 32),
    _complex_product(256),
    _banded(1024, 128, 16),
    _block_sparse(32, 4, 32, 256),
    _viterbi(256, 256),
    _covariance(2048, 256),
    _n_body(1024),
    _kernel_product(1024, 8),
    _rays(2048, 512),
    _nearest_centre(4096, 64, 16),
)
