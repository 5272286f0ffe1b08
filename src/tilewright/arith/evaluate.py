"""Integer expressions on NumPy arrays: what they are for many values of their variables at once.

Proofs by counting use it (races between threads, elements that a nest touches, whether an index map
is one to one), and index maps that move whole arrays. Numbers have the dtypes of the expressions
and give what ``ir.integers`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Call,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Select,
    Sub,
    Var,
)
from tilewright.ir import dtype as dtypes


class NotEvaluable(Exception):
    """An expression depends on something that has no value here, or is no integer."""


def evaluate(expr: Expr, values: Mapping[Var, object]) -> Any:
    """Evaluate an expression of integers and truth values for arrays that broadcast.

    Raises ``NotEvaluable`` for variables without values, loads, vectors and floats.
    """
    with np.errstate(all="ignore"):
        return _value(expr, values)


def _value(expr: Any, values: Mapping[Var, Any]) -> Any:
    kind = type(expr)
    if kind is IntImm and _is_whole(expr.dtype):
        return np.asarray(expr.value, expr.dtype)
    if kind is Var and expr in values and _is_whole(expr.dtype):
        return np.asarray(values[expr], expr.dtype)
    if kind in _BINARY and _is_whole(expr.a.dtype):
        return _BINARY[kind](_value(expr.a, values), _value(expr.b, values))
    if kind is Cast and _is_whole(expr.dtype) and _is_whole(expr.value.dtype):
        return np.asarray(_value(expr.value, values)).astype(expr.dtype)
    if kind is Not:
        return np.logical_not(_value(expr.a, values))
    name = expr.op.name if kind is Call else ""
    if kind is Select or name == "if_then_else":
        return np.where(*(_value(item, values) for item in expr.child_nodes()))
    if name in ("likely", "ignore_loop_partition"):
        return _value(expr.args[0], values)
    if name in _BITWISE:
        return _BITWISE[name](*(_value(item, values) for item in expr.args))
    raise NotEvaluable


def _is_whole(dtype: str) -> bool:
    """Whether NumPy has the dtype, and its elements are integers or truth values."""
    if dtypes.lanes_of(dtype) > 1:
        return False
    return dtypes.is_bool(dtype) or (dtypes.is_integer(dtype) and dtypes.bits_of(dtype) >= 8)


# NumPy divides by zero as we do: the quotient and the rest are 0.
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    Add: np.add,
    Sub: np.subtract,
    Mul: np.multiply,
    FloorDiv: np.floor_divide,
    FloorMod: np.mod,
    Min: np.minimum,
    Max: np.maximum,
    LT: np.less,
    LE: np.less_equal,
    GT: np.greater,
    GE: np.greater_equal,
    EQ: np.equal,
    NE: np.not_equal,
    And: np.logical_and,
    Or: np.logical_or,
}
_BITWISE: dict[str, Callable[[Any, Any], Any]] = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
}
