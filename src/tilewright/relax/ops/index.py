"""Reading and writing where indices say, with negative ones counting from the end of their axis.

Of indices outside of an axis, reads take the nearest that is inside, and writes are left out. Where
several updates meet, the last one in row-major order stays, or all of them are combined in that
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tilewright import topi
from tilewright.ir import Expr, ExprLike, as_expr, as_int, dtypes, or_
from tilewright.relax.conditions import require, require_equal
from tilewright.relax.expr import RelaxCall, RelaxExpr
from tilewright.relax.ops.common import broadcast, element_count, known, same_dtype, tensor_like
from tilewright.relax.registry import Prim, Tensor, TensorTuple, builder, operator, renamed
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.scatter import REDUCTIONS
from tilewright.topi.slices import slice_bounds, slice_extent
from tilewright.topi.utils import normal_axis


@operator("index_tensor", legalize=topi.index_tensor)
def index_tensor(data: Tensor, indices: TensorTuple, axis: int = 0) -> StructInfo:
    """``data[indices]`` as NumPy's indexing by arrays of integers has it.

    The index tensors broadcast together and stand for neighbouring axes, of which ``axis`` is the
    first; their common shape takes the place of these axes.

    Raises ``VerifyError`` if indices aren't integers, or there are none or too many.
    """
    shape = known(data, "data")
    first, count, common = _neighbouring(shape, indices, axis)
    _require_elements(shape[first : first + count], common)
    return TensorStructInfo((*shape[:first], *common, *shape[first + count :]), data.dtype)


@operator("index_put", legalize=topi.index_put)
def index_put(
    data: Tensor, indices: TensorTuple, values: Tensor, accumulate: bool = False, axis: int = 0
) -> StructInfo:
    """Write, or with ``accumulate`` add, ``values`` at ``data[indices]``; returns a new tensor.

    ``indices`` and ``axis`` are as for ``index_tensor``, to whose result ``values`` broadcast.

    Raises ``VerifyError`` if shapes or dtypes don't fit.
    """
    shape = known(data, "data")
    first, count, common = _neighbouring(shape, indices, axis)
    made = (*shape[:first], *common, *shape[first + count :])
    given = known(values, "values")
    if len(given) > len(made):
        raise VerifyError(f"values have {len(given)} dimensions, what is indexed has {len(made)}")
    for extent, wanted in zip(broadcast(given, made), made):
        require_equal("values do not broadcast to what is indexed", extent, wanted)
    same_dtype(data, values)
    return tensor_like(data)


@operator(
    "gather_nd",
    legalize=partial(topi.gather_nd, index_axis=-1),
)
def gather_nd(data: Tensor, indices: Tensor, batch_dims: int = 0) -> StructInfo:
    """Gather elements or slices at multi-dimensional indices, as ONNX's ``GatherND``.

    The last axis of ``indices`` goes through the axes of ``data`` after the first ``batch_dims``,
    which both have.

    Raises ``VerifyError`` if shapes don't fit, or indices aren't integers.
    """
    shape = known(data, "data")
    depth, outer = _depth(indices, len(shape) - batch_dims)
    if not 0 <= batch_dims <= len(outer):
        raise VerifyError(f"batch_dims must be from 0 to {len(outer)}, got {batch_dims}")
    for axis in range(batch_dims):
        require_equal(f"extents of batch axis {axis} differ", outer[axis], shape[axis])
    _require_elements(shape[batch_dims : batch_dims + depth], outer)
    return TensorStructInfo((*outer, *shape[batch_dims + depth :]), data.dtype)


@operator("scatter_elements", legalize=topi.scatter_elements)
def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "update"
) -> StructInfo:
    """Update the elements of ``data`` whose positions along ``axis`` are given.

    Which update is for which element, and the ``reduction`` of both, are as of
    :func:`tilewright.topi.scatter_elements`.

    Raises ``VerifyError`` if shapes or dtypes don't fit.
    """
    position = normal_axis(axis, data.ndim)
    _require_reduction(data, reduction)
    _require_integers(indices)
    same_dtype(data, updates)
    shape, wanted = known(data, "data"), known(indices, "indices")
    given = known(updates, "updates")
    if not len(shape) == len(wanted) == len(given):
        raise VerifyError(
            f"data, indices and updates need one number of dimensions, they have {len(shape)}, "
            f"{len(wanted)} and {len(given)}"
        )
    for a, (count, size, there) in enumerate(zip(wanted, shape, given)):
        require(count <= there, f"more indices than updates along axis {a}: ", count, " against ",
                there)  # fmt: skip
        if a != position:
            require(count <= size, f"more indices than elements along axis {a}: ", count,
                    " against ", size)  # fmt: skip
    return tensor_like(data)


@operator(
    "scatter_nd",
    legalize=renamed(partial(topi.scatter_nd, index_axis=-1), reduction="mode"),
)
def scatter_nd(
    data: Tensor, indices: Tensor, updates: Tensor, reduction: str = "update"
) -> StructInfo:
    """Update elements or slices of ``data`` at multi-dimensional indices, as ONNX's ``ScatterND``.

    The last axis of ``indices`` goes through the leading axes of ``data``; ``updates`` has the
    shape of the rest of ``indices``, followed by that of the other axes. ``reduction`` is as for
    ``scatter_elements``.

    Raises ``VerifyError`` if shapes or dtypes don't fit.
    """
    shape, given = known(data, "data"), known(updates, "updates")
    _require_reduction(data, reduction)
    same_dtype(data, updates)
    depth, outer = _depth(indices, len(shape))
    wanted = (*outer, *shape[depth:])
    if len(given) != len(wanted):
        raise VerifyError(f"updates must have {len(wanted)} dimensions, they have {len(given)}")
    for a, (extent, other) in enumerate(zip(given, wanted)):
        require_equal(f"extent of axis {a} of updates", extent, other)
    return tensor_like(data)


@operator("slice_scatter", legalize=topi.slice_scatter)
def _slice_scatter(
    input_tensor: Tensor, src: Tensor, start: Prim, end: Prim, step: int = 1, axis: int = 0
) -> StructInfo:
    """``input_tensor`` with ``src`` in place of ``start:end:step`` along an axis."""
    shape, given = known(input_tensor, "input_tensor"), known(src, "src")
    position = normal_axis(axis, len(shape))
    same_dtype(input_tensor, src)
    if step < 1:
        raise VerifyError(f"the step must be at least 1, got {step}")
    if len(given) != len(shape):
        raise VerifyError(f"src must have {len(shape)} dimensions, it has {len(given)}")
    low, high = slice_bounds(start, end, shape[position], step)
    for a, (extent, whole) in enumerate(zip(given, shape)):
        wanted = slice_extent(low, high, step) if a == position else whole
        require_equal(f"extent of axis {a} of src", extent, wanted)
    return tensor_like(input_tensor)


@builder("slice_scatter")
def slice_scatter(
    input_tensor: RelaxExpr,
    src: RelaxExpr,
    start: ExprLike | RelaxExpr,
    end: ExprLike | RelaxExpr,
    step: int = 1,
    axis: int = 0,
) -> RelaxCall:
    """``input_tensor`` with ``src`` in place of ``start:end:step`` along an axis.

    Bounds are those of a Python slice; expressions count from the start of the axis.

    Raises ``VerifyError`` for a step below 1, and if ``src`` doesn't fit the slice.
    """
    first, last = (x if isinstance(x, RelaxExpr) else as_expr(x) for x in (start, end))
    return _slice_scatter(input_tensor, src, first, last, step, axis)


# ---- checks --------------------------------------------------------------------------------------


def _require_integers(indices: TensorStructInfo) -> None:
    if not dtypes.is_integer(indices.dtype):
        raise VerifyError(f"indices must be integers, got {indices.dtype}")


def _require_reduction(data: TensorStructInfo, reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise VerifyError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
    if reduction == "mean" and dtypes.is_bool(data.dtype):
        raise VerifyError("there is no mean of bools")


def _require_elements(extents: Sequence[Expr], lookups: Sequence[Expr]) -> None:
    count = element_count(lookups)
    for extent in extents:
        require(
            or_(extent >= 1, count <= 0), "there is nothing to look up along an axis of ", extent
        )


def _neighbouring(
    shape: Sequence[Expr], indices: Sequence[TensorStructInfo], axis: int
) -> tuple[int, int, tuple[Expr, ...]]:
    """The first axis that is indexed, how many are, and the common shape of the indices."""
    for table in indices:
        _require_integers(table)
    first = normal_axis(axis, len(shape))
    if not 1 <= len(indices) <= len(shape) - first:
        raise VerifyError(
            f"from axis {first} of {len(shape)} dimensions there may be 1 to {len(shape) - first} "
            f"index tensors, got {len(indices)}"
        )
    return first, len(indices), broadcast(*(known(table, "indices") for table in indices))


def _depth(indices: TensorStructInfo, most: int) -> tuple[int, tuple[Expr, ...]]:
    """The number of axes that the last axis of indices stands for, and the other extents."""
    _require_integers(indices)
    shape = known(indices, "indices")
    depth = as_int(shape[-1]) if shape else None
    if depth is None or depth > most:
        raise VerifyError(
            "the last axis of indices holds an index for each of some axes of data, so its extent "
            f"must be a number up to {most}; the shape of indices is {list(shape)}"
        )
    return depth, shape[:-1]
