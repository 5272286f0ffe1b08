"""The most that one core can do: fused multiply-adds on registers."""

from __future__ import annotations

import time

import numpy as np

from tilewright.codegen.llvm.ffi_abi import FunctionSpec, ScalarArg, TensorArg
from tilewright.codegen.llvm.package import build_module
from tilewright.target import Target


def measured_peak_flops(target: Target, seconds: float = 0.3) -> float:
    """Return fp32 operations per second of one core, by independent chains of vector FMAs."""
    lanes = target.vector_bits // 32
    chains = min(12, target.vector_registers - 4)
    vector = f"<{lanes} x float>"
    lines = [
        "define i32 @peak(ptr %out, i64 %count) {",
        "entry:",
        f"  %x = load {vector}, ptr %out, align 4",
        "  br label %loop",
        "loop:",
        "  %n = phi i64 [ 0, %entry ], [ %next, %loop ]",
    ]
    lines += [f"  %a{c} = phi {vector} [ %x, %entry ], [ %b{c}, %loop ]" for c in range(chains)]
    lines += [
        f"  %b{c} = call {vector} @llvm.fma.v{lanes}f32({vector} %a{c}, {vector} %x, {vector} %x)"
        for c in range(chains)
    ]
    lines += [
        "  %next = add i64 %n, 1",
        "  %more = icmp ult i64 %next, %count",
        "  br i1 %more, label %loop, label %done",
        "done:",
    ]
    total = "%b0"
    for c in range(1, chains):
        lines.append(f"  %s{c} = fadd {vector} {total}, %b{c}")
        total = f"%s{c}"
    lines += [
        f"  store {vector} {total}, ptr %out, align 4",
        "  ret i32 0",
        "}",
        f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
    ]
    args = (TensorArg("out", "float32", (lanes,)), ScalarArg("count", "int64"))
    module = build_module(
        "\n".join(lines),
        [FunctionSpec("main", args, "peak")],
        cpu=target.mcpu or None,
        features=target.feature_string,
    )
    out, count = np.zeros(lanes, "float32"), 200_000
    best = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        module(out, count)
        best = min(best, time.perf_counter() - start)
    return 2.0 * lanes * chains * count / best
