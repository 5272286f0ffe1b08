"""Matrix products."""

from __future__ import annotations

from tilewright import topi
from tilewright.ir import Expr, const, dtypes
from tilewright.relax.conditions import require_equal
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.expr_operators import OPERATOR_SUGAR
from tilewright.relax.ops.common import broadcast, known, same_dtype
from tilewright.relax.ops.manipulate import permute_dims
from tilewright.relax.registry import Tensor, builder, operator, renamed
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError


@operator("matmul", legalize=renamed(topi.matmul, transpose_a="transp_a", transpose_b="transp_b"))
def matmul(
    x1: Tensor, x2: Tensor, out_dtype: str | None = None, transpose_b: bool = False
) -> StructInfo:
    """Matrix product; batch dimensions broadcast, a vector acts as a row or column.

    With ``transpose_b`` the last two dimensions of ``x2`` are swapped.

    Raises ``VerifyError`` if the extents that are summed over differ.
    """
    dtype = out_dtype or same_dtype(x1, x2)
    dtypes.split_dtype(dtype)
    left, right = list(known(x1, "x1")), list(known(x2, "x2"))
    if not left or not right:
        raise VerifyError("operands must have at least one dimension")
    if transpose_b:
        if len(right) < 2:
            raise VerifyError("transpose_b needs a matrix")
        right[-1], right[-2] = right[-2], right[-1]
    row, column = len(left) == 1, len(right) == 1
    if row:
        left.insert(0, const(1))
    if column:
        right.append(const(1))
    require_equal("inner extents differ", left[-1], right[-2])
    batch: tuple[Expr, ...] = broadcast(left[:-2], right[:-2]) if len(left) + len(right) > 4 else ()
    tail = ([] if row else [left[-2]]) + ([] if column else [right[-1]])
    return TensorStructInfo((*batch, *tail), dtype)


@builder("linear")
def linear(
    data: RelaxExpr, weight: RelaxExpr, bias: RelaxExpr | None = None, out_dtype: str | None = None
) -> RelaxExpr:
    """``data @ weight.T + bias``, with ``weight`` as ``[out, in]``."""
    made = matmul(data, permute_dims(weight), out_dtype)
    return made if bias is None else made + bias


OPERATOR_SUGAR["matmul"] = matmul
