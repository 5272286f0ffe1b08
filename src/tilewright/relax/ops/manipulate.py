"""Operators that only move elements: reshape, transpose, concatenate, split, index."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, SupportsInt

import numpy as np

from tilewright import te, topi
from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    and_,
    as_expr,
    as_int,
    const,
    dtypes,
    or_,
)
from tilewright.relax.conditions import require, require_equal
from tilewright.relax.expr import RelaxCall, RelaxExpr, ShapeExpr
from tilewright.relax.ops.common import broadcast, element_count, known, same_dtype, tensor_like
from tilewright.relax.registry import Shape, Tensor, TensorTuple, builder, operator, renamed
from tilewright.relax.struct_info import (
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    prove_different,
    prove_equal,
)
from tilewright.relax.values import ShapeLike, shape_values
from tilewright.support.errors import VerifyError
from tilewright.topi.slices import section_cuts, slice_bounds, slice_extent
from tilewright.topi.utils import normal_axes, normal_axis, repeated_extent, total_extent


def _ints(shape: Sequence[SupportsInt]) -> tuple[int, ...]:
    return tuple(int(extent) for extent in shape)


_MOST_SECTIONS = 10_000  # each is a value of its own


@operator(
    "reshape",
    legalize=topi.reshape,
    numpy=lambda x, shape: x.reshape(_ints(shape)),
)
def _reshape(x: Tensor, shape: Shape) -> StructInfo:
    """Reshape a tensor to as many elements."""
    require_equal("numbers of elements differ", element_count(known(x)), element_count(shape))
    return TensorStructInfo(shape, x.dtype)


@builder("reshape")
def reshape(x: RelaxExpr, shape: ShapeLike) -> RelaxCall:
    """Reshape a tensor to as many elements; one extent may be -1, and 0 keeps an extent.

    A tensor without elements keeps none: there 0 is an extent like others.

    Raises ``VerifyError`` if several are -1, or the number of elements changes.
    """
    extents = list(shape_values(shape))
    if as_int(simplify(element_count(x.shape))) != 0:
        kept = [axis for axis, extent in enumerate(extents[: len(x.shape)]) if as_int(extent) == 0]
        for axis in kept:
            extents[axis] = x.shape[axis]
    unknown = [axis for axis, extent in enumerate(extents) if as_int(extent) == -1]
    if len(unknown) > 1:
        raise VerifyError(f"reshape: only one extent may be -1, got {extents}")
    if unknown:
        rest = extents[: unknown[0]] + extents[unknown[0] + 1 :]
        extents[unknown[0]] = _left_over(list(x.shape), rest)
    return _reshape(x, ShapeExpr(tuple(extents)))


def _left_over(have: list[Expr], wanted: list[Expr]) -> Expr:
    """The extent that is not given, from the number of elements."""
    rest = []
    for extent in wanted:
        # Extents that stay are left out: if one is zero, the others still say how many.
        same = next((n for n, other in enumerate(have) if prove_equal(extent, other)), None)
        if same is None:
            rest.append(extent)
        else:
            have.pop(same)
    total, known_part = element_count(have), element_count(rest)
    if as_int(known_part) == 0:
        raise VerifyError("reshape: next to an extent of 0 nothing says what -1 is")
    if prove_different(simplify(total % known_part), const(0)):
        raise VerifyError(f"reshape: {total!r} elements do not divide by {known_part!r}")
    return simplify(total // known_part)


@operator(
    "permute_dims",
    legalize=topi.transpose,
    numpy=lambda x, axes: np.array(np.transpose(x, axes), order="C"),
    prepare=lambda x, axes: {"axes": _permutation(x, axes)},
)
def permute_dims(x: Tensor, axes: tuple[int, ...] | None = None) -> StructInfo:
    """Reorder dimensions; without ``axes`` reverse them.

    Raises ``VerifyError`` if ``axes`` is not a permutation.
    """
    shape = known(x)
    order = [normal_axis(axis, len(shape)) for axis in axes or ()]
    if sorted(order) != list(range(len(shape))):
        raise VerifyError(f"{list(axes or ())} is no permutation of {len(shape)} axes")
    return TensorStructInfo([shape[axis] for axis in order], x.dtype)


def _permutation(x: Any, axes: Sequence[int] | None) -> tuple[int, ...]:
    ndim = x.struct_info.ndim
    if axes is None:
        return tuple(reversed(range(ndim)))
    return tuple(axis + ndim if axis < 0 else axis for axis in axes)


@builder("flatten")
def flatten(x: RelaxExpr, start_dim: int = 0, end_dim: int = -1) -> RelaxExpr:
    """Join the dimensions from ``start_dim`` to ``end_dim`` into one.

    Raises ``VerifyError`` if the axes come in the wrong order.
    """
    shape = x.shape
    if not shape:
        return reshape(x, (1,))
    try:
        start, end = normal_axis(start_dim, len(shape)), normal_axis(end_dim, len(shape))
    except VerifyError as error:
        raise VerifyError(f"flatten: {error}") from None
    if start > end:
        raise VerifyError(f"flatten: axis {start_dim} comes after axis {end_dim}")
    return reshape(x, (*shape[:start], element_count(shape[start : end + 1]), *shape[end + 1 :]))


@operator(
    "expand_dims",
    legalize=topi.expand_dims,
    numpy=np.expand_dims,
)
def expand_dims(x: Tensor, axis: int | tuple[int, ...]) -> StructInfo:
    """Insert dimensions of extent one at the given positions of the result."""
    shape = list(known(x))
    count = 1 if isinstance(axis, int) else len(axis)
    for position in normal_axes(axis, len(shape) + count):
        shape.insert(position, const(1))
    return TensorStructInfo(shape, x.dtype)


@operator(
    "squeeze",
    legalize=topi.squeeze,
    numpy=np.squeeze,
)
def squeeze(x: Tensor, axis: int | tuple[int, ...] | None = None) -> StructInfo:
    """Remove dimensions of extent one."""
    shape = known(x)
    if axis is None:
        axes = tuple(a for a, extent in enumerate(shape) if as_int(extent) == 1)
    else:
        axes = normal_axes(axis, len(shape))
    for position in axes:
        require_equal(f"extent of axis {position}", shape[position], const(1))
    return TensorStructInfo([e for a, e in enumerate(shape) if a not in axes], x.dtype)


@operator(
    "broadcast_to",
    legalize=topi.broadcast_to,
    numpy=lambda x, shape: np.array(np.broadcast_to(x, _ints(shape)), order="C"),
)
def broadcast_to(x: Tensor, shape: Shape) -> StructInfo:
    """Repeat along dimensions of extent one, as NumPy does.

    Raises ``VerifyError`` where neither extent is one nor both are equal.
    """
    if len(known(x)) > len(shape):
        raise VerifyError(f"{x.ndim} dimensions do not fit into {len(shape)}")
    made = broadcast(x.shape, shape)
    for extent, wanted in zip(made, shape):
        require_equal("the extents do not broadcast", extent, wanted)
    return TensorStructInfo(shape, x.dtype)


@operator(
    "concat",
    legalize=topi.concatenate,
    numpy=np.concatenate,
)
def concat(tensors: TensorTuple, axis: int = 0) -> StructInfo:
    """Join tensors along an axis.

    Raises ``VerifyError`` if another extent differs, or there is no tensor.
    """
    if not tensors:
        raise VerifyError("needs at least one tensor")
    first = known(tensors[0], "the first tensor")
    position = normal_axis(axis, len(first))
    for info in tensors:
        shape = known(info, "every tensor")
        if len(shape) != len(first):
            raise VerifyError(f"tensors have {len(first)} and {len(shape)} dimensions")
        for other, (a, b) in enumerate(zip(first, shape)):
            if other != position:
                require_equal(f"extents of axis {other} differ", a, b)
    total = total_extent(*(known(info, "every tensor")[position] for info in tensors))
    made = [simplify(total) if a == position else extent for a, extent in enumerate(first)]
    return TensorStructInfo(made, same_dtype(*tensors))


@builder("stack")
def stack(tensors: Sequence[RelaxExpr], axis: int = 0) -> RelaxCall:
    """Join tensors along a new axis."""
    return concat([expand_dims(item, axis) for item in tensors], axis)


def _split_numpy(
    x: np.ndarray[Any, Any], indices_or_sections: int | tuple[int, ...], axis: int
) -> list[np.ndarray[Any, Any]]:
    places = indices_or_sections
    if isinstance(places, int):
        cuts = section_cuts("extent ", const(x.shape[axis]), places, require)
        places = tuple(as_int(cut) or 0 for cut in cuts[1:-1])
    return [np.ascontiguousarray(part) for part in np.split(x, places, axis)]


@operator(
    "split",
    legalize=topi.split,
    numpy=_split_numpy,
)
def split(x: Tensor, indices_or_sections: int | tuple[int, ...], axis: int = 0) -> StructInfo:
    """Split along an axis into equal sections, or at the given indices; returns a tuple.

    Where a constant extent doesn't divide, the last section is smaller, as in ``topi.split``.

    Raises ``VerifyError`` if a symbolic extent doesn't divide, or nothing is left for a section.
    """
    shape = known(x)
    position = normal_axis(axis, len(shape))
    extent = shape[position]
    if isinstance(indices_or_sections, int):
        sections = indices_or_sections
        if not 1 <= sections <= _MOST_SECTIONS:
            raise VerifyError(f"sections must be 1 to {_MOST_SECTIONS}, got {sections}")
        cuts = section_cuts("extent ", extent, sections, require)
        sizes = [simplify(b - a) for a, b in pairwise(cuts)]
    else:
        starts = [as_expr(0), *map(as_expr, indices_or_sections)]
        sizes = [simplify(b - a) for a, b in zip(starts, [*starts[1:], extent])]
        for size in sizes:
            require(size >= 0, f"places {list(indices_or_sections)} do not ascend in ", extent)
    parts = [(*shape[:position], size, *shape[position + 1 :]) for size in sizes]
    return TupleStructInfo(tuple(TensorStructInfo(part, x.dtype) for part in parts))


def _slice_numpy(
    x: np.ndarray[Any, Any],
    axes: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int],
    assume_inbound: bool,
) -> np.ndarray[Any, Any]:
    index: list[Any] = [slice(None)] * x.ndim
    for axis, b, e, s in zip(axes, begin, end, strides):
        index[axis] = slice(b, e, s)
    return np.array(x[tuple(index)], order="C")


def _slice_topi(
    x: te.Tensor,
    axes: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int],
    assume_inbound: bool,
) -> te.Tensor:
    back = [number for number, step in enumerate(strides) if step < 0]
    for number in back:
        bounds = slice_bounds(
            begin[number], end[number], x.shape[axes[number]], strides[number],
            assume_inbound=assume_inbound,
        )  # fmt: skip
        x = topi.reversed_slice(x, *bounds, strides[number], axes[number])
    on = [number for number in range(len(axes)) if number not in back]
    forward = [
        slice_bounds(begin[n], end[n], x.shape[axes[n]], assume_inbound=assume_inbound) for n in on
    ]
    if back and not on:
        return x
    return topi.strided_slice(
        x, [low for low, _ in forward], [high for _, high in forward], [strides[n] for n in on],
        [axes[n] for n in on],
    )  # fmt: skip


def _slice_attributes(
    x: Any,
    axes: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int],
    assume_inbound: bool,
) -> dict[str, Any]:
    ndim = x.struct_info.ndim
    made = tuple(normal_axis(axis, ndim) for axis in axes)
    normal_axes(made, ndim)  # refuses an axis that is named twice
    return {"axes": made, "strides": tuple(strides) if strides else (1,) * len(made)}


@operator(
    "strided_slice",
    legalize=_slice_topi,
    numpy=_slice_numpy,
    prepare=_slice_attributes,
)
def strided_slice(
    x: Tensor,
    axes: tuple[int, ...],
    begin: tuple[int, ...],
    end: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    assume_inbound: bool = False,
) -> StructInfo:
    """Take ``begin:end:stride`` of the given axes, as Python slices do.

    Bounds are clamped to symbolic axes too, so extents become ``min(4, n)``; ``assume_inbound``
    asserts that they are inside, which is checked when the graph is called. Where a negative stride
    goes down to the first element, ``end`` is that far below zero that no axis reaches it.

    Raises ``VerifyError`` for an axis that isn't there or is named twice, and for a stride of zero.
    """
    shape = list(known(x))
    steps = strides or (1,) * len(axes)
    if not len(axes) == len(begin) == len(end) == len(steps):
        raise VerifyError("axes, begin, end and strides must have one length")
    normal_axes(axes, len(shape))
    for axis, b, e, step in zip(axes, begin, end, steps):
        if step == 0:
            raise VerifyError("a stride must not be 0")
        position = normal_axis(axis, len(shape))
        extent = shape[position]
        start, stop = slice_bounds(b, e, extent, step, assume_inbound=assume_inbound)
        if assume_inbound:
            inside = (
                and_(start >= 0, start <= stop, stop <= extent)
                if step > 0
                else and_(stop >= -1, stop <= start, start < extent)
            )
            require(inside, f"the slice {b}:{e} is not in axis {position} of extent ", extent)
        shape[position] = slice_extent(start, stop, step)
    return TensorStructInfo(shape, x.dtype)


@operator(
    "flip",
    legalize=topi.flip,
    numpy=lambda x, axis: np.ascontiguousarray(np.flip(x, axis)),
)
def flip(data: Tensor, axis: int) -> StructInfo:
    """Reverse an axis."""
    normal_axis(axis, data.ndim)
    return tensor_like(data)


@operator(
    "repeat",
    legalize=topi.repeat,
    numpy=np.repeat,
)
def repeat(data: Tensor, repeats: int, axis: int | None = None) -> StructInfo:
    """Repeat each element along an axis (of the flat tensor without one).

    Raises ``VerifyError`` for a negative number.
    """
    shape = list(known(data))
    if axis is None:
        shape, axis = [simplify(element_count(shape))], 0
    position = normal_axis(axis, len(shape))
    if repeats < 0:
        raise VerifyError(f"repeats must not be negative, got {repeats}")
    shape[position] = simplify(repeated_extent(shape[position], repeats))
    return TensorStructInfo(shape, data.dtype)


@operator(
    "tile",
    legalize=renamed(topi.tile, repeats="reps"),
    numpy=np.tile,
    prepare=lambda data, repeats: {"repeats": (repeats,) if isinstance(repeats, int) else repeats},
)
def tile(data: Tensor, repeats: int | tuple[int, ...]) -> StructInfo:
    """Repeat the whole tensor: along its last axes, as often as ``repeats`` says.

    Raises ``VerifyError`` for a negative number.
    """
    assert not isinstance(repeats, int)
    if any(count < 0 for count in repeats):
        raise VerifyError(f"repeats must not be negative, got {list(repeats)}")
    shape = known(data)
    ndim = max(len(shape), len(repeats))
    padded = (*([const(1)] * (ndim - len(shape))), *shape)
    reps = (*([1] * (ndim - len(repeats))), *repeats)
    return TensorStructInfo([simplify(e) for e in map(repeated_extent, padded, reps)], data.dtype)


_MODES = ("clip", "wrap", "fast")


def _check_lookup(
    indices: TensorStructInfo, mode: str, extent: Expr, modes: Sequence[str] = _MODES
) -> None:
    """Check what is looked up along an axis of the given extent."""
    if not dtypes.is_integer(indices.dtype):
        raise VerifyError(f"indices must be integers, got {indices.dtype}")
    if mode not in modes:
        raise VerifyError(f"mode must be one of {', '.join(modes)}, got {mode!r}")
    count = element_count(known(indices, "indices"))
    require(or_(extent >= 1, count <= 0), "there is nothing to look up along an axis of ", extent)


def _take(x: te.Tensor, indices: te.Tensor, axis: int | None, mode: str) -> te.Tensor:
    return topi.take(x, indices, axis, mode=mode)


@operator("take", legalize=_take)
def take(x: Tensor, indices: Tensor, axis: int | None = None, mode: str = "clip") -> StructInfo:
    """Gather slices along an axis (of the flat tensor without one).

    Indices out of bounds are clipped, or with ``mode="wrap"`` taken modulo the extent, with
    ``"nan"`` they give NaN; ``"fast"`` assumes that there are none.

    Raises ``VerifyError`` for another mode, and ``"nan"`` of integers.
    """
    shape = known(x)
    if mode == "nan" and not dtypes.is_float(x.dtype):
        raise VerifyError(f"mode nan needs floating-point numbers, got {x.dtype}")
    modes = (*_MODES, "nan")
    if axis is None:
        _check_lookup(indices, mode, element_count(shape), modes)
        return TensorStructInfo(indices.shape, x.dtype)
    position = normal_axis(axis, len(shape))
    _check_lookup(indices, mode, shape[position], modes)
    made = (*shape[:position], *known(indices, "indices"), *shape[position + 1 :])
    return TensorStructInfo(made, x.dtype)


def _gather(data: te.Tensor, indices: te.Tensor, axis: int, mode: str) -> te.Tensor:
    return topi.gather(data, axis, indices, mode)


@operator("gather_elements", legalize=_gather)
def gather_elements(data: Tensor, indices: Tensor, axis: int = 0, mode: str = "clip") -> StructInfo:
    """Look up one element for each index, which is its position along ``axis``.

    ``mode`` is how indices out of bounds are handled, as for ``take``. Along other axes there may
    be fewer indices than elements.

    Raises ``VerifyError`` if the numbers of dimensions differ.
    """
    position = normal_axis(axis, data.ndim)
    if indices.ndim != data.ndim:
        raise VerifyError(f"data has {data.ndim} dimensions, indices have {indices.ndim}")
    shape = known(data, "data")
    _check_lookup(indices, mode, shape[position])
    for other, (wanted, there) in enumerate(zip(indices.shape, shape)):
        if other != position:
            require(wanted <= there, f"more indices than elements along axis {other}: ", wanted,
                    " against ", there)  # fmt: skip
    return TensorStructInfo(indices.shape, data.dtype)


@operator(
    "where",
    legalize=topi.where,
    numpy=np.where,
)
def where(condition: Tensor, x1: Tensor, x2: Tensor) -> StructInfo:
    """``x`` where the condition is true, else ``y``; all three broadcast.

    Raises ``VerifyError`` if the condition isn't bool.
    """
    if not dtypes.is_bool(condition.dtype):
        raise VerifyError(f"the condition must be bool, got {condition.dtype}")
    shape = broadcast(known(condition, "condition"), known(x1, "x1"), known(x2, "x2"))
    return TensorStructInfo(shape, same_dtype(x1, x2))


def _require_matrix(info: TensorStructInfo) -> None:
    if info.ndim in (0, 1):
        raise VerifyError(f"needs at least two dimensions, got {info.ndim}")


@operator("tril", legalize=topi.tril)
def tril(x: Tensor, k: int = 0) -> StructInfo:
    """Keep the lower triangle of the last two axes, zero elsewhere."""
    _require_matrix(x)
    return tensor_like(x)


@operator("triu", legalize=topi.triu)
def triu(x: Tensor, k: int = 0) -> StructInfo:
    """Keep the upper triangle of the last two axes, zero elsewhere."""
    _require_matrix(x)
    return tensor_like(x)


def is_same_shape_reshape(x: RelaxExpr, shape: ShapeExpr) -> bool:
    """Whether a reshape changes nothing."""
    return len(x.shape) == len(shape.values) and all(map(prove_equal, x.shape, shape.values))
