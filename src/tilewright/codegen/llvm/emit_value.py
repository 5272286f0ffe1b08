"""Values to LLVM IR: conversions, lanes, and what else acts on operands whatever they came from.

The part of the LLVM emitter between :mod:`writer` and :mod:`emit_expr`. Nothing here knows
expressions: values are operand texts, and their dtypes stand beside them.
"""

from __future__ import annotations

from tilewright.codegen.llvm.saturate import saturated
from tilewright.codegen.llvm.types import (
    constant_text,
    intrinsic_suffix,
    lanes_suffix,
    memory_type,
    register_type,
)
from tilewright.codegen.llvm.writer import Writer
from tilewright.ir import dtypes
from tilewright.support.errors import CodegenError

#: The types as which ``llvm.arithmetic.fence`` takes values, and what they are called there.
_FENCED = {
    "float": ("float", "f32"),
    "double": ("double", "f64"),
    "i32": ("float", "f32"),
    "i64": ("double", "f64"),
}


def lane_vector(values: list[int], element_type: str) -> str:
    """Return a constant vector of integers."""
    return "<" + ", ".join(f"{element_type} {value}" for value in values) + ">"


class ValueEmitter(Writer):
    """Emits operations on values into one function."""

    def __init__(self) -> None:
        super().__init__()
        self.shuffled: set[str] = set()  # results of shuffles of two vectors
        # What values of 16-bit floats were made from: moving their bits needs no rounding.
        self._in_memory: dict[tuple[str, str], str] = {}

    # ---- values of one type

    def call_float(self, name: str, dtype: str, *args: str) -> str:
        """Call an overloaded LLVM intrinsic on values of one type."""
        kind = register_type(dtype)
        text = ", ".join(f"{kind} {arg}" for arg in args)
        return self.guarded(f"call {kind} @llvm.{name}.{intrinsic_suffix(dtype)}({text})", *args)

    def mask_type(self, dtype: str) -> str:
        """The type of a truth value per lane."""
        lanes = dtypes.lanes_of(dtype)
        return "i1" if lanes == 1 else f"<{lanes} x i1>"

    def float_extremum(self, test: str, dtype: str, a: str, b: str, one_number: bool) -> str:
        """The greater (``ogt``) or lesser (``olt``) of two floats; NaN if either is.

        A comparison with NaN picks ``b``, which is enough if ``a`` is a number. Else one operand
        must be tested: LLVM tests the first, which is to be the one that is new to a running
        extremum, so that the test isn't waited for.
        """
        kind = register_type(dtype)
        if one_number:
            return self.extremum_of_ordered(test, dtype, a, b)
        name = "maximum" if test == "ogt" else "minimum"
        text = f"call nsz {kind} @llvm.{name}.{intrinsic_suffix(dtype)}({kind} {b}, {kind} {a})"
        return self.guarded(text, a, b)

    def extremum_of_ordered(self, test: str, dtype: str, a: str, b: str) -> str:
        """The greater or lesser of two floats; ``b`` if they are equal, or one is NaN."""
        kind, mask = register_type(dtype), self.mask_type(dtype)
        compared = self.guarded(f"fcmp {test} {kind} {a}, {b}", a, b)
        return self.guarded(f"select {mask} {compared}, {kind} {a}, {kind} {b}", compared, a, b)

    def select(self, condition: str, condition_dtype: str, a: str, b: str, dtype: str) -> str:
        """Pick values by a scalar or per-lane condition."""
        if condition in ("true", "false"):
            return a if condition == "true" else b
        kind = register_type(dtype)
        text = f"select {register_type(condition_dtype)} {condition}, {kind} {a}, {kind} {b}"
        return self.guarded(text, condition, a, b)

    def any_lane(self, mask: str, lanes: int) -> str:
        """Whether any lane of a mask is on."""
        name = f"llvm.vector.reduce.or.{lanes_suffix(lanes)}i1"
        return self.pure(f"call i1 @{name}(<{lanes} x i1> {mask})", mask)

    # ---- conversions

    def convert(self, value: str, source: str, dtype: str, clipped: bool = False) -> str:
        """Convert between dtypes of the same number of lanes.

        A float that is ``clipped`` is NaN or within the limits of the integer it becomes.
        """
        old, new = dtypes.element_of(source), dtypes.element_of(dtype)
        if old == new:
            return value
        old_kind, new_kind = dtypes.kind_of(old), dtypes.kind_of(new)
        a, b = register_type(source), register_type(dtype)
        if "handle" in (old_kind, new_kind):
            op = "ptrtoint" if old_kind == "handle" else "inttoptr"
            return self.pure(f"{op} {a} {value} to {b}", value)
        if new_kind == "bool":
            zero = constant_text(0, source)
            op = "fcmp une" if old_kind == "float" else "icmp ne"
            return self.pure(f"{op} {a} {value}, {zero}", value)
        if old_kind == "float":
            if new_kind == "float":
                if old == "float64" and new == "float16":
                    value = self.single_to_odd(value, dtypes.lanes_of(dtype))
                elif a != b:
                    op = "fptrunc" if "double" in a else "fpext"
                    value = self.guarded(f"{op} {a} {value} to {b}", value)
                return self.round_half(value, dtype) if new.endswith("float16") else value
            # Out-of-range values saturate rather than being undefined.
            if dtypes.lanes_of(dtype) > 1:
                return saturated(self, value, source, dtype, clipped)
            suffix = f"{intrinsic_suffix(dtype)}.{intrinsic_suffix(source)}"
            sign = "s" if new_kind == "int" else "u"
            return self.guarded(f"call {b} @llvm.fpto{sign}i.sat.{suffix}({a} {value})", value)
        if new_kind == "float":
            op = "sitofp" if old_kind == "int" else "uitofp"
            value = self.guarded(f"{op} {a} {value} to {b}", value)
            return self.round_half(value, dtype) if new.endswith("float16") else value
        old_bits = 1 if old_kind == "bool" else dtypes.bits_of(old)
        new_bits = dtypes.bits_of(new)
        if old_bits == new_bits:
            return value
        op = "trunc" if new_bits < old_bits else "sext" if old_kind == "int" else "zext"
        return self.pure(f"{op} {a} {value} to {b}", value)

    def single_to_odd(self, value: str, lanes: int) -> str:
        """Convert doubles to floats, inexact ones to the neighbour with an odd last bit.

        Rounding that once more, to a half, gives what rounding the double itself gives.
        """
        double, single, bits = (
            register_type(dtypes.vector_dtype(kind, lanes))
            for kind in ("float64", "float32", "int32")
        )
        mask = self.mask_type(dtypes.vector_dtype("float32", lanes))

        def number(value: int) -> str:
            return constant_text(value, dtypes.vector_dtype("int32", lanes))

        def size(value: str) -> str:
            suffix = intrinsic_suffix(dtypes.vector_dtype("float64", lanes))
            return self.guarded(f"call {double} @llvm.fabs.{suffix}({double} {value})", value)

        near = self.guarded(f"fptrunc {double} {value} to {single}", value)
        back = self.guarded(f"fpext {single} {near} to {double}", near)
        inexact = self.guarded(f"fcmp one {double} {back}, {value}", back, value)
        large, small = size(back), size(value)
        below = self.guarded(f"fcmp olt {double} {large}, {small}", large, small)
        step = self.guarded(
            f"select {mask} {below}, {bits} {number(1)}, {bits} {number(-1)}", below
        )
        text = self.guarded(f"bitcast {single} {near} to {bits}", near)
        moved = self.guarded(f"add {bits} {text}, {step}", text, step)
        last = self.guarded(f"and {bits} {text}, {number(1)}", text)
        even = self.guarded(f"icmp eq {bits} {last}, {number(0)}", last)
        wrong = self.guarded(f"and {mask} {inexact}, {even}", inexact, even)
        picked = self.guarded(
            f"select {mask} {wrong}, {bits} {moved}, {bits} {text}", wrong, moved, text
        )
        return self.guarded(f"bitcast {bits} {picked} to {single}", picked)

    def round_half(self, value: str, dtype: str) -> str:
        """Round a single-precision register value to a 16-bit float, staying in the register."""
        return self.from_memory(self.to_memory(value, dtype), dtype)

    def to_memory(self, value: str, dtype: str) -> str:
        """Convert a register value to its form in memory."""
        element = dtypes.element_of(dtype)
        if (value, element) in self._in_memory:
            return self._in_memory[value, element]
        if element == "bool":
            return self.pure(f"zext {register_type(dtype)} {value} to {memory_type(dtype)}", value)
        if element == "float16":
            text = f"fptrunc {register_type(dtype)} {value} to {memory_type(dtype)}"
            return self.guarded(text, value)
        if element != "bfloat16":
            return value
        lanes = dtypes.lanes_of(dtype)
        wide = register_type(dtypes.vector_dtype("int32", lanes))

        def number(value: int) -> str:
            return constant_text(value, dtypes.vector_dtype("int32", lanes))

        bits = self.guarded(f"bitcast {register_type(dtype)} {value} to {wide}", value)
        high = self.guarded(f"lshr {wide} {bits}, {number(16)}", bits)
        odd = self.guarded(f"and {wide} {high}, {number(1)}", high)
        bias = self.guarded(f"add {wide} {odd}, {number(0x7FFF)}", odd)
        rounded = self.guarded(f"add {wide} {bits}, {bias}", bits, bias)
        shifted = self.guarded(f"lshr {wide} {rounded}, {number(16)}", rounded)
        nan = self.guarded(f"fcmp uno {register_type(dtype)} {value}, {value}", value)
        quiet = self.guarded(f"or {wide} {high}, {number(0x40)}", high)
        mask = self.mask_type(dtype)
        picked = self.guarded(f"select {mask} {nan}, {wide} {quiet}, {wide} {shifted}", nan)
        return self.guarded(f"trunc {wide} {picked} to {memory_type(dtype)}", picked)

    def from_memory(self, value: str, dtype: str) -> str:
        """Convert a value from its form in memory."""
        element = dtypes.element_of(dtype)
        if element == "bool":
            kind = memory_type(dtype)
            zero = "0" if not kind.startswith("<") else "zeroinitializer"
            return self.pure(f"icmp ne {kind} {value}, {zero}", value)
        if element == "float16":
            text = f"fpext {memory_type(dtype)} {value} to {register_type(dtype)}"
            return self._extended(self.pure(text, value), element, value)
        if element != "bfloat16":
            return value
        lanes = dtypes.lanes_of(dtype)
        wide = register_type(dtypes.vector_dtype("int32", lanes))
        shift = constant_text(16, dtypes.vector_dtype("int32", lanes))
        extended = self.pure(f"zext {memory_type(dtype)} {value} to {wide}", value)
        shifted = self.pure(f"shl {wide} {extended}, {shift}", extended)
        made = self.pure(f"bitcast {wide} {shifted} to {register_type(dtype)}", shifted)
        return self._extended(made, element, value)

    def _extended(self, made: str, element: str, value: str) -> str:
        self._in_memory[made, element] = value
        return made

    # ---- lanes

    def broadcast(self, value: str, dtype: str, lanes: int) -> str:
        """Repeat a scalar in all lanes."""
        if dtypes.lanes_of(dtype) > 1:
            raise CodegenError(f"a Broadcast repeats scalars, not {dtype}")
        kind = register_type(dtype)
        if not value.startswith(("%", "@")):
            return f"splat ({kind} {value})"
        vector = f"<{lanes} x {kind}>"
        one = self.pure(f"insertelement {vector} poison, {kind} {value}, i64 0", value)
        return self.pure(
            f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer", one
        )

    def pick(self, a: str, b: str, lanes: int, picks: list[int], element: str) -> str:
        """Pick lanes of two vectors of one length, which is what LLVM's shuffle does.

        LLVM looks through shuffles of shuffles for a better way. In a network of many, as of a
        transposition, there is none, and the search takes longer than all the rest: after two
        steps it is stopped by a fence, which costs nothing.
        """
        kind = f"<{lanes} x {element}>"
        lanes_text = lane_vector(picks, "i32")
        made = self.guarded(
            f"shufflevector {kind} {a}, {kind} {b}, <{len(picks)} x i32> {lanes_text}", a, b
        )
        if len(picks) != lanes or element not in _FENCED or not {a, b} <= self.shuffled:
            self.shuffled.add(made)
            return made
        number, suffix = _FENCED[element]
        wide = f"<{lanes} x {number}>"
        if number != element:
            made = self.guarded(f"bitcast {kind} {made} to {wide}", made)
        name = f"@llvm.arithmetic.fence.v{lanes}{suffix}"
        made = self.guarded(f"call {wide} {name}({wide} {made})", made)
        if number == element:
            return made
        return self.guarded(f"bitcast {wide} {made} to {kind}", made)

    def concat(self, a: str, m: int, b: str, n: int, element: str) -> tuple[str, int]:
        """Join two vectors; LLVM wants equal lengths, so the shorter is widened first."""
        size = max(m, n)
        wide = []
        for value, lanes in ((a, m), (b, n)):
            if lanes != size:
                value = self.shuffle(value, lanes, [*range(lanes), *[-1] * (size - lanes)], element)
            wide.append(value)
        picks = [*range(m), *range(size, size + n)]
        joined = self.pick(wide[0], wide[1], size, picks, element)
        return joined, m + n

    def shuffle(self, value: str, lanes: int, picks: list[int], element: str) -> str:
        """Permute the lanes of one vector; -1 picks nothing in particular."""
        kind = f"<{lanes} x {element}>"
        picks_text = ", ".join("i32 poison" if pick < 0 else f"i32 {pick}" for pick in picks)
        return self.pure(
            f"shufflevector {kind} {value}, {kind} poison, <{len(picks)} x i32> <{picks_text}>",
            value,
        )
