"""Quantised tensors: conversions, and products and convolutions of 8-bit numbers.

A quantised number ``q`` represents ``(q - zero_point) * scale``. Rounding is to nearest, ties to
even; values out of range are clipped. ``scale`` and ``zero_point`` are numbers, tensors without
axes, or tensors of one dimension that lie along ``axis``.

Products take unsigned data, for which CPUs have instructions, so signed data that has a zero point
or comes with sums of weights is shifted by 128; other products of signed numbers are left to
schedules, which know cheaper ways. The contribution of zero points to a result,
``zero_point * sum(weights)``, is subtracted at the end; the sums of constant weights can be
computed once, by ``weight_sums``, and passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import te
from tilewright.ir import (
    Expr,
    as_int,
    call,
    cast,
    const,
    dtypes,
    max_value,
    maximum,
    min_value,
    minimum,
)
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.tir.op import bitwise_xor, nearbyint
from tilewright.topi.nn.conv import conv2d
from tilewright.topi.nn.dense import matmul
from tilewright.topi.nn.pad import pad
from tilewright.topi.utils import normal_axis, padding_of, require_ndim

_SIGNED = 128


@with_conditions
def quantize(
    x: Tensor,
    scale: Tensor | float,
    zero_point: Tensor | int = 0,
    out_dtype: str = "int8",
    axis: int = -1,
) -> Tensor:
    """``clip(round(x / scale) + zero_point)`` as ``out_dtype``."""
    _check_quantized("quantize", out_dtype)
    _check_along("quantize", x, axis, scale, zero_point)

    def formula(*at: Expr) -> Expr:
        value = cast(x(*at), "float32") / _along(scale, at, axis, "float32")
        return _clipped(value, _along(zero_point, at, axis, "float32"), out_dtype)

    made: Tensor = compute(x.shape, formula, name="quantize", tag="elemwise")
    return made


@with_conditions
def dequantize(
    x: Tensor,
    scale: Tensor | float,
    zero_point: Tensor | int = 0,
    out_dtype: str = "float32",
    axis: int = -1,
) -> Tensor:
    """``(x - zero_point) * scale`` as ``out_dtype``.

    Raises ``VerifyError`` for floats.
    """
    if not dtypes.is_integer(x.dtype):
        raise VerifyError(f"dequantize takes integers, got {x.dtype}")
    _check_along("dequantize", x, axis, scale, zero_point)

    def formula(*at: Expr) -> Expr:
        value = cast(x(*at), "int32") - _along(zero_point, at, axis, "int32")
        return cast(cast(value, "float32") * _along(scale, at, axis, "float32"), out_dtype)

    made: Tensor = compute(x.shape, formula, name="dequantize", tag="elemwise")
    return made


@with_conditions
def requantize(
    x: Tensor,
    scale: Tensor | float,
    zero_point: Tensor | int = 0,
    out_dtype: str = "int8",
    axis: int = -1,
) -> Tensor:
    """``clip(round(x * scale) + zero_point)`` of int32 sums.

    ``scale`` is the scale of ``x`` over that of the result.

    Raises ``VerifyError`` for other dtypes.
    """
    if x.dtype != "int32":
        raise VerifyError(f"requantize takes int32 sums, got {x.dtype}")
    _check_quantized("requantize", out_dtype)
    _check_along("requantize", x, axis, scale, zero_point)

    def formula(*at: Expr) -> Expr:
        value = cast(x(*at), "float32") * _along(scale, at, axis, "float32")
        return _clipped(value, _along(zero_point, at, axis, "float32"), out_dtype)

    made: Tensor = compute(x.shape, formula, name="requantize", tag="elemwise")
    return made


@dataclass(frozen=True)
class ZeroPoint:
    """The number that stands for 0 in quantised data, and what it contributes to a product.

    ``sums [N]`` is ``weight_sums(weight)``; without it they are computed in the call.
    """

    value: int = 0
    sums: Tensor | None = None


@with_conditions
def dense_int8(
    data: Tensor,
    weight: Tensor,
    zero_point: ZeroPoint = ZeroPoint(),
    bias: Tensor | None = None,
) -> Tensor:
    """``(data [..., K] - zero_point) @ weight [N, K]ᵀ + bias [N]``, exact in int32.

    ``data`` is int8 or uint8, ``weight`` int8, ``bias`` int32.
    """
    require_ndim("dense_int8", weight, 2)
    unsigned, zero = _as_unsigned("dense_int8", data, weight, zero_point)
    sums = zero_point.sums
    result = matmul(unsigned, weight, transpose_b=True, out_dtype="int32")
    if zero and sums is None:
        k = te.reduce_axis((0, weight.shape[1]), "k")
        sums = compute(
            (weight.shape[0],),
            lambda n: te.sum(cast(weight(n, k.var), "int32"), axis=k),
            name="weight_sum",
            tag="comm_reduce",
        )
    return _finished("dense_int8", result, zero, sums, bias, -1)


@with_conditions
def conv2d_int8(
    data: Tensor,
    weight: Tensor,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    zero_point: ZeroPoint = ZeroPoint(),
    bias: Tensor | None = None,
) -> Tensor:
    """Convolve ``data [N, C, H, W]`` less its zero point with ``weight [F, C/groups, KH, KW]``.

    Exact in int32; dtypes and ``bias [F]`` as for ``dense_int8``. Padding is the zero point: it
    contributes nothing.
    """
    require_ndim("conv2d_int8", weight, 4)
    unsigned, zero = _as_unsigned("conv2d_int8", data, weight, zero_point)
    sums = zero_point.sums
    before, after = padding_of(padding, 2)
    if any(before) or any(after):
        unsigned = pad(unsigned, (0, 0, *before), (0, 0, *after), zero, "pad_temp")
    result = conv2d(unsigned, weight, strides, 0, dilation, out_dtype="int32", groups=groups)
    if zero and sums is None:
        axes = [te.reduce_axis((0, extent), name) for extent, name in zip(weight.shape[1:], "crs")]
        sums = compute(
            (weight.shape[0],),
            lambda f: te.sum(cast(weight(f, *(a.var for a in axes)), "int32"), axis=axes),
            name="weight_sum",
            tag="comm_reduce",
        )
    return _finished("conv2d_int8", result, zero, sums, bias, 1)


def weight_sums(weight: Tensor) -> Any:
    """Sum NumPy weights ``[N, ...]`` over all but their first axis, as int32."""
    values = np.asarray(weight)
    return values.reshape(len(values), -1).astype(np.int32).sum(1, dtype=np.int32)


# ---- parts ------------------------------------------------------------------------------------


def _as_unsigned(
    what: str, data: Tensor, weight: Tensor, zero_point: ZeroPoint
) -> tuple[Tensor, int]:
    """The data as uint8 if that pays off, and its zero point."""
    if data.dtype not in ("int8", "uint8") or weight.dtype != "int8":
        raise VerifyError(
            f"{what} takes int8 or uint8 data and int8 weights, got {data.dtype} and {weight.dtype}"
        )
    low, high = dtypes.integer_limits(data.dtype)
    zero = zero_point.value
    if not low <= zero <= high:
        raise VerifyError(f"{what}: {zero} is no {data.dtype}")
    if data.dtype == "uint8" or (not zero and zero_point.sums is None):
        return data, zero
    moved = compute(
        data.shape,
        lambda *at: call(
            "reinterpret", bitwise_xor(data(*at), const(-_SIGNED, "int8")), dtype="uint8"
        ),
        name="unsigned",
        tag="elemwise",
    )
    return moved, zero + _SIGNED


def _finished(
    what: str, result: Tensor, zero: int, sums: Tensor | None, bias: Tensor | None, axis: int
) -> Tensor:
    """Subtract what the zero point contributes, add the bias."""
    place = normal_axis(axis, result.ndim)
    for tensor in (sums, bias):
        if tensor is not None:
            require_ndim(what, tensor, 1)
            require_equal(
                f"{what}: {tensor.name} and outputs", tensor.shape[0], result.shape[place]
            )
            if tensor.dtype != "int32":
                raise VerifyError(f"{what}: {tensor.name} must be int32, is {tensor.dtype}")
    if not zero and bias is None:
        return result

    def formula(*at: Expr) -> Expr:
        if not zero:
            assert bias is not None
            return bias(at[place]) + result(*at)
        assert sums is not None
        value = sums(at[place]) * -zero  # what is read first is computed first
        return value + result(*at) if bias is None else (value + bias(at[place])) + result(*at)

    made: Tensor = compute(result.shape, formula, name=f"{what}_out", tag="broadcast")
    return made


def _check_quantized(what: str, dtype: str) -> None:
    if dtype not in ("int8", "uint8", "int16", "uint16"):
        raise VerifyError(f"{what} makes int8, uint8, int16 or uint16, not {dtype}")


def _check_along(what: str, x: Tensor, axis: int, *values: object) -> None:
    for value in values:
        if isinstance(value, Tensor):
            if value.ndim == 0:
                continue
            require_ndim(what, value, 1)
            place = normal_axis(axis, x.ndim)
            require_equal(f"{what}: {value.name} and axis {axis}", value.shape[0], x.shape[place])
        elif as_int(value) is None and not isinstance(value, float):
            raise VerifyError(
                f"{what}: expected a number or a tensor of at most one dimension, {value!r}"
            )


def _along(value: Tensor | float, at: tuple[Expr, ...], axis: int, dtype: str) -> Expr:
    """The scale or zero point for an element."""
    if isinstance(value, Tensor):
        return cast(value(at[axis]) if value.ndim else value(), dtype)
    return const(value, dtype)


def _clipped(value: Expr, zero_point: Expr, dtype: str) -> Expr:
    """Round, add the zero point and clip; NaN gives the minimum."""
    moved = nearbyint(value) + zero_point
    low, high = (cast(limit(dtype), "float32") for limit in (min_value, max_value))
    # By way of int32: one conversion, then narrowing.
    return cast(cast(minimum(maximum(moved, low), high), "int32"), dtype)
