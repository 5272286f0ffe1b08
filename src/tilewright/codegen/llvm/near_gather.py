"""Gathers of elements that lie near each other: two loads and one permutation.

A gather takes each element by itself. Where places were computed, as for images of another size,
neighbours come from neighbours: the elements of a vector lie within as many as two vectors hold.
Whether they do shows when the program runs, and a permutation is so much cheaper that asking pays.
One function per size of vector; it is always inlined.
"""

from __future__ import annotations

from tilewright.codegen.llvm.builder import Callee, Function, external
from tilewright.codegen.llvm.values import FLOAT, I16, I32, I64, PTR, Value, vector

#: Elements of 32 bits that a permutation of AVX-512 moves.
LANES = 16


_SMIN = external(I32, "llvm.smin.i32", I32, I32)


def near_gather_function(name: str, element: str, windows: int) -> Callee:
    """Return the function ``vector name(data, places, limit)``.

    ``limit`` is the last place from which all ``windows`` vectors (1 or 2) lie in the buffer.
    """
    scalar = {"float": FLOAT, "i32": I32}[element]
    kind, places = vector(LANES, scalar), vector(LANES, I32)
    suffix = f"v{LANES}{'f32' if scalar is FLOAT else 'i32'}"
    if windows == 1:
        which = "sf" if scalar is FLOAT else "si"
        permute = external(kind, f"llvm.x86.avx512.permvar.{which}.512", kind, places)
    else:
        which = "ps" if scalar is FLOAT else "d"
        permute = external(kind, f"llvm.x86.avx512.vpermi2var.{which}.512", kind, places, kind)

    def body(f: Function, data: Value, at: Value, limit: Value) -> None:
        base = f.call(_SMIN, at.lane(0), limit)
        pick = at - base.splat(LANES)
        inside = pick.compare("ult", windows * LANES)
        with f.if_(inside.convert("bitcast", I16).eq(-1)):
            first = data.at(scalar, base).address
            found = [first.at(kind, number).get(align=4) for number in range(windows)]
            f.ret(f.call(permute, found[0], pick, *found[1:]))
        far = at.convert("sext", vector(LANES, I64))
        each = f.here(f"getelementptr {scalar}, ptr {data.text}, {far.type} {far.text}")
        text = (
            f"call {kind} @llvm.masked.gather.{suffix}.v{LANES}p0(<{LANES} x ptr> align 4 {each}, "
            f"<{LANES} x i1> splat (i1 true), {kind} poison)"
        )
        f.ret(Value(f, kind, f.here(text)))

    parameters = {"data": PTR, "at": places, "limit": I32}
    return Callee(name, kind, parameters, "alwaysinline nounwind", "internal ", body=body)
