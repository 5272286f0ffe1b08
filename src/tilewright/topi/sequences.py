"""Operators on sequences of several lengths: ``sequence_mask``, ``reverse_sequence``."""

from __future__ import annotations

from tilewright.ir import Expr, ExprLike, cast, const, dtypes, maximum, minimum, select
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.topi.scatter import require_indices
from tilewright.topi.utils import normal_axis, require_ndim


@with_conditions
def sequence_mask(
    data: Tensor, valid_length: Tensor, mask_value: ExprLike = 0, axis: int = 0
) -> Tensor:
    """Replace what comes after the end of each sequence by ``mask_value``.

    ``data``: ``[time, batch, ...]`` for ``axis=0``, ``[batch, time, ...]`` for ``axis=1``;
    ``valid_length``: ``[batch]``, integers or floats.

    Raises ``VerifyError`` for another axis, and if there isn't a length for each sequence.
    """
    what = "sequence_mask"
    if data.ndim < 2:
        raise VerifyError(f"{what}: data needs 2 dimensions or more, it has {data.ndim}")
    axis = normal_axis(axis, data.ndim)
    if axis > 1:
        raise VerifyError(f"{what}: the axis of time is 0 or 1, got {axis}")
    require_ndim(what, valid_length, 1)
    require_equal(f"{what}: lengths and sequences", valid_length.shape[0], data.shape[1 - axis])
    other = const(mask_value, data.dtype)

    def element(*i: Expr) -> Expr:
        length = valid_length(i[1 - axis])
        whole = dtypes.is_integer(length.dtype)
        inside = i[axis] < cast(length, "int64") if whole else cast(i[axis], length.dtype) < length
        return select(inside, data(*i), other)

    made: Tensor = compute(data.shape, element, name=what, tag="injective")
    return made


@with_conditions
def reverse_sequence(
    a: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0
) -> Tensor:
    """Reverse the first ``seq_lengths`` elements of each sequence; the others stay.

    Lengths outside of a sequence are taken to be the nearest that are inside.

    Raises ``VerifyError`` if the axes are the same, or there isn't a length for each sequence.
    """
    what = "reverse_sequence"
    seq_axis, batch_axis = normal_axis(seq_axis, a.ndim), normal_axis(batch_axis, a.ndim)
    if seq_axis == batch_axis:
        raise VerifyError(f"{what}: seq_axis and batch_axis are both {seq_axis}")
    require_indices(what, seq_lengths)
    require_ndim(what, seq_lengths, 1)
    require_equal(f"{what}: lengths and sequences", seq_lengths.shape[0], a.shape[batch_axis])

    def element(*i: Expr) -> Expr:
        wanted = cast(seq_lengths(i[batch_axis]), "int64")
        length, here = maximum(minimum(wanted, a.shape[seq_axis]), 0), i[seq_axis]
        place = select(here < length, length - 1 - here, here)
        return a(*i[:seq_axis], place, *i[seq_axis + 1 :])

    made: Tensor = compute(a.shape, element, name=what, tag="injective")
    return made
