"""The most that the cores can do: multiply-adds on registers, and reading and copying memory.

Measured by small loops in LLVM IR, each on as many threads as asked at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen.llvm.ffi_abi import FunctionSpec, ScalarArg, TensorArg
from tilewright.codegen.llvm.package import build_module
from tilewright.runtime import Module, set_num_threads
from tilewright.target import Target

#: Bytes that the largest footprint has; more than any last-level cache that one VM gets.
_DRAM_BYTES = 256 << 20


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second: of reading, and of copying (bytes read and bytes written together)."""

    read: float
    copy: float


@dataclass(frozen=True)
class Peaks:
    """What all threads together reach.

    ``flops`` by kind (``float32``, ``bfloat16``, ``int8``); ``bandwidth`` by level, whose
    ``capacity`` in bytes says up to which footprint it counts.
    """

    flops: dict[str, float]
    bandwidth: dict[str, Bandwidth]
    capacity: dict[str, float]

    def level(self, nbytes: float) -> str:
        """Return the level that holds so many bytes."""
        return next(name for name, size in self.capacity.items() if nbytes <= size)

    def memory_seconds(self, read: float, written: float) -> float:
        """Return the least time for moving so many bytes."""
        found = self.bandwidth[self.level(read + written)]
        copied = 2 * min(read, written) + max(0.0, written - read)
        return copied / found.copy + max(0.0, read - written) / found.read

    def compute_seconds(self, flops: float, kind: str) -> float:
        """Return the least time for so many operations."""
        return flops / self.flops.get(kind, self.flops["float32"])

    def merged(self, other: Peaks) -> Peaks:
        """Return the best that either has seen: a busy machine shows less than it can do."""
        return Peaks(
            {kind: max(rate, other.flops[kind]) for kind, rate in self.flops.items()},
            {
                name: Bandwidth(
                    max(item.read, other.bandwidth[name].read),
                    max(item.copy, other.bandwidth[name].copy),
                )
                for name, item in self.bandwidth.items()
            },
            self.capacity,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "flops": self.flops,
            "bandwidth": {
                name: {"read": item.read, "copy": item.copy}
                for name, item in self.bandwidth.items()
            },
        }

    def text(self) -> str:
        """Render for people."""
        rates = ", ".join(f"{kind} {rate / 1e9:.0f}" for kind, rate in self.flops.items())
        memory = ", ".join(
            f"{name} {item.read / 1e9:.0f}/{item.copy / 1e9:.0f}"
            for name, item in self.bandwidth.items()
        )
        return f"measured peaks: GFLOP/s {rates}; GB/s read/copied {memory}"


@dataclass(frozen=True)
class _Step:
    """A multiply-add: the call's text of accumulator and operand, types, operations per call."""

    accumulator: str
    operand: str
    call: str
    declaration: str
    flops: int


def _steps(target: Target) -> dict[str, _Step]:
    lanes = target.vector_bits // 32
    floats = f"<{lanes} x float>"
    fma = f"llvm.fma.v{lanes}f32"
    found = {
        "float32": _Step(
            floats,
            floats,
            f"{floats} @{fma}({floats} {{x}}, {floats} {{x}}, {floats} {{a}})",
            f"declare {floats} @{fma}({floats}, {floats}, {floats})",
            2 * lanes,
        )
    }
    if target.has("avx512bf16") and target.vector_bits == 512:
        pairs, name = "<32 x bfloat>", "llvm.x86.avx512bf16.dpbf16ps.512"
        found["bfloat16"] = _Step(
            floats,
            pairs,
            f"{floats} @{name}({floats} {{a}}, {pairs} {{x}}, {pairs} {{x}})",
            f"declare {floats} @{name}({floats}, {pairs}, {pairs})",
            64,
        )
    if target.has("avx512vnni") and target.vector_bits == 512:
        ints, octets, name = "<16 x i32>", "<64 x i8>", "llvm.x86.avx512.vpdpbusd.512"
        found["int8"] = _Step(
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


def _chains(target: Target, step: _Step) -> tuple[Module, int]:
    """A loop of independent chains of multiply-adds, and their number."""
    chains = min(12, target.vector_registers - 4)
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


def _reading(target: Target, stride: int) -> Module:
    """A loop that reads eight vectors a step."""
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


def _copying(target: Target, stride: int, streaming: bool) -> Module:
    kind, size = f"<{target.vector_bits // 64} x i64>", target.vector_bits // 8
    mark = ", !nontemporal !0" if streaming else ""
    body = []
    for c in range(4):
        body += [
            f"  %o{c} = add i64 %n, {c * size}",
            f"  %p{c} = getelementptr i8, ptr %x, i64 %o{c}",
            f"  %v{c} = load {kind}, ptr %p{c}, align {size}",
            f"  %q{c} = getelementptr i8, ptr %y, i64 %o{c}",
            f"  store {kind} %v{c}, ptr %q{c}, align {size}{mark}",
        ]
    return _build(
        target, before="", body="\n".join(body), step=str(4 * size), stride=str(stride),
        declarations="!0 = !{i32 1}" if streaming else "",
    )  # fmt: skip


def _aligned(nbytes: int) -> Any:
    raw = np.ones(nbytes + 4096, np.uint8)  # not zeros: those would share one page of memory
    start = -raw.ctypes.data % 4096
    return raw[start : start + nbytes]


def _fastest(call: Any, args: Sequence[Any], seconds: float) -> float:
    best, end = float("inf"), time.perf_counter() + seconds
    call(*args)
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        call(*args)
        best = min(best, time.perf_counter() - start)
    return best


def _measured_flops(target: Target, step: _Step, threads: int, seconds: float) -> float:
    module, chains = _chains(target, step)
    count = 100_000
    x, y = np.zeros(4096 * threads, np.uint8), np.zeros(4096 * threads, np.uint8)
    best = _fastest(module["main"], (x, y, count, 1, threads), seconds)
    return float(step.flops) * chains * count * threads / best


def _bandwidth(target: Target, nbytes: int, threads: int, seconds: float) -> Bandwidth:
    """Measure footprints of ``nbytes`` over all threads together."""
    whole = nbytes // threads // 4096 * 4096
    half = nbytes // 2 // threads // 4096 * 4096
    repeats = max(1, (4 << 20) // nbytes)
    x, y = _aligned(whole * threads), _aligned(whole * threads)
    copies = [_copying(target, half, streaming) for streaming in (False, True)]

    def rate(module: Module, part: int) -> float:
        seconds_each = _fastest(module["main"], (x, y, part, repeats, threads), seconds)
        return part * threads * repeats / seconds_each

    return Bandwidth(rate(_reading(target, whole), whole), 2 * max(rate(m, half) for m in copies))


def measured_peak_flops(target: Target, seconds: float = 0.3) -> float:
    """Return fp32 operations per second of one core, by independent chains of vector FMAs."""
    return _measured_flops(target, _steps(target)["float32"], 1, seconds)


def measured_peaks(target: Target, threads: int = 1, seconds: float = 0.05) -> Peaks:
    """Measure everything for so many threads."""
    set_num_threads(threads)
    if threads > 1:
        seconds *= 4  # until all of them have run at once
    levels = {
        "L1": (target.l1_bytes * threads // 2, target.l1_bytes * threads),
        "L2": (target.l2_bytes * threads // 2, target.l2_bytes * threads),
        "L3": (min(target.l3_bytes // 2, 16 << 20), target.l3_bytes),
        "DRAM": (max(_DRAM_BYTES, 4 * target.l3_bytes), float("inf")),
    }
    return Peaks(
        {
            kind: _measured_flops(target, step, threads, seconds)
            for kind, step in _steps(target).items()
        },
        {name: _bandwidth(target, size, threads, seconds) for name, (size, _) in levels.items()},
        {name: capacity for name, (_, capacity) in levels.items()},
    )
