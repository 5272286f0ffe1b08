"""What only moves or sums memory: reductions, transpositions, copies with a little arithmetic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.workload import Array, Workload, data
from tilewright import topi


def _sum(axis: int | None, *shape: int) -> Workload:
    where = "all" if axis is None else f"axis {axis}"
    axes = list(range(len(shape))) if axis is None else [axis]
    return Workload(
        f"sum {'x'.join(map(str, shape))} {where}",
        "reduction",
        (data(*shape),),
        lambda x: topi.sum(x, axis=axis),
        lambda x: np.asarray(x.sum(axis)),
        (lambda torch, F, x: x.sum()) if axis is None else (lambda torch, F, x: x.sum(axis)),
        (lambda g, x: g.op("ReduceSum", x, g.integers(axes), keepdims=0),),
        float(math.prod(shape)),
        # Sums of numbers around zero have little to be relative to.
        tolerance=1e-3 if axis is None else None,
    )


def _mean(*shape: int) -> Workload:
    axes = list(range(2, len(shape)))
    return Workload(
        f"mean {'x'.join(map(str, shape))} spatial",
        "reduction",
        (data(*shape),),
        lambda x: topi.mean(x, axis=axes),
        lambda x: x.mean(tuple(axes)),
        lambda torch, F, x: x.mean(axes),
        (
            lambda g, x: g.op("ReduceMean", x, g.integers(axes), keepdims=0),
            lambda g, x: g.op("Flatten", g.op("GlobalAveragePool", x)),
        ),
        float(math.prod(shape)),
    )


def _argmax(axis: int, *shape: int) -> Workload:
    return Workload(
        f"argmax {'x'.join(map(str, shape))} axis {axis}",
        "reduction",
        (data(*shape),),
        lambda x: topi.argmax(x, axis=axis, dtype="int64"),
        lambda x: x.argmax(axis),
        lambda torch, F, x: x.argmax(axis),
        (lambda g, x: g.op("ArgMax", x, axis=axis, keepdims=0, dtype="int64"),),
        float(math.prod(shape)),
        out_dtype="int64",
    )


def _max(axis: int, *shape: int) -> Workload:
    return Workload(
        f"max {'x'.join(map(str, shape))} axis {axis}",
        "reduction",
        (data(*shape),),
        lambda x: topi.max(x, axis=axis),
        lambda x: x.max(axis),
        lambda torch, F, x: x.amax(axis),
        (lambda g, x: g.op("ReduceMax", x, g.integers([axis]), keepdims=0),),
        float(math.prod(shape)),
    )


def _transpose(axes: tuple[int, ...], *shape: int) -> Workload:
    order = "" if len(axes) == 2 else f" to {','.join(map(str, axes))}"
    return Workload(
        f"transpose {'x'.join(map(str, shape))}{order}",
        "transpose",
        (data(*shape),),
        lambda x: topi.transpose(x, axes),
        lambda x: np.ascontiguousarray(x.transpose(axes)),
        lambda torch, F, x: x.permute(axes).contiguous(),
        (lambda g, x: g.op("Transpose", x, perm=list(axes)),),
        0.0,
    )


def _add(*shape: int) -> Workload:
    return Workload(
        f"add {'x'.join(map(str, shape))}",
        "elementwise",
        (data(*shape), data(*shape)),
        lambda a, b: topi.add(a, b),
        lambda a, b: a + b,
        lambda torch, F, a, b: a + b,
        (lambda g, a, b: g.op("Add", a, b),),
        float(math.prod(shape)),
    )


def _max_pool_reference(x: Array) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    return np.asarray(windows[:, :, ::2, ::2].max((4, 5)))


def _max_pool(channels: int, size: int) -> Workload:
    pads: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    return Workload(
        f"max_pool {channels}x{size}x{size} 3x3/2",
        "pooling",
        (data(1, channels, size, size),),
        lambda x: topi.nn.max_pool2d(x, 3, strides=2, padding=1),
        _max_pool_reference,
        lambda torch, F, x: F.max_pool2d(x, 3, 2, 1),
        (lambda g, x: g.op("MaxPool", x, **pads),),
        9.0 * channels * (size // 2) ** 2,
    )


WORKLOADS = (
    _sum(0, 4096, 4096),
    _sum(1, 4096, 4096),
    _sum(None, 4096, 4096),
    _mean(1, 2048, 7, 7),
    _argmax(1, 1024, 32768),
    _argmax(1, 128, 1000),
    _max(1, 1024, 1024),
    _transpose((1, 0), 4096, 4096),
    _transpose((1, 0), 1024, 1024),
    _transpose((0, 2, 1, 3), 1, 128, 12, 64),
    _transpose((0, 3, 1, 2), 1, 56, 56, 64),
    _add(1024, 1024),
    _add(4096, 4096),
    _max_pool(64, 112),
)
