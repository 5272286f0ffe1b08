"""Arithmetic of tensors, with broadcasting: what Python's operators define, and its parts.

``topi`` has these operators and the others, which are made in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from tilewright.arith import same_extent
from tilewright.ir import (
    Expr,
    ExprLike,
    as_expr,
    as_int,
    call,
    dtypes,
    floordiv,
    floormod,
    match_types,
)
from tilewright.ir import cast as cast_expr
from tilewright.support.naming import named
from tilewright.te.operators import ARITHMETIC
from tilewright.te.requirements import require, with_conditions
from tilewright.te.tensor import Tensor, compute
from tilewright.tir.float_division import float_floor_divide, float_floor_mod
from tilewright.tir.powers import power_of

Operand = Tensor | ExprLike


def broadcast_shape(*shapes: Sequence[object]) -> tuple[Expr, ...]:
    """Return the common shape, by NumPy's rules.

    A symbolic extent is taken not to be 1: it must equal the extents aligned with it, unless they
    are 1. That becomes a condition of the calling operator (``te.with_conditions``).
    """
    shown = " and ".join(str(list(shape)) for shape in shapes)
    ndim = max(len(shape) for shape in shapes)
    result = []
    for axis in range(ndim):
        extents = [
            as_expr(shape[axis - ndim + len(shape)])
            for shape in shapes
            if axis - ndim + len(shape) >= 0
        ]
        best = extents[0]
        for extent in extents[1:]:
            if _is_one(best):
                best = extent
            elif not _is_one(extent) and not same_extent(extent, best):
                require(
                    best == extent, f"shapes {shown} do not broadcast: ", best, " against ", extent
                )
                if as_int(extent) is not None:
                    best = extent  # numbers say more than variables
        result.append(best)
    return tuple(result)


def read_broadcast(x: object, indices: Sequence[Expr], shape: Sequence[object]) -> Expr:
    """Read ``x`` (a tensor or a number) at the indices of ``shape``, to which it broadcasts."""
    if not isinstance(x, Tensor):
        return as_expr(x)
    first = len(indices) - x.ndim
    # Where both extents are 1 the index stays, so that the access tells which axis is which.
    return x(
        *(
            0 if _is_one(extent) and not _is_one(target) else index
            for index, extent, target in zip(indices[first:], x.shape, shape[first:])
        )
    )


def binary(name: str, function: Callable[..., Expr], doc: str) -> Callable[..., Any]:
    """Make an operator of two tensors, which broadcast, of a formula of two elements."""

    @with_conditions
    def define(lhs: Operand, rhs: Operand) -> Tensor:
        shape = broadcast_shape(*(x.shape for x in (lhs, rhs) if isinstance(x, Tensor)))

        def formula(*i: Expr) -> Expr:
            a = read_broadcast(lhs, i, shape) if isinstance(lhs, Tensor) else lhs
            b = read_broadcast(rhs, i, shape) if isinstance(rhs, Tensor) else rhs
            return function(a, b)

        made: Tensor = compute(shape, formula, name=name, tag="broadcast")
        return made

    def build(lhs: Operand, rhs: Operand) -> Tensor | Expr:
        if not isinstance(lhs, Tensor) and not isinstance(rhs, Tensor):
            return function(as_expr(lhs), as_expr(rhs))
        return define(lhs, rhs)

    return named(build, name, f"{doc} Tensors broadcast; either operand may be a number.")


def _divide(a: Expr, b: Expr) -> Expr:
    a = as_expr(a, getattr(b, "dtype", None))
    if not dtypes.is_float(a.dtype):
        return call("truncdiv", a, b)
    quotient: Expr = a / b
    return quotient


def of_kind(
    integers: Callable[[Expr, Expr], Expr], floats: Callable[[Expr, Expr], Expr]
) -> Callable[[ExprLike, ExprLike], Expr]:
    """Choose the formula for integers or for floats, by the operands' common dtype."""

    def formula(a: ExprLike, b: ExprLike) -> Expr:
        x, y = match_types(a, b)
        return (floats if dtypes.is_float(x.dtype) else integers)(x, y)

    return formula


add = binary("add", lambda a, b: a + b, "Add.")
subtract = binary("subtract", lambda a, b: a - b, "Subtract.")
multiply = binary("multiply", lambda a, b: a * b, "Multiply.")
divide = binary("divide", _divide, "Divide; integers round towards zero.")
floor_divide = binary(
    "floor_divide",
    of_kind(floordiv, float_floor_divide),
    "Divide, rounding down (as ``numpy.floor_divide``).",
)
floor_mod = binary(
    "floor_mod",
    of_kind(floormod, float_floor_mod),
    "Remainder with the divisor's sign (as ``numpy.mod``).",
)
power = binary("power", power_of, "Raise to a power; powers of integers wrap.")


def map_elements(x: Tensor, function: Callable[[Expr], Any], name: str) -> Tensor:
    """Apply a scalar function to every element."""
    made: Tensor = compute(x.shape, lambda *i: function(x(*i)), name=name, tag="elemwise")
    return made


def negative(x: Tensor) -> Tensor:
    """Negate every element."""
    return map_elements(x, lambda value: -value, "negative")


@overload
def cast(x: Tensor, dtype: str) -> Tensor: ...


@overload
def cast(x: ExprLike, dtype: str) -> Expr: ...


def cast(x: Tensor | ExprLike, dtype: str) -> Tensor | Expr:
    """Convert every element of a tensor, or a number, to ``dtype``."""
    if not isinstance(x, Tensor):
        return cast_expr(x, dtype)
    if x.dtype == dtype:
        return x
    return map_elements(x, lambda value: cast_expr(value, dtype), "cast")


def _is_one(extent: object) -> bool:
    return as_int(extent) == 1


ARITHMETIC.update(
    add=add, subtract=subtract, multiply=multiply, divide=divide, floor_divide=floor_divide,
    floor_mod=floor_mod, power=power, negative=negative, cast=cast,
)  # fmt: skip
