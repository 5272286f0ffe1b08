"""Roots, rounding, remainders and classification: what LLVM or one instruction already gives."""

from __future__ import annotations

from tilewright.codegen.llvm.math.builder import INF, Builder, Value
from tilewright.codegen.llvm.math.spec import math_function

_EXACT = (0.0, 0.0)


@math_function(ulp=(0.5, 0.5), domain="x >= 0, else nan; sqrt(-0) = -0")
def sqrt(b: Builder, x: Value) -> Value:
    """The root instruction, which rounds correctly."""
    return b.call("sqrt", x)


@math_function(ulp=(1.5, 1.5), domain="x > 0; rsqrt(+-0) = +-inf, rsqrt(inf) = 0, else nan")
def rsqrt(b: Builder, x: Value) -> Value:
    """One over the root: two roundings."""
    return 1.0 / b.call("sqrt", x)


@math_function(ulp=_EXACT, name="fabs")
def fabs(b: Builder, x: Value) -> Value:
    """The sign bit cleared."""
    return b.abs(x)


@math_function(ulp=_EXACT)
def floor(b: Builder, x: Value) -> Value:
    """The largest whole number that is no larger."""
    return b.call("floor", x)


@math_function(ulp=_EXACT)
def ceil(b: Builder, x: Value) -> Value:
    """The smallest whole number that is no smaller."""
    return b.call("ceil", x)


@math_function(ulp=_EXACT)
def trunc(b: Builder, x: Value) -> Value:
    """The whole number next towards zero."""
    return b.call("trunc", x)


@math_function(ulp=_EXACT, name="round", domain="all reals; halves go to even")
def round_even(b: Builder, x: Value) -> Value:
    """The nearest whole number, of two the even one."""
    return b.call("nearbyint", x)


@math_function(ulp=_EXACT, domain="all reals; halves go to even")
def nearbyint(b: Builder, x: Value) -> Value:
    """The same by its other name: the rounding mode is always to the nearest."""
    return b.call("nearbyint", x)


@math_function(ulp=_EXACT, arity=2)
def copysign(b: Builder, x: Value, y: Value) -> Value:
    """The magnitude of ``x`` with the sign bit of ``y``."""
    return b.copysign(x, y)


@math_function(
    ulp=_EXACT, arity=2, calls_libm=True,
    domain="sign of x; nan for y = 0 or x infinite. LLVM calls libm's fmod lane by lane",
)  # fmt: skip
def fmod(b: Builder, x: Value, y: Value) -> Value:
    """The remainder of ``x / y`` rounded towards zero."""
    return x % y


@math_function(ulp=_EXACT, result="bool")
def isnan(b: Builder, x: Value) -> Value:
    """Whether a number doesn't equal itself."""
    return x.compare("uno", x)


@math_function(ulp=_EXACT, result="bool")
def isinf(b: Builder, x: Value) -> Value:
    """Whether the magnitude is infinite."""
    return b.abs(x).eq(INF)


@math_function(ulp=_EXACT, result="bool")
def isfinite(b: Builder, x: Value) -> Value:
    """Whether the magnitude is below infinity; NaN's is not."""
    return b.abs(x) < INF
