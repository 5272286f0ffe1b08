"""float32 functions by AVX-512's own instructions: look-ups in registers, scaling, reciprocals.

A permutation looks up 16 or 32 table entries at a time, at the price of one multiplication. So
exponentials and logarithms need polynomials of degree 3 to 5 only, and bounded functions (tanh,
erf, gelu) are polynomials whose coefficients are looked up by interval, without exponential and
division. ``vscalefps``, ``vgetexpps`` and ``vgetmantps`` deal with denormals, infinities and
overflow by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.codegen.llvm.math.builder import INF, NAN, Builder, Operand, Value
from tilewright.codegen.llvm.math.coefficients import CONSTANTS
from tilewright.codegen.llvm.math.spec import AVX512, REGISTER_BITS, math_variant
from tilewright.codegen.llvm.math.tables import POLYNOMIALS, TABLES

_SIGN = -(1 << 31)


def _lanes(b: Builder) -> int:
    return REGISTER_BITS[AVX512] // b.fmt.bits


def _call(b: Builder, name: str, text: Callable[..., str], *args: Value) -> Value:
    """Call an intrinsic on each register; ``text`` makes its operands from those of ``args``."""
    register = f"<{_lanes(b)} x {b.fmt.llvm}>"
    head = f"call {register} @llvm.x86.avx512.{name}.512"
    return b.by_parts(_lanes(b), lambda *parts: f"{head}({text(*parts)})", "f", *args)


def _masked(b: Builder, name: str, *args: Value, number: int | None = None) -> Value:
    """Call an intrinsic that takes a mask and a rounding mode: all lanes, the current mode."""
    immediate = () if number is None else (f"i32 {number}",)
    rest = (*immediate, f"<{_lanes(b)} x {b.fmt.llvm}> zeroinitializer", f"i{_lanes(b)} -1, i32 4")
    kind = "ps" if b.fmt.bits == 32 else "pd"
    return _call(b, f"mask.{name}.{kind}", lambda *parts: ", ".join((*parts, *rest)), *args)


def lookup(b: Builder, table: Sequence[float], index: Value) -> Value:
    """Return ``table[index]`` for a table of one or two registers, by the index's low bits."""
    lanes = _lanes(b)
    low, high = (
        f"<{lanes} x {b.fmt.llvm}> <{', '.join(f'{b.fmt.llvm} {b.scalar(v)}' for v in half)}>"
        for half in (table[:lanes], table[-lanes:])
    )
    single = b.fmt.bits == 32
    if len(table) == lanes:
        return _call(b, f"permvar.{'sf' if single else 'df'}", lambda i: f"{low}, {i}", index)
    return _call(
        b, f"vpermi2var.{'ps' if single else 'pd'}", lambda i: f"{low}, {i}, {high}", index
    )


def scale(b: Builder, x: Value, exponent: Value) -> Value:
    """``x * 2**floor(exponent)``, rounded once, with overflow and gradual underflow."""
    return _masked(b, "scalef", x, exponent)


def split(b: Builder, x: Value) -> tuple[Value, Value]:
    """``floor(log2 |x|)`` and the mantissa in [1, 2); of negative numbers NaN.

    Zero has exponent minus infinity and infinity plus infinity, both with mantissa 1.
    """
    return _masked(b, "getexp", x), _masked(b, "getmant", x, number=8)


def nearest_int(b: Builder, x: Value) -> Value:
    """Convert to integers; what is too large becomes the least one."""
    texts = "<16 x i32> @llvm.x86.avx512.mask.cvtps2dq.512"
    rest = "<16 x i32> zeroinitializer, i16 -1, i32 4"
    return b.by_parts(_lanes(b), lambda a: f"call {texts}({a}, {rest})", "i", x)


def round_to_32nds(b: Builder, x: Value) -> Value:
    """Round to multiples of 1/32; infinities stay."""
    return _masked(b, "rndscale", x, number=5 << 4 | 8)


# ---- exponentials


def exp2_parts(
    b: Builder, x: Value, log2_base: tuple[float, float], polynomial: str = "exp2", up: int = 0
) -> tuple[Value, Value]:
    """Return ``p`` and ``n`` with ``base**x = p * 2**(floor(n) - up)``, |x| moderate.

    ``n`` is ``x * log2(base)`` rounded to a 32nd: its fraction picks ``2**(i/32)`` from a table.
    """
    high, low = log2_base
    magic = b.fmt.magic / 32
    shifted = x + magic if high == 1.0 else b.fma(x, high, magic)
    n = shifted - magic
    r = x - n if high == 1.0 else b.fma(x, low, b.fma(x, high, -n))
    power = lookup(b, [value * 2.0**up for value in TABLES["exp2"][0]], b.bits(shifted))
    return b.fma(r * b.horner(r, POLYNOMIALS[polynomial]), power, power), n


def _scale_from(b: Builder, x: Value, lowest: float, p: Value, n: Value) -> Value:
    """``p * 2**floor(n)``, but zero where ``x`` is below ``lowest``.

    CPUs take a hundred times as long for what is too small, and masks of attention make many such;
    lanes that are zero aren't scaled.
    """
    return b.select(x < lowest, 0.0, scale(b, p, n))


def _log2_e(b: Builder) -> tuple[float, float]:
    high, low = CONSTANTS["log2_e"][b.fmt.bits]
    return high, low


@math_variant(isa=AVX512, ulp=1.85)
def exp(b: Builder, x: Value) -> Value:
    """``2**(n / 32)`` looked up, times a polynomial of what is left."""
    return _scale_from(b, x, -104.0, *exp2_parts(b, b.at_most(x, 89.0), _log2_e(b)))


@math_variant(isa=AVX512, ulp=1.85)
def exp2(b: Builder, x: Value) -> Value:
    """The same where ``x`` itself is cut into 32nds."""
    return _scale_from(b, x, -151.0, *exp2_parts(b, b.at_most(x, 129.0), (1.0, 0.0)))


def _exp_of_negative_abs(b: Builder, x: Value, lowest: float, up: int = 0) -> Value:
    """``exp(-|x|) * 2**up``."""
    away = b.from_bits(b.bits(x) | _SIGN)
    return _scale_from(b, away, lowest, *exp2_parts(b, away, _log2_e(b), "exp2_fine", up))


# The divider is a unit of its own: one division costs less than the multiplications that would
# make it from an approximate reciprocal.


@math_variant(isa=AVX512, ulp=3.5)
def sigmoid(b: Builder, x: Value) -> Value:
    """``exp(-|x|)``, or 1 for positive ``x``, over ``1 + exp(-|x|)``."""
    s = _exp_of_negative_abs(b, x, -104.0)
    return b.select(x < 0.0, s, 1.0) / (s + 1.0)


@math_variant(isa=AVX512, ulp=3.9)
def silu(b: Builder, x: Value) -> Value:
    """``x * sigmoid(x)`` in one division."""
    # Left of zero numerator and denominator are 2**24 times as large, lest exp becomes denormal
    # before the result does.
    s = _exp_of_negative_abs(b, x, -120.0, up=24)
    left = x < 0.0
    below = b.select(left, s + 2.0**24, b.fma(s, 2.0**-24, 1.0))
    return b.select(left, s * x, x) / below


# ---- polynomials by interval


def _by_interval(b: Builder, name: str, index: Value, t: Value) -> Value:
    coefs: list[Operand] = [lookup(b, column, index) for column in TABLES[name]]
    return b.horner(t, coefs)


def piecewise(b: Builder, name: str, a: Value, width: float) -> Value:
    """Evaluate a table with intervals of a power of two at ``0 <= a < 31.5 * width``."""
    magic = b.fmt.magic * width
    shifted = a + magic
    return _by_interval(b, name, b.bits(shifted), a - (shifted - magic))


@math_variant(isa=AVX512, ulp=1.5)
def tanh(b: Builder, x: Value) -> Value:
    """A polynomial of each eighth of an octave of ``|x| + 5/8``."""
    # Intervals are eighths of octaves of a + 5/8: the upper bits of that sum.
    a = b.at_most(b.abs(x), 9.25)
    bits = b.bits(a + 0.625)
    origin = b.from_bits(bits & -(1 << 20)) - 0.625
    return b.copysign(_by_interval(b, "tanh", bits >> 20, a - origin), x)


@math_variant(isa=AVX512, ulp=2.4)
def erf(b: Builder, x: Value) -> Value:
    """A polynomial of each eighth."""
    a = b.at_most(b.abs(x), 3.9296875)
    return b.copysign(piecewise(b, "erf", a, 0.125), x)


def _gated(b: Builder, name: str, x: Value) -> Value:
    """``x / 2 + |x| * g(|x|)`` with a table's ``g``, which is 1/2 at its end."""
    a = b.abs(x)
    gate = piecewise(b, name, b.at_most(a, 7.75), 0.25)
    return b.copysign(b.fma(a, gate, x * 0.5), x)


@math_variant(isa=AVX512, ulp=2.0)
def gelu(b: Builder, x: Value) -> Value:
    """The gate ``erf(|x| / sqrt 2) / 2`` by polynomials of each quarter."""
    return _gated(b, "gelu", x)


@math_variant(isa=AVX512, ulp=2.0)
def gelu_tanh(b: Builder, x: Value) -> Value:
    """The gate ``tanh(u) / 2`` by polynomials of each quarter."""
    return _gated(b, "gelu_tanh", x)


# ---- logarithms and roots


def _reduced(b: Builder, tables: Sequence[Sequence[float]], x: Value) -> tuple[Value, Value, Value]:
    """Return ``e, t, r`` with ``log x = e * log 2 + t + log(1 + r)``; tables of c and -log c."""
    recips, logs = tables
    e, m = split(b, x)
    index = b.bits(m) >> (b.fmt.mantissa - 4)  # sixteenths of [1, 2)
    return e, lookup(b, logs, index), b.fma(m, lookup(b, recips, index), -1.0)


@math_variant(isa=AVX512, ulp=1.75)
def log(b: Builder, x: Value) -> Value:
    """The reciprocal of a sixteenth is looked up, its logarithm too (Tang's method)."""
    e, t, r = _reduced(b, TABLES["log"], x)
    high = b.fma(e, CONSTANTS["ln2"][32][0], t)
    return b.fma(r, b.horner(r, POLYNOMIALS["log"]), high)


@math_variant(isa=AVX512, ulp=1.75)
def log2(b: Builder, x: Value) -> Value:
    """The same to the base 2."""
    e, t, r = _reduced(b, TABLES["log2"], x)
    return b.fma(r, b.horner(r, POLYNOMIALS["log2"]), e + t)


@math_variant(isa=AVX512, ulp=1.5)
def rsqrt(b: Builder, x: Value) -> Value:
    """The estimate of 14 bits and one step of Newton's, of third order."""
    floats = "<16 x float> zeroinitializer, i16 -1"
    y = _call(b, "rsqrt14.ps", lambda a: f"{a}, {floats}", x)
    rest = b.fma(-(x * y), y, 1.0)  # NaN for zero and infinity, whose results are in place
    return b.select(rest.compare("ord", rest), b.fma(rest * 0.5, y, y), y)


def _power(b: Builder, a: Value, y: Value) -> Value:
    """``a ** y`` for ``a >= 0``, but for NaN where it is 1 because ``y`` is 0 or ``a`` is 1."""
    # y * log2 a needs 8 bits more than float32 has: float64 from the look-up to the fraction.
    wide = b.in_double()
    recips = TABLES["log2"][0]
    logs = [-math.log2(recip) for recip in recips]
    e, t, r = _reduced(wide, (recips, logs), wide.convert(a))
    # Estrin's scheme: these chains are long, and wait in the scheduler's queues.
    c = POLYNOMIALS["pow_log2"]
    pairs = [wide.fma(r, odd, even) for even, odd in zip(c[::2], c[1::2])]
    ratio = wide.horner(r * r, pairs)
    z = wide.fma(r, ratio, e + t) * wide.convert(y)
    n = round_to_32nds(wide, z)
    fraction = b.convert(z - n)
    fraction = b.select(fraction < 1.0, fraction, 1.0)  # of infinity, any number will do
    n = b.convert(n)
    power = lookup(b, TABLES["exp2"][0], b.bits(n + b.fmt.magic / 32))
    return scale(b, b.fma(fraction * b.horner(fraction, POLYNOMIALS["exp2"]), power, power), n)


@math_variant(isa=AVX512, ulp=2.0, registers=2)
def pow(b: Builder, x: Value, y: Value) -> Value:
    """``2**(y * log2 |x|)`` in float64 up to the fraction; the sign of odd powers."""
    a = b.abs(x)
    p = b.select(y.eq(0.0) | a.eq(1.0), 1.0, _power(b, a, y))
    # The sign of an odd power. A y too large for an integer becomes an even one.
    whole = b.call("nearbyint", y).eq(y)
    odd = b.select(whole, nearest_int(b, y) << 31, 0)
    p = b.from_bits(b.bits(p) ^ (odd & b.bits(x)))
    # As two choices: LLVM turns the conditions joined into a slow test of classes.
    return b.select(whole | x.eq(-INF), p, b.select(x < 0.0, NAN, p))
