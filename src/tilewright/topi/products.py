"""Matrix products by NumPy's rules, which all products of ``topi`` are defined by."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir import Expr
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.te.arithmetic import broadcast_shape, read_broadcast
from tilewright.topi.utils import rounded, total_dtype


@with_conditions
def matmul(
    a: Tensor,
    b: Tensor,
    transp_a: bool = False,
    transp_b: bool = False,
    out_dtype: str | None = None,
) -> Tensor:
    """Multiply matrices, with NumPy's rules for vectors and broadcast batch dimensions.

    ``a``: ``[..., M, K]`` (``[..., K, M]`` if ``transp_a``), ``b``: ``[..., K, N]``
    (``[..., N, K]`` if ``transp_b``); the result is ``[..., M, N]`` in ``out_dtype`` (that of
    ``a``, if not given). Operands may differ in dtype. Products are summed in ``out_dtype``, or in
    the operands' if that is a wider float; sums of 16-bit floats are kept in float32. They are
    rounded once.

    Raises ``VerifyError`` if the extents that are summed over differ.
    """
    if a.ndim == 0 or b.ndim == 0:
        raise VerifyError("matmul needs at least one dimension on both sides")
    out_dtype = out_dtype or a.dtype
    wide = total_dtype(out_dtype, a.dtype, b.dtype)
    vector_a, vector_b = a.ndim == 1, b.ndim == 1
    depth_a = a.shape[0] if vector_a else a.shape[-2 if transp_a else -1]
    depth_b = b.shape[0] if vector_b else b.shape[-1 if transp_b else -2]
    require_equal(f"matmul of {list(a.shape)} and {list(b.shape)}: inner extents", depth_a, depth_b)
    k = te.reduce_axis((0, depth_a), "k")
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2]) if a.ndim > 2 or b.ndim > 2 else ()
    rows = () if vector_a else (a.shape[-1 if transp_a else -2],)
    columns = () if vector_b else (b.shape[-2 if transp_b else -1],)

    def read(x: Tensor, outer: tuple[Expr, ...], inner: tuple[Any, ...]) -> Expr:
        if x.ndim <= 2:
            return x(*inner)
        own = outer[len(outer) - (x.ndim - 2) :]
        return read_broadcast(x, (*own, *inner), (*batch[len(batch) - len(own) :], *x.shape[-2:]))

    def formula(*i: Expr) -> Expr:
        outer = i[: len(batch)]
        row = i[len(batch) : len(batch) + len(rows)]
        column = i[len(batch) + len(rows) :]
        inner_a: tuple[Any, ...] = (k.var, *row) if transp_a and not vector_a else (*row, k.var)
        inner_b: tuple[Any, ...] = (
            (*column, k.var) if transp_b and not vector_b else (k.var, *column)
        )
        left, right = read(a, outer, inner_a), read(b, outer, inner_b)
        product = cast_expr(left, wide) * cast_expr(right, wide)
        result: Expr = te.sum(product, axis=k)
        return result

    made: Tensor = compute((*batch, *rows, *columns), formula, name="matmul", tag="matmul")
    return rounded(made, out_dtype)
