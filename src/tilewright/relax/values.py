"""Python values as graph values: constants, scalars, shapes, tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import INDEX, Expr, ExprLike, GlobalVar, as_expr, dtypes
from tilewright.ir import const as scalar_const
from tilewright.relax.constant_data import ConstantData
from tilewright.relax.expr import (
    Constant,
    ExternFunc,
    FunctionRef,
    PrimValue,
    RelaxExpr,
    ShapeExpr,
    StringValue,
    Tuple,
)
from tilewright.relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo
from tilewright.support.calling import other_names
from tilewright.support.errors import VerifyError


def const(value: object, dtype: str | None = None) -> Constant:
    """Make a constant from a number or array.

    Without ``dtype`` Python's floats are float32, its ints int32 if they fit, else int64, and so
    are lists of them; arrays and NumPy's scalars keep their own.
    """
    if isinstance(value, Constant):
        return value
    if dtype is None and not isinstance(value, np.generic):
        if isinstance(value, bool):
            dtype = "bool"
        elif isinstance(value, float):
            dtype = "float32"
        elif isinstance(value, int):
            dtype = "int32" if -(2**31) <= value < 2**31 else "int64"
        elif isinstance(value, (list, tuple)):
            value = np.asarray(value)
            dtype = {"float64": "float32", "int64": "int32"}.get(value.dtype.name)
            if dtype == "int32" and not np.array_equal(value, value.astype(dtype)):
                dtype = "int64"
    if hasattr(value, "detach"):  # torch tensors, also those that require grad
        value = value.detach().cpu().numpy()
    elif not isinstance(value, (np.ndarray, np.generic)) and hasattr(value, "numpy"):
        value = value.numpy()
    array = np.asarray(value)
    # Whoever keeps the values copies them, if the caller may change them later.
    lent = isinstance(value, np.ndarray) and array.flags.writeable
    if dtype is not None and array.dtype.name != dtype:
        try:
            array, lent = array.astype(numpy_dtype(dtype)), False
        except OverflowError as error:
            raise VerifyError(f"a number of the constant does not fit {dtype}") from error
    dtypes.split_dtype(array.dtype.name)
    return Constant(ConstantData(array, lent=lent))


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy dtype of an element type (``ml_dtypes`` for those NumPy lacks)."""
    element = dtypes.element_of(dtype)
    try:
        return np.dtype(element)
    except TypeError:
        import ml_dtypes  # a core dependency, but rarely needed and slow to load

        made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, element))
        return made


def prim_value(value: object, dtype: str | None = None) -> PrimValue:
    """Make a scalar of a number or an expression: ints are int64, floats float64, without dtype.

    Raises ``VerifyError`` for an expression of another dtype.
    """
    if isinstance(value, PrimValue):
        value = value.value
    if isinstance(value, Expr):
        if dtype is not None and value.dtype != dtype:
            raise VerifyError(f"{value!r} is of {value.dtype}, not {dtype}")
        return PrimValue(value)
    chosen = dtype
    if chosen is None:
        kinds = (("bool", (bool, np.bool_)), ("int64", (int, np.integer)))
        chosen = next((name for name, kind in kinds if isinstance(value, kind)), "float64")
    return PrimValue(scalar_const(value, chosen))  # type: ignore[arg-type]


@other_names(struct_info="ty")
def extern(name: str, ty: StructInfo | None = None) -> ExternFunc:
    """Name a global function, or one of a library; nothing is known of it but the name.

    Raises ``VerifyError`` for struct info that says more.
    """
    return ExternFunc(name, ty)


def as_relax(value: object, like: RelaxExpr | None = None) -> RelaxExpr:
    """Turn a Python value into a graph expression.

    Numbers become constants of ``like``'s dtype, arrays constants, tuples and lists tuples, scalar
    expressions ``PrimValue``.

    Raises ``VerifyError`` for a value that a graph can't hold.
    """
    if isinstance(value, RelaxExpr):
        return value
    if hasattr(value, "_expr") and isinstance(value._expr, RelaxExpr):  # nn.Tensor
        return value._expr
    if isinstance(value, (bool, int, float)):
        dtype = None
        if like is not None and isinstance(like.struct_info, TensorStructInfo):
            dtype = like.struct_info.dtype
            if isinstance(value, float) and not dtypes.is_float(dtype):
                dtype = "float32"
        return const(value, dtype)
    if isinstance(value, Expr):
        return PrimValue(value)
    if isinstance(value, str):
        return StringValue(value)
    if isinstance(value, (GlobalVar, ExternFunc)):
        return FunctionRef(value)
    if isinstance(value, (tuple, list)):
        return Tuple(tuple(as_relax(item) for item in value))
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__dlpack__"):
        return const(value)
    raise VerifyError(f"cannot use a {type(value).__name__} as a graph value: {value!r}")


def shape_values(value: Any) -> tuple[Expr, ...]:
    """Turn a shape (numbers, expressions, ``ShapeExpr``, a graph value with a known shape)."""
    if isinstance(value, ShapeExpr):
        return value.values
    if isinstance(value, RelaxExpr) and isinstance(value.struct_info, ShapeStructInfo):
        return value.shape
    if isinstance(value, (int, Expr)):
        value = (value,)
    return tuple(as_expr(extent, INDEX) for extent in value)


def make_tuple(items: Sequence[RelaxExpr]) -> Tuple:
    """Make a tuple expression."""
    return Tuple(tuple(items))


ShapeLike = ShapeExpr | Sequence[ExprLike]
