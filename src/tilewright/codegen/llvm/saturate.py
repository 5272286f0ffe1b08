"""Vectors of floats to integers: what is out of range becomes the nearest limit, NaN zero.

LLVM's saturating conversions mean the same, but on x86 take vectors apart. Integers of fewer bits
than the float's mantissa are clamped before they are converted; for others, whose limits aren't
floats, the lanes that are out of range are put right after it. Values that the program clips itself
(as quantisation does) only have to be tested for NaN.
"""

from __future__ import annotations

import math

from tilewright.codegen.llvm.types import constant_text, register_type
from tilewright.codegen.llvm.writer import Writer
from tilewright.ir import Broadcast, Expr, FloatImm, Max, Min, dtypes

_MANTISSA = {"float": 24, "double": 53}


def is_clipped(expr: Expr, dtype: str) -> bool:
    """Whether an expression is NaN or within the limits of an integer type, by what it says."""
    low, high = (float(limit) for limit in dtypes.integer_limits(dtypes.element_of(dtype)))
    if high > 2.0 ** _MANTISSA[register_type(dtypes.element_of(expr.dtype))]:
        high /= 2  # the limit itself isn't a float
    least, most = _bounds(expr)
    return low <= least and most <= high


def _bounds(expr: Expr) -> tuple[float, float]:
    """The least and the most that a minimum of a maximum, or the other way round, can be."""
    if not isinstance(expr, (Min, Max)):
        return -math.inf, math.inf
    for side, other in ((expr.a, expr.b), (expr.b, expr.a)):
        number = side.value if isinstance(side, Broadcast) else side
        if isinstance(number, FloatImm) and number.value == number.value:
            least, most = _bounds(other)
            pick = min if isinstance(expr, Min) else max
            return pick(least, number.value), pick(most, number.value)
    return -math.inf, math.inf


def saturated(emitter: Writer, value: str, source: str, dtype: str, clipped: bool = False) -> str:
    """Convert a vector ``value`` of floats, which may be ``clipped`` already, to integers."""
    lanes = dtypes.lanes_of(dtype)
    kind, result, mask = register_type(source), register_type(dtype), f"<{lanes} x i1>"
    scalar = register_type(dtypes.element_of(source))
    wide = dtypes.vector_dtype("float64" if scalar == "double" else "float32", lanes)
    low, high = dtypes.integer_limits(dtypes.element_of(dtype))
    bits = dtypes.bits_of(dtypes.element_of(dtype))

    def number(x: float) -> str:
        return constant_text(x, wide)

    def compare(test: str, a: str, b: str) -> str:
        return str(emitter.guarded(f"fcmp {test} {kind} {a}, {b}", a, b))

    def select(test: str, a: str, b: str, type_: str) -> str:
        text = f"select {mask} {test}, {type_} {a}, {type_} {b}"
        return str(emitter.guarded(text, test, a, b))

    sign = "s" if low < 0 else "u"
    if bits < _MANTISSA[scalar]:
        # By way of 32 bits, which have an instruction; limits and all between are exact.
        value = select(compare("ord", value, value), value, number(0.0), kind)
        if not clipped:
            value = select(compare("olt", value, number(low)), number(low), value, kind)
            value = select(compare("ogt", value, number(high)), number(high), value, kind)
        through = max(bits, 32)
        middle = f"<{lanes} x i{through}>"
        # All numbers here are below 2 ** 31, or there are 53 bits and the type is signed or not.
        op = "fptosi" if bits < 32 or sign == "s" else "fptoui"
        made: str = emitter.guarded(f"{op} {kind} {value} to {middle}", value)
        if middle != result:
            made = emitter.guarded(f"trunc {middle} {made} to {result}", made)
        return made
    if clipped:
        safe = select(compare("ord", value, value), value, number(0.0), kind)
        return str(emitter.guarded(f"fpto{sign}i {kind} {safe} to {result}", safe))
    above = compare("oge", value, number(float(high) + 1.0))
    below = compare("olt", value, number(float(low)))
    ordered = compare("ord", value, value)
    outside = emitter.guarded(f"or {mask} {above}, {below}", above, below)
    safe = select(outside, number(0.0), value, kind)
    safe = select(ordered, safe, number(0.0), kind)
    made = emitter.guarded(f"fpto{sign}i {kind} {safe} to {result}", safe)
    made = select(above, constant_text(high, dtype), made, result)
    return select(below, constant_text(low, dtype), made, result)
