"""Metal Shading Language as a dialect."""

from __future__ import annotations

from typing import Any

from tilewright.codegen.c import math_helpers as _math_helpers  # noqa: F401 - registers helpers
from tilewright.codegen.c.dialect import Dialect, Helper, Maker
from tilewright.codegen.c.helpers import HELPERS, fill
from tilewright.codegen.c.kernels import KernelCode, KernelEmitter, emit_kernels_text
from tilewright.codegen.c.opencl import TYPES, VECTOR_TYPES
from tilewright.codegen.c.text import Text
from tilewright.codegen.c.vector import Value
from tilewright.codegen.c.warps import shuffle, vote
from tilewright.ir import Call, IRModule, dtypes
from tilewright.support.errors import CodegenError
from tilewright.target import Target

_MATH = {
    # Other functions are our own formulas: Metal allows errors of several ulp, and lacks some.
    **{(name, "float32"): f"precise::{name}({{0}})" for name in ("sin", "cos", "tan", "sqrt")},
    **{(name, "float32"): f"{name}({{0}})" for name in ("floor", "ceil", "trunc", "fabs")},
    ("nearbyint", "float32"): "rint({0})",
    ("rsqrt", "float32"): "(1.0f / precise::sqrt({0}))",
    ("fmod", "float32"): "fmod({0}, {1})",
    ("copysign", "float32"): "copysign({0}, {1})",
    ("fma", "float32"): "fma({0}, {1}, {2})",
    ("bits", "float32"): "as_type<uint>({0})",
    ("from_bits", "float32"): "as_type<float>({0})",
}


def _one(text: str) -> Maker:
    return lambda dialect, element: Helper(fill(dialect, element, text))


def _half(family: str, text: str) -> Maker:
    def make(dialect: Dialect, element: str) -> Helper:
        own = element == "float16"
        return Helper(fill(dialect, element, text)) if own else HELPERS[family](dialect, element)

    return make


def _atomic_add(emitter: KernelEmitter, call: Call) -> Value:
    """Integers of 32 bits, and floats in global memory (Metal 3)."""
    load: Any = call.args[0].args[0]  # type: ignore[attr-defined]
    element = dtypes.element_of(load.buffer.dtype)
    kinds = {"int32": "atomic_int", "uint32": "atomic_uint", "float32": "atomic_float"}
    if element not in kinds:
        raise CodegenError(f"Metal adds {', '.join(kinds)} atomically, not {element}")
    space = emitter.space_of.get(load.buffer.data, "")
    pointer = f"({space} {kinds[element]}*)({emitter.address(load)})"
    value = emitter.scalar(call.args[1])
    text = f"atomic_fetch_add_explicit({pointer}, {value}, memory_order_relaxed)"
    return Text(emitter.let(text, element, "before"))


METAL = Dialect(
    name="metal",
    types=TYPES,
    kernel="kernel [[max_total_threads_per_threadgroup({threads})]] void",
    infinity={"inf": "INFINITY", "nan": "NAN"},
    math=_MATH,
    helpers={
        "bits": _one("$fn $u32 tw_bits_f32(float x) { return as_type<$u32>(x); }"),
        "from_bits": _one("$fn float tw_from_bits_f32($u32 x) { return as_type<float>(x); }"),
        "to": _half("to", "$fn $u16 tw_to_f16(float x) { return as_type<$u16>(half(x)); }"),
        "from": _half("from", "$fn float tw_from_f16($u16 x) { return float(as_type<half>(x)); }"),
    },
    header="#include <metal_stdlib>\n#pragma METAL fp contract(off)\nusing namespace metal;",
    pointer_parameter="{type} {name} [[buffer({index})]]",
    scalar_parameter="constant {type}& {name} [[buffer({index})]]",
    more_parameters=(
        "uint3 blockIdx [[threadgroup_position_in_grid]]",
        "uint3 threadIdx [[thread_position_in_threadgroup]]",
    ),
    missing=frozenset(("double",)),
    spaces={"global": "device", "shared": "threadgroup", "local": "thread"},
    vector_types=VECTOR_TYPES,
    make="{type}({parts})",
    shared="alignas({align}) threadgroup",
    indices={
        f"{group}.{axis}": f"{group}.{axis}"
        for group in ("blockIdx", "threadIdx")
        for axis in "xyz"
    },
    barriers={
        "shared": "threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);",
        "warp": "simdgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);",
    },
    prints=False,
    calls={
        "atomic_add": _atomic_add,
        "warp_shuffle": shuffle("simd_shuffle({0}, {1})", whole_warps=True),
        "warp_shuffle_up": shuffle("simd_shuffle_up({0}, {1})", whole_warps=True),
        "warp_shuffle_down": shuffle("simd_shuffle_down({0}, {1})", whole_warps=True),
        "warp_shuffle_xor": shuffle("simd_shuffle_xor({0}, {1})", whole_warps=True),
        "warp_any": vote("simd_any({0})", "bool"),
        "warp_all": vote("simd_all({0})", "bool"),
        "warp_ballot": vote("(ulong)(simd_vote::vote_t)simd_ballot({0})", "uint64"),
    },
    options={"aligned_arguments": True},
)
"""Metal, which has no doubles."""


def emit_kernels(lowered: IRModule, target: Target) -> KernelCode:
    """Write the kernels of a lowered module in Metal; raise ``CodegenError`` for what has none."""
    return emit_kernels_text(lowered, METAL, target, KernelEmitter)
