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

Whatever is added shares the error of the larger, so first all are brought to one size, by powers
of two and therefore exactly (Ballard, Benson, Druinsky, Lipshitz, Schwartz, *Improving the
Numerical Stability of Fast Matrix Multiplication*, 2016). A size is a Euclidean norm: then an
error relative to the norms of two rows and of two columns is one relative to those of each.
Columns of the constant matrix come first; then its rows, with columns of the data, as far as no
column becomes much longer; and last the data's rows, in each call. A row with an infinity or a NaN
takes part as zeros, and its results are NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright import te
from tilewright.arith import simplify
from tilewright.ir import Expr, Select, as_int, call, const, if_then_else, maximum, minimum
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
# Exponents of float32: of the smallest normal number (-126); of columns, as far as a result times
# its column's scale stays in range, and keeps its digits, before its row's brings it back; of the
# depth, as far as scaled columns have all their digits before it is scaled.
_SMALLEST, _WIDEST, _DEEPEST = 126, 120, 60
# Of numbers: the bits before the exponent, and what is added to it.
_FRACTION_BITS, _BIAS = {"float32": 23, "float64": 52}, {"float32": 127, "float64": 1023}


def strassen_scales(weight: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Powers of two for the columns of the data, and for the columns of the result.

    A finite matrix ``[K, N]`` is divided by the first along ``K`` and by the second along ``N``,
    which brings the norms of its columns between one and two. Of the data only columns get smaller
    whose numbers are at most ``2 / K ** 0.5`` then: so for the norms of the data's rows, which only
    shrink, that of no column grew by more than a small factor.
    """
    exact = weight.astype("float64")
    first = np.where(exact.any(axis=0), _exponents(np.linalg.norm(exact, axis=0)), 0)
    exact = np.ldexp(exact, -first)
    rows = np.abs(exact).max(axis=1, initial=0) * len(exact) ** 0.5
    depths = np.clip(_exponents(rows), -_DEEPEST, 0)
    exact = np.ldexp(exact, -depths[:, None])
    columns = first + _exponents(np.linalg.norm(exact, axis=0))
    widths = np.where(exact.any(axis=0), np.clip(columns, -_WIDEST, _WIDEST), 0)
    one = weight.dtype.type(1)
    return np.ldexp(one, depths), np.ldexp(one, widths)


def _exponents(values: NDArray[Any]) -> NDArray[Any]:
    """Of the largest powers of two that don't exceed the values; low ones for zeros."""
    return np.where(values > 0, np.frexp(values)[1] - 1, -2 * _SMALLEST)


def strassen_weight(
    weight: NDArray[Any], depths: NDArray[Any], widths: NDArray[Any]
) -> NDArray[Any]:
    """Sums of quarters of a scaled matrix ``[K, N]``, both even: ``[7, K / 2, N / 2]``."""
    # In this order nothing is out of range.
    scaled = np.divide(weight, widths, order="C")
    scaled /= depths[:, None]
    depth, width = (extent // 2 for extent in weight.shape)
    quarters = scaled.reshape(2, depth, 2, width)
    made = np.empty((STRASSEN_PRODUCTS, depth, width), weight.dtype)
    for target, factors in zip(made, _RIGHT):
        # Factors are 1, first, and -1.
        used = sorted((-factor, place) for place, factor in enumerate(factors) if factor)
        first, *rest = (quarters[place // 2, :, place % 2] for _, place in used)
        target[...] = first
        for (minus, _), part in zip(used[1:], rest):
            (np.add if minus < 0 else np.subtract)(target, part, out=target)
    return made


@with_conditions
def matmul_strassen(
    data: Tensor, weight: Tensor, depths: Tensor, widths: Tensor, axis: int
) -> Tensor:
    """Multiply ``data [..., K]`` by a matrix of which ``strassen_weight`` made ``weight``.

    ``depths`` and ``widths`` are its ``strassen_scales``. ``axis`` of the data is cut in halves; an
    odd extent is taken as if a row of zeros followed.
    """
    rank = data.ndim
    require_ndim("matmul_strassen", weight, 3)
    if not 0 <= axis < rank - 1 or as_int(weight.shape[0]) != STRASSEN_PRODUCTS:
        raise VerifyError(
            f"matmul_strassen: an axis of rows and {STRASSEN_PRODUCTS} matrices are needed, got "
            f"axis {axis} of {list(data.shape)} and {list(weight.shape)}"
        )
    if {tensor.dtype for tensor in (data, weight, depths, widths)} != {"float32"}:
        raise VerifyError("matmul_strassen: all tensors are float32")
    *rows, _ = data.shape
    _, depth, width = weight.shape
    require_equal("matmul_strassen: depth", data.shape[-1], depth * 2)
    require_equal("matmul_strassen: scales of the depth", depths.shape[0], depth * 2)
    require_equal("matmul_strassen: scales of columns", widths.shape[0], width * 2)
    extent = rows[axis]
    half = simplify((extent + 1) // 2)
    halves = [*rows[:axis], half, *rows[axis + 1 :]]
    down, up = _scales_of_rows(data, depths)

    def quarter(place: int, *i: Expr) -> Expr:
        *at, k = i
        k = k + place % 2 * depth
        if place // 2:
            at[axis] = at[axis] + half
        scale = down(*at)
        # An infinity times zero would be a NaN.
        value = Select(scale > 0, data(*at, k) * depths(k) * scale, const(0, data.dtype))
        even = as_int(simplify(half * 2 - extent)) == 0
        if even or not place // 2:
            return value
        return if_then_else(at[axis] < extent, value, const(0, data.dtype))

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
        # Columns first: they are limited, so that only the result itself may be out of range.
        made = quarters(i[axis] // half, n // width, *at, n % width)
        return made * widths(n) * up(*i[:-1])

    made: Tensor = compute((*rows, width * 2), result, name="matmul", tag="matmul_strassen")
    return made


def _scales_of_rows(data: Tensor, depths: Tensor) -> tuple[Tensor, Tensor]:
    """Factors that bring each row's norm between one and two, and back.

    Sums of squares of float32 are in the range of float64, and half of their exponents are the
    norms'. Rows that aren't finite have 0 and NaN; the way back of a row of zeros is 0, as its
    partner's errors are no part of it.
    """
    *rows, depth = data.shape
    rk = te.reduce_axis((0, depth), "rk")
    most = 2 * _SMALLEST + 1

    def value(*i: Expr) -> Expr:
        return data(*i, rk.var).astype("float64") * depths(rk.var).astype("float64")

    squares: Tensor = compute(
        rows, lambda *i: te.sum(value(*i) * value(*i), axis=[rk]), name="squares"
    )

    def as_float(exponent: Expr) -> Expr:
        bits = call("shift_left", exponent, const(_FRACTION_BITS["float32"], "int32"))
        return call("reinterpret", bits, dtype="float32")

    def exponent(*i: Expr) -> Expr:
        bits = call("reinterpret", squares(*i), dtype="int64")
        bits = call("shift_right", bits, const(_FRACTION_BITS["float64"], "int64"))
        # Half of what the exponent is without its bias, rounded down.
        half = call("shift_right", bits - _BIAS["float64"], const(1, "int64")) + _BIAS["float32"]
        return maximum(minimum(half, const(most, "int64")), const(1, "int64")).astype("int32")

    def is_finite(*i: Expr) -> Expr:
        return squares(*i) < const(float("inf"), "float64")

    zero, none = const(0, "float32"), const(float("nan"), "float32")
    down: Tensor = compute(
        rows,
        lambda *i: Select(is_finite(*i), as_float(const(most + 1, "int32") - exponent(*i)), zero),
        name="down",
    )
    up: Tensor = compute(
        rows,
        lambda *i: Select(
            is_finite(*i), Select(squares(*i) > 0, as_float(exponent(*i)), zero), none
        ),
        name="up",
    )
    return down, up
