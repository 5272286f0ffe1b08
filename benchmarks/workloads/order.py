"""Sorting, the first few of rows, and looking rows up.

Results are those of stable sorts, whatever a peer does by default, so that all agree.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from benchmarks.workload import Array, Input, Workload, data, weight
from tilewright import te, topi


def _order(x: Array) -> Array:
    return np.argsort(x, axis=-1, kind="stable")


def _onnx(g: Any, x: str, k: int, *, places: bool = False, **attributes: Any) -> str:
    kind = {"dtype": "int64", "wanted": 1} if places else {}
    return str(g.op("TopK", x, g.integers([k]), results=2, **kind, **attributes))


def _topk(rows: int, length: int, k: int) -> Workload:
    return Workload(
        f"topk {k} of {rows}x{length}",
        "sort",
        (data(rows, length),),
        lambda x: cast("te.Tensor", topi.topk(x, k, ret_type="indices")),
        lambda x: _order(-x)[:, :k],
        lambda torch, F, x: x.topk(k)[1],
        (lambda g, x: _onnx(g, x, k, places=True),),
        float(rows * length),
        out_dtype="int64",
        numpy=lambda x: _few(x, k),
    )


def _few(x: Array, k: int) -> Array:
    """The fast way with NumPy: put the first few in front, then sort these."""
    found = np.argpartition(-x, k, axis=-1)[:, :k]
    order = np.argsort(-np.take_along_axis(x, found, -1), axis=-1)
    return np.take_along_axis(found, order, -1)


def _sort(rows: int, length: int) -> Workload:
    return Workload(
        f"sort {rows}x{length}",
        "sort",
        (data(rows, length),),
        lambda x: topi.sort(x),
        lambda x: np.sort(x, axis=-1),
        lambda torch, F, x: x.sort()[0],
        (lambda g, x: _onnx(g, x, length, largest=0),),
        rows * length * math.log2(length),
    )


def _argsort(rows: int, length: int) -> Workload:
    return Workload(
        f"argsort {rows}x{length}",
        "sort",
        (data(rows, length),),
        lambda x: topi.argsort(x, dtype="int64"),
        _order,
        lambda torch, F, x: x.argsort(stable=True),
        (lambda g, x: _onnx(g, x, length, places=True, largest=0),),
        rows * length * math.log2(length),
        out_dtype="int64",
    )


def _embedding(tokens: tuple[int, ...], count: int, width: int) -> Workload:
    drawn = math.prod(tokens)
    return Workload(
        f"embedding {'x'.join(map(str, tokens))} of {count}x{width}",
        "embedding",
        (weight(count, width), Input(tokens, "int64", low=0, high=count)),
        lambda table, places: topi.take(table, places, 0),
        lambda table, places: np.take(table, places, 0),
        lambda torch, F, table, places: F.embedding(places, table),
        (lambda g, table, places: g.op("Gather", table, places),),
        0.0,
        # Rows that are drawn at least once, on average.
        reads=round(count * (1 - (1 - 1 / count) ** drawn)) * width * 4 + drawn * 8,
    )


WORKLOADS = (
    _topk(1, 32000, 50),
    _topk(64, 32000, 50),
    _topk(1024, 128, 8),
    _sort(1000, 1000),
    _argsort(1, 1_000_000),
    _embedding((4, 128), 32000, 768),
    _embedding((32, 512), 32000, 768),
)
