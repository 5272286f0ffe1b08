"""Calls of NumPy's functions (``execution/numpy_calls.py``), and linear algebra that needs them.

``torch.compile`` leaves these operators to PyTorch, which has them in libraries of its own.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.ir import INDEX, as_expr
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import (
    COMPLEX_CONVERTERS,
    CONVERTERS,
    Context,
    Converter,
    Size,
    converts,
    dtype_name,
)
from tilewright.relax.frontend.torch.pairs import Complex, join, split
from tilewright.relax.struct_info import TensorStructInfo

if TYPE_CHECKING:
    import torch

Value = RelaxExpr | Complex


def leave_to_pytorch(ctx: Context) -> None:
    """Refuse a node of ``torch.compile``'s graphs, where PyTorch's own libraries are at hand.

    Their linear algebra is that of such libraries as NumPy's.
    """
    if not ctx.symbols.from_data:
        raise ctx.error("PyTorch has it in a library of its own")


def call_library(
    ctx: Context,
    name: str,
    operands: Sequence[Value | Size],
    outputs: Sequence[tuple[Sequence[Size], torch.dtype]],
    **options: object,
) -> list[Value]:
    """Call a function of NumPy's; ``outputs`` are shapes and dtypes of what it gives."""
    leave_to_pytorch(ctx)
    kinds = [_kind(item) for item in operands]
    kinds += ["c" if dtype.is_complex else "r" for _, dtype in outputs]
    infos = [
        TensorStructInfo((*shape, 2) if dtype.is_complex else tuple(shape), dtype_name(dtype))
        for shape, dtype in outputs
    ]
    given = json.dumps({"results": len(outputs), **options})
    values = [
        ctx.emit(join(item)) if isinstance(item, (RelaxExpr, Complex)) else as_expr(item, INDEX)
        for item in operands
    ]
    made = ctx.emit(
        op.call_dps_packed("relax.numpy", [name, "".join(kinds), given, *values], infos)
    )
    items = [made] if len(outputs) == 1 else [ctx.emit(made[i]) for i in range(len(outputs))]
    return [split(item) if dtype.is_complex else item for item, (_, dtype) in zip(items, outputs)]


def _kind(operand: Value | Size) -> str:
    if isinstance(operand, Complex):
        return "c"
    return "r" if isinstance(operand, RelaxExpr) else "s"


def by_library(
    ctx: Context,
    name: str,
    operands: Sequence[Value | Size],
    results: Sequence[int] = (0,),
    **options: object,
) -> list[Value | None]:
    """Let NumPy compute those of a node's results that have the numbers ``results``."""
    recorded = ctx.result if isinstance(ctx.result, (list, tuple)) else [ctx.result]
    chosen = [recorded[number] for number in results]
    outputs = [(ctx.symbols.shape(value.shape), value.dtype) for value in chosen]
    made = dict(zip(results, call_library(ctx, name, operands, outputs, **options)))
    return [made.get(number) for number in range(len(recorded))]


def _register(name: str, converter: Converter) -> None:
    CONVERTERS.register(name, converter)
    COMPLEX_CONVERTERS.register(name, converter)


# ---- integers ------------------------------------------------------------------------------------


@converts("aten.gcd.default")
def _gcd(ctx: Context, a: RelaxExpr, b: RelaxExpr) -> Value | None:
    return by_library(ctx, "gcd", [ctx.cast(a, ctx.dtype), ctx.cast(b, ctx.dtype)])[0]


@converts("aten.lcm.default")
def _lcm(ctx: Context, a: RelaxExpr, b: RelaxExpr) -> Value | None:
    return by_library(ctx, "lcm", [ctx.cast(a, ctx.dtype), ctx.cast(b, ctx.dtype)])[0]


# ---- rows ----------------------------------------------------------------------------------------


@converts("aten.unique_dim.default")
def _unique_dim(
    ctx: Context, x: RelaxExpr, dim: int, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> list[Value | None]:  # fmt: skip
    """The different slices along an axis, in order; NumPy fills up what there could be more."""
    axis = ctx.axis(dim, x.ndim)
    most, kinds = x.shape[axis], [value.dtype for value in ctx.result]
    outputs = [(x.shape, kinds[0]), ((most,), kinds[1]), ((most,), kinds[2]), ((), kinds[2])]
    values, inverse, counts, count = call_library(ctx, "unique_slices", [x], outputs, axis=axis)
    assert isinstance(values, RelaxExpr) and isinstance(count, RelaxExpr), "they are real"
    size = ctx.counted(count, ctx.result[0].shape[axis], most)
    first = op.arange(0, size, 1, "int64")
    if not ctx.uses(2):
        return [op.take(values, first, axis), inverse, None]
    return [op.take(values, first, axis), inverse, op.take(counts, first, 0)]


# ---- linear algebra ------------------------------------------------------------------------------


def _is_checked(ctx: Context) -> bool:
    """Whether a failure, which the last result tells, is an error."""
    return any(
        "aten._linalg_check_errors.default" in map(str, (reader.target, *reader.args[1:2]))
        for user in ctx.node.users
        if user.target is operator.getitem
        for reader in user.users
    )


def _inv(ctx: Context, a: Value, *, check_errors: bool = False) -> list[Value | None]:
    return by_library(ctx, "inverse", [a], (0, 1), check=check_errors or _is_checked(ctx))


def _solve(
    ctx: Context, a: Value, b: Value, *, left: bool = True, check_errors: bool = False
) -> list[Value | None]:
    check = check_errors or _is_checked(ctx)
    made = by_library(ctx, "solve", [a, b], (0, 3), left=left, check=check)
    if ctx.uses(1, 2):
        raise ctx.error("the factors are not supported as results; use torch.linalg.lu_factor")
    return made


def _cholesky_ex(
    ctx: Context, a: Value, *, upper: bool = False, check_errors: bool = False
) -> list[Value | None]:
    check = check_errors or _is_checked(ctx)
    return by_library(ctx, "cholesky", [a], (0, 1), upper=upper, check=check)


def _det(ctx: Context, a: Value) -> list[Value | None]:
    if ctx.uses(1, 2):
        raise ctx.error("the factors are not supported as results; use torch.linalg.lu_factor")
    return by_library(ctx, "determinant", [a])


def _slogdet(ctx: Context, a: Value) -> list[Value | None]:
    if ctx.uses(2, 3):
        raise ctx.error("the factors are not supported as results; use torch.linalg.lu_factor")
    return by_library(ctx, "log_determinant", [a], (0, 1))


def _checked_inv(ctx: Context, a: Value) -> Value | None:
    return by_library(ctx, "inverse", [a], check=True)[0]


def _checked_solve(ctx: Context, a: Value, b: Value, *, left: bool = True) -> Value | None:
    return by_library(ctx, "solve", [a, b], left=left, check=True)[0]


def _checked_cholesky(ctx: Context, a: Value, *, upper: bool = False) -> Value | None:
    return by_library(ctx, "cholesky", [a], upper=upper, check=True)[0]


def _checked_lu_factor(ctx: Context, a: Value, *, pivot: bool = True) -> list[Value | None]:
    return by_library(ctx, "lu_factor", [a], (0, 1), pivot=pivot, check=True)


def _lu_factor(
    ctx: Context, a: Value, *, pivot: bool = True, check_errors: bool = False
) -> list[Value | None]:
    check = check_errors or _is_checked(ctx)
    return by_library(ctx, "lu_factor", [a], (0, 1, 2), pivot=pivot, check=check)


def _lu(ctx: Context, a: Value, *, pivot: bool = True) -> list[Value | None]:
    return by_library(ctx, "lu", [a], (0, 1, 2), pivot=pivot)


def _lu_unpack(
    ctx: Context, factors: Value, pivots: Value, unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> list[Value | None]:  # fmt: skip
    if not (unpack_data and unpack_pivots):
        raise ctx.error("only both factors and the permutation are supported")
    return by_library(ctx, "lu_unpack", [factors, pivots], (0, 1, 2))


def _lu_solve(
    ctx: Context, factors: Value, pivots: Value, b: Value, *, left: bool = True,
    adjoint: bool = False,
) -> Value | None:  # fmt: skip
    operands = [factors, pivots, b]
    return by_library(ctx, "lu_solve", operands, left=left, adjoint=adjoint)[0]


def _qr(ctx: Context, a: Value, mode: str = "reduced") -> list[Value | None]:
    return by_library(ctx, "qr", [a], (0, 1), mode=mode)


def _svd(
    ctx: Context, a: Value, full_matrices: bool = False, compute_uv: bool = True, *,
    driver: str | None = None,
) -> list[Value | None]:  # fmt: skip
    if not compute_uv or not ctx.uses(0, 2):
        return by_library(ctx, "singular_values", [a], (1,))
    return by_library(ctx, "svd", [a], (0, 1, 2), full=full_matrices)


def _eigh(
    ctx: Context, a: Value, triangle: str = "L", compute_v: bool = True
) -> list[Value | None]:
    if not compute_v or not ctx.uses(1):
        return by_library(ctx, "eigh_values", [a], (0,), triangle=triangle)
    return by_library(ctx, "eigh", [a], (0, 1), triangle=triangle)


def _eig(ctx: Context, a: Value) -> list[Value | None]:
    return by_library(ctx, "eig", [a], (0, 1))


def _eigvals(ctx: Context, a: Value) -> Value | None:
    return by_library(ctx, "eig_values", [a])[0]


def _solve_triangular(
    ctx: Context, a: Value, b: Value, *, upper: bool, left: bool = True,
    unitriangular: bool = False,
) -> Value | None:  # fmt: skip
    return by_library(ctx, "solve_triangular", [a, b], upper=upper, left=left, unit=unitriangular)[
        0
    ]


def _triangular_solve(
    ctx: Context, b: Value, a: Value, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> list[Value | None]:  # fmt: skip
    made = by_library(
        ctx, "solve_triangular", [a, b], upper=upper, left=True, unit=unitriangular,
        turned=transpose,
    )  # fmt: skip
    return [made[0], a]


def _older_cholesky(ctx: Context, a: Value, upper: bool = False) -> Value | None:
    return _checked_cholesky(ctx, a, upper=upper)


def _cholesky_solve(ctx: Context, b: Value, factor: Value, upper: bool = False) -> Value | None:
    return by_library(ctx, "cholesky_solve", [b, factor], upper=upper)[0]


def _cholesky_inverse(ctx: Context, factor: Value, upper: bool = False) -> Value | None:
    return by_library(ctx, "cholesky_inverse", [factor], upper=upper)[0]


def _pinv(
    ctx: Context, a: Value, *, atol: RelaxExpr | None = None, rtol: RelaxExpr | None = None,
    hermitian: bool = False,
) -> Value | None:  # fmt: skip
    limits = {"atol": atol, "rtol": rtol}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    operands = [a, *given.values()]
    return by_library(ctx, "pseudoinverse", operands, hermitian=hermitian, limits=list(given))[0]


def _exponential(ctx: Context, a: Value) -> Value | None:
    return by_library(ctx, "exponential", [a])[0]


_CONVERTERS: dict[str, Converter] = {
    "_linalg_det": _det,
    "_linalg_eigh": _eigh,
    "_linalg_eigvals": _eigvals,
    "_linalg_slogdet": _slogdet,
    "_linalg_solve_ex": _solve,
    "_linalg_svd": _svd,
    "cholesky": _older_cholesky,
    "cholesky_inverse": _cholesky_inverse,
    "cholesky_solve": _cholesky_solve,
    "inverse": _checked_inv,
    "linalg_cholesky": _checked_cholesky,
    "linalg_cholesky_ex": _cholesky_ex,
    "linalg_eig": _eig,
    "linalg_eigvals": _eigvals,
    "linalg_inv": _checked_inv,
    "linalg_inv_ex": _inv,
    "linalg_lu": _lu,
    "linalg_lu_factor": _checked_lu_factor,
    "linalg_lu_factor_ex": _lu_factor,
    "linalg_lu_solve": _lu_solve,
    "linalg_matrix_exp": _exponential,
    "linalg_qr": _qr,
    "linalg_solve": _checked_solve,
    "linalg_solve_triangular": _solve_triangular,
    "lu_unpack": _lu_unpack,
    "triangular_solve": _triangular_solve,
}
for _name, _converter in _CONVERTERS.items():
    _register(f"aten.{_name}.default", _converter)
_register("aten.linalg_pinv.atol_rtol_tensor", _pinv)
