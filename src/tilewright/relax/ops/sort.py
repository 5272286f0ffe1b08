"""Sorting along an axis; stable, with NaN as the greatest element."""

from __future__ import annotations

from tilewright import topi
from tilewright.ir import const, dtypes
from tilewright.relax.conditions import require
from tilewright.relax.ops.common import known, tensor_like
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.sort import first_in_order
from tilewright.topi.utils import normal_axis


@operator(
    "sort",
    legalize=lambda x, axis, descending: topi.sort(x, axis, not descending),
)
def sort(x: Tensor, axis: int = -1, descending: bool = False) -> StructInfo:
    """Sort the elements along an axis."""
    normal_axis(axis, x.ndim)
    return tensor_like(x)


@operator(
    "argsort",
    legalize=lambda x, axis, descending, dtype: topi.argsort(x, None, axis, not descending, dtype),
)
def argsort(
    data: Tensor, axis: int = -1, descending: bool = False, dtype: str = "int32"
) -> StructInfo:
    """The indices that would sort the elements."""
    normal_axis(axis, data.ndim)
    return tensor_like(data, dtype=_index_dtype(dtype))


def _index_dtype(dtype: str) -> str:
    if not dtypes.is_integer(dtype):
        raise VerifyError(f"the dtype of indices must be an integer, got {dtype}")
    return dtype


@operator(
    "topk",
    legalize=lambda x, k, axis, ret_type, largest, dtype: first_in_order(
        x, None if k == -1 else k, axis, ret_type, not largest, dtype
    ),
)
def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: str = "int32",
) -> StructInfo:
    """The ``k`` largest (or smallest) elements of an axis in order, and their indices.

    ``ret_type`` is ``"both"``, ``"values"`` or ``"indices"``; ``k = -1`` means all elements.

    Raises ``VerifyError`` for a ``k`` below -1 and an unknown ``ret_type``.
    """
    shape = list(known(data))
    position = normal_axis(axis, len(shape))
    extent = shape[position]
    if k < -1:
        raise VerifyError(f"k must be at least 0, or -1 for all; got {k}")
    if k != -1:
        require(k <= extent, f"k is {k}, but the axis has ", extent, " elements")
        shape[position] = const(k)
    results = {
        "values": TensorStructInfo(shape, data.dtype),
        "indices": TensorStructInfo(shape, _index_dtype(dtype)),
    }
    if ret_type == "both":
        return TupleStructInfo(tuple(results.values()))
    if ret_type not in results:
        raise VerifyError(f"ret_type must be both, values or indices, got {ret_type!r}")
    return results[ret_type]
