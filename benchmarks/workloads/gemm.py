"""Matrix products in fp32, alone and with what follows fused. Names are M x N x K."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.workload import Array, Workload, data, weight
from tilewright import te, topi


def gelu64(x: Array) -> Array:
    """The exact gelu."""
    return np.asarray(0.5 * x * (1.0 + np.vectorize(math.erf)(x * 0.7071067811865476)))


def gelu32(x: Array) -> Array:
    """What one writes in numpy, which has no erf: Abramowitz and Stegun 7.1.26, good to 1.5e-7."""
    z = np.abs(x) * np.float32(0.7071067811865476)
    t = 1 / (1 + np.float32(0.3275911) * z)
    poly: Array = np.full_like(x, 1.061405429)
    for c in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        poly = poly * t + np.float32(c)
    erf = np.sign(x) * (1 - poly * t * np.exp(-z * z))
    return np.asarray(0.5 * x * (1 + erf))


def _gemm(m: int, n: int, k: int, family: str = "gemm", quick: bool = False) -> Workload:
    return Workload(
        f"gemm {m}x{n}x{k}",
        family,
        (data(m, k), weight(k, n)),
        lambda a, b: topi.matmul(a, b),
        lambda a, b: a @ b,
        lambda torch, F, a, b: a @ b,
        (lambda g, a, b: g.op("MatMul", a, b),),
        2.0 * m * n * k,
        quick=quick,
    )


def _gemv(n: int, k: int) -> Workload:
    return Workload(
        f"gemv 1x{n}x{k}",
        "gemv",
        (data(1, k), weight(n, k)),
        lambda x, w: topi.nn.dense(x, w),
        lambda x, w: x @ w.T,
        lambda torch, F, x, w: F.linear(x, w),
        (
            lambda g, x, w: g.op("Gemm", x, w, transB=1),
            lambda g, x, w: g.op("MatMul", x, g.op("Transpose", w, perm=[1, 0])),
        ),
        2.0 * n * k,
    )


def _fused(m: int, n: int, k: int, name: str, after: tuple[Any, Any, Any, Any, Any]) -> Workload:
    ours, reference, in_numpy, in_torch, in_onnx = after
    return Workload(
        f"gemm+bias+{name} {m}x{n}x{k}",
        "fused gemm",
        (data(m, k), weight(n, k), weight(n)),
        lambda x, w, b: ours(topi.nn.dense(x, w, b)),
        lambda x, w, b: reference(x @ w.T + b),
        lambda torch, F, x, w, b: in_torch(F, F.linear(x, w, b)),
        (lambda g, x, w, b: in_onnx(g, g.op("Gemm", x, w, b, transB=1)),),
        2.0 * m * n * k,
        numpy=lambda x, w, b: in_numpy(x @ w.T + b),
    )


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


_RELU = (
    lambda x: topi.nn.relu(x),
    _relu,
    _relu,
    lambda F, x: F.relu(x),
    lambda g, x: g.op("Relu", x),
)
_GELU = (
    lambda x: topi.nn.gelu(x),
    gelu64,
    gelu32,
    lambda F, x: F.gelu(x),
    lambda g, x: g.op("Gelu", x),
)


def _add_relu(x: te.Tensor, w: te.Tensor, b: te.Tensor, r: te.Tensor) -> te.Tensor:
    return topi.nn.relu(topi.add(topi.nn.dense(x, w, b), r))


def _residual(m: int, n: int, k: int) -> Workload:
    return Workload(
        f"gemm+bias+residual+relu {m}x{n}x{k}",
        "fused gemm",
        (data(m, k), weight(n, k), weight(n), data(m, n)),
        _add_relu,
        lambda x, w, b, r: _relu(x @ w.T + b + r),
        lambda torch, F, x, w, b, r: F.relu(F.linear(x, w, b) + r),
        (lambda g, x, w, b, r: g.op("Relu", g.op("Add", g.op("Gemm", x, w, b, transB=1), r)),),
        2.0 * m * n * k,
    )


def _batch(batch: int, m: int, n: int, k: int, transposed: bool) -> Workload:
    shape = (batch, n, k) if transposed else (batch, k, n)
    return Workload(
        f"batch_matmul {batch}x{m}x{n}x{k}{' NT' if transposed else ''}",
        "batch matmul",
        (data(batch, m, k), data(*shape)),
        lambda a, b: topi.nn.batch_matmul(a, b, transpose_b=transposed),
        lambda a, b: a @ (b.transpose(0, 2, 1) if transposed else b),
        lambda torch, F, a, b: a @ (b.transpose(1, 2) if transposed else b),
        (
            lambda g, a, b: g.op(
                "MatMul", a, g.op("Transpose", b, perm=[0, 2, 1]) if transposed else b
            ),
        ),
        2.0 * batch * m * n * k,
    )


WORKLOADS = (
    _gemm(512, 512, 512, quick=True),
    _gemm(1024, 1024, 1024),
    _gemm(2048, 2048, 2048),
    _gemm(128, 768, 3072),
    _gemm(128, 3072, 768),
    _gemm(197, 197, 64, "odd gemm"),
    _gemm(333, 77, 129, "odd gemm", quick=True),
    _gemv(4096, 4096),
    _gemv(256, 784),
    _batch(12, 128, 64, 128, transposed=False),
    _batch(12, 128, 128, 64, transposed=True),
    _fused(128, 768, 3072, "relu", _RELU),
    _fused(128, 3072, 768, "gelu", _GELU),
    _residual(128, 768, 768),
)
