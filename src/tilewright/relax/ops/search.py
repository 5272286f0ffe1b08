"""Searching in sorted rows, and what is made of it: buckets, repetitions by count, histograms."""

from __future__ import annotations

from tilewright import topi
from tilewright.ir import ExprLike, as_expr, dtypes
from tilewright.relax.conditions import require_equal
from tilewright.relax.expr import RelaxCall, RelaxExpr
from tilewright.relax.ops.common import known, tensor_like
from tilewright.relax.ops.create import arange
from tilewright.relax.ops.manipulate import take
from tilewright.relax.ops.scan import cumsum
from tilewright.relax.ops.unary import astype
from tilewright.relax.registry import Tensor, builder, operator, renamed
from tilewright.relax.struct_info import StructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.search import check_search


@operator("searchsorted", legalize=renamed(topi.searchsorted, dtype="out_dtype"))
def searchsorted(
    sorted_sequence: Tensor, values: Tensor, right: bool = False, dtype: str = "int64"
) -> StructInfo:
    """Where each value would be inserted into a sorted sequence, so that it stays sorted.

    See :func:`tilewright.topi.searchsorted`.

    Raises ``VerifyError`` if these differ, or dtypes aren't as needed.
    """
    check_search("searchsorted", sorted_sequence.dtype, values.dtype, dtype)
    rows = known(sorted_sequence, "sorted_sequence")[:-1]
    if sorted_sequence.ndim == 0:
        raise VerifyError("the sequence needs at least one dimension")
    if rows:
        if values.ndim != len(rows) + 1:
            raise VerifyError(
                f"sequences in {len(rows) + 1} dimensions need values in as many, they have "
                f"{values.ndim}"
            )
        for axis, (a, b) in enumerate(zip(rows, known(values, "values"))):
            require_equal(f"extents of axis {axis} differ", a, b)
    return tensor_like(values, dtype=dtype)


@builder("bucketize")
def bucketize(
    input_tensor: RelaxExpr, boundaries: RelaxExpr, out_int32: bool = False, right: bool = False
) -> RelaxCall:
    """The number of the bucket between ``boundaries`` in which each element is.

    A boundary belongs to the bucket below it, or with ``right`` to the one above.

    Raises ``VerifyError`` unless boundaries are a vector of the same dtype.
    """
    if boundaries.ndim != 1:
        raise VerifyError(f"bucketize: boundaries must be a vector, got {boundaries.ndim} axes")
    return searchsorted(boundaries, input_tensor, right, "int32" if out_int32 else "int64")


@builder("repeat_interleave")
def repeat_interleave(
    x: RelaxExpr, repeats: RelaxExpr, axis: int, output_size: ExprLike
) -> RelaxCall:
    """Repeat each slice along an axis as often as its number in the vector ``repeats`` says.

    ``output_size`` is the sum of the numbers, which only data tell: if it is greater, the last
    slice is repeated more often, and if it is less, there are fewer slices.

    Raises ``VerifyError`` if ``repeats`` aren't integers, or not one for each slice.
    """
    if not dtypes.is_integer(repeats.dtype) or repeats.ndim != 1:
        raise VerifyError(
            f"repeat_interleave: repeats must be a vector of integers, got {repeats.struct_info!r}"
        )
    require_equal("repeat_interleave: numbers of slices", repeats.shape[0], x.shape[axis])
    ends = cumsum(astype(repeats, "int64"), 0)
    places = arange(0, as_expr(output_size), 1, "int64")
    return take(x, searchsorted(ends, places, True), axis, "clip")
