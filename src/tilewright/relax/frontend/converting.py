"""Conversions that importers of all kinds of models make."""

from __future__ import annotations

from tilewright.ir import dtypes
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.values import const


def converted(value: RelaxExpr, dtype: str) -> RelaxExpr:
    """Convert a tensor if it has another dtype; all numbers but zero are true."""
    if value.dtype == dtype:
        return value
    if dtypes.is_bool(dtype):
        return op.not_equal(value, const(0, value.dtype))
    return op.astype(value, dtype)
