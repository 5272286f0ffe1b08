"""Further operators that move elements: rolls, rotations, diagonals, strided views, grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.arith import simplify
from tilewright.ir import Expr, ExprLike, const_value, dtypes, or_
from tilewright.relax.conditions import require
from tilewright.relax.expr import PrimValue, RelaxCall, RelaxExpr, Tuple
from tilewright.relax.ops.common import element_count, known, tensor_like
from tilewright.relax.ops.manipulate import broadcast_to, flip, permute_dims, reshape
from tilewright.relax.registry import Shape, Tensor, builder, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.rearrange import diagonal_extent, strided_extent
from tilewright.topi.utils import normal_axis, total_extent


@operator(
    "roll",
    legalize=topi.roll,
    numpy=lambda x, shift, axis: np.roll(x, shift, axis),
)
def _roll(x: Tensor, shift: int, axis: int = 0) -> StructInfo:
    """Move elements along an axis by ``shift`` places, around its ends."""
    normal_axis(axis, x.ndim)
    return tensor_like(x)


@builder("roll")
def roll(
    x: RelaxExpr, shift: int | Sequence[int], axis: int | Sequence[int] | None = None
) -> RelaxExpr:
    """Move elements along axes (in the flat tensor without one); those that leave come in again.

    Raises ``VerifyError`` if there is not one shift for each axis.
    """
    if axis is None:
        return reshape(roll(reshape(x, (-1,)), shift, 0), x.shape) if x.shape else x
    axes = [axis] if isinstance(axis, int) else list(axis)
    shifts = [shift] * len(axes) if isinstance(shift, int) else list(shift)
    if len(shifts) != len(axes):
        raise VerifyError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for places, position in zip(shifts, axes):
        x = _roll(x, places, position)
    return x


@builder("rot90")
def rot90(x: RelaxExpr, k: int = 1, axes: Sequence[int] = (0, 1)) -> RelaxExpr:
    """Rotate by ``k`` quarters of a turn, from the first of two axes towards the second.

    Raises ``VerifyError`` unless there are two different axes.
    """
    if len(axes) != 2:
        raise VerifyError(f"rot90: takes two axes, got {list(axes)}")
    first, second = (normal_axis(axis, x.ndim) for axis in axes)
    if first == second:
        raise VerifyError(f"rot90: axes {list(axes)} are the same")
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    if k % 4 == 0:
        return x
    if k % 4 == 2:
        return flip(flip(x, first), second)
    if k % 4 == 1:
        return permute_dims(flip(x, second), order)
    return flip(permute_dims(x, order), second)


@operator(
    "diagonal",
    legalize=topi.diagonal,
    numpy=lambda x, offset, axis1, axis2: np.array(np.diagonal(x, offset, axis1, axis2)),
)
def diagonal(x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> StructInfo:
    """A diagonal of two axes (above the main one for a positive offset), as the last axis.

    Raises ``VerifyError`` if the axes are the same.
    """
    shape = known(x)
    first, second = _two_axes(axis1, axis2, len(shape))
    rest = [extent for a, extent in enumerate(shape) if a not in (first, second)]
    return TensorStructInfo((*rest, diagonal_extent(shape[first], shape[second], offset)), x.dtype)


@operator("diag_embed", legalize=topi.diag_embed)
def diag_embed(x: Tensor, offset: int = 0, axis1: int = -2, axis2: int = -1) -> StructInfo:
    """Zeros with the last axis of ``x`` as a diagonal of two axes of the result.

    Raises ``VerifyError`` if the axes are the same, or ``x`` has none.
    """
    shape = known(x)
    if not shape:
        raise VerifyError("needs at least one dimension")
    first, second = _two_axes(axis1, axis2, len(shape) + 1)
    size = simplify(total_extent(shape[-1], abs(offset)))
    rest = iter(shape[:-1])
    made = [size if a in (first, second) else next(rest) for a in range(len(shape) + 1)]
    return TensorStructInfo(made, x.dtype)


def _two_axes(axis1: int, axis2: int, ndim: int) -> tuple[int, int]:
    first, second = normal_axis(axis1, ndim), normal_axis(axis2, ndim)
    if first == second:
        raise VerifyError(f"axes {axis1} and {axis2} are the same")
    return first, second


@operator("as_strided", legalize=topi.as_strided)
def as_strided(x: Tensor, size: Shape, stride: Shape, storage_offset: int = 0) -> StructInfo:
    """Elements of ``x`` in row-major order at ``storage_offset + i0 * stride0 + …``; a copy.

    Raises ``VerifyError`` for a negative stride or offset, and if ``x`` has fewer elements.
    """
    if len(size) != len(stride):
        raise VerifyError(f"{len(size)} extents and {len(stride)} strides")
    if storage_offset < 0:
        raise VerifyError(f"storage_offset must not be negative, got {storage_offset}")
    needed, there = strided_extent(size, stride, storage_offset), element_count(known(x))
    require(
        or_(element_count(size) <= 0, needed <= there),
        "reads ", needed, " elements of a tensor that has ", there,
    )  # fmt: skip
    return TensorStructInfo(size, x.dtype)


@operator("one_hot", legalize=topi.one_hot)
def _one_hot(
    indices: Tensor, on_value: float, off_value: float, depth: int, axis: int, dtype: str
) -> StructInfo:
    """Vectors along a new axis that are ``on_value`` at the index, else ``off_value``."""
    if not dtypes.is_integer(indices.dtype):
        raise VerifyError(f"indices must be integers, got {indices.dtype}")
    if depth < 0:
        raise VerifyError(f"depth must not be negative, got {depth}")
    dtypes.split_dtype(dtype)
    shape = list(known(indices, "indices"))
    shape.insert(normal_axis(axis, len(shape) + 1), depth)  # type: ignore[arg-type]
    return TensorStructInfo(shape, dtype)


@builder("one_hot")
def one_hot(
    indices: RelaxExpr,
    on_value: float | Expr | PrimValue = 1.0,
    off_value: float | Expr | PrimValue = 0.0,
    depth: int = 0,
    axis: int = -1,
    dtype: str | None = None,
) -> RelaxCall:
    """Vectors of ``depth`` along a new axis, with ``on_value`` at the index, else ``off_value``.

    An index that is negative or not below ``depth`` gives a vector of ``off_value``. ``dtype`` is
    that of ``on_value`` if not given: of a Python number float32 or int64.

    Raises ``VerifyError`` if indices aren't integers, for a negative depth, and for values that
    aren't constants.
    """
    kind = dtype or _dtype_of_number(on_value)
    return _one_hot(indices, _number(on_value), _number(off_value), depth, axis, kind)


def _number(value: float | Expr | PrimValue) -> Any:
    found = value.value if isinstance(value, PrimValue) else value
    made = const_value(found) if isinstance(found, Expr) else found
    if made is None:
        raise VerifyError(f"one_hot: values must be constants, got {value!r}")
    return made


def _dtype_of_number(value: float | Expr | PrimValue) -> str:
    found = value.value if isinstance(value, PrimValue) else value
    if isinstance(found, (Expr, np.generic)):
        return str(found.dtype)
    return "float32" if isinstance(found, float) else "int64"


@builder("meshgrid")
def meshgrid(tensors: Sequence[RelaxExpr], indexing: str = "ij") -> Tuple:
    """Grids of coordinates: each vector repeated along the axes of all others.

    With ``indexing="xy"`` the first two axes of the results are swapped, as in NumPy.

    Raises ``VerifyError`` for another ``indexing``, no tensor, and tensors that aren't vectors.
    """
    if indexing not in ("ij", "xy"):
        raise VerifyError(f"meshgrid: indexing must be ij or xy, got {indexing!r}")
    if not tensors or any(item.ndim > 1 for item in tensors):
        raise VerifyError("meshgrid: takes one or more vectors")
    axes = list(range(len(tensors)))
    if indexing == "xy" and len(axes) > 1:
        axes[:2] = [1, 0]
    shape: list[Any] = [None] * len(axes)
    for item, axis in zip(tensors, axes):
        shape[axis] = item.shape[0] if item.shape else 1
    grids = []
    for item, axis in zip(tensors, axes):
        own: list[ExprLike] = [1] * len(axes)
        own[axis] = shape[axis]
        grids.append(broadcast_to(reshape(item, own), shape))
    return Tuple(tuple(grids))
