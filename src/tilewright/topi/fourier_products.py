"""Fourier transforms of unknown lengths, as products with matrices of cosines and sines."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright import te
from tilewright.ir import Expr, ExprLike, call, const
from tilewright.ir import cast as cast_expr
from tilewright.te import Tensor, compute
from tilewright.topi.fourier import Parts
from tilewright.topi.utils import sum_dtype

_WIDE = "float64"


def circle(count: ExprLike, sign: float, dtype: str) -> tuple[Tensor, Tensor]:
    """Cosines, and sines with a sign, of each of ``count`` parts of a circle.

    Both are made at once, so that no rule computes them again where they are read.
    """

    def element(m: Expr) -> tuple[Expr, Expr]:
        angle = cast_expr(m, _WIDE) * const(2 * math.pi, _WIDE) / cast_expr(count, _WIDE)
        sine = call("sin", angle) * const(sign, _WIDE)
        return cast_expr(call("cos", angle), dtype), cast_expr(sine, dtype)

    cosines, sines = compute((count,), element, name="dft_circle", tag="injective")
    return cosines, sines


def product_of_rows(x: Parts, length: Expr, sign: float) -> Parts:
    """Multiply rows by the matrix of the transform."""
    wide = sum_dtype(x[0].dtype)
    cosines, sines = matrices(circle(length, sign, wide), length)
    k = [te.reduce_axis((0, length), "k") for _ in range(2)]
    re, im = x

    def total(a: Tensor, b: Tensor, combine: Callable[[Expr, Expr], Expr], axis: int) -> Tensor:
        n = k[axis].var
        made: Tensor = compute(
            re.shape,
            lambda r, f: te.sum(
                combine(
                    cast_expr(a(r, n), wide) * cosines(n, f), cast_expr(b(r, n), wide) * sines(n, f)
                ),
                axis=k[axis],
            ),
            name="dft_product",
            tag="comm_reduce",
        )
        return made

    return total(re, im, lambda c, s: c - s, 0), total(im, re, lambda c, s: c + s, 1)


def matrices(circle: tuple[Tensor, Tensor], columns: Expr) -> tuple[Tensor, Tensor]:
    """Row ``n``, column ``f``: the part ``n * f`` of the circle."""
    count = circle[0].shape[0]

    def element(n: Expr, f: Expr) -> tuple[Expr, Expr]:
        part = n * f % count
        return circle[0](part), circle[1](part)

    cosines, sines = compute((count, columns), element, name="dft_matrices", tag="injective")
    return cosines, sines
