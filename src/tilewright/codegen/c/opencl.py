"""OpenCL C (1.2, for votes and shuffles with subgroups) as a dialect."""

from __future__ import annotations

from typing import Any

from tilewright.codegen.c import math_helpers as _math_helpers  # noqa: F401 - registers helpers
from tilewright.codegen.c.dialect import Dialect, Helper
from tilewright.codegen.c.helpers import fill, unsigned
from tilewright.codegen.c.kernels import KernelCode, KernelEmitter, emit_kernels_text
from tilewright.codegen.c.text import Text
from tilewright.codegen.c.vector import Value
from tilewright.codegen.c.warps import shuffle, vote
from tilewright.ir import Call, IRModule, dtypes
from tilewright.support.errors import CodegenError
from tilewright.target import Target

TYPES = {
    "int8_t": "char",
    "int16_t": "short",
    "int32_t": "int",
    "int64_t": "long",
    "uint8_t": "uchar",
    "uint16_t": "ushort",
    "uint32_t": "uint",
    "uint64_t": "ulong",
}
VECTOR_TYPES = {
    (name, count): f"{name}{count}"
    for name, counts in (
        ("float", (2, 4)), ("double", (2,)), ("int", (2, 4)), ("uint", (2, 4)), ("long", (2,)),
        ("ulong", (2,)),
    )
    for count in counts
}  # fmt: skip


def _math() -> dict[tuple[str, str], str]:
    # OpenCL allows errors of several ulp elsewhere: those are our own formulas.
    unary = "sin cos tan sqrt floor ceil trunc fabs".split()
    binary = "fmod hypot copysign nextafter".split()
    made: dict[tuple[str, str], str] = {}
    for element, one in (("float32", "1.0f"), ("float64", "1.0")):
        made.update({(name, element): f"{name}({{0}})" for name in unary})
        made.update({(name, element): f"{name}({{0}}, {{1}})" for name in binary})
        made["nearbyint", element] = "rint({0})"
        made["fma", element] = "fma({0}, {1}, {2})"
        made["rsqrt", element] = f"({one} / sqrt({{0}}))"
    made["bits", "float32"], made["from_bits", "float32"] = "as_uint({0})", "as_float({0})"
    made["bits", "float64"], made["from_bits", "float64"] = "as_ulong({0})", "as_double({0})"
    return made


def _bits(dialect: Dialect, element: str) -> Helper:
    text = "$fn $U tw_bits_$s($T x) { return as_$U(x); }"
    return Helper(fill(dialect, element, text, U=dialect.register(unsigned(element))))


def _from_bits(dialect: Dialect, element: str) -> Helper:
    text = "$fn $T tw_from_bits_$s($U x) { return as_$T(x); }"
    return Helper(fill(dialect, element, text, U=dialect.register(unsigned(element))))


def _atomic_add(emitter: KernelEmitter, call: Call) -> Value:
    """Integers of 32 bits; a function can't take pointers into several kinds of memory."""
    load: Any = call.args[0].args[0]  # type: ignore[attr-defined]
    element = dtypes.element_of(load.buffer.dtype)
    if element not in ("int32", "uint32"):
        raise CodegenError(f"OpenCL C adds int32 and uint32 atomically, not {element}")
    text = f"atomic_add({emitter.address(load)}, {emitter.scalar(call.args[1])})"
    return Text(emitter.let(text, element, "before"))


OPENCL = Dialect(
    name="opencl",
    types=TYPES,
    kernel="__kernel __attribute__((reqd_work_group_size({x}, {y}, {z}))) void",
    restrict="restrict",
    infinity={
        "inf": "INFINITY",
        "nan": "NAN",
        "inf64": "(double)INFINITY",
        "nan64": "(double)NAN",
    },
    math=_math(),
    helpers={"bits": _bits, "from_bits": _from_bits},
    header="#pragma OPENCL FP_CONTRACT OFF",
    spaces={"global": "__global", "shared": "__local"},
    vector_types=VECTOR_TYPES,
    make="({type})({parts})",
    shared="__local __attribute__((aligned({align})))",
    indices={
        f"{group}.{axis}": f"{function}({number})"
        for group, function in (("blockIdx", "get_group_id"), ("threadIdx", "get_local_id"))
        for number, axis in enumerate("xyz")
    },
    barriers={
        "shared": "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
        "warp": "sub_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    },
    calls={
        "atomic_add": _atomic_add,
        "warp_shuffle": shuffle("sub_group_shuffle({0}, {1})", whole_warps=True),
        "warp_shuffle_up": shuffle("sub_group_shuffle_up({0}, {1})", whole_warps=True),
        "warp_shuffle_down": shuffle("sub_group_shuffle_down({0}, {1})", whole_warps=True),
        "warp_shuffle_xor": shuffle("sub_group_shuffle_xor({0}, {1})", whole_warps=True),
        "warp_any": vote("sub_group_any({0})", "int32"),
        "warp_all": vote("sub_group_all({0})", "int32"),
    },
    options={"aligned_arguments": True},
)
"""OpenCL C. Work groups have constant sizes."""


def emit_kernels(lowered: IRModule, target: Target) -> KernelCode:
    """Write the kernels of a lowered module in OpenCL C; ``CodegenError`` if there is none."""
    return emit_kernels_text(lowered, OPENCL, target, KernelEmitter)
