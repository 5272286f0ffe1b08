"""Operators on two tensors that broadcast against each other: a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtypes
from tilewright.relax.expr import OPERATOR_SUGAR
from tilewright.relax.ops.common import broadcast, same_dtype, topi_rule
from tilewright.relax.registry import Builder, InferenceError, Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo


def _binary(
    name: str, numpy: Any, doc: str, *, result: str | None = None, kind: str = ""
) -> Builder:
    """Declare one; ``result`` is its dtype if not the operands', ``kind`` what it takes."""

    @operator(name, legalize=topi_rule(name), numpy=numpy)
    def rule(a: Tensor, b: Tensor) -> StructInfo:
        x: Any = a
        y: Any = b
        dtype = same_dtype(x, y)
        if kind and dtypes.kind_of(dtype) not in kind.split():
            raise InferenceError(f"takes {kind.replace(' ', ' or ')} operands, got {dtype}")
        if not (x.has_shape and y.has_shape):
            ndim = -1 if -1 in (x.ndim, y.ndim) else max(x.ndim, y.ndim)
            return TensorStructInfo(None, result or dtype, ndim)
        return TensorStructInfo(broadcast(x.shape, y.shape), result or dtype)

    rule.__doc__ = doc
    return rule


def _divide(a: Any, b: Any) -> Any:
    if np.issubdtype(a.dtype, np.integer):
        # By whole numbers: quotients of large ones aren't floats.
        with np.errstate(all="ignore"):
            down, rest = np.floor_divide(a, b), np.fmod(a, b)
        return down + ((rest != 0) & ((a < 0) != (b < 0))).astype(a.dtype)
    return a / b


add = _binary("add", np.add, "a + b.")
subtract = _binary("subtract", np.subtract, "a - b.")
multiply = _binary("multiply", np.multiply, "a * b.")
divide = _binary("divide", _divide, "a / b; integers round towards zero.")
floor_divide = _binary("floor_divide", np.floor_divide, "a / b rounded down, as NumPy does.")
floor_mod = _binary("floor_mod", np.mod, "Remainder with the sign of b, as ``numpy.mod``.")
mod = _binary("mod", np.fmod, "Remainder with the sign of a, as ``numpy.fmod``.")
power = _binary("power", np.power, "a to the power of b.", kind="float")
maximum = _binary("maximum", np.maximum, "The greater of a and b.")
minimum = _binary("minimum", np.minimum, "The lesser of a and b.")
equal = _binary("equal", np.equal, "a == b.", result="bool")
not_equal = _binary("not_equal", np.not_equal, "a != b.", result="bool")
less = _binary("less", np.less, "a < b.", result="bool")
less_equal = _binary("less_equal", np.less_equal, "a <= b.", result="bool")
greater = _binary("greater", np.greater, "a > b.", result="bool")
greater_equal = _binary("greater_equal", np.greater_equal, "a >= b.", result="bool")
logical_and = _binary("logical_and", np.logical_and, "Both hold.", result="bool", kind="bool")
logical_or = _binary("logical_or", np.logical_or, "One holds.", result="bool", kind="bool")

for _name, _function in (
    ("add", add),
    ("subtract", subtract),
    ("multiply", multiply),
    ("divide", divide),
    ("power", power),
):
    OPERATOR_SUGAR[_name] = _function
