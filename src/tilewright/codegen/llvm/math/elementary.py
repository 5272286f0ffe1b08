"""Roots, rounding, remainders and classification: what LLVM or one instruction already gives."""

# ruff: noqa: D103 - what a formula computes is its name; bound and domain are in its decorator

from __future__ import annotations

from tilewright.codegen.llvm.math.builder import INF, Builder, Value
from tilewright.codegen.llvm.math.spec import math_function

_EXACT = (0.0, 0.0)


@math_function(ulp=(0.5, 0.5), domain="x >= 0, else nan; sqrt(-0) = -0")
def sqrt(b: Builder, x: Value) -> Value:
    return b.call("sqrt", x)


@math_function(ulp=(1.5, 1.5), domain="x > 0; rsqrt(+-0) = +-inf, rsqrt(inf) = 0, else nan")
def rsqrt(b: Builder, x: Value) -> Value:
    return 1.0 / b.call("sqrt", x)


@math_function(ulp=_EXACT, name="fabs")
def fabs(b: Builder, x: Value) -> Value:
    return b.abs(x)


@math_function(ulp=_EXACT)
def floor(b: Builder, x: Value) -> Value:
    return b.call("floor", x)


@math_function(ulp=_EXACT)
def ceil(b: Builder, x: Value) -> Value:
    return b.call("ceil", x)


@math_function(ulp=_EXACT)
def trunc(b: Builder, x: Value) -> Value:
    return b.call("trunc", x)


@math_function(ulp=_EXACT, name="round", domain="all reals; halves go to even")
def round_even(b: Builder, x: Value) -> Value:
    return b.call("nearbyint", x)


@math_function(ulp=_EXACT, domain="all reals; halves go to even")
def nearbyint(b: Builder, x: Value) -> Value:
    return b.call("nearbyint", x)


@math_function(ulp=_EXACT, arity=2)
def copysign(b: Builder, x: Value, y: Value) -> Value:
    return b.copysign(x, y)


@math_function(
    ulp=_EXACT, arity=2, calls_libm=True,
    domain="sign of x; nan for y = 0 or x infinite. LLVM calls libm's fmod lane by lane",
)  # fmt: skip
def fmod(b: Builder, x: Value, y: Value) -> Value:
    return x % y


@math_function(ulp=_EXACT, result="bool")
def isnan(b: Builder, x: Value) -> Value:
    return x.compare("uno", x)


@math_function(ulp=_EXACT, result="bool")
def isinf(b: Builder, x: Value) -> Value:
    return b.abs(x).eq(INF)


@math_function(ulp=_EXACT, result="bool")
def isfinite(b: Builder, x: Value) -> Value:
    return b.abs(x) < INF
