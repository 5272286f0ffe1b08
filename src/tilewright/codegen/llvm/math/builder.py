"""A small SSA builder in which a vector formula reads as a formula.

The math library of the LLVM backend writes each function once, for any floating format and any
number of lanes, with overloaded operators on :class:`Value`. The builder turns them into LLVM IR
text at once; there is no tree in between. It knows nothing of Tilewright's IR and does not import
LLVM.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.support.errors import CodegenError


@dataclass(frozen=True)
class Format:
    """A binary floating-point format as the emitters need it."""

    dtype: str
    llvm: str  # the scalar type in LLVM IR
    suffix: str  # in intrinsic names and in our symbols
    bits: int
    mantissa: int  # stored fraction bits

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


FLOAT32 = Format("float32", "float", "f32", 32, 23)
FLOAT64 = Format("float64", "double", "f64", 64, 52)
FORMATS = {fmt.dtype: fmt for fmt in (FLOAT32, FLOAT64)}


class Value:
    """One SSA value: ``kind`` is ``f`` (floating), ``i`` (integer) or ``m`` (mask)."""

    __slots__ = ("builder", "kind", "name")

    def __init__(self, builder: Builder, kind: str, name: str) -> None:
        self.builder = builder
        self.kind = kind
        self.name = name

    def _binary(self, ops: dict[str, str], other: Operand, *, swap: bool = False) -> Value:
        builder = self.builder
        op, kind = ops.get(self.kind), self.kind
        if op is None:
            raise CodegenError(f"operator {ops} is not defined on values of kind '{kind}'")
        left, right = self.name, builder.operand(other, kind)
        if swap:
            left, right = right, left
        return builder.line(kind, f"{op} {builder.types[kind]} {left}, {right}")

    def __add__(self, other: Operand) -> Value:
        return self._binary({"f": "fadd", "i": "add"}, other)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Value:
        return self._binary({"f": "fsub", "i": "sub"}, other)

    def __rsub__(self, other: Operand) -> Value:
        return self._binary({"f": "fsub", "i": "sub"}, other, swap=True)

    def __mul__(self, other: Operand) -> Value:
        return self._binary({"f": "fmul"}, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Value:
        return self._binary({"f": "fdiv"}, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._binary({"f": "fdiv"}, other, swap=True)

    def __mod__(self, other: Operand) -> Value:
        return self._binary({"f": "frem"}, other)

    def __and__(self, other: Operand) -> Value:
        return self._binary({"i": "and", "m": "and"}, other)

    def __or__(self, other: Operand) -> Value:
        return self._binary({"i": "or", "m": "or"}, other)

    def __xor__(self, other: Operand) -> Value:
        return self._binary({"i": "xor", "m": "xor"}, other)

    def __lshift__(self, other: Operand) -> Value:
        return self._binary({"i": "shl"}, other)

    def __rshift__(self, other: Operand) -> Value:
        return self._binary({"i": "ashr"}, other)

    def __neg__(self) -> Value:
        return self.builder.line("f", f"fneg {self.builder.types['f']} {self.name}")

    def __invert__(self) -> Value:
        return self ^ -1

    def compare(self, how: str, other: Operand) -> Value:
        """Compare by an LLVM predicate: ``olt``, ``uno``, ... or ``eq``, ``slt``, ... ."""
        builder = self.builder
        op = "fcmp" if self.kind == "f" else "icmp"
        right = builder.operand(other, self.kind)
        return builder.line("m", f"{op} {how} {builder.types[self.kind]} {self.name}, {right}")

    def lt(self, other: Operand) -> Value:
        """``self < other``; false for NaN."""
        return self.compare("olt" if self.kind == "f" else "slt", other)

    def gt(self, other: Operand) -> Value:
        """``self > other``; false for NaN."""
        return self.compare("ogt" if self.kind == "f" else "sgt", other)

    def eq(self, other: Operand) -> Value:
        """``self == other``; false for NaN."""
        return self.compare("oeq" if self.kind == "f" else "eq", other)

    def ne(self, other: Operand) -> Value:
        """``self != other``; true for NaN."""
        return self.compare("une" if self.kind == "f" else "ne", other)


Operand = Value | float | int

INF = float("inf")
NAN = float("nan")


class Builder:
    """Collects the lines of one function of ``lanes`` values of ``fmt``.

    ``fused`` tells whether the target multiplies and adds in one instruction.
    """

    def __init__(self, fmt: Format, lanes: int, *, fused: bool = True) -> None:
        self.fmt = fmt
        self.lanes = lanes
        self.fused = fused
        self.lines: list[str] = []
        self.overload = fmt.suffix if lanes == 1 else f"v{lanes}{fmt.suffix}"
        self.types = {
            kind: scalar if lanes == 1 else f"<{lanes} x {scalar}>"
            for kind, scalar in (("f", fmt.llvm), ("i", f"i{fmt.bits}"), ("m", "i1"))
        }
        self._scalars = {"f": fmt.llvm, "i": f"i{fmt.bits}", "m": "i1"}
        self._constants: dict[tuple[str, float], str] = {}
        self.depends: list[tuple[str, str, int]] = []  # functions that the formula calls

    def line(self, kind: str, text: str) -> Value:
        """Append ``%tN = text`` and return the value."""
        name = f"%t{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return Value(self, kind, name)

    def operand(self, value: Operand, kind: str) -> str:
        """Return the text of an operand; Python numbers become splat constants."""
        if isinstance(value, Value):
            return value.name
        # 0.0 and -0.0 are equal as keys: only the cheap case is cached.
        text = self._constants.get((kind, value)) if value else None
        if text is None:
            text = self.scalar(value, kind)
            if self.lanes > 1:
                text = f"splat ({self._scalars[kind]} {text})"
            if value:
                self._constants[kind, value] = text
        return text

    def scalar(self, value: float, kind: str = "f") -> str:
        """Return the text of one lane of a constant."""
        if kind == "i":
            return str(int(value))
        if kind == "m":
            return "true" if value else "false"
        if self.fmt is FLOAT32:  # LLVM spells float constants as the equal double
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"

    def in_double(self) -> Builder:
        """Return a builder that goes on with the same function in float64."""
        wide = Builder(FLOAT64, self.lanes, fused=self.fused)
        wide.lines, wide.depends = self.lines, self.depends
        return wide

    def convert(self, x: Value) -> Value:
        """Bring a floating value of another format to this one."""
        source = x.builder
        op = "fpext" if source.fmt.bits < self.fmt.bits else "fptrunc"
        return self.line("f", f"{op} {source.types['f']} {x.name} to {self.types['f']}")

    def const(self, value: float) -> Value:
        """Return a splat constant as a value."""
        return Value(self, "f", self.operand(value, "f"))

    def call(self, intrinsic: str, *args: Operand) -> Value:
        """Call ``llvm.<intrinsic>`` on floating values of the function's own type."""
        type_ = self.types["f"]
        text = ", ".join(f"{type_} {self.operand(arg, 'f')}" for arg in args)
        return self.line("f", f"call {type_} @llvm.{intrinsic}.{self.overload}({text})")

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

    def select(self, mask: Value, then: Operand, otherwise: Operand) -> Value:
        """Choose lane by lane."""
        kind = next((v.kind for v in (then, otherwise) if isinstance(v, Value)), "f")
        type_ = self.types[kind]
        a, b = self.operand(then, kind), self.operand(otherwise, kind)
        return self.line(kind, f"select {self.types['m']} {mask.name}, {type_} {a}, {type_} {b}")

    def at_most(self, x: Value, limit: float) -> Value:
        """Return ``min(x, limit)``; NaN stays NaN (the operand order is that of ``minps``)."""
        bound = self.const(limit)
        return self.select(bound.lt(x), bound, x)

    def at_least(self, x: Value, limit: float) -> Value:
        """Return ``max(x, limit)``; NaN stays NaN."""
        bound = self.const(limit)
        return self.select(bound.gt(x), bound, x)

    def clamp(self, x: Value, low: float, high: float) -> Value:
        """Bound ``x`` on both sides; NaN stays NaN."""
        return self.at_most(self.at_least(x, low), high)

    def bits(self, x: Value) -> Value:
        """Reinterpret a floating value as an integer."""
        return self.line("i", f"bitcast {self.types['f']} {x.name} to {self.types['i']}")

    def from_bits(self, x: Value) -> Value:
        """Reinterpret an integer as a floating value."""
        return self.line("f", f"bitcast {self.types['i']} {x.name} to {self.types['f']}")

    def to_float(self, x: Value) -> Value:
        """Convert a signed integer."""
        return self.line("f", f"sitofp {self.types['i']} {x.name} to {self.types['f']}")

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
            made.append(self.line(kind, make(*(self._part(arg, picks) for arg in args))).name)
        return self._join(made, width, kind)

    def _part(self, value: Value, lanes: Sequence[int]) -> str:
        scalar, type_ = self._scalars[value.kind], self.types[value.kind]
        part_type = f"<{len(lanes)} x {scalar}>"
        if len(lanes) == self.lanes:
            return f"{part_type} {value.name}"
        if self.lanes == 1:
            text = f"insertelement {part_type} poison, {scalar} {value.name}, i64 0"
        else:
            text = f"shufflevector {type_} {value.name}, {type_} poison, {_shuffle_mask(lanes)}"
        return f"{part_type} {self.line(value.kind, text).name}"

    def _join(self, parts: list[str], width: int, kind: str) -> Value:
        """Put vectors of ``width`` lanes side by side; keep as many lanes as the function has."""
        scalar = self._scalars[kind]
        if self.lanes == 1:
            return self.line(kind, f"extractelement <{width} x {scalar}> {parts[0]}, i64 0")
        while len(parts) > 1:
            if len(parts) % 2:
                parts.append("poison")
            type_, mask = f"<{width} x {scalar}>", _shuffle_mask(range(2 * width))
            parts = [
                self.line(kind, f"shufflevector {type_} {a}, {type_} {b}, {mask}").name
                for a, b in zip(parts[::2], parts[1::2])
            ]
            width *= 2
        if width == self.lanes:
            return Value(self, kind, parts[0])
        type_, mask = f"<{width} x {scalar}>", _shuffle_mask(range(self.lanes))
        return self.line(kind, f"shufflevector {type_} {parts[0]}, {type_} poison, {mask}")

    def cold_lanes(self, mask: Value, fast: Value, x: Value, symbol: str) -> Value:
        """Replace ``fast`` by ``symbol(x)`` where ``mask``; lane by lane, in a cold block.

        ``symbol`` is a function ``double (double)``. Nothing is called when no lane needs it.
        """
        lines, fmt, type_ = self.lines, self.fmt, self.types["f"]
        weights = '!prof !{!"branch_weights", i32 1, i32 2000}'
        lane, value = x.name, fast.name
        if self.lanes == 1:
            lines += [f"  br i1 {mask.name}, label %cold, label %done, {weights}", "cold:"]
        else:
            lines += [
                f"  %any = call i1 @llvm.vector.reduce.or.v{self.lanes}i1"
                f"({self.types['m']} {mask.name})",
                f"  br i1 %any, label %cold, label %done, {weights}",
                "cold:",
                "  %lane = phi i32 [ 0, %entry ], [ %next, %cold ]",
                f"  %part = phi {type_} [ {fast.name}, %entry ], [ %filled, %cold ]",
                f"  %arg = extractelement {type_} {x.name}, i32 %lane",
                f"  %old = extractelement {type_} {fast.name}, i32 %lane",
                f"  %wanted = extractelement {self.types['m']} {mask.name}, i32 %lane",
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
            f"  %more = icmp ult i32 %next, {self.lanes}",
            "  br i1 %more, label %cold, label %done",
            "done:",
        ]
        return self.line("f", f"phi {type_} [ {fast.name}, %entry ], [ %filled, %cold ]")


def _shuffle_mask(lanes: Sequence[int]) -> str:
    """Spell a constant mask of ``shufflevector``; -1 takes anything."""
    picks = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in lanes)
    return f"<{len(lanes)} x i32> <{picks}>"
