"""Operators that make tensors of numbers: constants, ranges, windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir import Expr, dtypes
from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import (
    Array,
    Context,
    Shape,
    Tensor,
    Value,
    converts,
)
from tilewright.relax.frontend.onnx.model import dtype_of
from tilewright.relax.values import const, numpy_dtype
from tilewright.topi.create import arange_count


@converts("Constant")
def _constant(
    ctx: Context, *, value: Array | None = None, sparse_value: Array | None = None,
    value_float: float | None = None, value_floats: tuple[float, ...] | None = None,
    value_int: int | None = None, value_ints: tuple[int, ...] | None = None,
) -> Tensor:  # fmt: skip
    for array in (value, sparse_value):
        if array is not None:
            return const(array)
    floats = value_float if value_float is not None else value_floats
    if floats is not None:
        return const(np.asarray(floats, np.float32))
    ints = value_int if value_int is not None else value_ints
    ctx.require(ints is not None, "there is no value")
    return const(np.asarray(ints, np.int64))


@converts("ConstantOfShape")
def _constant_of_shape(ctx: Context, shape: Shape, *, value: Array | None = None) -> Tensor:
    one = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    ctx.require(len(one) == 1, f"value must be one number, got {len(one)}")
    return op.full(shape, one[0].item(), one.dtype.name)


@converts("Range")
def _range(
    ctx: Context, start: Value, limit: Value, delta: Value, *, stash_type: int = 1
) -> Tensor:
    bounds: list[Any] = []
    for name, value in (("start", start), ("limit", limit), ("delta", delta)):
        found = ctx.known(value)
        if found is None:
            ctx.sizes(value, name)  # raises
        assert found is not None
        ctx.require(found.size == 1, f"{name} must be one number")
        item = found.reshape(-1)[0]
        bounds.append(item if isinstance(item, Expr) else item.item())
    dtype = getattr(start, "dtype", "int64")
    ctx.require(isinstance(bounds[2], Expr) or bounds[2] != 0, "delta must not be 0")
    if any(isinstance(item, Expr) for item in bounds):
        whole = [isinstance(item, Expr) or item == int(item) for item in bounds]
        ctx.require(all(whole), f"with symbolic sizes, bounds must be whole, got {bounds}")
        bounds = [item if isinstance(item, Expr) else int(item) for item in bounds]
        return (
            op.arange(bounds[0], bounds[1], bounds[2], "int64")
            if dtype == "int64"
            else ctx.cast(op.arange(bounds[0], bounds[1], bounds[2], "int64"), dtype)
        )
    first, last, step = bounds
    count = arange_count(first, last, step)
    wide = "float64" if dtypes.is_float(dtype) else "int64"
    steps = op.multiply(
        ctx.cast(op.arange(0, count, 1, "int64"), wide), const(np.asarray(step, wide))
    )
    return ctx.cast(op.add(steps, const(np.asarray(first, wide))), dtype)


def _window(name: str, parts: tuple[float, ...]) -> None:
    @converts(name)
    def convert(
        ctx: Context, size: Shape, *, output_datatype: int = 1, periodic: int = 1
    ) -> Tensor:
        count = ctx.ints(size, "size")[0]
        ctx.require(0 <= count <= 1 << 24, f"size must be from 0 to {1 << 24}, got {count}")
        dtype = dtype_of(output_datatype)
        steps = np.arange(count) * (2 * np.pi / max(count if periodic else count - 1, 1))
        made = sum(
            (share * np.cos(number * steps) for number, share in enumerate(parts)), np.zeros(count)
        )
        return const(np.asarray(made).astype(numpy_dtype(dtype)))


_window("HannWindow", (0.5, -0.5))
_window("HammingWindow", (25 / 46, -21 / 46))
_window("BlackmanWindow", (0.42, -0.5, 0.08))


@converts("MelWeightMatrix")
def _mel_weight_matrix(
    ctx: Context, num_mel_bins: Shape, dft_length: Shape, sample_rate: Shape,
    lower_edge_hertz: Array, upper_edge_hertz: Array, *, output_datatype: int = 1,
) -> Tensor:  # fmt: skip
    bins, length, rate = (
        ctx.ints(item, "a size")[0] for item in (num_mel_bins, dft_length, sample_rate)
    )
    ctx.require(
        0 < bins <= 1 << 12 and 0 < length <= 1 << 20 and rate > 0, "sizes must be positive"
    )
    low, high = (
        2595 * math.log10(1 + float(edge.reshape(-1)[0]) / 700)
        for edge in (lower_edge_hertz, upper_edge_hertz)
    )
    rows = length // 2 + 1
    edges = low + np.arange(bins + 2) * ((high - low) / (bins + 2))
    hertz = 700 * (np.power(10, edges / 2595) - 1)
    places = ((length + 1) * hertz / rate).astype(np.int64)
    made = np.zeros((rows, bins))
    for number in range(bins):
        first, middle, last = (int(places[number + k]) for k in range(3))
        if middle == first:
            made[middle, number] = 1
        else:
            for row in range(first, middle + 1):
                made[row, number] = (row - first) / (middle - first)
        if last > middle:
            for row in range(middle, last):
                made[row, number] = (last - row) / (last - middle)
    return const(made.astype(numpy_dtype(dtype_of(output_datatype))))
