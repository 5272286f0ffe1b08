"""Logarithms, their inverses' hyperbolic relatives, and pow.

``x = 2**e * m`` with ``m`` between ``sqrt(1/2)`` and ``sqrt(2)`` and ``f = m - 1`` exact; then
``log_b(x) = e * log_b(2) + f * log_b(e) + f**2 * P(f)`` with the constants in two parts where it
matters. Denormal arguments are scaled into the normal range first.
"""

from __future__ import annotations

from tilewright.codegen.llvm.math.builder import INF, NAN, Builder, Value
from tilewright.codegen.llvm.math.exponential import constant, exp_limits, poly
from tilewright.codegen.llvm.math.spec import math_function

_SQRT_HALF_BITS = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}
_POSITIVE = "x > 0; log(+-0) = -inf, log(inf) = inf, nan for x < 0"


def split(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return exponent (integer) and mantissa of a positive normal number."""
    bits = b.bits(x)
    e = (bits - _SQRT_HALF_BITS[b.fmt.bits]) >> b.fmt.mantissa
    return e, b.from_bits(bits - (e << b.fmt.mantissa))


def split_any(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return exponent (floating) and mantissa of a positive number, denormal or not."""
    shift = b.fmt.mantissa + 1
    small = x < b.fmt.min_normal
    e, m = split(b, b.select(small, x * 2.0**shift, x))
    return b.to_float(e) - b.select(small, b.const(shift), b.const(0.0)), m


def log_formula(b: Builder, base: str, e: Value, f: Value) -> Value:
    """``log_base(2**e * (1 + f))``."""
    p = poly(b, base, f)
    if base == "log":
        high, low = constant(b, "ln2")
        linear = f + b.fma(f * f, p, e * low)
        return b.fma(e, high, linear)
    c_high, c_low = constant(b, "log2_e" if base == "log2" else "log10_e")
    rest = b.fma(f * f, p, f * c_low)
    if base == "log2":
        return e + b.fma(f, c_high, rest)
    high, low = constant(b, "log10_2")
    return b.fma(e, high, b.fma(f, c_high, b.fma(e, low, rest)))


def log_specials(b: Builder, x: Value, y: Value) -> Value:
    """Put the results for infinity, NaN, zero and negative arguments in place."""
    y = b.select(x < INF, y, x)
    y = b.select(x < 0.0, NAN, y)
    return b.select(x.eq(0.0), -INF, y)


def _log_of(b: Builder, base: str, x: Value) -> Value:
    e, m = split_any(b, x)
    return log_specials(b, x, log_formula(b, base, e, m - 1.0))


@math_function(ulp=(1.0, 1.0), domain=_POSITIVE)
def log(b: Builder, x: Value) -> Value:
    """``e * log 2 + log m`` with ``m`` around 1."""
    return _log_of(b, "log", x)


@math_function(ulp=(1.5, 1.5), domain=_POSITIVE + "; exact for powers of two")
def log2(b: Builder, x: Value) -> Value:
    """``e + log2 m``."""
    return _log_of(b, "log2", x)


@math_function(ulp=(1.5, 1.5), domain=_POSITIVE)
def log10(b: Builder, x: Value) -> Value:
    """``e * log10 2 + log10 m``."""
    return _log_of(b, "log10", x)


def log1p_finite(b: Builder, x: Value) -> Value:
    """``log(1 + x)`` for finite ``x > -1``."""
    # 1 + x = 2**k * (1 + f) with k from the rounded sum, but f from x itself by one fma.
    k, m = split(b, x + 1.0)
    shrink = b.power_of_two(0 - k)
    exact = b.exact_fma(x, shrink, shrink - 1.0)
    f = b.select(k < b.fmt.mantissa + 2, exact, m - 1.0)
    return log_formula(b, "log", b.to_float(k), f)


@math_function(ulp=(1.6, 1.6), domain="x > -1; log1p(-1) = -inf, log1p(+-0) = +-0, nan for x < -1")
def log1p(b: Builder, x: Value) -> Value:
    """The logarithm of ``1 + x`` with the part of ``x`` that the sum would lose."""
    y = log1p_finite(b, x)
    y = b.select(x < INF, y, x)
    y = b.select(x.eq(0.0), x, y)
    y = b.select(x < -1.0, NAN, y)
    return b.select(x.eq(-1.0), -INF, y)


def _log_of_double(b: Builder, x: Value) -> Value:
    """``log(2 * x)`` of a large number, infinity and NaN included."""
    e, m = split(b, x)
    return b.select(x < INF, log_formula(b, "log", b.to_float(e + 1), m - 1.0), x)


@math_function(ulp=(2.0, 2.0))
def asinh(b: Builder, x: Value) -> Value:
    """``log1p(a + a**2 / (sqrt(a**2 + 1) + 1))``; of large numbers ``log(2 * a)``."""
    # asinh(a) = log(a + sqrt(a**2 + 1)) with the 1 taken out of the root
    a = b.abs(x)
    root = b.call("sqrt", b.fma(a, a, 1.0))
    near = log1p_finite(b, a + a * a / (root + 1.0))
    y = b.select(a < 2.0 ** (b.fmt.mantissa + 2), near, _log_of_double(b, a))
    return b.copysign(b.select(a.eq(0.0), a, y), x)


@math_function(ulp=(2.25, 2.25), domain="x >= 1, else nan")
def acosh(b: Builder, x: Value) -> Value:
    """``log1p(t + sqrt(t**2 + 2 * t))`` with ``t = x - 1``; of large ones ``log(2 * x)``."""
    t = x - 1.0
    near = log1p_finite(b, t + b.call("sqrt", b.fma(t, t, t * 2.0)))
    y = b.select(x < 2.0 ** (b.fmt.mantissa + 2), near, _log_of_double(b, x))
    return b.select(x < 1.0, NAN, y)


@math_function(ulp=(2.25, 2.25), domain="|x| <= 1; atanh(+-1) = +-inf, else nan")
def atanh(b: Builder, x: Value) -> Value:
    """``log1p(2 * a + 2 * a * a / (1 - a)) / 2``."""
    a = b.abs(x)
    twice = a * 2.0
    y = log1p(b, b.fma(twice, a / (1.0 - a), twice)) * 0.5
    y = b.select(a.eq(1.0), INF, b.select(a > 1.0, NAN, y))
    return b.copysign(b.select(a < b.fmt.min_normal, a, y), x)


def log2_extended(b: Builder, x: Value) -> tuple[Value, Value]:
    """``log2(x)`` of a positive number as a sum of two, good to about twice the precision.

    With ``s = (m - 1) / (m + 1)``, ``log2(m) = s * (c0 + c1 * s**2 + s**4 * Q(s**2))``, where the
    first two terms are carried in two parts.
    """
    e, m = split_any(b, x)
    # s in two parts: the remainder of the division is exact by fma.
    num = m - 1.0
    den, den_low = b.fast_two_sum(b.const(1.0), m)  # m < 2: valid either way
    s = num / den
    s_low = b.fma(s, -den_low, b.exact_fma(-s, den, num)) / den
    z = s * s
    z_low = b.exact_fma(s, s, -z) + s * s_low * 2.0
    q = poly(b, "pow_log2", z)
    # c0 + z * c1 in two parts, with the tail in the lower one
    c0, c0_low = constant(b, "pow_c0")
    c1, c1_low = constant(b, "pow_c1")
    u, u_low = b.two_prod(z, c1)
    v, v_low = b.fast_two_sum(b.const(c0), u)
    v_low = v_low + (b.fma(z, c1_low, b.fma(z_low, c1, u_low)) + b.fma(z * z, q, c0_low))
    # times s, plus e
    w, w_low = b.two_prod(s, v)
    w_low = b.fma(s, v_low, b.fma(s_low, v, w_low))
    high, low = b.two_sum(e, w)
    return b.fast_two_sum(high, low + w_low)


@math_function(
    ulp=(1.5, 1.5), arity=2,
    domain="as C's pow: 1 for y = 0 or x = 1, nan for x < 0 with y no integer",
)  # fmt: skip
def pow(b: Builder, x: Value, y: Value) -> Value:
    """``2**(y * log2 |x|)``, the logarithm in two parts."""
    a = b.abs(x)
    high, low = log2_extended(b, a)
    high = b.select(a.eq(0.0), -INF, b.select(a < INF, high, a))
    # y * log2(a), kept where 2**that is neither zero nor infinite
    product, error = b.two_prod(high, y)
    error = b.fma(low, y, error)
    limits = exp_limits(b, 1.0)
    bounded = b.clamp(product, *limits)
    error = b.select(bounded.eq(product), error, 0.0)
    n, bits = b.round_to_int(bounded)
    r = (bounded - n) + error
    y_abs = b.scale(poly(b, "exp2", r, 1.0), bits)
    # signs and special cases
    integral = b.call("trunc", y).eq(y)
    half = y * 0.5
    odd = integral & b.call("trunc", half).ne(half)
    result = b.select(odd, b.copysign(y_abs, x), y_abs)
    bad = (x < 0.0) & (x > -INF) & ~integral
    result = b.select(bad, NAN, result)
    one = y.eq(0.0) | x.eq(1.0) | (a.eq(1.0) & b.abs(y).eq(INF))
    return b.select(one, 1.0, result)
