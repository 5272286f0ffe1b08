"""Division rounded towards zero: ``truncdiv`` and ``truncmod`` of index values.

Where the signs of the operands are known these are floor divisions of magnitudes, which the
polynomial simplifier understands. Elsewhere common factors, nested divisions and divisors of one
are taken out; comparisons of a quotient with a constant become comparisons of what is divided.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from tilewright.arith.canonical import Canonical, OpaqueOperand
from tilewright.arith.polynomial import (
    OTHER,
    ConstantTooLarge,
    Poly,
    constant_of,
    poly_add,
    poly_scale,
    poly_sub,
)
from tilewright.ir import Call, Expr, FloorDiv, FloorMod, call, pre_order
from tilewright.ir.dtype import integer_limits

NAMES = frozenset(("truncdiv", "truncmod"))


def truncated(expr: Any, canonical: Canonical) -> Expr | None:
    """Return a simpler equal of ``truncdiv(a, b)`` or ``truncmod(a, b)``, or ``None``."""
    dtype, quotient = expr.dtype, expr.op.name == "truncdiv"
    try:
        a, b = (canonical.merged(canonical.poly(arg)) for arg in expr.args)
        if canonical.context.table.has_data(b) and constant_of(b) is None:
            return None
        if canonical.prover.nonneg(a) and canonical.positive(b):
            return (FloorDiv if quotient else FloorMod)(*expr.args)  # type: ignore[no-any-return]
        made = _by_sign(a, b, quotient, dtype, canonical)
        if made is None:
            by = constant_of(b)
            made = None if by is None else _by_constant(a, by, quotient, dtype, canonical)
        if made is None:
            return None
        result = canonical.context.table.to_expr(made, dtype)
        return None if _longer(result, expr) else result
    except (OpaqueOperand, ConstantTooLarge):
        return None


def _longer(made: Expr, expr: Expr) -> bool:
    return sum(1 for _ in pre_order(made)) > sum(1 for _ in pre_order(expr))


def _by_sign(a: Poly, b: Poly, quotient: bool, dtype: str, canonical: Canonical) -> Poly | None:
    """Divide magnitudes, where the signs are known."""
    if constant_of(b) in (0, 1):
        return a if constant_of(b) and quotient else {}
    exact = canonical.exact(a, b)
    if exact is not None:
        return exact if quotient else {}
    prover = canonical.prover
    b_sign = 1 if canonical.positive(b) else -1 if canonical.positive(poly_scale(b, -1)) else 0
    a_sign = 1 if prover.nonneg(a) else -1 if prover.nonneg(poly_scale(a, -1)) else 0
    if not a_sign or not b_sign:
        return None
    divide = canonical.floordiv if quotient else canonical.floormod
    made = divide(poly_scale(a, a_sign), poly_scale(b, b_sign), dtype)
    return poly_scale(made, a_sign * b_sign if quotient else a_sign)


def _by_constant(a: Poly, by: int, quotient: bool, dtype: str, canonical: Canonical) -> Poly | None:
    """Divide by a constant what may have either sign."""
    if by < 0:
        made = _by_constant(a, -by, quotient, dtype, canonical)
        if made is None and not quotient and -by <= integer_limits(dtype)[1]:
            made = _atom("truncmod", a, -by, dtype, canonical)
        return made if made is None or not quotient else poly_scale(made, -1)
    if by == 1:
        return a if quotient else {}
    low, high = canonical.bounds.poly(a)
    if -by < low and high < by:
        return {} if quotient else a
    common = by
    for value in a.values():
        common = gcd(common, value)
    if common == by:
        return {mono: value // by for mono, value in a.items()} if quotient else {}
    if common > 1:
        smaller = {mono: value // common for mono, value in a.items()}
        if quotient:
            return _atom("truncdiv", smaller, by // common, dtype, canonical)
        return poly_scale(_atom("truncmod", smaller, by // common, dtype, canonical), common)
    inner = _inner(a, canonical)
    if inner is None:
        return None
    name, numerator, divisor = inner
    if quotient and name == "truncdiv" and divisor * by < 2**31:
        return _atom("truncdiv", numerator, divisor * by, dtype, canonical)
    if not quotient and name == "truncmod" and divisor % by == 0:
        return _atom("truncmod", numerator, by, dtype, canonical)
    return None


def _atom(name: str, a: Poly, by: int, dtype: str, canonical: Canonical) -> Poly:
    """The polynomial of a smaller division, itself simplified."""
    made = call(name, canonical.context.table.to_expr(a, dtype), by)
    return canonical.poly(made)


def _inner(a: Poly, canonical: Canonical) -> tuple[str, Poly, int] | None:
    """Name, numerator and divisor, if a polynomial is a division by a positive constant."""
    if len(a) != 1:
        return None
    ((mono, value),) = a.items()
    if value != 1 or len(mono) != 1:
        return None
    return division(mono[0], canonical)


def division(number: int, canonical: Canonical) -> tuple[str, Poly, int] | None:
    """Name, numerator and divisor of an atom that is a truncated division by a constant > 0."""
    table = canonical.context.table
    expr: Any = table.exprs[number] if table.kinds[number] == OTHER else None
    if type(expr) is not Call or expr.op.name not in NAMES:
        return None
    by = constant_of(canonical.poly(expr.args[1]))
    if by is None or by <= 0:
        return None
    return expr.op.name, canonical.poly(expr.args[0]), by


def undivided(number: int, value: int, constant: int, canonical: Canonical) -> Poly | None:
    """``value * truncdiv(n, c) + constant >= 0`` as a goal about ``n``; ``value`` is 1 or -1."""
    found = division(number, canonical)
    if found is None or found[0] != "truncdiv" or canonical.context.table.has_data(found[1]):
        return None
    _, numerator, by = found
    if value > 0:  # truncdiv(n, c) >= k: n >= k*c if k > 0, else n > (k - 1)*c
        least = -constant
        bound = least * by if least > 0 else (least - 1) * by + 1
        return poly_sub(numerator, {(): bound} if bound else {})
    most = constant  # truncdiv(n, c) <= k: n < (k + 1)*c if k >= 0, else n <= k*c
    bound = (most + 1) * by - 1 if most >= 0 else most * by
    return poly_add(poly_scale(numerator, -1), {(): bound} if bound else {})
