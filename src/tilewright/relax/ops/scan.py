"""Running sums and products along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import topi
from tilewright.relax.expr import RelaxCall, RelaxExpr
from tilewright.relax.ops.common import normal_axis, tensor_like
from tilewright.relax.ops.manipulate import permute_dims
from tilewright.relax.registry import Tensor, get_op, operator
from tilewright.relax.struct_info import StructInfo


def _along_rows(call: RelaxCall) -> RelaxExpr | None:
    """Bring the axis to the end: a row that lies in memory is scanned as fast as it is read."""
    x: Any = call.args[0]
    ndim = x.ndim
    axis = call.attrs["axis"] % ndim
    if axis == ndim - 1:
        return None
    order = [n for n in range(ndim) if n != axis] + [axis]
    back = [order.index(n) for n in range(ndim)]
    turned: Any = permute_dims(x, order)
    scan: Any = cumsum if call.op is get_op("cumsum") else cumprod
    made: RelaxExpr = permute_dims(scan(turned, ndim - 1, call.attrs["dtype"]), back)
    return made


def _numpy(function: Any) -> Any:
    def rule(x: Any, axis: int, dtype: str | None) -> Any:
        wide = np.float32 if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else None
        made = function(x.astype(dtype or x.dtype), axis, dtype=wide)
        return made.astype(dtype or x.dtype)

    return rule


@operator("cumsum", legalize=topi.cumsum, numpy=_numpy(np.cumsum), decompose=_along_rows)
def cumsum(x: Tensor, axis: int = -1, dtype: str | None = None) -> StructInfo:
    """Sum of each element and those before it along an axis."""
    info: Any = x
    normal_axis(axis, info.ndim)
    return tensor_like(info, dtype=dtype or info.dtype)


@operator("cumprod", legalize=topi.cumprod, numpy=_numpy(np.cumprod), decompose=_along_rows)
def cumprod(x: Tensor, axis: int = -1, dtype: str | None = None) -> StructInfo:
    """Product of each element and those before it along an axis."""
    info: Any = x
    normal_axis(axis, info.ndim)
    return tensor_like(info, dtype=dtype or info.dtype)
