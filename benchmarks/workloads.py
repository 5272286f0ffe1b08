"""Operators to measure, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright import te, topi
from tilewright.tir import PrimFunc

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Workload:
    """An operator: shapes of its inputs, how to build it, what it costs, what it should give.

    ``torch`` takes torch, its functional module and tensors; ``reference`` takes arrays and is the
    peer ``numpy`` too.
    """

    name: str
    inputs: tuple[tuple[int, ...], ...]
    build: Callable[..., te.Tensor]
    reference: Callable[..., Array]
    torch: Callable[..., Any]
    flops: float
    nbytes: float = field(default=0.0)
    quick: bool = False

    def prim_func(self) -> PrimFunc:
        """Return the operator as a function of its inputs and its result."""
        tensors = [te.placeholder(s, name=f"x{n}") for n, s in enumerate(self.inputs)]
        return te.create_prim_func([*tensors, self.build(*tensors)])

    def arrays(self, seed: int = 0) -> list[Array]:
        """Return random inputs."""
        rng = np.random.default_rng(seed)
        return [rng.standard_normal(shape, dtype=np.float32) for shape in self.inputs]


def _conv(x: Array, w: Array, stride: int, padding: int) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride]
    made = np.tensordot(windows, w, axes=((1, 4, 5), (1, 2, 3)))
    return np.ascontiguousarray(made.transpose(0, 3, 1, 2))


def _depthwise(x: Array, w: Array, padding: int) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.asarray(np.einsum("nchwij,cij->nchw", windows, w[:, 0]))


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _layer_norm(x: Array, w: Array, b: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + 1e-5) * w + b)


def _gelu(x: Array) -> Array:
    # numpy has no erf; Abramowitz and Stegun 7.1.26 is good to 1.5e-7.
    z = np.abs(x) * np.float32(0.7071067811865476)
    t = 1 / (1 + 0.3275911 * z)
    poly = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    erf = np.sign(x) * (1 - poly * np.exp(-z * z))
    return np.asarray(0.5 * x * (1 + erf), np.float32)


def _max_pool(x: Array) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    return np.asarray(windows[:, :, ::2, ::2].max((4, 5)))


def _matmul(m: int, n: int, k: int, quick: bool = False) -> Workload:
    return Workload(
        f"matmul {m}x{n}x{k}",
        ((m, k), (k, n)),
        topi.matmul,
        lambda a, b: a @ b,
        lambda torch, F, a, b: a @ b,
        2.0 * m * n * k,
        quick=quick,
    )


def _dense(m: int, n: int, k: int, quick: bool = False) -> Workload:
    return Workload(
        f"dense {m}x{n}x{k}",
        ((m, k), (n, k)),
        lambda x, w: topi.nn.dense(x, w),
        lambda x, w: x @ w.T,
        lambda torch, F, x, w: F.linear(x, w),
        2.0 * m * n * k,
        quick=quick,
    )


def _conv2d(
    channels: int, size: int, filters: int, kernel: int, stride: int = 1, quick: bool = False
) -> Workload:
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    return Workload(
        f"conv2d {channels}x{size}x{size} {filters}@{kernel}x{kernel}/{stride}",
        ((1, channels, size, size), (filters, channels, kernel, kernel)),
        lambda x, w: topi.nn.conv2d(x, w, strides=stride, padding=pad),
        lambda x, w: _conv(x, w, stride, pad),
        lambda torch, F, x, w: F.conv2d(x, w, stride=stride, padding=pad),
        2.0 * channels * kernel * kernel * filters * out * out,
        quick=quick,
    )


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        _matmul(512, 512, 512, quick=True),
        _matmul(1024, 1024, 1024),
        _matmul(128, 3072, 768),
        _dense(1, 256, 784, quick=True),
        _dense(1, 4096, 4096),
        _dense(128, 768, 768),
        Workload(
            "batch_matmul 12x128x128x64",
            ((12, 128, 64), (12, 128, 64)),
            lambda a, b: topi.nn.batch_matmul(a, b, transpose_b=True),
            lambda a, b: a @ b.transpose(0, 2, 1),
            lambda torch, F, a, b: a @ b.transpose(1, 2),
            2.0 * 12 * 128 * 128 * 64,
        ),
        _conv2d(64, 56, 64, 3, quick=True),
        _conv2d(128, 28, 128, 3),
        _conv2d(64, 56, 128, 3, stride=2),
        _conv2d(64, 56, 128, 1, stride=2),
        Workload(
            "depthwise 96x56x56 3x3",
            ((1, 96, 56, 56), (96, 1, 3, 3)),
            lambda x, w: topi.nn.depthwise_conv2d(x, w, padding=1),
            lambda x, w: _depthwise(x, w, 1),
            lambda torch, F, x, w: F.conv2d(x, w, padding=1, groups=96),
            2.0 * 96 * 56 * 56 * 9,
        ),
        Workload(
            "max_pool 64x112x112 3x3/2",
            ((1, 64, 112, 112),),
            lambda x: topi.nn.max_pool2d(x, 3, strides=2, padding=1),
            _max_pool,
            lambda torch, F, x: F.max_pool2d(x, 3, 2, 1),
            9.0 * 64 * 56 * 56,
        ),
        Workload(
            "softmax 1536x128",
            ((1536, 128),),
            topi.nn.softmax,
            _softmax,
            lambda torch, F, x: torch.softmax(x, -1),
            5.0 * 1536 * 128,
            quick=True,
        ),
        Workload(
            "layer_norm 128x768",
            ((128, 768), (768,), (768,)),
            lambda x, w, b: topi.nn.layer_norm(x, w, b, axis=-1, epsilon=1e-5),
            _layer_norm,
            lambda torch, F, x, w, b: F.layer_norm(x, (768,), w, b, 1e-5),
            8.0 * 128 * 768,
        ),
        Workload(
            "gelu 128x3072",
            ((128, 3072),),
            topi.nn.gelu,
            _gelu,
            lambda torch, F, x: F.gelu(x),
            10.0 * 128 * 3072,
        ),
        Workload(
            "add 1024x1024",
            ((1024, 1024), (1024, 1024)),
            topi.add,
            lambda a, b: a + b,
            lambda torch, F, a, b: a + b,
            1024.0 * 1024,
        ),
        Workload(
            "sum rows 1024x1024",
            ((1024, 1024),),
            lambda x: topi.sum(x, axis=1),
            lambda x: x.sum(1),
            lambda torch, F, x: x.sum(1),
            1024.0 * 1024,
        ),
        Workload(
            "transpose 1024x1024",
            ((1024, 1024),),
            lambda x: topi.transpose(x, (1, 0)),
            lambda x: np.ascontiguousarray(x.T),
            lambda torch, F, x: x.T.contiguous(),
            0.0,
        ),
    )
}
