"""From floats to integers of fewer bits, and back."""

from __future__ import annotations

from typing import Any

from tilewright import topi
from tilewright.ir import dtypes
from tilewright.relax.conditions import require_equal
from tilewright.relax.ops.common import known, tensor_like
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.utils import normal_axis


def _check(data: TensorStructInfo, axis: int, **along: TensorStructInfo) -> None:
    """Scales and zero points are one number, or one for each place of an axis."""
    shape = known(data, "data")
    for name, info in along.items():
        if info.ndim not in (0, 1):
            raise VerifyError(f"{name} is one number, or one for each place of an axis: {info!r}")
        if info.ndim == 1:
            extent = shape[normal_axis(axis, len(shape))]
            require_equal(f"{name} has another number of places", known(info, name)[0], extent)


def _quantized(data: Any, scale: Any, zero_point: Any, axis: int, out_dtype: str) -> Any:
    return topi.nn.quantize(data, scale, zero_point, out_dtype=out_dtype, axis=axis)


def _dequantized(data: Any, scale: Any, zero_point: Any, axis: int, out_dtype: str) -> Any:
    return topi.nn.dequantize(data, scale, zero_point, out_dtype=out_dtype, axis=axis)


@operator("quantize", legalize=_quantized)
def quantize(
    data: Tensor, scale: Tensor, zero_point: Tensor, axis: int = -1, out_dtype: str = "int8"
) -> StructInfo:
    """``clip(round(data / scale) + zero_point)`` as ``out_dtype``.

    Raises ``VerifyError`` for integers, and an ``out_dtype`` of floats.
    """
    if not dtypes.is_float(data.dtype):
        raise VerifyError(f"floats are quantized, got {data.dtype}")
    if out_dtype not in ("int8", "uint8", "int16", "uint16"):
        raise VerifyError(f"out_dtype must be an integer of 8 or 16 bits, got {out_dtype}")
    _check(data, axis, scale=scale, zero_point=zero_point)
    return tensor_like(data, dtype=out_dtype)


@operator("dequantize", legalize=_dequantized)
def dequantize(
    data: Tensor, scale: Tensor, zero_point: Tensor, axis: int = -1, out_dtype: str = "float32"
) -> StructInfo:
    """``(data - zero_point) * scale`` as ``out_dtype``.

    Raises ``VerifyError`` for floats, and an ``out_dtype`` of integers.
    """
    if not dtypes.is_integer(data.dtype):
        raise VerifyError(f"integers are dequantized, got {data.dtype}")
    if not dtypes.is_float(out_dtype):
        raise VerifyError(f"out_dtype must be of floats, got {out_dtype}")
    _check(data, axis, scale=scale, zero_point=zero_point)
    return tensor_like(data, dtype=out_dtype)
