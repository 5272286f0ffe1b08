"""Loops in LLVM IR that do nothing but multiply-adds on registers, read, write, or copy.

Each takes two addresses, a count (steps of the multiply-adds, or bytes), how often to repeat that,
and on how many threads, whose parts of the memory lie ``stride`` bytes apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen.llvm.ffi_abi import FunctionSpec, ScalarArg, TensorArg
from tilewright.codegen.llvm.package import build_module
from tilewright.runtime import Module
from tilewright.target import Target


@dataclass(frozen=True)
class Step:
    """A multiply-add: the call's text of accumulator and operand, types, operations per call."""

    accumulator: str
    operand: str
    call: str
    declaration: str
    flops: int


def steps(target: Target) -> dict[str, Step]:
    """Return the multiply-adds that the target has, by kind."""
    lanes = target.vector_bits // 32
    floats = f"<{lanes} x float>"
    fma = f"llvm.fma.v{lanes}f32"
    found = {
        "float32": Step(
            floats,
            floats,
            f"{floats} @{fma}({floats} {{x}}, {floats} {{x}}, {floats} {{a}})",
            f"declare {floats} @{fma}({floats}, {floats}, {floats})",
            2 * lanes,
        )
    }
    if target.has("avx512bf16") and target.vector_bits == 512:
        pairs, name = "<32 x bfloat>", "llvm.x86.avx512bf16.dpbf16ps.512"
        found["bfloat16"] = Step(
            floats,
            pairs,
            f"{floats} @{name}({floats} {{a}}, {pairs} {{x}}, {pairs} {{x}})",
            f"declare {floats} @{name}({floats}, {pairs}, {pairs})",
            64,
        )
    if target.has("avx512vnni") and target.vector_bits == 512:
        ints, octets, name = "<16 x i32>", "<64 x i8>", "llvm.x86.avx512.vpdpbusd.512"
        found["int8"] = Step(
            ints,
            octets,
            f"{ints} @{name}({ints} {{a}}, {octets} {{x}}, {octets} {{x}})",
            f"declare {ints} @{name}({ints}, {octets}, {octets})",
            128,
        )
    return found


_FRAME = """
declare i32 @tw_parallel_launch(ptr, ptr, i64, i32)
define i32 @main_kernel(ptr %x, ptr %y, i64 %count, i64 %repeats, i64 %threads) {{
  %context = alloca {{ ptr, ptr, i64, i64 }}
  store ptr %x, ptr %context
  %at1 = getelementptr i8, ptr %context, i64 8
  store ptr %y, ptr %at1
  %at2 = getelementptr i8, ptr %context, i64 16
  store i64 %count, ptr %at2
  %at3 = getelementptr i8, ptr %context, i64 24
  store i64 %repeats, ptr %at3
  %code = call i32 @tw_parallel_launch(ptr @work, ptr %context, i64 %threads, i32 0)
  ret i32 %code
}}
define internal i32 @work(ptr %context, i64 %begin, i64 %end) {{
entry:
  %x0 = load ptr, ptr %context
  %at1 = getelementptr i8, ptr %context, i64 8
  %y0 = load ptr, ptr %at1
  %at2 = getelementptr i8, ptr %context, i64 16
  %count = load i64, ptr %at2
  %at3 = getelementptr i8, ptr %context, i64 24
  %repeats = load i64, ptr %at3
  %offset = mul i64 %begin, {stride}
  %x = getelementptr i8, ptr %x0, i64 %offset
  %y = getelementptr i8, ptr %y0, i64 %offset
{before}
  br label %again
again:
  %r = phi i64 [ 0, %entry ], [ %r1, %last ]
  br label %loop
loop:
  %n = phi i64 [ 0, %again ], [ %next, %loop ]
{body}
  %next = add i64 %n, {step}
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %last
last:
{after}
  %r1 = add i64 %r, 1
  %once_more = icmp ult i64 %r1, %repeats
  br i1 %once_more, label %again, label %done
done:
  ret i32 0
}}
{declarations}
"""


def _build(target: Target, **parts: str) -> Module:
    args = (
        TensorArg("x", "uint8", (None,)),
        TensorArg("y", "uint8", (None,)),
        ScalarArg("count", "int64"),
        ScalarArg("repeats", "int64"),
        ScalarArg("threads", "int64"),
    )
    parts = {"stride": "0", "step": "1", "declarations": "", "after": "", **parts}
    return build_module(
        _FRAME.format(**parts),
        [FunctionSpec("main", args, "main_kernel")],
        cpu=target.mcpu or None,
        features=target.feature_string,
    )


def chained(target: Target, step: Step) -> tuple[Module, int]:
    """Return a loop of independent chains of multiply-adds, and their number."""
    chains = min(24, target.vector_registers - 4)
    kind = step.accumulator
    body = [f"  %a{c} = phi {kind} [ %start, %again ], [ %b{c}, %loop ]" for c in range(chains)]
    body += [f"  %b{c} = call {step.call.format(a=f'%a{c}', x='%v')}" for c in range(chains)]
    after = []
    for c in range(chains):
        after += [f"  %p{c} = getelementptr {kind}, ptr %y, i64 {c}"]
        after += [f"  store {kind} %b{c}, ptr %p{c}, align 1"]
    before = [
        f"  %v = load {step.operand}, ptr %x, align 1",
        f"  %start = load {kind}, ptr %x, align 1",
    ]
    module = _build(
        target,
        before="\n".join(before),
        body="\n".join(body),
        after="\n".join(after),
        declarations=step.declaration,
        stride="4096",
    )
    return module, chains


def reading(target: Target, stride: int) -> Module:
    """Return a loop that reads eight vectors a step."""
    kind, size = f"<{target.vector_bits // 64} x i64>", target.vector_bits // 8
    body = [f"  %a{c} = phi {kind} [ zeroinitializer, %again ], [ %b{c}, %loop ]" for c in range(8)]
    for c in range(8):
        body += [
            f"  %o{c} = add i64 %n, {c * size}",
            f"  %p{c} = getelementptr i8, ptr %x, i64 %o{c}",
            f"  %v{c} = load {kind}, ptr %p{c}, align {size}",
            f"  %b{c} = or {kind} %a{c}, %v{c}",
        ]
    after, total = [], "%b0"
    for c in range(1, 8):
        after.append(f"  %s{c} = or {kind} {total}, %b{c}")
        total = f"%s{c}"
    after.append(f"  store {kind} {total}, ptr %y, align 1")
    return _build(
        target, before="", body="\n".join(body), after="\n".join(after), step=str(8 * size),
        stride=str(stride),
    )  # fmt: skip


def copying(target: Target, stride: int, streaming: bool) -> Module:
    """Return a loop that copies four vectors a step, past the caches if ``streaming``."""
    return _storing(target, stride, streaming, copies=True)


def filling(target: Target, stride: int, streaming: bool) -> Module:
    """Return a loop that writes four vectors a step, past the caches if ``streaming``."""
    return _storing(target, stride, streaming, copies=False)


def _storing(target: Target, stride: int, streaming: bool, copies: bool) -> Module:
    kind, size = f"<{target.vector_bits // 64} x i64>", target.vector_bits // 8
    mark = ", !nontemporal !0" if streaming else ""
    body = []
    for c in range(4):
        body.append(f"  %o{c} = add i64 %n, {c * size}")
        if copies:
            body += [
                f"  %p{c} = getelementptr i8, ptr %x, i64 %o{c}",
                f"  %v{c} = load {kind}, ptr %p{c}, align {size}",
            ]
        value = f"%v{c}" if copies else "zeroinitializer"
        body += [
            f"  %q{c} = getelementptr i8, ptr %y, i64 %o{c}",
            f"  store {kind} {value}, ptr %q{c}, align {size}{mark}",
        ]
    return _build(
        target, before="", body="\n".join(body), step=str(4 * size), stride=str(stride),
        declarations="!0 = !{i32 1}" if streaming else "",
    )  # fmt: skip


def aligned(nbytes: int) -> Any:
    """Return so many bytes that begin a page."""
    raw = np.ones(nbytes + 4096, np.uint8)  # not zeros: those would share one page of memory
    start = -raw.ctypes.data % 4096
    return raw[start : start + nbytes]
