"""Functions that build intrinsic calls: ``tir.exp(x)``, ``tir.all(a, b)``, …

The names are those of the operator table in ``ir.op``. Of the functions that give whole numbers
``round`` and ``nearbyint`` take halves to the even neighbour, as NumPy does; ``floor``, ``ceil``
and ``trunc`` round down, up and towards zero. Those leave integers as they are; functions of floats
such as ``sqrt`` refuse integers, which are to be cast first.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import Expr, ExprLike, and_, as_expr, call, or_
from tilewright.ir.op import UNARY_FLOAT, UNARY_NUMBER


def _unary(name: str) -> Callable[[ExprLike], Expr]:
    def build(x: ExprLike) -> Expr:
        return call(name, x)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"``{name}(x)``, elementwise on vectors; the result has the dtype of ``x``."
    return build


def _binary(name: str) -> Callable[[ExprLike, ExprLike], Expr]:
    def build(x: ExprLike, y: ExprLike) -> Expr:
        return call(name, x, y)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"``{name}(x, y)``; operands are brought to one dtype."
    return build


exp = _unary("exp")
exp2 = _unary("exp2")
exp10 = _unary("exp10")
log = _unary("log")
log2 = _unary("log2")
log10 = _unary("log10")
log1p = _unary("log1p")
expm1 = _unary("expm1")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")
tanh = _unary("tanh")
sigmoid = _unary("sigmoid")
silu = _unary("silu")
silu.__doc__ = "``x * sigmoid(x)``, elementwise on vectors; the dtype stays."
erf = _unary("erf")
gelu = _unary("gelu")
gelu.__doc__ = "``x / 2 * (1 + erf(x / sqrt(2)))``, elementwise on vectors; the dtype stays."
gelu_tanh = _unary("gelu_tanh")
gelu_tanh.__doc__ = "``gelu`` by its approximation with ``tanh``, as neural networks use it."
sin = _unary("sin")
cos = _unary("cos")
tan = _unary("tan")
sinh = _unary("sinh")
cosh = _unary("cosh")
asin = _unary("asin")
acos = _unary("acos")
atan = _unary("atan")
asinh = _unary("asinh")
acosh = _unary("acosh")
atanh = _unary("atanh")
floor = _unary("floor")
ceil = _unary("ceil")
trunc = _unary("trunc")
round = _unary("round")
round.__doc__ = (
    "``round(x)``: to the nearest integer, halves to the even neighbour (``round(2.5)`` is 2, "
    "``round(3.5)`` is 4), as ``nearbyint`` does. The dtype stays."
)
nearbyint = _unary("nearbyint")
fabs = _unary("fabs")
popcount = _unary("popcount")
isnan = _unary("isnan")
isinf = _unary("isinf")
isfinite = _unary("isfinite")
bitwise_not = _unary("bitwise_not")
likely = _unary("likely")
pow = _binary("pow")
power = pow
atan2 = _binary("atan2")
fmod = _binary("fmod")
copysign = _binary("copysign")
bitwise_and = _binary("bitwise_and")
bitwise_or = _binary("bitwise_or")
bitwise_xor = _binary("bitwise_xor")
shift_left = _binary("shift_left")
shift_right = _binary("shift_right")

# The element-wise functions of one argument that may be a floating-point number, by name.
ELEMENTWISE = (*UNARY_FLOAT, *UNARY_NUMBER)


def abs(x: ExprLike) -> Expr:
    """Return the absolute value."""
    return call("abs", as_expr(x))


def fma(a: ExprLike, b: ExprLike, c: ExprLike) -> Expr:
    """Return ``a * b + c``, rounded once."""
    return call("fma", a, b, c)


def all(*conditions: ExprLike) -> Expr:
    """Return the logical and of all conditions."""
    return and_(*conditions)


def any(*conditions: ExprLike) -> Expr:
    """Return the logical or of all conditions."""
    return or_(*conditions)
