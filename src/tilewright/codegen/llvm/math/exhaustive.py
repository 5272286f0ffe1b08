"""Measure a float32 function on all 2**32 arguments, by a compiled loop.

The reference is the library's own portable float64 function, whose error (below 3 ulp of float64,
tested against mpmath) is nothing here. Evaluation, reference and comparison are one vector loop,
so a sweep takes some 15 seconds. (Longer for sin, cos and tan, whose huge angles go lane by lane.)
Needs llvmlite, imported when used; the code generator does not use this module.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from tilewright.codegen.llvm.math.builder import FLOAT32, INF, Builder, Value
from tilewright.codegen.llvm.math.measure import compile_run, host_instruction_set
from tilewright.codegen.llvm.math.spec import GENERIC, MATH_FUNCTIONS, collect, emit_math
from tilewright.support.errors import CodegenError

LANES = 16
CHUNK = 1 << 26


@dataclass(frozen=True)
class Worst:
    """The largest error found, in ulp, and the argument where it is."""

    ulp: float
    argument: float

    @property
    def bits(self) -> int:
        """The argument's bit pattern."""
        return int(np.float32(self.argument).view(np.uint32))


def _error(b: Builder, operand: Value | None, got: Value, want: Value) -> Value:
    """Distance in float32 ulp of float64 values; infinite where a special value is wrong."""
    beyond = 2.0**128  # where the next float32 would be, if the format went on
    magnitude = b.abs(want)
    size = magnitude
    if operand is not None:
        size = b.select(b.abs(operand) > size, b.abs(operand), size)
    size = b.clamp(size, FLOAT32.min_normal, float(np.finfo(np.float32).max))
    unit = b.from_bits(b.bits(size) & (0x7FF << 52)) * 2.0**-FLOAT32.mantissa
    error = b.abs(b.clamp(got, -beyond, beyond) - b.clamp(want, -beyond, beyond)) / unit
    opposite = (b.bits(got) ^ b.bits(want)) < 0
    error = b.select(got.eq(0.0) & opposite, INF, error)
    got_nan, want_nan = got.ne(got), want.ne(want)
    error = b.select(got_nan | want_nan, INF, error)
    return b.select(got_nan & want_nan, 0.0, error)


def _loop_text(name: str, isa: str) -> str:
    """``void run(i32 start, i32 stride, i64 count, ptr errors, ptr arguments)``.

    It stores the worst error of each lane, and the argument's bits.
    """
    spec = MATH_FUNCTIONS[name]
    symbol = emit_math(name, "float32", LANES, isa).symbol
    exact = emit_math(name, "float64", LANES).symbol
    narrow = Builder(FLOAT32, LANES)
    wide = narrow.in_double()
    floats, ints, doubles = narrow.types["f"], narrow.types["i"], wide.types["f"]
    x = narrow.from_bits(narrow.value("i", "%pattern"))
    got = narrow.line("f", f"call {floats} @{symbol}({floats} {x.text})")
    argument = wide.convert(x)
    want = wide.line("f", f"call {doubles} @{exact}({doubles} {argument.text})")
    operand = argument if spec.scale == "operand" else None
    error = _error(wide, operand, wide.convert(got), want)
    worse = error > wide.value("f", "%worst")
    body = "\n".join(narrow.lines)
    lanes = ", ".join(f"i32 {i}" for i in range(LANES))
    own, reference = ((name, "float32", LANES), isa), ((name, "float64", LANES), GENERIC)
    texts = dict.fromkeys(
        text
        for request, kind in (own, reference)
        for text in _definitions(collect([request], kind))
    )
    return f"""{"".join(texts)}
define void @run(i32 %start, i32 %stride, i64 %count, ptr %errors, ptr %arguments) {{
entry:
  %s = insertelement {ints} poison, i32 %start, i32 0
  %base = shufflevector {ints} %s, {ints} poison, {ints} zeroinitializer
  %t = insertelement {ints} poison, i32 %stride, i32 0
  %steps = shufflevector {ints} %t, {ints} poison, {ints} zeroinitializer
  %offsets = mul {ints} %steps, <{lanes}>
  %begin = add {ints} %base, %offsets
  %step = mul {ints} %steps, splat (i32 {LANES})
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %pattern = phi {ints} [ %begin, %entry ], [ %following, %loop ]
  %worst = phi {doubles} [ splat (double -1.0), %entry ], [ %worst1, %loop ]
  %where = phi {ints} [ %begin, %entry ], [ %where1, %loop ]
{body}
  %worst1 = select {wide.types["m"]} {worse.text}, {doubles} {error.text}, {doubles} %worst
  %where1 = select {wide.types["m"]} {worse.text}, {ints} %pattern, {ints} %where
  %following = add {ints} %pattern, %step
  %next = add i64 %i, {LANES}
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  store {doubles} %worst1, ptr %errors, align 8
  store {ints} %where1, ptr %arguments, align 4
  ret void
}}
"""


def _definitions(text: str) -> list[str]:
    """Split a module's text into its definitions, so that shared ones can be taken once."""
    return [f"{part}\n\n" for part in text.split("\n\n") if part.strip()]


def worst_error(
    name: str,
    isa: str | None = None,
    *,
    start: int = 0,
    count: int = 1 << 32,
    stride: int = 1,
) -> Worst:
    """Return the worst error over ``count`` bit patterns from ``start``, all by default.

    With a ``stride`` only every so many-th of them is tried.
    """
    spec = MATH_FUNCTIONS[name]
    if spec.arity != 1 or spec.result == "bool":
        raise CodegenError(f"{name} is no function of one number: its arguments can't be counted")
    if count % LANES:
        raise CodegenError(f"count must be a multiple of {LANES}, got {count}")
    address, _keep = compile_run(_loop_text(name, isa or host_instruction_set()))
    prototype = ctypes.CFUNCTYPE(
        None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
    )
    run = prototype(address)
    errors, patterns = np.empty(LANES), np.empty(LANES, np.uint32)
    worst = Worst(-1.0, 0.0)
    whole = count // stride // LANES * LANES
    for first in range(0, whole, CHUNK):
        size = min(CHUNK, whole - first)
        run(start + first * stride, stride, size, errors.ctypes.data, patterns.ctypes.data)
        lane = int(np.argmax(errors))
        if errors[lane] > worst.ulp:
            worst = Worst(float(errors[lane]), float(patterns[lane : lane + 1].view(np.float32)[0]))
    return worst
