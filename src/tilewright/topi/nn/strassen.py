"""Strassen's matrix product: seven products of half the size in place of eight.

    M1 = (A11 + A22) (B11 + B22)    M5 = (A11 + A12) B22
    M2 = (A21 + A22) B11            M6 = (A21 - A11) (B11 + B12)
    M3 = A11 (B12 - B22)            M7 = (A12 - A22) (B21 + B22)
    M4 = A22 (B21 - B11)

    C11 = M1 + M4 - M5 + M7    C12 = M3 + M5
    C21 = M2 + M4              C22 = M1 - M2 + M3 + M6

(Strassen, *Gaussian Elimination is not Optimal*, 1969.) Winograd's variant has three additions
less, but a larger error (Higham, *Accuracy and Stability of Numerical Algorithms*, 23.2.2). Sums of
quarters of a constant matrix are made beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright import te
from tilewright.arith import simplify
from tilewright.ir import Expr, as_int, const, if_then_else
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.tir.attrs import integer, register_annotation
from tilewright.topi.nn.winograd import Matrix, row_of
from tilewright.topi.utils import require_ndim

STRASSEN = register_annotation(
    "strassen",
    integer(0, 16),
    means="On the block of Strassen's products: the axis of rows that is cut in halves.",
    read_by=("dlight.cpu.contraction.strassen",),
)


def _matrix(*rows: Sequence[int]) -> Matrix:
    return tuple(tuple(map(Fraction, row)) for row in rows)


# Of the quarters 11, 12, 21 and 22: a row for each product.
_LEFT = _matrix(
    (1, 0, 0, 1), (0, 0, 1, 1), (1, 0, 0, 0), (0, 0, 0, 1), (1, 1, 0, 0), (-1, 0, 1, 0),
    (0, 1, 0, -1),
)  # fmt: skip
_RIGHT = _matrix(
    (1, 0, 0, 1), (1, 0, 0, 0), (0, 1, 0, -1), (-1, 0, 1, 0), (0, 0, 0, 1), (1, 1, 0, 0),
    (0, 0, 1, 1),
)  # fmt: skip
# Of the products: a row for each quarter of the result.
_RESULT = _matrix(
    (1, 0, 0, 1, -1, 0, 1),
    (0, 0, 1, 0, 1, 0, 0),
    (0, 1, 0, 1, 0, 0, 0),
    (1, -1, 1, 0, 0, 1, 0),
)
#: Products of halves that make a product.
STRASSEN_PRODUCTS = len(_LEFT)


def strassen_weight(weight: NDArray[Any]) -> NDArray[Any]:
    """Sums of quarters of a matrix ``[K, N]``, both even: ``[7, K / 2, N / 2]``."""
    depth, width = (extent // 2 for extent in weight.shape)
    quarters = weight.reshape(2, depth, 2, width)
    made = np.zeros((STRASSEN_PRODUCTS, depth, width), weight.dtype)
    for target, factors in zip(made, _RIGHT):
        for place, factor in enumerate(factors):
            if factor:
                target += weight.dtype.type(factor) * quarters[place // 2, :, place % 2]
    return made


@with_conditions
def matmul_strassen(data: Tensor, weight: Tensor, axis: int) -> Tensor:
    """Multiply ``data [..., K]`` by a matrix of which ``strassen_weight`` made ``weight``.

    ``axis`` of the data is cut in halves; an odd extent is taken as if a row of zeros followed.
    """
    rank = data.ndim
    require_ndim("matmul_strassen", weight, 3)
    if not 0 <= axis < rank - 1 or as_int(weight.shape[0]) != STRASSEN_PRODUCTS:
        raise VerifyError(
            f"matmul_strassen: an axis of rows and {STRASSEN_PRODUCTS} matrices are needed, got "
            f"axis {axis} of {list(data.shape)} and {list(weight.shape)}"
        )
    *rows, _ = data.shape
    _, depth, width = weight.shape
    require_equal("matmul_strassen: depth", data.shape[-1], depth * 2)
    extent = rows[axis]
    half = simplify((extent + 1) // 2)
    halves = [*rows[:axis], half, *rows[axis + 1 :]]

    def quarter(place: int, *i: Expr) -> Expr:
        *at, k = i
        if place // 2 == 0:
            return data(*at, k + place % 2 * depth)
        low = at[axis] + half
        value = data(*at[:axis], low, *at[axis + 1 :], k + place % 2 * depth)
        even = as_int(simplify(half * 2 - extent)) == 0
        return value if even else if_then_else(low < extent, value, const(0, data.dtype))

    sums: Tensor = compute(
        (STRASSEN_PRODUCTS, *halves, depth),
        lambda p, *i: row_of(p, _LEFT, [quarter(place, *i) for place in range(4)]),
        name="sums",
    )
    rk = te.reduce_axis((0, depth), "rk")
    products: Tensor = compute(
        (STRASSEN_PRODUCTS, *halves, width),
        lambda p, *i: te.sum(sums(p, *i[:-1], rk.var) * weight(p, rk.var, i[-1]), axis=[rk]),
        name="products",
        attrs={STRASSEN: axis},
    )

    quarters: Tensor = compute(
        (2, 2, *halves, width),
        lambda high, wide, *i: row_of(
            high * 2 + wide, _RESULT, [products(p, *i) for p in range(STRASSEN_PRODUCTS)]
        ),
        name="quarters",
    )

    def result(*i: Expr) -> Expr:
        *at, n = i
        at[axis] = i[axis] % half
        return quarters(i[axis] // half, n // width, *at, n % width)

    made: Tensor = compute((*rows, width * 2), result, name="matmul", tag="matmul_strassen")
    return made
