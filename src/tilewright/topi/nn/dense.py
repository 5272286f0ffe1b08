"""Matrix products of networks: with a bias, by transposed weights, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import ExprLike
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.topi.products import matmul as product
from tilewright.topi.utils import require_along, require_ndim


@with_conditions
def matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Tensor:
    """Multiply matrices as :func:`matmul` does, and add ``bias [N]`` to each row."""
    result = product(tensor_a, tensor_b, transpose_a, transpose_b, out_dtype)
    if bias is None:
        return result
    require_along("matmul", result, (result.ndim - 1,), bias)
    made: Tensor = compute(
        result.shape, lambda *i: result(*i) + bias(i[-1]), name="matmul_bias", tag="broadcast"
    )
    return made


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None
) -> Tensor:
    """``data [..., K] @ weight [N, K]ᵀ + bias [N]``."""
    require_ndim("dense", weight, 2)
    return matmul(data, weight, bias, out_dtype, transpose_b=True)


@with_conditions
def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    oshape: Sequence[ExprLike] | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Tensor:
    """Multiply matrices batch by batch: ``[B, M, K] x [B, N, K]`` (the second one transposed).

    A batch of one goes with any. ``oshape`` is the result's shape, if the caller knows it.

    Raises ``VerifyError`` if the result has another shape.
    """
    require_ndim("batch_matmul", tensor_a, 3)
    require_ndim("batch_matmul", tensor_b, 3)
    made = product(tensor_a, tensor_b, transpose_a, transpose_b, out_dtype)
    for extent, wanted in zip(made.shape, oshape or ()):
        require_equal("batch_matmul: oshape", extent, wanted)
    return made
