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
    MAX,
    MIN,
    OTHER,
    ConstantTooLarge,
    Poly,
    constant_of,
    mono_divide,
    mono_gcd,
    poly_add,
    poly_exact,
    poly_mul,
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
        if quotient and b and canonical.may_vanish(b):
            return None
        if canonical.prover.nonneg(a) and canonical.positive(b):
            return (FloorDiv if quotient else FloorMod)(*expr.args)  # type: ignore[no-any-return]
        for way in (_by_sign, _by_constant, _by_symbol):
            made = way(a, b, quotient, dtype, canonical)
            if made is not None:
                result = canonical.context.table.to_expr(made, dtype)
                if not _longer(result, expr):
                    return result
        return None
    except (OpaqueOperand, ConstantTooLarge):
        return None


def _longer(made: Expr, expr: Expr) -> bool:
    return sum(1 for _ in pre_order(made)) > sum(1 for _ in pre_order(expr))


def _by_sign(a: Poly, b: Poly, quotient: bool, dtype: str, canonical: Canonical) -> Poly | None:
    """Divide magnitudes, where the signs are known."""
    if constant_of(b) in (0, 1):
        return a if constant_of(b) and quotient else {}
    exact = poly_exact(a, b)
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


def _by_constant(a: Poly, b: Poly, quotient: bool, dtype: str, canonical: Canonical) -> Poly | None:
    """Divide by a constant what may have either sign."""
    by = constant_of(b)
    if by is None:
        return None
    if by < 0:
        made = _by_constant(a, poly_scale(b, -1), quotient, dtype, canonical)
        if made is None and not quotient and -by <= integer_limits(dtype)[1]:
            made = _atom("truncmod", a, -by, dtype, canonical)
        return made if made is None or not quotient else poly_scale(made, -1)
    if by == 1:
        return a if quotient else {}
    low, high = canonical.bounds.poly(a)
    if -by < low and high < by:
        return {} if quotient else a
    name = "truncdiv" if quotient else "truncmod"
    common = by
    for value in a.values():
        common = gcd(common, value)
    if common == by:
        return {mono: value // by for mono, value in a.items()} if quotient else {}
    if common > 1:
        smaller = {mono: value // common for mono, value in a.items()}
        made = _atom(name, smaller, by // common, dtype, canonical)
        return made if quotient else poly_scale(made, common)
    made = _nested(a, by, quotient, dtype, canonical)
    if made is None and quotient:
        made = _of_choice(a, by, dtype, canonical)
    if made is None and _starts_below_zero(a):
        made = poly_scale(_atom(name, poly_scale(a, -1), by, dtype, canonical), -1)
    return made


def _nested(a: Poly, by: int, quotient: bool, dtype: str, canonical: Canonical) -> Poly | None:
    """``truncdiv(truncdiv(x, 2), 3)`` and ``truncmod(truncmod(x, 6), 3)``."""
    inner = _inner(a, canonical)
    if inner is None:
        return None
    name, numerator, divisor = inner
    if quotient and name == "truncdiv" and divisor * by < 2**31:
        return _atom("truncdiv", numerator, divisor * by, dtype, canonical)
    if not quotient and name == "truncmod" and divisor % by == 0:
        return _atom("truncmod", numerator, by, dtype, canonical)
    return None


def _of_choice(a: Poly, by: int, dtype: str, canonical: Canonical) -> Poly | None:
    """``truncdiv(max(8*x, y), 8)`` is ``max(x, truncdiv(y, 8))``."""
    for kind in (MIN, MAX):
        sides, _ = canonical.sides(kind, a)
        if any(constant_of(s) is None and poly_exact(s, {(): by}) is not None for s in sides):
            first, second = (_atom("truncdiv", side, by, dtype, canonical) for side in sides)
            return canonical.minmax(kind, first, second, dtype)
    return None


def _starts_below_zero(a: Poly) -> bool:
    """Whether the divisions of ``a`` and ``-a`` are to be one atom, and ``a`` is to go."""
    first = min((mono for mono in a if mono), default=None)
    return first is not None and a[first] < 0


def _by_symbol(a: Poly, b: Poly, quotient: bool, dtype: str, canonical: Canonical) -> Poly | None:
    """``truncdiv(x * n, 2 * n)`` is ``truncdiv(x, 2)``."""
    if len(b) != 1:
        return None
    (common,) = b
    for mono in a:
        common = mono_gcd(common, mono)
    if not common or canonical.context.table.has_data(a, b):
        return None
    smaller = {mono_divide(mono, common) or (): k for mono, k in a.items()}
    by = {mono_divide(mono, common) or (): k for mono, k in b.items()}
    build = canonical.context.table.to_expr
    name = "truncdiv" if quotient else "truncmod"
    made = canonical.poly(call(name, build(smaller, dtype), build(by, dtype)))
    return made if quotient else poly_mul({common: 1}, made)


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
