"""Operators that move elements without computing: reshape, transpose, join, cut, index."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import topi
from tilewright.arith import simplify
from tilewright.ir import Expr, as_expr, as_int, const, dtypes
from tilewright.relax.expr import RelaxExpr, ShapeExpr, shape_values
from tilewright.relax.ops.common import (
    broadcast,
    known,
    normal_axes,
    normal_axis,
    product,
    require_equal,
    same_dtype,
    tensor_like,
)
from tilewright.relax.registry import (
    InferenceError,
    Shape,
    Tensor,
    TensorTuple,
    operator,
)
from tilewright.relax.struct_info import (
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    prove_different,
    prove_equal,
)
from tilewright.support.errors import VerifyError


def _ints(shape: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in shape)


@operator(
    "reshape",
    legalize=lambda x, shape: topi.reshape(x, shape),
    numpy=lambda x, shape: x.reshape(_ints(shape)),
)
def _reshape(x: Tensor, shape: Shape) -> StructInfo:
    """Give a tensor another shape with as many elements."""
    info: Any = x
    require_equal("numbers of elements differ", product(known(info)), product(shape))  # type: ignore[arg-type]
    return TensorStructInfo(shape, info.dtype)  # type: ignore[arg-type]


def reshape(x: RelaxExpr, shape: Any) -> Any:
    """Give a tensor another shape with as many elements; one extent may be -1."""
    extents = list(shape_values(shape))
    unknown = [axis for axis, extent in enumerate(extents) if as_int(extent) == -1]
    if len(unknown) > 1:
        raise VerifyError(f"reshape: only one extent may be -1, got {extents}")
    if unknown:
        rest = product([extent for axis, extent in enumerate(extents) if axis != unknown[0]])
        total = product(x.shape)
        if prove_different(simplify(total % rest), const(0)):
            raise VerifyError(f"reshape: {total!r} elements do not divide by {rest!r}")
        extents[unknown[0]] = simplify(total // rest)
    return _reshape(x, ShapeExpr(tuple(extents)))


@operator(
    "permute_dims",
    legalize=lambda x, axes: topi.transpose(x, axes),
    numpy=lambda x, axes: np.ascontiguousarray(np.transpose(x, axes)),
    prepare=lambda x, axes: {"axes": _permutation(x, axes)},
)
def permute_dims(x: Tensor, axes: tuple[int, ...] | None = None) -> StructInfo:
    """Reorder dimensions; without ``axes`` reverse them."""
    info: Any = x
    shape = known(info)
    order = [normal_axis(axis, len(shape)) for axis in axes or ()]
    if sorted(order) != list(range(len(shape))):
        raise InferenceError(f"{list(axes or ())} is no permutation of {len(shape)} axes")
    return TensorStructInfo([shape[axis] for axis in order], info.dtype)


def _permutation(x: Any, axes: Any) -> tuple[int, ...]:
    ndim = x.struct_info.ndim
    if axes is None:
        return tuple(reversed(range(ndim)))
    return tuple(axis + ndim if axis < 0 else axis for axis in axes)


def flatten(x: RelaxExpr, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Join the dimensions from ``start_dim`` to ``end_dim`` into one."""
    shape = x.shape
    if not shape:
        return reshape(x, (1,))
    start, end = start_dim % len(shape), end_dim % len(shape)
    return reshape(x, (*shape[:start], product(shape[start : end + 1]), *shape[end + 1 :]))


@operator(
    "expand_dims",
    legalize=lambda x, axis: topi.expand_dims(x, axis),
    numpy=lambda x, axis: np.expand_dims(x, axis),
)
def expand_dims(x: Tensor, axis: int | tuple[int, ...]) -> StructInfo:
    """Insert dimensions of extent one at the given places of the result."""
    info: Any = x
    shape = list(known(info))
    count = 1 if isinstance(axis, int) else len(axis)
    for position in normal_axes(axis, len(shape) + count):
        shape.insert(position, const(1))
    return TensorStructInfo(shape, info.dtype)


@operator(
    "squeeze",
    legalize=lambda x, axis: topi.squeeze(x, axis),
    numpy=lambda x, axis: np.squeeze(x, axis),
)
def squeeze(x: Tensor, axis: int | tuple[int, ...] | None = None) -> StructInfo:
    """Remove dimensions of extent one."""
    info: Any = x
    shape = known(info)
    if axis is None:
        axes = tuple(a for a, extent in enumerate(shape) if as_int(extent) == 1)
    else:
        axes = normal_axes(axis, len(shape))
    for position in axes:
        require_equal(f"extent of axis {position}", shape[position], const(1))
    return TensorStructInfo([e for a, e in enumerate(shape) if a not in axes], info.dtype)


@operator(
    "broadcast_to",
    legalize=lambda x, shape: topi.broadcast_to(x, shape),
    numpy=lambda x, shape: np.ascontiguousarray(np.broadcast_to(x, _ints(shape))),
)
def broadcast_to(x: Tensor, shape: Shape) -> StructInfo:
    """Repeat along dimensions of extent one, as NumPy does."""
    info: Any = x
    target: Any = shape
    if len(known(info)) > len(target):
        raise InferenceError(f"{info.ndim} dimensions do not fit into {len(target)}")
    made = broadcast(info.shape, target)
    for extent, wanted in zip(made, target):
        require_equal("the extents do not broadcast", extent, wanted)
    return TensorStructInfo(target, info.dtype)


@operator(
    "concat",
    legalize=lambda tensors, axis: topi.concatenate(tensors, axis),
    numpy=lambda tensors, axis: np.concatenate(tensors, axis),
)
def concat(tensors: TensorTuple, axis: int = 0) -> StructInfo:
    """Join tensors along an axis."""
    infos: Any = tensors
    if not infos:
        raise InferenceError("needs at least one tensor")
    first = known(infos[0], "the first tensor")
    position = normal_axis(axis, len(first))
    total: Expr = as_expr(0)
    for info in infos:
        shape = known(info, "every tensor")
        if len(shape) != len(first):
            raise InferenceError(f"tensors have {len(first)} and {len(shape)} dimensions")
        for other, (a, b) in enumerate(zip(first, shape)):
            if other != position:
                require_equal(f"extents of axis {other} differ", a, b)
        total = total + shape[position]
    made = [simplify(total) if a == position else extent for a, extent in enumerate(first)]
    return TensorStructInfo(made, same_dtype(*infos))


def stack(tensors: Any, axis: int = 0) -> Any:
    """Join tensors along a new axis."""
    return concat([expand_dims(item, axis) for item in tensors], axis)


@operator(
    "split",
    legalize=lambda x, indices_or_sections, axis: topi.split(x, indices_or_sections, axis),
    numpy=lambda x, indices_or_sections, axis: [
        np.ascontiguousarray(part) for part in np.split(x, indices_or_sections, axis)
    ],
)
def split(x: Tensor, indices_or_sections: int | tuple[int, ...], axis: int = 0) -> StructInfo:
    """Cut along an axis into equal sections, or at the given places; gives a tuple."""
    info: Any = x
    shape = known(info)
    position = normal_axis(axis, len(shape))
    extent = shape[position]
    if isinstance(indices_or_sections, int):
        sections = indices_or_sections
        if sections < 1 or prove_different(simplify(extent % sections), const(0)):
            raise InferenceError(f"extent {extent!r} does not divide into {sections} sections")
        sizes = [simplify(extent // sections)] * sections
    else:
        starts = [as_expr(0), *map(as_expr, indices_or_sections)]
        sizes = [simplify(b - a) for a, b in zip(starts, [*starts[1:], extent])]
        if any((as_int(size) or 0) < 0 for size in sizes):
            raise InferenceError(f"places {list(indices_or_sections)} do not ascend in {extent!r}")
    parts = [(*shape[:position], size, *shape[position + 1 :]) for size in sizes]
    return TupleStructInfo(tuple(TensorStructInfo(part, info.dtype) for part in parts))


def _slice_numpy(x: Any, axes: Any, begin: Any, end: Any, strides: Any) -> Any:
    index: list[Any] = [slice(None)] * x.ndim
    for axis, b, e, s in zip(axes, begin, end, strides):
        index[axis] = slice(b, e, s)
    return np.ascontiguousarray(x[tuple(index)])


def _slice_topi(x: Any, axes: Any, begin: Any, end: Any, strides: Any) -> Any:
    full_begin: list[Any] = [0] * x.ndim
    full_end: list[Any] = list(x.shape)
    full_strides = [1] * x.ndim
    for axis, b, e, s in zip(axes, begin, end, strides):
        extent = x.shape[axis]
        full_begin[axis], full_end[axis] = _slice_bounds(b, e, extent)
        full_strides[axis] = s
    return topi.strided_slice(x, full_begin, full_end, full_strides)


def _slice_bounds(begin: int, end: int, extent: Expr) -> tuple[Expr, Expr]:
    """Clamp a Python slice into ``[0, extent]``."""
    size = as_int(extent)
    if size is not None:
        start, stop, _ = slice(begin, end).indices(size)
        return as_expr(start), as_expr(max(start, stop))
    start_expr = simplify(extent + begin) if begin < 0 else as_expr(begin)
    if end >= 2**31 - 1:
        return start_expr, extent
    return start_expr, simplify(extent + end) if end < 0 else as_expr(end)


@operator(
    "strided_slice",
    legalize=_slice_topi,
    numpy=_slice_numpy,
    prepare=lambda x, axes, begin, end, strides: {
        "axes": tuple(axis % x.struct_info.ndim for axis in axes),
        "strides": tuple(strides) if strides else (1,) * len(axes),
    },
)
def strided_slice(
    x: Tensor,
    axes: tuple[int, ...],
    begin: tuple[int, ...],
    end: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
) -> StructInfo:
    """Cut ``begin:end:stride`` out of the given axes, as Python slices do (strides positive)."""
    info: Any = x
    shape = list(known(info))
    steps = strides or (1,) * len(axes)
    if not len(axes) == len(begin) == len(end) == len(steps):
        raise InferenceError("axes, begin, end and strides must have one length")
    for axis, b, e, step in zip(axes, begin, end, steps):
        if step < 1:
            raise InferenceError(f"strides must be positive, got {step}; use flip to reverse")
        position = normal_axis(axis, len(shape))
        start, stop = _slice_bounds(b, e, shape[position])
        shape[position] = simplify((stop - start + (step - 1)) // step)
    return TensorStructInfo(shape, info.dtype)


@operator(
    "flip",
    legalize=lambda x, axis: topi.flip(x, axis),
    numpy=lambda x, axis: np.ascontiguousarray(np.flip(x, axis)),
)
def flip(x: Tensor, axis: int) -> StructInfo:
    """Reverse an axis."""
    info: Any = x
    normal_axis(axis, info.ndim)
    return tensor_like(info)


@operator(
    "repeat",
    legalize=lambda x, repeats, axis: topi.repeat(x, repeats, axis),
    numpy=lambda x, repeats, axis: np.repeat(x, repeats, axis),
)
def repeat(x: Tensor, repeats: int, axis: int | None = None) -> StructInfo:
    """Repeat each element along an axis (of the flat tensor without one)."""
    info: Any = x
    shape = list(known(info))
    if axis is None:
        shape, axis = [simplify(product(shape))], 0
    position = normal_axis(axis, len(shape))
    if repeats < 0:
        raise InferenceError(f"repeats must not be negative, got {repeats}")
    shape[position] = simplify(shape[position] * repeats)
    return TensorStructInfo(shape, info.dtype)


@operator(
    "tile",
    legalize=lambda x, repeats: topi.tile(x, repeats),
    numpy=lambda x, repeats: np.tile(x, repeats),
)
def tile(x: Tensor, repeats: tuple[int, ...]) -> StructInfo:
    """Repeat the whole tensor."""
    info: Any = x
    if any(count < 0 for count in repeats):
        raise InferenceError(f"repeats must not be negative, got {list(repeats)}")
    shape = known(info)
    ndim = max(len(shape), len(repeats))
    padded = (*([const(1)] * (ndim - len(shape))), *shape)
    reps = (*([1] * (ndim - len(repeats))), *repeats)
    return TensorStructInfo([simplify(e * r) for e, r in zip(padded, reps)], info.dtype)


def _take_numpy(x: Any, indices: Any, axis: int | None, mode: str) -> Any:
    return np.take(x, indices, axis, mode="wrap" if mode == "wrap" else "clip")


@operator(
    "take",
    legalize=lambda x, indices, axis, mode: topi.take(x, indices, axis, mode),
    numpy=_take_numpy,
)
def take(x: Tensor, indices: Tensor, axis: int | None = None, mode: str = "clip") -> StructInfo:
    """Gather slices along an axis (of the flat tensor without one).

    Indices outside are clipped, or with ``mode="wrap"`` count modulo the extent; ``"fast"`` trusts
    that there are none.
    """
    info: Any = x
    where_: Any = indices
    if not dtypes.is_integer(where_.dtype):
        raise InferenceError(f"indices must be integers, got {where_.dtype}")
    if mode not in ("clip", "wrap", "fast"):
        raise InferenceError(f"mode must be clip, wrap or fast, got {mode!r}")
    shape = known(info)
    if axis is None:
        return TensorStructInfo(known(where_, "indices"), info.dtype)
    position = normal_axis(axis, len(shape))
    made = (*shape[:position], *known(where_, "indices"), *shape[position + 1 :])
    return TensorStructInfo(made, info.dtype)


@operator(
    "gather_elements",
    legalize=lambda data, indices, axis: topi.gather(data, axis, indices),
    numpy=lambda data, indices, axis: np.take_along_axis(data, indices, axis),
)
def gather_elements(data: Tensor, indices: Tensor, axis: int = 0) -> StructInfo:
    """Look up one element for each index, which gives the place along ``axis``."""
    info: Any = data
    where_: Any = indices
    if not dtypes.is_integer(where_.dtype):
        raise InferenceError(f"indices must be integers, got {where_.dtype}")
    normal_axis(axis, info.ndim)
    if where_.ndim != info.ndim:
        raise InferenceError(f"data has {info.ndim} dimensions, indices have {where_.ndim}")
    return TensorStructInfo(known(where_, "indices"), info.dtype)


@operator(
    "where",
    legalize=lambda condition, x, y: topi.where(condition, x, y),
    numpy=np.where,
)
def where(condition: Tensor, x: Tensor, y: Tensor) -> StructInfo:
    """X where the condition holds, else y; all three broadcast."""
    test: Any = condition
    a: Any = x
    b: Any = y
    if not dtypes.is_bool(test.dtype):
        raise InferenceError(f"the condition must be bool, got {test.dtype}")
    shape = broadcast(known(test, "condition"), known(a, "x"), known(b, "y"))
    return TensorStructInfo(shape, same_dtype(a, b))


@operator(
    "tril",
    legalize=lambda x, k: topi.tril(x, k),
    numpy=np.tril,
)
def tril(x: Tensor, k: int = 0) -> StructInfo:
    """Keep the lower triangle of the last two axes, zero elsewhere."""
    return tensor_like(x)  # type: ignore[arg-type]


@operator(
    "triu",
    legalize=lambda x, k: topi.triu(x, k),
    numpy=np.triu,
)
def triu(x: Tensor, k: int = 0) -> StructInfo:
    """Keep the upper triangle of the last two axes, zero elsewhere."""
    return tensor_like(x)  # type: ignore[arg-type]


def is_same_shape_reshape(x: RelaxExpr, shape: ShapeExpr) -> bool:
    """Whether a reshape changes nothing."""
    return len(x.shape) == len(shape.values) and all(map(prove_equal, x.shape, shape.values))
