"""Elementary functions as quotients of polynomials, for CPUs without registers full of tables.

The coefficients are least-squares fits of the relative error over Chebyshev nodes, made for these
functions. Errors are some units in the last place where the precise functions have one or two. With
AVX-512 those look coefficients up in registers and are as fast; with AVX2 these take less than half
the time.
"""

from __future__ import annotations

from tilewright.ir import Expr, const, maximum, minimum
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor
from tilewright.te.arithmetic import map_elements
from tilewright.topi.elementwise import exp

_Coefficients = tuple[float, ...]

fast_exp = exp
"""The exponential: of float32 it is a polynomial already, of two units in the last place."""

_TANH: tuple[float, _Coefficients, _Coefficients] = (
    7.9,
    (
        0.9999997615814209, 0.12715905904769897, 0.0027001958806067705, 7.19314266461879e-06,
        -6.202664160070981e-09,
    ),
    (1.0, 0.4604906737804413, 0.022866055369377136, 0.00019724816957022995),
)  # fmt: skip
_ERF: tuple[float, _Coefficients, _Coefficients] = (
    3.9,
    (
        1.128378987312317, 0.3582976758480072, 0.07150093466043472, 0.009957992471754551,
        0.00025189915322698653, -1.4474300087385927e-06,
    ),
    (
        1.0, 0.6508602499961853, 0.18035529553890228, 0.027588943019509315,
        0.0023374673910439014,
    ),
)  # fmt: skip


def fast_tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent of float32, of a relative error of at most 1e-6."""
    return _odd(x, "fast_tanh", *_TANH)


def fast_erf(x: Tensor) -> Tensor:
    """The error function of float32, of a relative error of at most 1e-6."""
    return _odd(x, "fast_erf", *_ERF)


def _odd(x: Tensor, name: str, limit: float, above: _Coefficients, below: _Coefficients) -> Tensor:
    """An odd function that is constant beyond a limit: x times a quotient of polynomials in x²."""
    if x.dtype != "float32":
        raise VerifyError(f"{name} takes float32, got {x.dtype}")

    def formula(value: Expr) -> Expr:
        inside = minimum(maximum(value, const(-limit, "float32")), const(limit, "float32"))
        square = inside * inside
        return inside * _polynomial(square, above) / _polynomial(square, below)

    return map_elements(x, formula, name)


def _polynomial(x: Expr, coefficients: _Coefficients) -> Expr:
    total: Expr = const(coefficients[-1], "float32")
    for coefficient in coefficients[-2::-1]:
        total = total * x + const(coefficient, "float32")
    return total
