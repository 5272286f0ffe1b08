"""Stores that go past the caches, for results too large to stay in them.

A plain store reads the cache line that it changes, so writing a large result costs as much as
reading and writing it; a streaming store doesn't. It needs an aligned address. One function per
vector type asks for the alignment when it runs; it is always inlined, and its branches go the same
way each time.
"""

from __future__ import annotations

#: The smallest vector that can be streamed; its address must be a multiple of it.
STREAM_BYTES = 16
#: The metadata node that marks streaming stores.
NONTEMPORAL = "!900"


def streaming_function(symbol: str, kind: str, size: int, widest: int, parts: bool) -> str:
    """Return the text of ``void symbol(vector, pointer)`` for vectors of ``size`` bytes.

    With ``parts`` a vector at any multiple of 16 is stored in pieces, which the processor joins to
    lines if their neighbours follow at once. Where they don't, that is slower than a plain store.
    """
    whole = min(size & -size, widest)
    words = f"<{size // 4} x i32>"
    lines = [
        f"define internal void {symbol}({kind} %value, ptr %to) alwaysinline nounwind {{",
        "entry:",
        # There are no streaming stores of some element types.
        f"  %words = bitcast {kind} %value to {words}",
        "  %address = ptrtoint ptr %to to i64",
        f"  %rest = and i64 %address, {whole - 1}",
        "  %aligned = icmp eq i64 %rest, 0",
        "  br i1 %aligned, label %whole, label %other",
        "whole:",
        f"  store {words} %words, ptr %to, align {whole}, !nontemporal {NONTEMPORAL}",
        "  ret void",
        "other:",
        f"  %crumb = and i64 %address, {STREAM_BYTES - 1}",
        f"  %divisible = icmp eq i64 %crumb, {0 if parts else STREAM_BYTES}",
        "  br i1 %divisible, label %parts, label %plain",
        "parts:",
    ]
    for number in range(size // STREAM_BYTES):
        picks = ", ".join(f"i32 {number * 4 + lane}" for lane in range(4))
        lines += [
            f"  %p{number} = shufflevector {words} %words, {words} poison, <4 x i32> <{picks}>",
            f"  %a{number} = getelementptr i8, ptr %to, i64 {number * STREAM_BYTES}",
            f"  store <4 x i32> %p{number}, ptr %a{number}, align {STREAM_BYTES}, "
            f"!nontemporal {NONTEMPORAL}",
        ]
    lines += [
        "  ret void",
        "plain:",
        f"  store {kind} %value, ptr %to, align 1",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)
