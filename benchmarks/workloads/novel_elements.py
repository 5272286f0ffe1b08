"""Operators element by element, or row by row, that no library has a kernel for (``novel``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.workload import Array, Input, Workload, data
from benchmarks.workloads import novel_loops as loops
from benchmarks.workloads.novel import novel_workload as _workload
from tilewright import te
from tilewright.ir import if_then_else, maximum, minimum
from tilewright.tir import op as tir


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
        loops=loops.horner,
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
        loops=loops.rational,
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
        loops=loops.median,
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
        loops=loops.solves,
    )  # fmt: skip


def _iterated(n: int, steps: int) -> Workload:
    """Points of the plane under ``z * z + c``, kept within a square."""

    def build(re: te.Tensor, im: te.Tensor) -> te.Tensor:
        def bounded(value: Any) -> Any:
            return minimum(maximum(value, -2.0), 2.0)

        x, y = re, im
        for _ in range(steps):
            p, q = x, y
            x = te.compute((n,), lambda i, p=p, q=q: bounded(p[i] * p[i] - q[i] * q[i] + re[i]))
            y = te.compute((n,), lambda i, p=p, q=q: bounded(p[i] * q[i] * 2.0 + im[i]))
        return te.compute((n,), lambda i: x[i] * x[i] + y[i] * y[i], name="size")

    def value(bounded: Callable[[Any], Any], re: Any, im: Any) -> Any:
        x, y = re, im
        for _ in range(steps):
            x, y = bounded(x * x - y * y + re), bounded(2.0 * x * y + im)
        return x * x + y * y

    return _workload(
        f"{steps} steps of z * z + c of {n} points", [data(n), data(n)], build,
        lambda re, im: value(lambda v: v.clip(-2, 2), re, im),
        lambda torch, F, re, im: value(lambda v: v.clamp(-2, 2), re, im), 10 * steps * n,
        loops=loops.iterated, tolerance=1e-2,
    )  # fmt: skip


def _cholesky(n: int) -> Workload:
    """Factors of symmetric matrices of three rows: six numbers for each."""

    def value(a: Callable[[int, int], Any], root: Callable[[Any], Any]) -> list[Any]:
        p = root(a(0, 0) + 4.0)
        q, r = a(1, 0) / p, a(2, 0) / p
        u = root(a(1, 1) + 4.0 - q * q)
        v = (a(2, 1) - q * r) / u
        return [p, q, u, r, v, root(a(2, 2) + 4.0 - r * r - v * v)]

    def build(b: te.Tensor) -> te.Tensor:
        def made(which: Any, s: Any) -> Any:
            def a(i: int, j: int) -> Any:
                return b[i, 0, s] * b[j, 0, s] + b[i, 1, s] * b[j, 1, s] + b[i, 2, s] * b[j, 2, s]

            *others, found = value(a, tir.sqrt)
            for number in reversed(range(5)):
                found = if_then_else(which == number, others[number], found)
            return found

        return te.compute((6, n), made, name="factors")

    def direct(xp: Any, b: Any) -> Any:
        return xp.stack(value(lambda i, j: (b[i] * b[j]).sum(0), xp.sqrt))

    return _workload(
        f"factors of {n} symmetric 3x3 matrices", [data(3, 3, n)], build,
        lambda b: direct(np, b), lambda torch, F, b: direct(torch, b), 60 * n,
        loops=loops.cholesky,
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
        loops=loops.pooled,
    )  # fmt: skip


WORKLOADS: tuple[Workload, ...] = (
    _horner(1 << 20, 12),
    _rational(1 << 20),
    _median(1 << 20),
    _solves(1 << 16),
    _iterated(1 << 18, 8),
    _cholesky(1 << 16),
    _pooled(32, 256, 256),
)
