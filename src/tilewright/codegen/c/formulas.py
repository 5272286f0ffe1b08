"""Our own math functions in C-like languages: the formulas of the CPU, instruction by instruction.

``codegen/llvm/math`` writes each function once, as straight LLVM IR text with a stated bound of its
error. Here that text is read line by line and written as C, so that languages whose libraries lack
a function, or bound its error more loosely, get the CPU's bounds. Sine, cosine and tangent are not
among them: they branch for huge angles.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from tilewright.codegen.c import text as t
from tilewright.codegen.c.dialect import Dialect, Helper
from tilewright.codegen.c.helpers import HELPERS, fill
from tilewright.codegen.llvm.math import MATH_FUNCTIONS, emit_math
from tilewright.codegen.llvm.math.spec import GENERIC, NO_FMA
from tilewright.support.errors import CodegenError

_TYPES = {"float": "float", "double": "double", "i32": "int32_t", "i64": "int64_t", "i1": "bool"}
_ELEMENTS = {"float": "float32", "double": "float64"}
_ARITHMETIC = {"fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/"}
_WRAPPING = {"add": "+", "sub": "-", "xor": "^", "and": "&", "or": "|", "shl": "<<"}
_COMPARE = {
    "oeq": "==", "une": "!=", "olt": "<", "ogt": ">", "ole": "<=", "oge": ">=",
    "eq": "==", "ne": "!=", "slt": "<", "sgt": ">",
}  # fmt: skip
#: What branches, or has code of its own everywhere.
_LEFT_OUT = ("sin", "cos", "tan", "fmod", "isnan", "isinf", "isfinite", "sigmoid", "silu")

_LINE = re.compile(r"(%\w+) = (\w+) (.*)")
_CALL = re.compile(r"(\w+) @llvm\.(\w+)\.f\d+\((.*)\)")


class _Translation:
    """One function, from LLVM IR text to C."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def operand(self, text: str, kind: str) -> str:
        """An operand: a name, or a constant."""
        text = text.strip()
        if text.startswith("%"):
            return text[1:]
        if kind == "i1":
            return text
        if kind in ("i32", "i64"):
            bits = 32 if kind == "i32" else 64
            return t.integer_text(int(text), bits, True, self.dialect.long_suffix)
        (value,) = struct.unpack("<d", struct.pack("<Q", int(text, 16)))
        made = t.float_text(value, kind == "float")
        if made is not None:
            return made
        names, end = self.dialect.infinity, "" if kind == "float" else "64"
        if value != value:
            return names["nan" + end]
        return names["inf" + end] if value > 0 else t.prefix("-", names["inf" + end])

    def pair(self, rest: str) -> tuple[str, str, str]:
        """Type and operands of ``T a, b``."""
        kind, _, operands = rest.partition(" ")
        a, _, b = operands.partition(",")
        return kind, self.operand(a, kind), self.operand(b, kind)

    def line(self, text: str) -> str:
        """One instruction as a definition."""
        match = _LINE.fullmatch(text)
        if match is None:
            raise CodegenError(f"a math formula has {text!r}, of which there is no C")
        name, op, rest = match[1][1:], match[2], match[3]
        kind, value = self.value(op, rest)
        return f"const {self.dialect.type(_TYPES[kind])} {name} = {value};"

    def value(self, op: str, rest: str) -> tuple[str, str]:
        """The type and text of what an instruction gives."""
        if op in _ARITHMETIC:
            kind, a, b = self.pair(rest)
            return kind, t.binary(_ARITHMETIC[op], a, b)
        if op in ("fcmp", "icmp"):
            test, _, operands = rest.partition(" ")
            kind, a, b = self.pair(operands)
            if test == "uno":
                return "i1", t.binary("||", t.binary("!=", a, a), t.binary("!=", b, b))
            return "i1", t.binary(_COMPARE[test], a, b)
        if op in _WRAPPING:
            return self._integers(op, rest)
        if op == "ashr":
            kind, a, b = self.pair(rest)
            return kind, t.binary(">>", a, b)
        if op == "select":
            condition, yes, no = rest.split(", ")
            kind = yes.split()[0]
            values = [self.operand(item.split()[1], kind) for item in (yes, no)]
            return kind, t.ternary(self.operand(condition.split()[1], "i1"), *values)
        if op == "fneg":
            kind, _, a = rest.partition(" ")
            return kind, t.prefix("-", self.operand(a, kind))
        if op in ("sitofp", "fpext", "fptrunc", "bitcast"):
            return self._converted(op, rest)
        if op == "call" and (match := _CALL.fullmatch(rest)):
            return match[1], self._called(match[1], match[2], match[3])
        raise CodegenError(f"a math formula has {op!r}, of which there is no C")

    def _integers(self, op: str, rest: str) -> tuple[str, str]:
        kind, a, b = self.pair(rest)
        if kind == "i1":
            if op == "xor" and b == "true":
                return kind, t.prefix("!", a)
            return kind, t.binary({"and": "&&", "or": "||", "xor": "!="}[op], a, b)
        if op in ("xor", "and", "or"):
            return kind, t.binary(_WRAPPING[op], a, b)
        signed = self.dialect.type(_TYPES[kind])
        wide = f"({self.dialect.type('u' + _TYPES[kind])})"
        other = b if op == "shl" else t.prefix(wide, b)
        return kind, t.prefix(f"({signed})", t.binary(_WRAPPING[op], t.prefix(wide, a), other))

    def _converted(self, op: str, rest: str) -> tuple[str, str]:
        source, a, _, kind = rest.split()
        value = self.operand(a, source)
        if op != "bitcast":
            return kind, t.prefix(f"({self.dialect.type(_TYPES[kind])})", value)
        if kind in _ELEMENTS:  # from bits
            wide = "uint32_t" if kind == "float" else "uint64_t"
            bits = t.prefix(f"({self.dialect.type(wide)})", value)
            return kind, f"tw_from_bits_{'f32' if kind == 'float' else 'f64'}({bits})"
        suffix = "f32" if source == "float" else "f64"
        cast = f"({self.dialect.type(_TYPES[kind])})"
        return kind, t.prefix(cast, f"tw_bits_{suffix}({value})")

    def _called(self, kind: str, name: str, rest: str) -> str:
        form = self.dialect.math.get((name, _ELEMENTS[kind]))
        if form is None:
            raise CodegenError(f"{self.dialect.name} has no {name} of {_ELEMENTS[kind]}")
        args = [self.operand(arg.split()[1], kind) for arg in rest.split(", ")]
        return form.format(*args)


def formula(name: str) -> Callable[[Dialect, str], Helper]:
    """Return the maker of one of our own functions."""

    def make(dialect: Dialect, element: str) -> Helper:
        fused = dialect.options.get("fused", True)
        function = emit_math(name, element, 1, GENERIC if fused else NO_FMA)
        translation = _Translation(dialect)
        kind = "float" if element == "float32" else "double"
        lines = []
        for line in function.text.splitlines()[2:-1]:
            line = line.strip()
            if line.startswith("ret "):
                value = translation.operand(line.split()[2], kind)
                lines.append(f"  return {value};")
            else:
                lines.append("  " + translation.line(line))
        args = ", ".join(f"$T {letter}" for letter in "xyz"[: MATH_FUNCTIONS[name].arity])
        text = "\n".join([f"$fn $T tw_{name}_$s({args}) {{", *lines, "}"])
        needs = (("bits", element), ("from_bits", element))
        return Helper(fill(dialect, element, text), needs)

    return make


for _name in MATH_FUNCTIONS:
    if _name not in _LEFT_OUT and _name not in HELPERS:
        HELPERS[_name] = formula(_name)
