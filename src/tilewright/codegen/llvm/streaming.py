"""Stores that go past the caches, for results too large to stay in them.

A plain store reads the cache line that it changes, so writing a large result costs as much as
reading and writing it; a streaming store doesn't. It needs an aligned address. One function per
vector type asks for the alignment when it runs; it is always inlined, and its branches go the same
way each time.
"""

from __future__ import annotations

from tilewright.codegen.llvm.builder import Callee, Function
from tilewright.codegen.llvm.values import I32, I64, PTR, VOID, Type, Value, vector

#: The smallest vector that can be streamed; its address must be a multiple of it.
STREAM_BYTES = 16
#: The metadata node that marks streaming stores.
NONTEMPORAL = "!900"


def streaming_function(name: str, kind: str, size: int, widest: int, parts: bool) -> Callee:
    """Return the function ``void name(vector, pointer)`` for vectors of ``size`` bytes.

    With ``parts`` a vector at any multiple of 16 is stored in pieces, which the processor joins to
    lines if their neighbours follow at once. Where they don't, that is slower than a plain store.
    """
    whole = min(size & -size, widest)
    mark = f", !nontemporal {NONTEMPORAL}"
    lanes = STREAM_BYTES // I32.bytes

    def body(f: Function, value: Value, to: Value) -> None:
        # There are no streaming stores of some element types.
        words = value.convert("bitcast", vector(size // I32.bytes, I32))
        address = to.to(I64)
        with f.if_((address & (whole - 1)).eq(0)):
            to.at(words.type).set(words, align=whole, mark=mark)
            f.ret()
        if parts:
            with f.if_((address & (STREAM_BYTES - 1)).eq(0)):
                for number in range(size // STREAM_BYTES):
                    part = words.shuffle(range(number * lanes, (number + 1) * lanes))
                    to.at(part.type, number).set(part, align=STREAM_BYTES, mark=mark)
                f.ret()
        to.at(value.type).set(value, align=1)

    parameters = {"value": Type(kind, size), "to": PTR}
    return Callee(name, VOID, parameters, "alwaysinline nounwind", "internal ", body=body)
