"""atan, atan2, asin, acos: odd polynomials on a short interval, the rest by identities."""

from __future__ import annotations

from tilewright.codegen.llvm.math.builder import Builder, Value
from tilewright.codegen.llvm.math.exponential import constant, poly
from tilewright.codegen.llvm.math.spec import math_function


def _odd(b: Builder, name: str, x: Value) -> Value:
    """``x + x**3 * P(x**2)`` with the polynomial of that name."""
    z = x * x
    return b.fma(x * z, poly(b, name, z), x)


@math_function(ulp=(1.5, 1.5))
def atan(b: Builder, x: Value) -> Value:
    """An odd polynomial up to 1, beyond that a right angle less the reciprocal's."""
    a = b.abs(x)
    swap = a > 1.0
    t = _odd(b, "atan", b.select(swap, 1.0 / a, a))
    high, low, _ = constant(b, "half_pi")
    return b.copysign(b.select(swap, high - (t - low), t), x)


@math_function(ulp=(2.0, 2.0), arity=2, domain="all pairs, as C's atan2, signed zeros included")
def atan2(b: Builder, x: Value, y: Value) -> Value:
    """The arc of the smaller side over the larger one, put into its octant."""
    # Named as the ABI has them: the first operand is the ordinate.
    up, right = b.abs(x), b.abs(y)
    swap = up > right
    # Scale away from the ends of the range, so that the quotient doesn't suffer from denormals.
    top = b.select(swap, up, right)
    tiny = top < b.fmt.min_normal * 2.0 ** (b.fmt.mantissa + 2)
    factor = b.select(tiny, b.const(2.0 ** (b.fmt.mantissa + 2)), b.const(1.0))
    num = b.select(swap, right, up) * factor
    q = num / (top * factor)
    q = b.select(up.eq(right), 1.0, q)  # inf / inf
    q = b.select(top.eq(0.0), 0.0, q)
    q = b.select(x.compare("uno", y), x + y, q)
    t = _odd(b, "atan", q)
    high, low, _ = constant(b, "half_pi")
    t = b.select(swap, high - (t - low), t)
    # The sign bit of the abscissa, not its comparison: -0 counts as left.
    left = b.bits(y) < 0
    t = b.select(left, 2 * high - (t - 2 * low), t)
    return b.copysign(t, x)


def _asin_parts(b: Builder, a: Value) -> tuple[Value, Value, Value]:
    """Return the mask ``a > 1/2`` and ``s, tail`` with ``asin(s) = s + tail``.

    ``s`` is ``a``, or ``sqrt((1 - a) / 2)`` where masked: ``asin(a) = pi/2 - 2 * asin(s)``.
    """
    large = a > 0.5
    z = b.select(large, b.fma(a, -0.5, 0.5), a * a)
    s = b.select(large, b.call("sqrt", z), a)
    return large, s, s * z * poly(b, "asin", z)


@math_function(ulp=(2.25, 2.25), domain="|x| <= 1, else nan")
def asin(b: Builder, x: Value) -> Value:
    """``s + s**3 * P(s**2)``, with ``s = sqrt((1 - a) / 2)`` beyond 1/2."""
    large, s, tail = _asin_parts(b, b.abs(x))
    high, low, _ = constant(b, "half_pi")
    outer = b.fma(s, -2.0, high) - b.fma(tail, 2.0, -low)
    return b.copysign(b.select(large, outer, s + tail), x)


@math_function(ulp=(2.0, 2.0), domain="|x| <= 1, else nan")
def acos(b: Builder, x: Value) -> Value:
    """``pi / 2 - asin(x)``; beyond 1/2 twice the arc of ``sqrt((1 - a) / 2)``."""
    a = b.abs(x)
    large, s, tail = _asin_parts(b, a)
    t = s + tail
    high, low, _ = constant(b, "half_pi")
    # small: pi/2 - asin(x); large: 2 * t, or pi - 2 * t on the left
    signed = b.copysign(t, x)
    middle = high - (signed - low)
    outer = b.select(x < 0.0, 2 * high - b.fma(t, 2.0, -2 * low), t * 2.0)
    return b.select(large, outer, middle)
