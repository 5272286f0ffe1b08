"""Operators that make tensors: of one value, ranges, grids, the identity, one-hot vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import (
    EQ,
    Expr,
    ExprLike,
    as_expr,
    compare,
    const,
    dtypes,
    if_then_else,
    product,
    select,
)
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute
from tilewright.te.arithmetic import map_elements
from tilewright.topi.utils import normal_axis, ravel


def full(shape: Sequence[Any], dtype: str, fill_value: ExprLike) -> Tensor:
    """Make a tensor that holds one value."""
    made: Tensor = compute(
        tuple(shape), lambda *i: const(fill_value, dtype), name="full", tag="elemwise"
    )
    return made


def zeros(shape: Sequence[object], dtype: str = "float32") -> Tensor:
    """Make a tensor of zeros."""
    return full(shape, dtype, 0)


def ones(shape: Sequence[object], dtype: str = "float32") -> Tensor:
    """Make a tensor of ones."""
    return full(shape, dtype, 1)


def full_like(x: Tensor, fill_value: ExprLike) -> Tensor:
    """Make a tensor of the shape and dtype of ``x`` that holds one value."""
    return map_elements(x, lambda _: const(fill_value, x.dtype), "full_like")


def eye(n: ExprLike, m: ExprLike | None = None, k: ExprLike = 0, dtype: str = "float32") -> Tensor:
    """Make a matrix of ``n`` rows and ``m`` (``n`` without it) columns: one on diagonal ``k``."""
    made: Tensor = compute(
        (n, n if m is None else m),
        lambda i, j: select(compare(EQ, j - i, k), const(1, dtype), const(0, dtype)),
        name="eye",
        tag="injective",
    )
    return made


def arange_count(start: Any, stop: Expr | float, step: Expr | bool | float) -> Any:
    """The length of ``arange``: a number or, of symbolic integers, an expression.

    A symbolic step is taken to be positive. Raises ``VerifyError`` for a step of zero, and for
    symbolic numbers that are not integers.
    """
    if not isinstance(step, Expr) and step == 0:
        raise VerifyError("arange: the step is zero")
    bounds = (start, stop)
    if not any(isinstance(bound, Expr) for bound in (*bounds, step)):
        if all(isinstance(number, int) for number in (*bounds, step)):
            return max(0, -((start - stop) // step))
        count = (stop - start) / step  # in double precision, as NumPy counts
        if not math.isfinite(count):
            raise VerifyError(f"arange: from {start} to {stop} by {step} is no finite number")
        return max(0, math.ceil(count))
    if not all(isinstance(number, int) or _is_whole(number) for number in (*bounds, step)):
        raise VerifyError("arange: symbolic bounds must be integers")
    rest = step - 1 if isinstance(step, Expr) or step > 0 else step + 1
    return (as_expr(stop) - start + rest) // step


def _is_whole(number: object) -> bool:
    return isinstance(number, Expr) and dtypes.is_integer(number.dtype)


def arange(
    start: ExprLike, stop: ExprLike | None = None, step: ExprLike = 1, dtype: str | None = "float32"
) -> Tensor:
    """Return ``start, start + step, …`` below ``stop``; below ``start`` from 0, if that is all.

    With ``dtype=None`` the result is int64, or float32 if a bound or the step is a float. Elements
    are computed in int64 or float64 and converted once.
    """
    if stop is None:
        start, stop = 0, start
    count = arange_count(start, stop, step)
    floats = any(isinstance(number, float) for number in (start, stop, step))
    exact, made_as = ("float64", dtype or "float32") if floats else ("int64", dtype or "int64")

    def element(i: Expr) -> Expr:
        first = cast_expr(as_expr(start, exact), exact)
        return cast_expr(cast_expr(i, exact) * as_expr(step, exact) + first, made_as)

    made: Tensor = compute((count,), element, name="arange", tag="injective")
    return made


def one_hot(
    indices: Tensor, on_value: float, off_value: float, depth: int, axis: int = -1,
    dtype: str = "float32",
) -> Tensor:  # fmt: skip
    """Turn indices into vectors of ``depth`` with ``on_value`` at the index."""
    axis = normal_axis(axis, indices.ndim + 1)
    made: Tensor = compute(
        (*indices.shape[:axis], depth, *indices.shape[axis:]),
        lambda *i: if_then_else(
            cast_expr(indices(*i[:axis], *i[axis + 1 :]), "int64") == i[axis],
            const(on_value, dtype),
            const(off_value, dtype),
        ),
        name="one_hot",
        tag="injective",
    )
    return made


def meshgrid(a_tuple: Sequence[Tensor], indexing: str) -> list[Tensor]:
    """Repeat vectors and scalars along each other's axes, so that they make a grid.

    The axes are in the order of the tensors for ``indexing="ij"``, and with the first two exchanged
    for ``"xy"``.

    Raises ``VerifyError`` for other indexings, and for tensors of two dimensions or more.
    """
    if indexing not in ("ij", "xy"):
        raise VerifyError(f"meshgrid: indexing is ij or xy, got {indexing!r}")
    for tensor in a_tuple:
        if tensor.ndim > 1:
            raise VerifyError(f"meshgrid takes vectors and scalars, got {list(tensor.shape)}")
    place = list(range(len(a_tuple)))
    if indexing == "xy" and len(place) > 1:
        place[:2] = 1, 0
    shape: list[Any] = [1] * len(place)
    for axis, tensor in zip(place, a_tuple):
        shape[axis] = tensor.shape[0] if tensor.ndim else 1

    def grid(tensor: Tensor, axis: int) -> Tensor:
        made: Tensor = compute(
            tuple(shape),
            lambda *i: tensor(i[axis]) if tensor.ndim else tensor(),
            name="meshgrid",
            tag="injective",
        )
        return made

    return [grid(tensor, axis) for tensor, axis in zip(a_tuple, place)]


def const_vector(vector: object, name: str = "const_vector") -> Tensor:
    """Make a tensor of numbers that are known now, of their NumPy array's shape and dtype.

    Each is a constant of the program, so there should be few.
    """
    numbers = np.asarray(vector)
    dtype = str(numbers.dtype)
    known = [const(number.item(), dtype) for number in numbers.ravel()]
    return table_of(known, numbers.shape, dtype, name)


def table_of(values: Sequence[Expr], shape: Sequence[int], dtype: str, name: str) -> Tensor:
    """Make a tensor of few expressions, in row-major order."""

    def element(*i: Expr) -> Expr:
        flat = ravel(i, shape)
        made = cast_expr(values[-1], dtype) if values else const(0, dtype)
        for number in range(len(values) - 2, -1, -1):
            made = select(compare(EQ, flat, number), cast_expr(values[number], dtype), made)
        return made

    made: Tensor = compute(tuple(shape), element, name=name, tag="injective")
    return made


def shape(array: Tensor, dtype: str = "int32") -> Tensor:
    """Return the extents of a tensor as a vector."""
    return table_of(array.shape, (array.ndim,), dtype, "shape")


def tensor_size(array: Tensor, dtype: str = "int32") -> Tensor:
    """Return the number of elements of a tensor, as a tensor without dimensions."""
    count = product(array.shape)
    made: Tensor = compute((), lambda: cast_expr(count, dtype), name="tensor_size", tag="injective")
    return made
