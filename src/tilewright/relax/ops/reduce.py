"""Operators that reduce a tensor over axes: a table."""

from __future__ import annotations

from tilewright.ir import Expr, const, dtypes
from tilewright.relax.conditions import require
from tilewright.relax.ops.common import known, topi_function
from tilewright.relax.registry import Builder, Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.utils import normal_axes


def reduced_shape(shape: tuple[Expr, ...], axis: object, keepdims: bool) -> tuple[Expr, ...]:
    """Shape after reducing over ``axis``."""
    axes = normal_axes(axis, len(shape))
    return tuple(
        const(1) if position in axes else extent
        for position, extent in enumerate(shape)
        if keepdims or position not in axes
    )


def _reduction(name: str, doc: str, kind: str = "", *, of_nothing: bool = True) -> Builder:
    """Declare one; ``kind`` is the kind it accepts, ``of_nothing`` whether an axis may be empty."""

    @operator(name, legalize=topi_function(name))
    def rule(x: Tensor, axis: object = None, keepdims: bool = False) -> StructInfo:
        if kind and dtypes.kind_of(x.dtype) not in kind.split():
            raise VerifyError(f"takes {kind.replace(' ', ' or ')} elements, got {x.dtype}")
        if not of_nothing:
            _require_elements(known(x), axis)
        return TensorStructInfo(reduced_shape(known(x), axis, keepdims), x.dtype)

    rule.__doc__ = doc
    return rule


def _require_elements(shape: tuple[Expr, ...], axis: object) -> None:
    """Refuse to select from an empty axis."""
    for position in normal_axes(axis, len(shape)):
        extent = shape[position]
        require(extent >= 1, f"there is no element along axis {position}: its extent is ", extent)


def _arg_reduction(name: str, doc: str) -> Builder:
    @operator(name, legalize=topi_function(name))
    def rule(
        x: Tensor, axis: int | None = None, keepdims: bool = False, dtype: str = "int64"
    ) -> StructInfo:
        if not dtypes.is_integer(dtype):
            raise VerifyError(f"the dtype of indices must be an integer, got {dtype}")
        _require_elements(known(x), axis)
        return TensorStructInfo(reduced_shape(known(x), axis, keepdims), dtype)

    rule.__doc__ = doc
    return rule


sum = _reduction("sum", "Sum of elements.")
mean = _reduction("mean", "Mean of elements.", "float")
max = _reduction("max", "Greatest element.", of_nothing=False)
min = _reduction("min", "Least element.", of_nothing=False)
prod = _reduction("prod", "Product of elements.")
variance = _reduction("variance", "Mean squared distance from the mean.", "float")
std = _reduction("std", "Square root of the variance.", "float")
all = _reduction("all", "Whether all elements hold.", "bool")
any = _reduction("any", "Whether any element holds.", "bool")
argmax = _arg_reduction("argmax", "Index of the greatest element, the first of equals.")
argmin = _arg_reduction("argmin", "Index of the least element, the first of equals.")
