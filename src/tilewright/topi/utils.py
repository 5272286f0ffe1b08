"""Small helpers for operator definitions: shapes, axes, padding."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from tilewright.ir import Expr, ExprLike, as_expr, as_int, cast, const, dtypes, or_
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require, require_equal

InvalidShapeError = VerifyError
"""What operators raise for shapes that they don't take, under TVM's name."""


def repeated_extent(extent: Expr, count: int) -> Expr:
    """An extent times a number; raises ``VerifyError`` if that is more than indices can count."""
    known = as_int(extent)
    return extent * count if known is None else const(known * count)


def total_extent(*extents: ExprLike) -> Expr:
    """The sum of extents; raises ``VerifyError`` if that is more than indices can count."""
    known = [as_int(extent) for extent in extents]
    total = const(sum(number or 0 for number in known))
    others = [as_expr(extent) for extent, number in zip(extents, known) if number is None]
    return sum(others[1:], others[0]) + total if others else total


def sum_dtype(dtype: str) -> str:
    """The dtype of sums whose result is ``dtype``: float32 for 16-bit floats."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def total_dtype(out_dtype: str, *operands: str) -> str:
    """The dtype in which products are summed: not narrower than the operands'."""
    floats = [dtype for dtype in operands if dtypes.is_float(dtype)]
    kept = sum_dtype(out_dtype)
    if not floats:
        return kept  # integers wrap: what is cut off first is cut off last
    choices = [*map(sum_dtype, floats), *([kept] if dtypes.is_float(kept) else [])]
    return max(choices, key=lambda dtype: (dtypes.bits_of(dtype), dtype == kept))


def rounded(sums: Tensor, dtype: str) -> Tensor:
    """Convert sums to the result's dtype if it differs."""
    if sums.dtype == dtype:
        return sums
    made: Tensor = compute(
        sums.shape, lambda *i: cast(sums(*i), dtype), name=f"{sums.name}_rounded", tag="elemwise"
    )
    return made


def pair(value: Any, count: int = 2, what: str = "value") -> tuple[int, ...]:
    """Repeat a number ``count`` times; check the length of a sequence.

    Raises ``VerifyError`` for another length.
    """
    if isinstance(value, int):
        return (value,) * count
    made = tuple(int(item) for item in value)
    if len(made) == 1:
        return made * count
    if len(made) != count:
        raise VerifyError(f"{what} takes 1 or {count} numbers, got {list(made)}")
    return made


def padding_of(padding: int | Sequence[int], count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return padding before and after each of ``count`` spatial axes.

    ``padding`` is one number, one per axis, or before-numbers followed by after-numbers.

    Raises ``VerifyError`` for another length.
    """
    if isinstance(padding, int):
        return (padding,) * count, (padding,) * count
    made = tuple(int(item) for item in padding)
    if len(made) == 1:
        return made * count, made * count
    if len(made) == count:
        return made, made
    if len(made) == 2 * count:
        return made[:count], made[count:]
    raise VerifyError(f"padding takes 1, {count} or {2 * count} numbers, got {list(made)}")


def normal_axis(axis: int, ndim: int) -> int:
    """Turn a possibly negative axis into ``0 .. ndim - 1``.

    Raises ``VerifyError`` if there is no such axis.
    """
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise VerifyError(f"an axis is an integer, got {axis!r}")
    if not -ndim <= axis < ndim:
        raise VerifyError(f"axis {axis} is out of range for {ndim} dimensions")
    return operator.index(axis) % ndim


def normal_count(what: str, value: object) -> int:
    """Return an ``int`` or a NumPy integer as an ``int``.

    Raises ``VerifyError`` for anything else.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise VerifyError(f"{what} is an integer, got {value!r}")
    return operator.index(value)


def normal_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Turn an axis, a sequence of them, or ``None`` (all) into sorted positive axes.

    Raises ``VerifyError`` if there is no such axis, or one is named twice.
    """
    if axis is None:
        return tuple(range(ndim))
    axes = (axis,) if hasattr(axis, "__index__") else tuple(axis)
    made = sorted(normal_axis(item, ndim) for item in axes)
    if len(set(made)) != len(made):
        raise VerifyError(f"axes {list(axes)} name one axis twice")
    return tuple(made)


def require_ndim(what: str, tensor: Tensor, ndim: int) -> None:
    """Raise ``VerifyError`` unless a tensor has ``ndim`` dimensions."""
    if tensor.ndim != ndim:
        raise VerifyError(
            f"{what}: {tensor.name} must have {ndim} dimensions, has shape {list(tensor.shape)}"
        )


def require_along(what: str, x: Tensor, axes: Sequence[int], *tensors: Tensor | None) -> None:
    """Require that tensors, where given, have the extents that ``x`` has along ``axes``."""
    for tensor in tensors:
        if tensor is not None:
            require_ndim(what, tensor, len(axes))
            for axis, extent in zip(axes, tensor.shape):
                require_equal(f"{what}: {tensor.name} and axis {axis}", extent, x.shape[axis])


def require_groups(what: str, of: str, extent: Expr, groups: int) -> None:
    """Require that channels or filters divide into groups."""
    size = as_expr(extent)
    require(size % groups == 0, f"{what}: ", size, f" {of} do not divide into {groups} groups")


def require_elements(what: str, extent: Expr, count: ExprLike = 1) -> None:
    """Require that an axis has elements, if any (``count``) are looked up."""
    lookups, size = as_expr(count), as_expr(extent)
    require(
        or_(size >= 1, lookups <= 0),
        f"{what}: there is nothing to look up along an axis of ", size,
    )  # fmt: skip


def is_one(extent: object) -> bool:
    """Whether an extent is the constant 1."""
    return as_int(extent) == 1


def get_const_tuple(in_tuple: Sequence[ExprLike]) -> tuple[Any, ...]:
    """Return a shape with numbers where extents are known, and expressions elsewhere."""
    known = [(extent, as_int(as_expr(extent))) for extent in in_tuple]
    return tuple(as_expr(extent) if number is None else number for extent, number in known)


def unravel(flat: Expr, shape: Sequence[Any]) -> list[Expr]:
    """Split a flat row-major index into one index per dimension."""
    indices: list[Expr] = []
    for axis in range(len(shape) - 1, -1, -1):
        if axis == 0:
            indices.append(flat)
        else:
            indices.append(flat % shape[axis])
            flat = flat // shape[axis]
    return list(reversed(indices))


def ravel(indices: Sequence[Any], shape: Sequence[Any]) -> Expr:
    """Join one index per dimension into a flat row-major index."""
    flat = as_expr(0)
    for index, extent in zip(indices, shape):
        flat = flat * extent + index
    return flat
