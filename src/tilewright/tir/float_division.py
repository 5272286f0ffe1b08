"""Quotients and remainders of floats, as NumPy, PyTorch and C define them.

Everything is derived from ``fmod``, which is exact: ``a - b * floor(a / b)`` is not, and gives NaN
or the wrong sign where the quotient is too large, or ``b`` infinite. Narrow floats go through
float32.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import EQ, NE, Expr, Let, Var, and_, call, compare, const, dtypes, select
from tilewright.ir import cast as cast_expr

Formula = Callable[[Expr, Expr], Expr]


def fast_dtype(dtype: str) -> str:
    """The dtype in which sums of ``dtype`` are accumulated: float32 for the narrow floats."""
    return "float32" if dtypes.is_float(dtype) and dtypes.bits_of(dtype) < 32 else dtype


def _in_single(formula: Formula) -> Formula:
    def made(a: Expr, b: Expr) -> Expr:
        wide = fast_dtype(a.dtype)
        return cast_expr(formula(cast_expr(a, wide), cast_expr(b, wide)), a.dtype)

    return made


def _with_rest(a: Expr, b: Expr, body: Callable[[Expr, Expr], Expr]) -> Expr:
    """Apply ``body`` to the remainder with the sign of ``a``, and to whether ``b``'s sign differs.

    Here zero and NaN have no sign.
    """
    rest = Var("rest", a.dtype)
    zero = const(0, a.dtype)
    differs = and_(compare(NE, rest, zero), compare(NE, b < zero, rest < zero))
    return Let(rest, call("fmod", a, b), body(rest, differs))


@_in_single
def float_mod(a: Expr, b: Expr) -> Expr:
    """The remainder with the sign of ``a``: C's ``fmod``."""
    return call("fmod", a, b)


@_in_single
def float_floor_mod(a: Expr, b: Expr) -> Expr:
    """The remainder with the sign of ``b``, even if the remainder is zero."""
    zero = const(0, a.dtype)

    def body(rest: Expr, differs: Expr) -> Expr:
        moved = select(differs, rest + b, rest)
        return select(compare(EQ, rest, zero), call("copysign", zero, b), moved)

    return _with_rest(a, b, body)


@_in_single
def float_floor_divide(a: Expr, b: Expr) -> Expr:
    """The quotient that matches ``float_floor_mod``; for zero divisors, ``a / b``."""
    zero, one = const(0, a.dtype), const(1, a.dtype)
    quotient, whole = Var("quotient", a.dtype), Var("whole", a.dtype)

    def body(rest: Expr, differs: Expr) -> Expr:
        exact = (a - rest) / b  # but for rounding
        near = select(quotient - whole > const(0.5, a.dtype), whole + one, whole)
        signed = select(compare(EQ, quotient, zero), call("copysign", zero, a / b), near)
        found = Let(whole, call("floor", quotient), signed)
        return Let(quotient, select(differs, exact - one, exact), found)

    return select(compare(EQ, b, zero), a / b, _with_rest(a, b, body))


@_in_single
def float_trunc_divide(a: Expr, b: Expr) -> Expr:
    """``a / b`` rounded towards zero."""
    return call("trunc", a / b)
