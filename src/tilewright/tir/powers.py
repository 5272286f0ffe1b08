"""Powers: of floats by ``pow``, of integers by repeated squaring, which wraps as products do."""

from __future__ import annotations

from tilewright.ir import EQ, NE, Expr, as_int, call, compare, const, dtypes, match_types, select
from tilewright.tir.steps import Steps


def power_of(a: Expr, b: Expr) -> Expr:
    """``a ** b`` of two numbers of one kind; integers stay integers."""
    x, y = match_types(a, b)
    if dtypes.is_float(x.dtype):
        return call("pow", x, y)
    exponent = as_int(y)
    return _integer_power(x, y) if exponent is None else _fixed_power(x, exponent)


def _fixed_power(x: Expr, exponent: int) -> Expr:
    """Few products: the squares that the exponent's bits name."""
    if exponent < 0:
        return _negative_power(x, const(exponent % 2 != 0, "bool"))
    if exponent == 0:
        return const(1, x.dtype)
    steps = Steps()
    square, made = steps(x), None
    while True:
        if exponent & 1:
            made = square if made is None else steps(made * square)
        exponent >>= 1
        if not exponent:
            break
        square = steps(square * square)
    assert made is not None
    return steps.result(made)


def _negative_power(x: Expr, odd: Expr) -> Expr:
    """The power to a negative exponent, rounded towards zero: only of 1 and -1 is anything left."""
    zero, one = const(0, x.dtype), const(1, x.dtype)
    if dtypes.kind_of(x.dtype) == "uint":
        return select(compare(EQ, x, one), one, zero)
    minus = const(-1, x.dtype)
    of_minus = select(odd, minus, one)
    return select(compare(EQ, x, one), one, select(compare(EQ, x, minus), of_minus, zero))


def _integer_power(x: Expr, y: Expr) -> Expr:
    """All squares in turn, each taken as the exponent's bit says."""
    signed = dtypes.kind_of(x.dtype) == "int"
    zero, one = const(0, x.dtype), const(1, x.dtype)
    steps = Steps()
    # Squares of a known base wrap here: as formulas they would soon have millions of digits.
    base = as_int(x)
    square, exponent, made = x if base is not None else steps(x), steps(y), one
    bits = dtypes.bits_of(x.dtype) - (1 if signed else 0)
    for bit in range(bits):
        taken = compare(NE, call("bitwise_and", exponent, const(1 << bit, x.dtype)), zero)
        made = steps(select(taken, made * square, made))
        if base is not None:
            base = _wrapped(base * base, x.dtype)
            square = const(base, x.dtype)
        elif bit + 1 < bits:
            square = steps(square * square)
    if signed:
        odd = compare(NE, call("bitwise_and", exponent, one), zero)
        made = select(exponent < zero, _negative_power(x, odd), made)
    return steps.result(made)


def _wrapped(value: int, dtype: str) -> int:
    """A number as an integer type holds it."""
    bits = dtypes.bits_of(dtype)
    value %= 1 << bits
    signed = dtypes.kind_of(dtype) == "int"
    return value - (1 << bits) if signed and value >> (bits - 1) else value
