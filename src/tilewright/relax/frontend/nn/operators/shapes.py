"""Operators that move, make, join, and order elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import Expr, ExprLike
from tilewright.relax import ops
from tilewright.relax.expr import Constant
from tilewright.relax.frontend.nn.operators.elementwise import astype
from tilewright.relax.frontend.nn.tensor import Tensor, emit, emit_tensor, unwrapped

IntExpr = int | Expr
"""An extent, or another integer that may be symbolic."""

Shape = IntExpr | Sequence[IntExpr]


def reshape(x: Tensor, shape: Shape, name: str = "reshape") -> Tensor:
    """Reshape to as many elements; one extent may be -1."""
    target = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    return emit_tensor(ops.reshape(x._expr, target), name)


def permute_dims(x: Tensor, axes: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """Reorder dimensions; without axes reverse them."""
    order = None if axes is None else tuple(axes)
    return emit_tensor(ops.permute_dims(x, order), name or "permute_dims")


def permute(x: Tensor, axes: Sequence[int] | None, name: str = "permute") -> Tensor:
    """Reorder dimensions: ``permute_dims``."""
    return permute_dims(x, axes, name)


def broadcast_to(x: Tensor, shape: Sequence[ExprLike], name: str = "broadcast_to") -> Tensor:
    """Repeat along axes of extent 1, and new ones in front, to ``shape``."""
    return emit_tensor(ops.broadcast_to(x, tuple(shape)), name)


def squeeze(x: Tensor, axis: int | Sequence[int] | None = -1, name: str = "squeeze") -> Tensor:
    """Remove unit axes: the last one if none is named, all with ``None``."""
    chosen = tuple(axis) if isinstance(axis, (list, tuple)) else axis
    return emit_tensor(ops.squeeze(x, chosen), name)


def unsqueeze(x: Tensor, dim: int, name: str = "unsqueeze") -> Tensor:
    """Insert a unit axis."""
    return emit_tensor(ops.expand_dims(x, dim), name)


def concat(x: Sequence[Tensor], dim: int, name: str = "concat") -> Tensor:
    """Join tensors along an axis."""
    return emit_tensor(ops.concat(unwrapped(tuple(x)), dim), name)


def split(
    ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0, name: str = "split"
) -> tuple[Tensor, ...]:
    """Split an axis into equal sections, or before each of the indices."""
    points = indices_or_sections
    chosen = points if isinstance(points, int) else tuple(points)
    made: tuple[Tensor, ...] = emit(ops.split(ary, chosen, axis), name)
    return made


def chunk(x: Tensor, chunks: int, dim: int = 0, name: str = "chunk") -> tuple[Tensor, ...]:
    """Split an axis into equal chunks."""
    return split(x, chunks, dim, name)


def take(x: Tensor, indices: Tensor, axis: int | None = None, name: str = "take") -> Tensor:
    """Elements along an axis by index; of the flat tensor if none is named."""
    return emit_tensor(ops.take(x, indices, axis), name)


def repeat(x: Tensor, repeats: int, axis: int | None = None, name: str = "repeat") -> Tensor:
    """Repeat each part along an axis; each element if none is named."""
    return emit_tensor(ops.repeat(x, repeats, axis), name)


def triu(x: Tensor, diagonal: int = 0, name: str = "triu") -> Tensor:
    """Keep the upper triangle of the last two axes, zero elsewhere."""
    return emit_tensor(ops.triu(x, diagonal), name)


def tril(x: Tensor, diagonal: int = 0, name: str = "tril") -> Tensor:
    """Keep the lower triangle of the last two axes, zero elsewhere."""
    return emit_tensor(ops.tril(x, diagonal), name)


def cumsum(
    data: Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
    name: str = "cumsum",
) -> Tensor:
    """Sums of the elements up to each along an axis; ``exclusive``: without the element itself."""
    return emit_tensor(ops.cumsum(data._expr, axis, dtype, exclusive), name)


# ---- made from nothing -----------------------------------------------------------------------


def arange(
    start: ExprLike,
    end: ExprLike | None = None,
    step: ExprLike = 1,
    dtype: str | None = "float32",
    name: str = "arange",
) -> Tensor:
    """``start, start + step, …`` below ``end``, by default as floats."""
    return emit_tensor(ops.arange(start, end, step, dtype), name)


def full(
    shape: Sequence[ExprLike],
    fill_value: Tensor | int | float,
    dtype: str = "float32",
    name: str = "full",
) -> Tensor:
    """A tensor that holds one value, which may be a tensor without axes."""
    if not isinstance(fill_value, Tensor):
        return emit_tensor(ops.full(tuple(shape), fill_value, dtype), name)
    value = fill_value._expr
    if isinstance(value, Constant) and value.data.ndim == 0:
        return emit_tensor(ops.full(tuple(shape), value.data.item(), dtype), name)
    return broadcast_to(astype(fill_value, dtype), shape, name)


def zeros(shape: Sequence[ExprLike], dtype: str = "float32", name: str = "zeros") -> Tensor:
    """A tensor of zeros."""
    return emit_tensor(ops.zeros(tuple(shape), dtype), name)


def ones(shape: Sequence[ExprLike], dtype: str = "float32", name: str = "ones") -> Tensor:
    """A tensor of ones."""
    return emit_tensor(ops.ones(tuple(shape), dtype), name)


def empty(shape: Sequence[ExprLike], dtype: str = "float32", name: str = "empty") -> Tensor:
    """A tensor of any values: here zeros."""
    return zeros(shape, dtype, name)


# ---- order -----------------------------------------------------------------------------------


def sort(x: Tensor, axis: int = -1, descending: bool = False, name: str = "sort") -> Tensor:
    """Sort along an axis."""
    return emit_tensor(ops.sort(x, axis, descending), name)


def argsort(
    data: Tensor,
    axis: int = -1,
    descending: bool = False,
    dtype: str = "int32",
    name: str = "argsort",
) -> Tensor:
    """Indices that sort along an axis; equal elements keep their order."""
    return emit_tensor(ops.argsort(data, axis, descending, dtype), name)


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: str = "int32",
    name: str = "topk",
) -> Any:
    """The ``k`` largest (or smallest) elements along an axis, in order.

    ``ret_type`` is ``both`` (elements and indices), ``values`` or ``indices``.
    """
    return emit(ops.topk(data, k, axis, ret_type, largest, dtype), name)


__all__ = [
    "arange", "argsort", "broadcast_to", "chunk", "concat", "cumsum", "empty", "full", "ones",
    "permute", "permute_dims", "repeat", "reshape", "sort", "split", "squeeze", "take", "topk",
    "tril", "triu", "unsqueeze", "zeros",
]  # fmt: skip
