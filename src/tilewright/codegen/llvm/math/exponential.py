"""The exponential family: exp, exp2, exp10, expm1, hyperbolic functions, sigmoid, erf, gelu.

Range reduction is Cody and Waite's: ``x = n * log_base(2) + r`` with the constant in two parts, so
that ``base**x = 2**n * base**r`` with ``|r|`` at most half a period. ``2**n`` is applied in two
multiplications: overflow gives infinity and underflow is gradual.
"""

from __future__ import annotations

from tilewright.codegen.llvm.math.builder import Builder, Operand, Value
from tilewright.codegen.llvm.math.coefficients import CONSTANTS, POLYNOMIALS
from tilewright.codegen.llvm.math.spec import math_function


def poly(b: Builder, name: str, x: Value, *leading: Operand) -> Value:
    """Evaluate a table's polynomial; ``leading`` terms come before those of the table."""
    return b.horner(x, (*leading, *POLYNOMIALS[name][b.fmt.bits]))


def constant(b: Builder, name: str) -> tuple[float, ...]:
    """Return a constant of the format, in parts."""
    return CONSTANTS[name][b.fmt.bits]


def reduce_by_ln2(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Return ``n`` (floating), ``n`` (integer bits) and ``r = x - n * ln 2``."""
    high, low = constant(b, "ln2")
    n, bits = b.round_to_int(x, constant(b, "log2_e")[0])
    return n, bits, b.exact_fma(n, -low, b.exact_fma(n, -high, x))


def exp_near_zero(b: Builder, r: Value) -> Value:
    """``exp(r)`` for a reduced argument."""
    return poly(b, "exp", r, 1.0, 1.0)


def exp_in_range(b: Builder, x: Value, exponent_offset: int = 0) -> Value:
    """``exp(x) * 2**exponent_offset`` for x that can't leave the range by more than it bears."""
    _, n, r = reduce_by_ln2(b, x)
    p = exp_near_zero(b, r)
    return b.scale(p, n + exponent_offset if exponent_offset else n)


def exp_of_negative(b: Builder, x: Value) -> Value:
    """``exp(x)`` for ``x <= 0`` where results below the normal range don't matter."""
    _, n, r = reduce_by_ln2(b, b.at_least(x, -87.0 if b.fmt.bits == 32 else -708.0))
    return exp_near_zero(b, r) * b.power_of_two(n)


def exp_limits(b: Builder, per_octave: float) -> tuple[float, float]:
    """Arguments beyond which a base's powers are surely zero and surely infinite.

    At the lower one both factors of the power of two are zero: CPUs take a hundred times as long
    for products that are too small, and masks of attention make many.
    """
    return -2 * b.fmt.bias * per_octave, (b.fmt.bias + 2) * per_octave


@math_function(ulp=(1.0, 1.0))
def exp(b: Builder, x: Value) -> Value:
    """A power of two times the exponential of what is left, in two parts (Cody and Waite)."""
    return exp_in_range(b, b.clamp(x, *exp_limits(b, constant(b, "ln2")[0])))


@math_function(ulp=(1.0, 1.0))
def exp2(b: Builder, x: Value) -> Value:
    """``2**n * 2**r`` with ``n`` the nearest whole number, from which ``r`` differs exactly."""
    x = b.clamp(x, *exp_limits(b, 1.0))
    n, bits = b.round_to_int(x)
    return b.scale(poly(b, "exp2", x - n, 1.0), bits)


@math_function(ulp=(1.1, 1.1))
def exp10(b: Builder, x: Value) -> Value:
    """``2**n * 10**r`` with ``x = n * log10 2 + r``."""
    high, low = constant(b, "log10_2")
    x = b.clamp(x, *exp_limits(b, high))
    n, bits = b.round_to_int(x, constant(b, "log2_10")[0])
    r = b.exact_fma(n, -low, b.exact_fma(n, -high, x))
    return b.scale(poly(b, "exp10", r, 1.0), bits)


@math_function(ulp=(1.6, 1.6))
def expm1(b: Builder, x: Value) -> Value:
    """The exponential less one, summed so that small results keep their digits."""
    # 2**n * (1 + q) - 1 with q = expm1(r), in halves so that n = bias + 1 doesn't overflow early.
    # Above the upper limit n would be bias + 2; the result is infinite from bias + 1 octaves on.
    low, high = -(b.fmt.mantissa + 3) * 0.7, (b.fmt.bias + 1.4) * constant(b, "ln2")[0]
    _, n, r = reduce_by_ln2(b, b.clamp(x, low, high))
    q = b.fma(r * r, poly(b, "exp", r), r)
    half = b.power_of_two(n + -1)
    y = b.fma(half, q, half - 0.5) * 2.0
    return b.copysign(y, x)  # keeps -0


def _logistic(b: Builder, a: Value) -> tuple[Value, Value, Value]:
    """Return ``y, s, s_rest`` with ``sigmoid(-a) = y * s * s_rest`` for ``a >= 0``."""
    # exp(a) = 2**n * (1 + t) and 2**-n = s * s_rest: sigmoid(-a) = 2**-n / (2**-n + 1 + t), which
    # underflows gradually. The sum's rounding error and the quotient's remainder go into one
    # correction.
    _, n, r = reduce_by_ln2(b, a)
    t = b.fma(r * r, poly(b, "exp", r), r)
    s, s_rest = b.powers_of_two(0 - n)
    total, low = b.fast_two_sum(b.fma(s, s_rest, 1.0), t)
    y = 1.0 / total
    y = b.fma(b.fma(-low, y, b.exact_fma(-total, y, 1.0)), y, y)
    return y, s, s_rest


@math_function(ulp=(1.75, 1.75))
def sigmoid(b: Builder, x: Value) -> Value:
    """``1 / (1 + exp(-x))`` from the side on which it is small, else one minus that."""
    limit = -exp_limits(b, constant(b, "ln2")[0])[0]
    y, s, s_rest = _logistic(b, b.at_most(b.abs(x), limit))
    left = y * s * s_rest
    return b.select(x < 0.0, left, 1.0 - left)


@math_function(ulp=(2.5, 2.5))
def silu(b: Builder, x: Value) -> Value:
    """``x * sigmoid(x)``, rounded once where it is denormal."""
    # The last factor is a power of two, so that a result that is denormal is rounded once. The
    # other half of the power comes before x, which would overflow: of -inf the result is NaN, as
    # the formula's, and of no other number.
    limit = -exp_limits(b, constant(b, "ln2")[0])[0]
    y, s, s_rest = _logistic(b, b.at_most(b.abs(x), limit))
    small = y * s
    return b.select(x < 0.0, small * x * s_rest, (1.0 - small * s_rest) * x)


@math_function(ulp=(1.5, 1.5))
def tanh(b: Builder, x: Value) -> Value:
    """An odd polynomial below 0.6, ``1 - 2 / (exp(2 * a) + 1)`` above."""
    a = b.abs(x)
    z = a * a
    small = b.fma(a * z, poly(b, "tanh", z), a)
    # Beyond the limit the result rounds to 1 anyway.
    twice = b.at_most(a, 10.0 if b.fmt.bits == 32 else 20.0) * 2.0
    _, n, r = reduce_by_ln2(b, twice)
    e = exp_near_zero(b, r) * b.power_of_two(n)
    large = 1.0 - 2.0 / (e + 1.0)
    return b.copysign(b.select(a < 0.6, small, large), x)


@math_function(ulp=(1.75, 1.5))
def sinh(b: Builder, x: Value) -> Value:
    """An odd polynomial below 1, ``(exp(a) - exp(-a)) / 2`` above."""
    a = b.abs(x)
    z = a * a
    small = b.fma(a * z, poly(b, "sinh", z), a)
    half_e = exp_in_range(b, b.at_most(a, exp_limits(b, 0.695)[1]), -1)
    large = half_e - 0.25 / half_e
    return b.copysign(b.select(a < 1.0, small, large), x)


@math_function(ulp=(1.5, 1.5))
def cosh(b: Builder, x: Value) -> Value:
    """``(exp(a) + exp(-a)) / 2``, of halves that don't overflow early."""
    half_e = exp_in_range(b, b.at_most(b.abs(x), exp_limits(b, 0.695)[1]), -1)
    return half_e + 0.25 / half_e


@math_function(ulp=(1.25, 1.25))
def erf(b: Builder, x: Value) -> Value:
    """An odd polynomial below 1, ``1 - exp(log erfc(a))`` above."""
    a = b.abs(x)
    small = b.fma(a, poly(b, "erf", a * a), a)
    # log(erfc(a)) is smooth: its polynomial is as exact as 1 - erfc(a) needs.
    tail = poly(b, "erfc_log", b.at_most(a, 4.0 if b.fmt.bits == 32 else 6.0))
    large = 1.0 - exp_of_negative(b, tail)
    return b.copysign(b.select(a < 1.0, small, large), x)


@math_function(ulp=(2.0, 2.0), scale="operand")
def gelu(b: Builder, x: Value) -> Value:
    """``x / 2 * (1 + erf(x / sqrt 2))``, in units of the operand's last place."""
    half = x * 0.5
    y = b.fma(half, erf(b, x * constant(b, "sqrt_half")[0]), half)
    return b.copysign(y, x)


@math_function(ulp=(2.0, 2.0), scale="operand")
def gelu_tanh(b: Builder, x: Value) -> Value:
    """``x * sigmoid(2 * u)`` with ``u = sqrt(2 / pi) * (x + 0.044715 * x**3)``."""
    # 0.5 * (1 + tanh(u)) = sigmoid(2 * u)
    scale = 2 * constant(b, "sqrt_two_over_pi")[0]
    bounded = b.clamp(x, -64.0, 64.0)
    inner = bounded * b.fma(bounded * bounded, scale * 0.044715, scale)
    return x * sigmoid(b, inner)
