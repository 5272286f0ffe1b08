"""Operators that are formulas of simpler ones, for targets without an instruction or function.

The errors of those that round, in units of the last place of the result: ``hypot`` 0.5 below
``float64`` and 1 in it, ``logaddexp`` those of ``log1p`` and ``exp`` together. The others are exact
or rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.ir import (
    EQ,
    NE,
    Call,
    Expr,
    call,
    compare,
    const,
    dtypes,
    match_types,
    maximum,
    minimum,
    or_,
    select,
)
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.tir.steps import Steps


def _floats(name: str, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    x, y = match_types(a, b)
    if not dtypes.is_float(x.dtype):
        raise VerifyError(f"{name} takes floating-point numbers, got {x.dtype}")
    return x, y


def _like(dtype: str, element: str) -> str:
    """As many lanes of another element."""
    return dtypes.vector_dtype(dtypes.element_of(element), dtypes.lanes_of(dtype))


def hypot(a: Expr, b: Expr) -> Expr:
    """``sqrt(a² + b²)``: narrower floats in float64, float64 in units of the greater operand."""
    x, y = _floats("hypot", a, b)
    steps, wide = Steps(), _like(x.dtype, "float64")
    p, q = (steps(call("abs", cast_expr(value, wide))) for value in (x, y))
    infinity = const(math.inf, wide)
    if x.dtype == wide:
        zero, one = const(0.0, wide), const(1.0, wide)
        great = steps(maximum(p, q))
        part = steps(minimum(p, q) / select(great > zero, great, one))
        found = great * call("sqrt", one + part * part)
    else:
        found = call("sqrt", p * p + q * q)
    endless = or_(compare(EQ, p, infinity), compare(EQ, q, infinity))
    return steps.result(cast_expr(select(endless, infinity, found), x.dtype))


def logaddexp(a: Expr, b: Expr) -> Expr:
    """The greater operand and ``log1p(exp(-distance))``; equal infinities stay."""
    x, y = _floats("logaddexp", a, b)
    steps, wide = Steps(), _like(x.dtype, "float32" if dtypes.bits_of(x.dtype) < 32 else x.dtype)
    p, q = (steps(cast_expr(value, wide)) for value in (x, y))
    apart = call("log1p", call("exp", -call("abs", p - q)))
    rest = select(compare(EQ, p, q), const(math.log(2), wide), apart)
    return steps.result(cast_expr(maximum(p, q) + rest, x.dtype))


def nextafter(a: Expr, b: Expr) -> Expr:
    """One step of the bits, away from zero or towards it; from zero the least denormal."""
    x, y = _floats("nextafter", a, b)
    steps, whole = Steps(), _like(x.dtype, f"int{dtypes.bits_of(x.dtype)}")
    p, q = steps(x), steps(y)
    zero, one = const(0.0, x.dtype), const(1, whole)
    bits = call("reinterpret", p, dtype=whole)
    away = compare(EQ, p < q, p > zero)
    moved = call("reinterpret", bits + select(away, one, -one), dtype=x.dtype)
    least = call("copysign", call("reinterpret", one, dtype=x.dtype), q)
    found = select(compare(EQ, p, zero), least, moved)
    unknown = or_(compare(NE, p, p), compare(NE, q, q))
    return steps.result(select(unknown, p + q, select(compare(EQ, p, q), q, found)))


def ldexp(x: Expr, exponent: Expr) -> Expr:
    """``x * 2**exponent``, rounded once.

    Below ``float64`` the product is exact there. In it, the power is split, so that no factor
    leaves the range of normal numbers; the steps down leave 53 digits above the least normal one,
    so that only the last product rounds.
    """
    if not dtypes.is_float(x.dtype):
        raise VerifyError(f"ldexp takes a floating-point number, got {x.dtype}")
    if not dtypes.is_integer(exponent.dtype):
        raise VerifyError(f"ldexp takes an integer as the exponent, got {exponent.dtype}")
    steps, wide, whole = Steps(), _like(x.dtype, "float64"), _like(x.dtype, "int64")
    value, power = steps(cast_expr(x, wide)), cast_expr(exponent, whole)
    if dtypes.bits_of(x.dtype) < 64:
        limit = 512  # the exponents of all narrower formats together
        power = maximum(minimum(power, const(limit, whole)), const(-limit, whole))
        return steps.result(cast_expr(value * _power_of_two(power), x.dtype))
    for _ in range(2):
        power = steps(power)
        above, below = power > const(1023, whole), power < const(-1022, whole)
        step = select(above, const(1023, whole), select(below, const(-969, whole), const(0, whole)))
        step = steps(step)
        value = steps(value * _power_of_two(step))
        power = power - step
    power = maximum(minimum(power, const(1023, whole)), const(-1022, whole))
    return steps.result(value * _power_of_two(power))


def _power_of_two(exponent: Expr) -> Expr:
    """``2**exponent`` in float64, for exponents of normal numbers."""
    bits = (exponent + const(1023, exponent.dtype)) << const(52, exponent.dtype)
    return call("reinterpret", bits, dtype=_like(exponent.dtype, "float64"))


def q_multiply_shift(x: Expr, y: Expr, q: Expr, s: Expr) -> Expr:
    """``x * y * 2**(s - q)`` in 64 bits, rounded half up; see :func:`tir.q_multiply_shift`."""
    steps, wide = Steps(), _like(x.dtype, "int64")
    a, b = cast_expr(x, wide), cast_expr(y, wide)
    up, shift = steps(cast_expr(s, wide)), steps(cast_expr(q, wide))
    zero = const(0, wide)
    a = call("shift_left", a, maximum(up, zero))
    right = steps(shift + maximum(-up, zero))
    return steps.result(cast_expr(_shifted_half_up(a * b, right), x.dtype))


def q_multiply_shift_per_axis(
    x: Expr, y: Expr, left: Expr, right: Expr, q: Expr, is_left: Expr, is_right: Expr
) -> Expr:
    """``(x << left) * y / 2**(q + right)``; see :func:`tir.q_multiply_shift_per_axis`."""
    steps, wide = Steps(), _like(x.dtype, "int64")
    a, b = cast_expr(x, wide), cast_expr(y, wide)
    shifted = call("shift_left", a, cast_expr(left, wide))
    a = select(cast_expr(is_left, _like(x.dtype, "bool")), shifted, a)
    total = steps(cast_expr(q, wide) + cast_expr(right, wide))  # whatever `is_right` says
    return steps.result(cast_expr(_shifted_half_up(a * b, total), x.dtype))


def _shifted_half_up(value: Expr, by: Expr) -> Expr:
    """``value / 2**by``, rounded to the nearest integer, halves up."""
    one = const(1, value.dtype)
    half = call("shift_left", one, by - one)  # none if nothing is shifted out
    return call("shift_right", value + half, by)


FORMULAS: dict[str, Callable[..., Expr]] = {
    function.__name__: function
    for function in (
        hypot, ldexp, logaddexp, nextafter, q_multiply_shift, q_multiply_shift_per_axis,
    )
}  # fmt: skip
"""The formula of each operator that is one, by the operator's name."""


def in_simpler_operators(node: Call) -> Expr:
    """Return the formula of a call of one of ``FORMULAS``."""
    return FORMULAS[node.op.name](*node.args)
