"""Gathers of elements that lie near each other: two loads and one permutation.

A gather takes each element by itself. Where places were computed, as for images of another size,
neighbours come from neighbours: the elements of a vector lie within as many as two vectors hold.
Whether they do shows when the program runs, and a permutation is so much cheaper that asking pays.
One function per size of vector; it is always inlined.
"""

from __future__ import annotations

#: Elements of 32 bits that a permutation of AVX-512 moves.
LANES = 16


def near_gather_function(symbol: str, element: str, windows: int) -> str:
    """Return the text of ``vector symbol(data, places, limit)``.

    ``limit`` is the last place from which all ``windows`` vectors (1 or 2) lie in the buffer.
    """
    kind, places = f"<{LANES} x {element}>", f"<{LANES} x i32>"
    short = "ps" if element == "float" else "d"
    suffix = f"v{LANES}{'f32' if element == 'float' else 'i32'}"
    lines = [
        f"define internal {kind} {symbol}(ptr %data, {places} %at, i32 %limit) "
        "alwaysinline nounwind {",
        "entry:",
        f"  %first = extractelement {places} %at, i64 0",
        "  %base = call i32 @llvm.smin.i32(i32 %first, i32 %limit)",
        f"  %one = insertelement {places} poison, i32 %base, i64 0",
        f"  %all = shufflevector {places} %one, {places} poison, {places} zeroinitializer",
        f"  %pick = sub {places} %at, %all",
        f"  %inside = icmp ult {places} %pick, splat (i32 {windows * LANES})",
        f"  %bits = bitcast <{LANES} x i1> %inside to i{LANES}",
        f"  %near = icmp eq i{LANES} %bits, -1",
        "  br i1 %near, label %permute, label %gather",
        "permute:",
        "  %start = sext i32 %base to i64",
        f"  %p0 = getelementptr {element}, ptr %data, i64 %start",
        f"  %w0 = load {kind}, ptr %p0, align 4",
    ]
    if windows == 1:
        name = "sf" if element == "float" else "si"
        lines.append(
            f"  %picked = call {kind} @llvm.x86.avx512.permvar.{name}.512"
            f"({kind} %w0, {places} %pick)"
        )
    else:
        lines += [
            f"  %p1 = getelementptr {kind}, ptr %p0, i64 1",
            f"  %w1 = load {kind}, ptr %p1, align 4",
            f"  %picked = call {kind} @llvm.x86.avx512.vpermi2var.{short}.512"
            f"({kind} %w0, {places} %pick, {kind} %w1)",
        ]
    lines += [
        f"  ret {kind} %picked",
        "gather:",
        f"  %far = sext {places} %at to <{LANES} x i64>",
        f"  %each = getelementptr {element}, ptr %data, <{LANES} x i64> %far",
        f"  %loaded = call {kind} @llvm.masked.gather.{suffix}.v{LANES}p0(<{LANES} x ptr> align 4 "
        f"%each, <{LANES} x i1> splat (i1 true), {kind} poison)",
        f"  ret {kind} %loaded",
        "}",
    ]
    return "\n".join(lines)
