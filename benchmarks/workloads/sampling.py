"""Recurrent layers, sampled and bordered images, norms of columns: regular work, odd accesses."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Array, Workload, data, weight
from tilewright import topi
from tilewright.topi import testing

# What states are multiplied by: random weights of this size don't make errors grow.
_SCALE = 1.0 / 16


def _lstm(steps: int, batch: int, width: int) -> Workload:
    def prepare(torch: Any, x: Any, wi: Any, wh: Any) -> tuple[Any, ...]:
        first = torch.zeros(1, batch, width)
        return x, wi, wh * _SCALE, first

    def run(torch: Any, F: Any, x: Any, wi: Any, wh: Any, first: Any) -> Any:
        return torch.lstm(x, (first, first), [wi, wh], False, 1, 0.0, False, False, False)[0]

    return Workload(
        f"lstm {steps} steps of {batch}x{width}",
        "recurrent",
        (
            data(steps, batch, width),
            weight(4 * width, width),
            weight(4 * width, width),
        ),
        lambda x, wi, wh: topi.nn.lstm(x, wi, topi.multiply(wh, _SCALE))[0],
        lambda x, wi, wh: testing.lstm_python(x, wi, wh * _SCALE)[0],
        run,
        (),
        4.0 * steps * batch * 4 * width * width,
        torch_prepare=prepare,
        needs=("nn.lstm",),
        numpy=None,
    )


def _grid_sample(method: str, channels: int, size: int) -> Workload:
    taps = {"bilinear": 4, "bicubic": 16}[method]
    return Workload(
        f"grid_sample {method} {channels}x{size}x{size}",
        "sampling",
        (data(1, channels, size, size), data(1, 2, size, size)),
        lambda x, g: topi.image.grid_sample(x, g, method, "NCHW", "border", True),
        lambda x, g: testing.grid_sample_python(x, g, method, "NCHW", "border", True),
        lambda torch, F, x, g: F.grid_sample(
            x, g.permute(0, 2, 3, 1), method, "border", align_corners=True
        ),
        (),
        2.0 * taps * channels * size * size,
        needs=("image.grid_sample",),
        numpy=None,
        tolerance=1e-3,
    )


def _reflected(channels: int, size: int, border: int) -> Workload:
    widths = (0, 0, border, border)

    def reference(x: Array) -> Array:
        return np.pad(x, [(n, n) for n in widths], "reflect")

    return Workload(
        f"reflect_pad {channels}x{size}x{size} by {border}",
        "borders",
        (data(1, channels, size, size),),
        lambda x: topi.nn.reflect_pad(x, widths, widths),
        reference,
        lambda torch, F, x: F.pad(x, (border,) * 4, "reflect"),
        (),
        0.0,
        needs=("nn.reflect_pad",),
    )


def _norm_of_columns(batch: int, size: int, channels: int) -> Workload:
    def reference(x: Array) -> Array:
        mean, var = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
        return np.asarray((x - mean) / np.sqrt(var + 1e-5))

    return Workload(
        f"instance_norm NHWC {batch}x{size}x{size}x{channels}",
        "norms of columns",
        (data(batch, size, size, channels),),
        lambda x: topi.nn.instance_norm(x, None, None, 3, [1, 2], 1e-5),
        reference,
        lambda torch, F, x: F.instance_norm(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1),
        (),
        8.0 * batch * size * size * channels,
        needs=("nn.instance_norm",),
    )


WORKLOADS = (
    _lstm(64, 1, 128),
    _lstm(64, 8, 128),
    _lstm(32, 8, 256),
    _lstm(512, 8, 64),
    _grid_sample("bilinear", 16, 64),
    _grid_sample("bicubic", 16, 64),
    _reflected(16, 64, 3),
    _norm_of_columns(1, 56, 64),
    _norm_of_columns(8, 16, 32),
)
