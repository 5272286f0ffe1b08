"""Element-wise operators of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import overload

import ml_dtypes

from tilewright.ir import (
    NE,
    Expr,
    ExprLike,
    as_expr,
    call,
    compare,
    const,
    dtypes,
    maximum,
    minimum,
    not_,
    select,
)
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.te import Tensor
from tilewright.te.arithmetic import map_elements
from tilewright.tir.float_division import fast_dtype
from tilewright.tir.op import ELEMENTWISE
from tilewright.tir.steps import Steps


def in_single(function: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """Compute a formula of several operations in float32 for narrow floats.

    Otherwise each operation would round; so the operator rounds only once.
    """

    def formula(value: Expr) -> Expr:
        return cast_expr(function(cast_expr(value, fast_dtype(value.dtype))), value.dtype)

    return formula


def intrinsic(name: str, doc: str = "") -> Callable[[Tensor], Tensor]:
    """The operator that calls an intrinsic of every element."""

    def build(x: Tensor) -> Tensor:
        return map_elements(x, lambda value: call(name, value), name)

    return named(build, name, doc or f"``{name}`` of every element; shape and dtype stay.")


UNARY: dict[str, Callable[[Tensor], Tensor]] = {name: intrinsic(name) for name in ELEMENTWISE}

exp = UNARY["exp"]
exp2 = UNARY["exp2"]
exp10 = UNARY["exp10"]
expm1 = UNARY["expm1"]
log = UNARY["log"]
log2 = UNARY["log2"]
log10 = UNARY["log10"]
log1p = UNARY["log1p"]
sqrt = UNARY["sqrt"]
rsqrt = UNARY["rsqrt"]
tanh = UNARY["tanh"]
sigmoid = UNARY["sigmoid"]
erf = UNARY["erf"]
sin = UNARY["sin"]
cos = UNARY["cos"]
tan = UNARY["tan"]
sinh = UNARY["sinh"]
cosh = UNARY["cosh"]
asin = UNARY["asin"]
acos = UNARY["acos"]
atan = UNARY["atan"]
asinh = UNARY["asinh"]
acosh = UNARY["acosh"]
atanh = UNARY["atanh"]
floor = UNARY["floor"]
ceil = UNARY["ceil"]
trunc = UNARY["trunc"]
round = UNARY["round"]
abs = UNARY["abs"]


def square(x: Tensor) -> Tensor:
    """Square every element."""
    return map_elements(x, lambda value: value * value, "square")


def reciprocal(x: Tensor) -> Tensor:
    """Return one divided by every element."""
    return map_elements(x, lambda value: const(1.0, value.dtype) / value, "reciprocal")


def truth_of(value: Expr) -> Expr:
    """Whether a number isn't zero; truth values stay."""
    return value if dtypes.is_bool(value.dtype) else compare(NE, value, const(0, value.dtype))


def logical_not(data: Tensor) -> Tensor:
    """Negate truth values; numbers are true unless zero."""
    return map_elements(data, lambda value: not_(truth_of(value)), "logical_not")


def bitwise_not(data: Tensor) -> Tensor:
    """Invert every bit of integers, or truth values."""
    return map_elements(data, lambda value: call("bitwise_not", value), "bitwise_not")


def sign(x: Tensor) -> Tensor:
    """Return -1, 0 or 1 by the sign of every element; 0 for NaN, which has none."""

    def one(value: Expr) -> Expr:
        if dtypes.is_bool(value.dtype):
            return value
        zero, plus = const(0, value.dtype), const(1, value.dtype)
        if dtypes.kind_of(value.dtype) == "uint":
            return select(value > zero, plus, zero)
        return select(value > zero, plus, select(value < zero, const(-1, value.dtype), zero))

    return map_elements(x, one, "sign")


def clip(x: Tensor, a_min: ExprLike, a_max: ExprLike) -> Tensor:
    """Limit every element to ``[a_min, a_max]``; of integers, fractions of the limits are cut off.

    Limits beyond what an integer dtype holds are none.
    """
    low, high = (_limit(bound, x.dtype) for bound in (a_min, a_max))
    return map_elements(x, lambda value: maximum(minimum(value, high), low), "clip")


def _limit(bound: ExprLike, dtype: str) -> Expr:
    if isinstance(bound, (int, float)) and dtypes.is_integer(dtype):
        least, most = dtypes.integer_limits(dtype)
        return const(math.trunc(max(least, min(bound, most))), dtype)
    return const(bound, dtype)


def identity(x: Tensor) -> Tensor:
    """Copy every element."""
    return map_elements(x, lambda value: value, "identity")


def reinterpret(x: Tensor, dtype: str) -> Tensor:
    """Read the bits of every element as another dtype of as many bits.

    Raises ``VerifyError`` if it has more or fewer.
    """
    if dtypes.bits_of(dtype) != dtypes.bits_of(x.dtype):
        raise VerifyError(f"reinterpret: {x.dtype} and {dtype} differ in their number of bits")
    return map_elements(x, lambda value: call("reinterpret", value, dtype=dtype), "reinterpret")


@overload
def ceil_log2(x: Tensor) -> Tensor: ...


@overload
def ceil_log2(x: ExprLike) -> Expr: ...


def ceil_log2(x: Tensor | ExprLike) -> Tensor | Expr:
    """The least whole number to whose power two is at least ``x``, which is positive."""
    if isinstance(x, Tensor):
        return map_elements(x, ceil_log2, "ceil_log2")
    value = as_expr(x)
    if dtypes.is_float(value.dtype):
        return call("ceil", call("log2", value))
    # All bits from the highest one of x - 1 down; their number is that of x - 1's digits.
    steps, unsigned = Steps(), f"uint{dtypes.bits_of(value.dtype)}"
    bits, shift = steps(cast_expr(value - const(1, value.dtype), unsigned)), 1
    while shift < dtypes.bits_of(value.dtype):
        bits, shift = steps(bits | (bits >> const(shift, unsigned))), 2 * shift
    return steps.result(cast_expr(call("popcount", bits), value.dtype))


isnan = intrinsic("isnan", "Tell which elements are NaN.")
isinf = intrinsic("isinf", "Tell which elements are infinite.")
isfinite = intrinsic("isfinite", "Tell which elements are neither infinite nor NaN.")


def signbit(x: Tensor) -> Tensor:
    """Tell which elements have a minus sign, -0 among them."""

    def one(value: Expr) -> Expr:
        if not dtypes.is_float(value.dtype):
            return value < const(0, value.dtype)
        return call("copysign", const(1.0, value.dtype), value) < const(0.0, value.dtype)

    return map_elements(x, one, "signbit")


def nan_to_num(
    x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replace NaN and infinities; these by the largest numbers of the dtype unless given."""

    def one(value: Expr) -> Expr:
        if not dtypes.is_float(value.dtype):
            return value
        dtype = value.dtype
        most = float(ml_dtypes.finfo(dtype).max)
        high = const(most if posinf is None else posinf, dtype)
        low = const(-most if neginf is None else neginf, dtype)
        infinite = select(value > const(0.0, dtype), high, low)
        found = select(call("isinf", value), infinite, value)
        return select(call("isnan", value), const(nan, dtype), found)

    return map_elements(x, one, "nan_to_num")
