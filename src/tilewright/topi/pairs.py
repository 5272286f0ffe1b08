"""Formulas of two floating-point numbers: ``hypot``, ``log_add_exp``, ``nextafter``."""

from __future__ import annotations

import math

from tilewright.ir import (
    EQ,
    NE,
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
from tilewright.topi.elementwise import fast_dtype
from tilewright.topi.steps import Steps


def _floats(name: str, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    x, y = match_types(a, b)
    if not dtypes.is_float(x.dtype):
        raise VerifyError(f"{name} takes floating-point numbers, got {x.dtype}")
    return x, y


def hypot(a: Expr, b: Expr) -> Expr:
    """``sqrt(a² + b²)``: narrower floats in float64, float64 in units of the greater operand."""
    x, y = _floats("hypot", a, b)
    steps, wide = Steps(), "float64"
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


def log_add_exp(a: Expr, b: Expr) -> Expr:
    """The greater operand and ``log1p(exp(-distance))``; equal infinities stay."""
    x, y = _floats("log_add_exp", a, b)
    steps, wide = Steps(), fast_dtype(x.dtype)
    p, q = (steps(cast_expr(value, wide)) for value in (x, y))
    apart = call("log1p", call("exp", -call("abs", p - q)))
    rest = select(compare(EQ, p, q), const(math.log(2), wide), apart)
    return steps.result(cast_expr(maximum(p, q) + rest, x.dtype))


def nextafter(a: Expr, b: Expr) -> Expr:
    """One step of the bits, away from zero or towards it; from zero the least denormal."""
    x, y = _floats("nextafter", a, b)
    steps, whole = Steps(), f"int{dtypes.bits_of(x.dtype)}"
    p, q = steps(x), steps(y)
    zero, one = const(0.0, x.dtype), const(1, whole)
    bits = call("reinterpret", p, dtype=whole)
    away = compare(EQ, p < q, p > zero)
    moved = call("reinterpret", bits + select(away, one, -one), dtype=x.dtype)
    least = call("copysign", call("reinterpret", one, dtype=x.dtype), q)
    found = select(compare(EQ, p, zero), least, moved)
    unknown = or_(compare(NE, p, p), compare(NE, q, q))
    return steps.result(select(unknown, p + q, select(compare(EQ, p, q), q, found)))
