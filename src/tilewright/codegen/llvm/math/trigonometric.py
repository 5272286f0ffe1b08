"""sin, cos, tan and their inverses.

Angles are reduced by multiples of ``pi/2`` in three parts (Cody and Waite, exact first step by
fma) up to :data:`LIMIT`. Larger angles take a cold path, lane by lane: Payne and Hanek's method in
float64 with a table of windows of ``2/pi``, good over the whole range of either format. So every
finite argument gets the stated accuracy, and no libm is called.
"""

from __future__ import annotations

from tilewright.codegen.llvm.math.builder import FLOAT64, INF, NAN, Builder, Value
from tilewright.codegen.llvm.math.coefficients import CONSTANTS, TWO_OVER_PI_WINDOWS
from tilewright.codegen.llvm.math.exponential import constant, poly
from tilewright.codegen.llvm.math.spec import MathFunction, math_function, math_helper

LIMIT = {32: 2.0**16, 64: 2.0**30}
"""Magnitude per format up to which the fast reduction is used."""

_FINITE = "all reals; nan for infinities"


def _sin_cos(b: Builder, quadrant: Value, r: Value) -> Value:
    """``sin(quadrant * pi/2 + r)``."""
    z = r * r
    sine = b.fma(r * z, poly(b, "sin", z), r)
    cosine = b.fma(z, poly(b, "cos", z), 1.0)
    value = b.select((quadrant & 1).ne(0), cosine, sine)
    sign = (quadrant & 2) << (b.fmt.bits - 2)
    return b.from_bits(b.bits(value) ^ sign)


def _tan(b: Builder, quadrant: Value, r: Value) -> Value:
    z = r * r
    t = b.fma(r * z, poly(b, "tan", z), r)
    odd = (quadrant & 1).ne(0)
    return b.select(odd, -1.0, t) / b.select(odd, t, b.const(1.0))


def _reduce(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return quadrant (low bits of an integer) and remainder."""
    n, bits = b.round_to_int(x, constant(b, "two_over_pi")[0])
    return bits, _minus(b, x, n, constant(b, "half_pi"))


def _minus(b: Builder, x: Value, n: Value, parts: tuple[float, ...]) -> Value:
    """``x - n * (parts[0] + parts[1] + ...)``."""
    for part in parts:
        x = b.exact_fma(n, -part, x)
    return x


def _with_cold_path(b: Builder, name: str, x: Value, fast: Value) -> Value:
    b.depends.append((f"{name}_huge", "float64", 1))
    huge = b.abs(x) > LIMIT[b.fmt.bits]
    return b.cold_lanes(huge, fast, x, f"tw_{name}_huge_f64")


@math_function(ulp=(1.6, 1.6), domain=_FINITE)
def sin(b: Builder, x: Value) -> Value:
    """The quadrant's polynomial; angles too large for its reduction go the slow way."""
    fast = _sin_cos(b, *_reduce(b, x))
    fast = b.select(x.eq(0.0), x, fast)  # keeps -0
    return _with_cold_path(b, "sin", x, fast)


@math_function(ulp=(1.6, 1.6), domain=_FINITE)
def cos(b: Builder, x: Value) -> Value:
    """The sine one quadrant further on."""
    quadrant, r = _reduce(b, x)
    return _with_cold_path(b, "cos", x, _sin_cos(b, quadrant + 1, r))


@math_function(ulp=(3.0, 2.5), domain=_FINITE)
def tan(b: Builder, x: Value) -> Value:
    """Sine over cosine of the reduced angle, or the negative reciprocal."""
    fast = _tan(b, *_reduce(b, x))
    fast = b.select(x.eq(0.0), x, fast)
    return _with_cold_path(b, "tan", x, fast)


@math_helper("reduce_huge")
def _reduce_huge(fused: bool) -> MathFunction:
    """``{remainder, quadrant}`` of a float64 angle above the fast limit of float32.

    ``x = y * 2**(16 * g)`` with an integral ``y`` (or ``g = 0``), so whole multiples of 4 in
    ``2**(16 * g) * 2/pi`` may be dropped: what is left is row ``g`` of the table, 212 bits long.
    The partial products are exact pairs, each taken modulo 4, and summed without loss.
    """
    b = Builder(FLOAT64, 1, fused=fused)
    x = b.value("f", "%x")
    exponent = (b.bits(b.abs(x)) >> 52) - (1023 + 52)
    group = b.select(exponent > 0, exponent, 0) >> 4
    y = x * b.power_of_two((0 - group) << 4)
    table = f"[{len(TWO_OVER_PI_WINDOWS)} x [4 x double]]"
    terms: list[Value] = []
    for part in range(4):
        at = b.line(
            "f",
            f"getelementptr inbounds {table}, ptr @tw_two_over_pi,"
            f" i64 0, i64 {group.text}, i64 {part}",
        )
        window = b.line("f", f"load double, ptr {at.text}")
        for term in b.two_prod(y, window):
            terms.append(b.fma(b.call("nearbyint", term * 0.25), -4.0, term))
    turns: Value | None = None
    for _ in range(2):
        terms = _distil(b, terms)
        whole = b.call("nearbyint", terms[0])
        turns = whole if turns is None else turns + whole
        terms[0] = terms[0] - whole
    high, low, *_ = _distil(b, _distil(b, terms))
    p, p_low = CONSTANTS["half_pi"][64][:2]
    r, r_low = b.two_prod(high, p)
    r = r + b.fma(low, p, b.fma(high, p_low, r_low))
    assert turns is not None
    _, quadrant = b.round_to_int(turns)
    rows = ",\n".join(
        "  [4 x double] [" + ", ".join(f"double {b.scalar(v)}" for v in row) + "]"
        for row in TWO_OVER_PI_WINDOWS
    )
    text = "\n".join(
        (
            f"@tw_two_over_pi = internal constant {table} [\n{rows}\n]\n",
            "define internal { double, i64 } @tw_reduce_huge_f64(double %x)"
            " noinline cold nounwind memory(none) {",
            *b.lines,
            f"  %pair = insertvalue {{ double, i64 }} poison, double {r.text}, 0",
            f"  %both = insertvalue {{ double, i64 }} %pair, i64 {quadrant.text}, 1",
            "  ret { double, i64 } %both",
            "}",
        )
    )
    return MathFunction("tw_reduce_huge_f64", text)


def _distil(b: Builder, terms: list[Value]) -> list[Value]:
    """Sum without loss: the first term becomes the rounded sum, the others what is left."""
    result = list(terms)
    for i in range(len(result) - 1, 0, -1):
        result[i - 1], result[i] = b.two_sum(result[i - 1], result[i])
    return result


def _huge(name: str, fused: bool) -> MathFunction:
    b = Builder(FLOAT64, 1, fused=fused)
    x = b.value("f", "%x")
    b.lines.append("  %pair = call { double, i64 } @tw_reduce_huge_f64(double %x)")
    r = b.line("f", "extractvalue { double, i64 } %pair, 0")
    quadrant = b.line("i", "extractvalue { double, i64 } %pair, 1")
    if name == "tan":
        value = _tan(b, quadrant, r)
    else:
        value = _sin_cos(b, quadrant + 1 if name == "cos" else quadrant, r)
    value = b.select(b.abs(x) < INF, value, NAN)
    symbol = f"tw_{name}_huge_f64"
    text = "\n".join(
        (
            f"define internal double @{symbol}(double %x) noinline cold nounwind memory(none) {{",
            *b.lines,
            f"  ret double {value.text}",
            "}",
        )
    )
    return MathFunction(symbol, text, (("reduce_huge", "float64", 1),))


@math_helper("sin_huge")
def _sin_huge(fused: bool) -> MathFunction:
    return _huge("sin", fused)


@math_helper("cos_huge")
def _cos_huge(fused: bool) -> MathFunction:
    return _huge("cos", fused)


@math_helper("tan_huge")
def _tan_huge(fused: bool) -> MathFunction:
    return _huge("tan", fused)
