"""A builder in which a vector formula reads as a formula.

The math library of the LLVM backend writes each function once, for any floating format and any
number of lanes, with the operators of :mod:`~tilewright.codegen.llvm.values`. They become LLVM IR
text at once; there is no tree in between. Of Tilewright's IR this knows what lanes are, no more,
and it does not import LLVM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.codegen.llvm.types import lanes_suffix
from tilewright.codegen.llvm.values import (
    BOOL,
    DOUBLE,
    FLOAT,
    I32,
    I64,
    Type,
    Value,
    ValueWriter,
    number_text,
    vector,
)
from tilewright.ir import ScalableLanes


@dataclass(frozen=True)
class Format:
    """A binary floating-point format as the emitters need it."""

    dtype: str
    type: Type  # of one lane
    bits_type: Type  # the integer of the same size
    suffix: str  # in intrinsic names and in our symbols
    bits: int
    mantissa: int  # stored fraction bits

    @property
    def llvm(self) -> str:
        """How LLVM spells the type of one lane."""
        return self.type.text

    @property
    def bias(self) -> int:
        """Exponent bias: 127 or 1023."""
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def magic(self) -> float:
        """1.5 * 2**mantissa: adding it rounds to an integer, held in the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa

    @property
    def min_normal(self) -> float:
        """The smallest positive normal number."""
        return 2.0 ** (1 - self.bias)


FLOAT32 = Format("float32", FLOAT, I32, "f32", 32, 23)
FLOAT64 = Format("float64", DOUBLE, I64, "f64", 64, 52)
FORMATS = {fmt.dtype: fmt for fmt in (FLOAT32, FLOAT64)}


Operand = Value | float

INF = float("inf")
NAN = float("nan")


class Builder(ValueWriter):
    """Collects the lines of one function of ``lanes`` values of ``fmt``.

    ``fused`` tells whether the target multiplies and adds in one instruction. Types have letters:
    ``f`` (floating), ``i`` (integer) and ``m`` (mask).
    """

    def __init__(self, fmt: Format, lanes: int, *, fused: bool = True) -> None:
        super().__init__()
        self.fmt = fmt
        self.lanes = lanes
        self.fused = fused
        self.overload = fmt.suffix if lanes == 1 else f"{lanes_suffix(lanes)}{fmt.suffix}"
        self.types = {
            letter: vector(lanes, scalar)
            for letter, scalar in (("f", fmt.type), ("i", fmt.bits_type), ("m", BOOL))
        }
        self.depends: list[tuple[str, str, int]] = []  # functions that the formula calls

    def here(self, text: str) -> str:
        """Append an instruction; names count the lines."""
        name = f"%t{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def value(self, letter: str, name: str) -> Value:
        """Return a parameter, or what a line defined, as a value."""
        return Value(self, self.types[letter], name)

    def line(self, letter: str, text: str) -> Value:
        """Append an instruction and return its value."""
        return self.value(letter, self.here(text))

    def scalar(self, value: float) -> str:
        """Return the text of one lane of a floating constant."""
        return number_text(value, self.fmt.type)

    def in_double(self) -> Builder:
        """Return a builder that goes on with the same function in float64."""
        wide = Builder(FLOAT64, self.lanes, fused=self.fused)
        wide.lines, wide.depends = self.lines, self.depends
        return wide

    def convert(self, x: Value) -> Value:
        """Bring a floating value of another format to this one."""
        kind = self.types["f"]
        text = f"{'fpext' if x.type.bytes < kind.bytes else 'fptrunc'} {x.type.text} {x.text}"
        return self.line("f", f"{text} to {kind.text}")

    def const(self, value: float) -> Value:
        """Return a splat constant as a value."""
        return self.value("f", number_text(value, self.types["f"]))

    def call(self, intrinsic: str, *args: Operand) -> Value:
        """Call ``llvm.<intrinsic>`` on floating values of the function's own type."""
        type_ = self.types["f"]
        text = ", ".join(f"{type_.text} {self.operand(arg, type_)}" for arg in args)
        return self.line("f", f"call {type_.text} @llvm.{intrinsic}.{self.overload}({text})")

    def fma(self, a: Operand, b: Operand, c: Operand) -> Value:
        """``a * b + c``, with one rounding where the target can, else with two."""
        if self.fused:
            return self.call("fma", a, b, c)
        product = a * b
        return (product if isinstance(product, Value) else self.const(product)) + c

    def exact_fma(self, a: Operand, b: Operand, c: Operand) -> Value:
        """``a * b + c`` where the formula needs the product's lower half, on every target.

        Without the instruction: by way of float64, or in float64 by Dekker's product, for factors
        below ``2**995``.
        """
        if self.fused:
            return self.call("fma", a, b, c)
        a, b, c = (v if isinstance(v, Value) else self.const(v) for v in (a, b, c))
        if self.fmt is FLOAT32:
            wide = self.in_double()
            return self.convert(wide.convert(a) * wide.convert(b) + wide.convert(c))
        product = a * b
        (a_high, a_low), (b_high, b_low) = self._halves(a), self._halves(b)
        rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
        total, low = self.two_sum(product, c)
        return total + (low + rest)

    def _halves(self, x: Value) -> tuple[Value, Value]:
        """Split a float64 into two numbers of 26 bits (Veltkamp)."""
        scaled = x * (2.0**27 + 1)
        high = scaled - (scaled - x)
        return high, x - high

    def abs(self, x: Value) -> Value:
        """Clear the sign bit."""
        return self.call("fabs", x)

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        """Give ``magnitude`` the sign of ``sign``."""
        return self.call("copysign", magnitude, sign)

    def at_most(self, x: Value, limit: float) -> Value:
        """Return ``min(x, limit)``; NaN stays NaN (the operand order is that of ``minps``)."""
        bound = self.const(limit)
        return self.select(bound < x, bound, x)

    def at_least(self, x: Value, limit: float) -> Value:
        """Return ``max(x, limit)``; NaN stays NaN."""
        bound = self.const(limit)
        return self.select(bound > x, bound, x)

    def clamp(self, x: Value, low: float, high: float) -> Value:
        """Bound ``x`` on both sides; NaN stays NaN."""
        return self.at_most(self.at_least(x, low), high)

    def bits(self, x: Value) -> Value:
        """Reinterpret a floating value as an integer."""
        return x.convert("bitcast", self.types["i"])

    def from_bits(self, x: Value) -> Value:
        """Reinterpret an integer as a floating value."""
        return x.convert("bitcast", self.types["f"])

    def to_float(self, x: Value) -> Value:
        """Convert a signed integer."""
        return x.convert("sitofp", self.types["f"])

    def horner(self, x: Value, coefs: Sequence[Operand]) -> Value:
        """Evaluate a polynomial; coefficients run from the constant term upwards."""
        result: Operand = coefs[-1]
        for coef in reversed(coefs[:-1]):
            result = self.fma(result, x, coef)
        return result if isinstance(result, Value) else self.const(result)

    def round_to_int(self, x: Value, scale: float = 1.0) -> tuple[Value, Value]:
        """Round ``x * scale`` to the nearest integer, as a floating value and as low bits.

        Valid for magnitudes below ``2**(mantissa - 2)``; no poison for NaN and infinity, which a
        conversion instruction would give. The high bits of the integer are rubbish.
        """
        magic = self.fmt.magic
        shifted = x + magic if scale == 1.0 else self.fma(x, scale, magic)
        return shifted - magic, self.bits(shifted)

    def power_of_two(self, exponent: Value) -> Value:
        """Return ``2**exponent`` for a normal result; higher bits are shifted out."""
        return self.from_bits((exponent + self.fmt.bias) << self.fmt.mantissa)

    def powers_of_two(self, exponent: Value) -> tuple[Value, Value]:
        """Return two normal numbers whose product is ``2**exponent``, which need not be normal.

        ``exponent`` comes from :meth:`round_to_int`, hence the shift that drops the high bits.
        """
        spare = self.fmt.bits - self.fmt.mantissa + 2
        half = (exponent << spare) >> (spare + 1)
        return self.power_of_two(half), self.power_of_two(exponent - half)

    def scale(self, x: Value, exponent: Value) -> Value:
        """Return ``x * 2**exponent`` for ``x`` near 1, with overflow and gradual underflow.

        Two multiplications by halves of the exponent: only the last one rounds.
        """
        first, second = self.powers_of_two(exponent)
        return x * first * second

    def two_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """``a + b`` as rounded sum and exact error (Knuth)."""
        total = a + b
        rest = total - a
        return total, (a - (total - rest)) + (b - rest)

    def fast_two_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """``a + b`` as rounded sum and exact error, for ``|a| >= |b|`` (Dekker)."""
        total = a + b
        return total, b - (total - a)

    def two_prod(self, a: Value, b: Operand) -> tuple[Value, Value]:
        """``a * b`` as rounded product and exact error."""
        product = a * b
        return product, self.exact_fma(a, b, -product)

    def by_parts(self, width: int, make: Callable[..., str], kind: str, *args: Value) -> Value:
        """Compute on parts of ``width`` lanes and put the results side by side.

        ``make`` gets the operands of one part, with their types, and returns the text of an
        instruction whose result is of ``kind``. A last part that is short is filled up with
        anything.
        """
        made = []
        for first in range(0, self.lanes, width):
            picks = [i if i < self.lanes else -1 for i in range(first, first + width)]
            made.append(self.here(make(*(self._part(arg, picks) for arg in args))))
        return self._join(made, width, kind)

    def _part(self, value: Value, lanes: Sequence[int]) -> str:
        if self.lanes == 1:
            part = vector(len(lanes), value.type)
            text = f"insertelement {part} poison, {value.type} {value.text}, i64 0"
            return f"{part} {self.here(text)}"
        if len(lanes) != self.lanes:
            value = value.shuffle(lanes)
        return f"{value.type} {value.text}"

    def _join(self, parts: list[str], width: int, kind: str) -> Value:
        """Put vectors of ``width`` lanes side by side; keep as many lanes as the function has."""
        scalar = self.types[kind].element or self.types[kind]
        if self.lanes == 1:
            return self.line(kind, f"extractelement <{width} x {scalar}> {parts[0]}, i64 0")
        while len(parts) > 1:
            if len(parts) % 2:
                parts.append("poison")
            type_, mask = f"<{width} x {scalar}>", _shuffle_mask(range(2 * width))
            parts = [
                self.here(f"shufflevector {type_} {a}, {type_} {b}, {mask}")
                for a, b in zip(parts[::2], parts[1::2])
            ]
            width *= 2
        if width == self.lanes:
            return self.value(kind, parts[0])
        type_, mask = f"<{width} x {scalar}>", _shuffle_mask(range(self.lanes))
        return self.line(kind, f"shufflevector {type_} {parts[0]}, {type_} poison, {mask}")

    def _lane_count(self) -> str:
        """The number of lanes, as an i32."""
        if not isinstance(self.lanes, ScalableLanes):
            return str(self.lanes)
        scale = self.here("call i32 @llvm.vscale.i32()")
        return self.here(f"mul i32 {scale}, {self.lanes.factor}")

    def cold_lanes(self, mask: Value, fast: Value, x: Value, symbol: str) -> Value:
        """Replace ``fast`` by ``symbol(x)`` where ``mask``; lane by lane, in a cold block.

        ``symbol`` is a function ``double (double)``. Nothing is called when no lane needs it.
        """
        lines, fmt, type_ = self.lines, self.fmt, self.types["f"]
        weights = '!prof !{!"branch_weights", i32 1, i32 2000}'
        lane, value = x.text, fast.text
        if self.lanes == 1:
            lines += [f"  br i1 {mask.text}, label %cold, label %done, {weights}", "cold:"]
        else:
            count = self._lane_count()
            lines += [
                f"  %any = call i1 @llvm.vector.reduce.or.{lanes_suffix(self.lanes)}i1"
                f"({self.types['m']} {mask.text})",
                f"  br i1 %any, label %cold, label %done, {weights}",
                "cold:",
                "  %lane = phi i32 [ 0, %entry ], [ %next, %cold ]",
                f"  %part = phi {type_} [ {fast.text}, %entry ], [ %filled, %cold ]",
                f"  %arg = extractelement {type_} {x.text}, i32 %lane",
                f"  %old = extractelement {type_} {fast.text}, i32 %lane",
                f"  %wanted = extractelement {self.types['m']} {mask.text}, i32 %lane",
            ]
            lane, value = "%arg", "%part"
        wide = lane
        if fmt is FLOAT32:
            wide = "%wide"
            lines.append(f"  %wide = fpext float {lane} to double")
        lines.append(f"  %slow = call double @{symbol}(double {wide})")
        new = "%slow"
        if fmt is FLOAT32:
            new = "%narrow"
            lines.append("  %narrow = fptrunc double %slow to float")
        if self.lanes == 1:
            lines += ["  br label %done", "done:"]
            return self.line("f", f"phi {type_} [ {value}, %entry ], [ {new}, %cold ]")
        lines += [
            f"  %new = select i1 %wanted, {fmt.llvm} {new}, {fmt.llvm} %old",
            f"  %filled = insertelement {type_} %part, {fmt.llvm} %new, i32 %lane",
            "  %next = add i32 %lane, 1",
            f"  %more = icmp ult i32 %next, {count}",
            "  br i1 %more, label %cold, label %done",
            "done:",
        ]
        return self.line("f", f"phi {type_} [ {fast.text}, %entry ], [ %filled, %cold ]")


def _shuffle_mask(lanes: Sequence[int]) -> str:
    """Spell a constant mask of ``shufflevector``; -1 takes anything."""
    picks = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in lanes)
    return f"<{len(lanes)} x i32> <{picks}>"
