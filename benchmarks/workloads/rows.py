"""Chains over rows (softmax, norms) and over elements (gelu)."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.workload import Array, Workload, data, weight
from benchmarks.workloads.gemm import gelu32, gelu64
from tilewright import topi


def softmax_reference(x: Array) -> Array:
    """Softmax over the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _layer_norm_reference(x: Array, w: Array, b: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + x.dtype.type(1e-5)) * w + b)


def _rms_norm_reference(x: Array, w: Array) -> Array:
    mean = (x * x).mean(-1, keepdims=True)
    return np.asarray(x / np.sqrt(mean + x.dtype.type(1e-5)) * w)


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _softmax(*shape: int, quick: bool = False) -> Workload:
    return Workload(
        f"softmax {_text(shape)}",
        "softmax",
        (data(*shape),),
        lambda x: topi.nn.softmax(x),
        softmax_reference,
        lambda torch, F, x: F.softmax(x, -1),
        (lambda g, x: g.op("Softmax", x, axis=-1),),
        5.0 * math.prod(shape),
        quick=quick,
    )


def _log_softmax(*shape: int) -> Workload:
    return Workload(
        f"log_softmax {_text(shape)}",
        "softmax",
        (data(*shape),),
        lambda x: topi.nn.log_softmax(x),
        lambda x: np.log(softmax_reference(x)),
        lambda torch, F, x: F.log_softmax(x, -1),
        (lambda g, x: g.op("LogSoftmax", x, axis=-1),),
        5.0 * math.prod(shape),
    )


def _layer_norm(rows: int, width: int) -> Workload:
    return Workload(
        f"layer_norm {rows}x{width}",
        "norm",
        (data(rows, width), weight(width), weight(width)),
        lambda x, w, b: topi.nn.layer_norm(x, w, b, axis=-1, epsilon=1e-5),
        _layer_norm_reference,
        lambda torch, F, x, w, b: F.layer_norm(x, (width,), w, b, 1e-5),
        (lambda g, x, w, b: g.op("LayerNormalization", x, w, b, axis=-1, epsilon=1e-5),),
        8.0 * rows * width,
    )


def _rms_norm(rows: int, width: int) -> Workload:
    return Workload(
        f"rms_norm {rows}x{width}",
        "norm",
        (data(rows, width), weight(width)),
        lambda x, w: topi.nn.rms_norm(x, w, axis=-1, epsilon=1e-5),
        _rms_norm_reference,
        lambda torch, F, x, w: F.rms_norm(x, (width,), w, 1e-5),
        (lambda g, x, w: g.op("RMSNormalization", x, w, axis=-1, epsilon=1e-5),),
        5.0 * rows * width,
    )


def _gelu(rows: int, width: int) -> Workload:
    return Workload(
        f"gelu {rows}x{width}",
        "elementwise",
        (data(rows, width),),
        lambda x: topi.nn.gelu(x),
        gelu64,
        lambda torch, F, x: F.gelu(x),
        (lambda g, x: g.op("Gelu", x),),
        10.0 * rows * width,
        numpy=gelu32,
        quick=True,
    )


def _tanh_gelu(x: Array) -> Array:
    kind = x.dtype.type
    inner = kind(math.sqrt(2 / math.pi)) * (x + kind(0.044715) * x * x * x)
    return np.asarray(kind(0.5) * x * (kind(1) + np.tanh(inner)))


def _bias_gelu(rows: int, width: int) -> Workload:
    return Workload(
        f"bias+gelu_tanh+mul {rows}x{width}",
        "elementwise",
        (data(rows, width), weight(width), data(rows, width)),
        lambda x, b, y: topi.multiply(topi.nn.gelu_tanh(topi.add(x, b)), y),
        lambda x, b, y: _tanh_gelu(x + b) * y,
        lambda torch, F, x, b, y: F.gelu(x + b, approximate="tanh") * y,
        (lambda g, x, b, y: g.op("Mul", g.op("Gelu", g.op("Add", x, b), approximate="tanh"), y),),
        10.0 * rows * width,
    )


WORKLOADS = (
    _softmax(12, 128, 128, quick=True),
    _softmax(1024, 32768),
    _softmax(197, 197),
    _log_softmax(1024, 1000),
    _layer_norm(128, 768),
    _layer_norm(4096, 4096),
    _rms_norm(128, 768),
    _rms_norm(4096, 4096),
    _gelu(128, 3072),
    _bias_gelu(128, 3072),
)
