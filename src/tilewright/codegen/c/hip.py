"""HIP C++ as a dialect: CUDA's words on AMD's GPUs.

Warps have 64 threads unless the target says 32. There are no instructions of one maker in the text:
short floats are converted by the compiler's own types.
"""

from __future__ import annotations

from tilewright.codegen.c import math_helpers as _math_helpers  # noqa: F401 - registers helpers
from tilewright.codegen.c.dialect import Dialect, Helper, Maker
from tilewright.codegen.c.helpers import HELPERS, fill
from tilewright.codegen.c.kernels import KernelCode, KernelEmitter, emit_kernels_text
from tilewright.codegen.c.text import Text
from tilewright.codegen.c.vector import Value
from tilewright.codegen.c.warps import shuffle, vote
from tilewright.codegen.cuda.dialect import INDICES, TYPES, VECTOR_TYPES
from tilewright.codegen.cuda.math import table
from tilewright.codegen.cuda.prelude import PRELUDE
from tilewright.ir import Call, IRModule, dtypes
from tilewright.target import Target


def _half(family: str, to: str) -> Maker:
    def make(dialect: Dialect, element: str) -> Helper:
        if element != "float16":
            return HELPERS[family](dialect, element)
        return Helper(fill(dialect, element, to))

    return make


_TO = "$fn $u16 tw_to_f16(float x) { return __builtin_bit_cast($u16, (_Float16)x); }"
_FROM = "$fn float tw_from_f16($u16 x) { return (float)__builtin_bit_cast(_Float16, x); }"
_SHARED = ("bits", "from_bits", "popcount", "clz", "put_nibble_atomically")


def _atomic_add(dialect: Dialect, element: str) -> Helper:
    """CUDA's, by exchanging words where there is no instruction of CUDA's architecture 0."""
    return PRELUDE["atomic_add"](dialect, element)


def _active(emitter: KernelEmitter, call: Call) -> Value:
    element = dtypes.element_of(call.dtype)
    text = emitter.convert(Text("__ballot(1)"), "uint64", element)
    return Text(emitter.let(text, element, "active"))


HIP = Dialect(
    name="hip",
    types=TYPES,
    function="static __device__ __forceinline__",
    kernel='extern "C" __global__ void __launch_bounds__({threads})',
    restrict="__restrict__",
    long_suffix="ll",
    infinity={
        "inf": "__builtin_inff()",
        "nan": '__builtin_nanf("")',
        "inf64": "__builtin_inf()",
        "nan64": '__builtin_nan("")',
    },
    math={
        **table(False),
        ("bits", "float32"): "__float_as_uint({0})",
        ("from_bits", "float32"): "__uint_as_float({0})",
    },
    helpers={
        **{family: PRELUDE[family] for family in _SHARED},
        "to": _half("to", _TO),
        "from": _half("from", _FROM),
        "atomic_add": _atomic_add,
    },
    header="#include <hip/hip_runtime.h>\n#pragma clang fp contract(off)",
    vector_types=VECTOR_TYPES,
    shared="__shared__ __attribute__((aligned({align})))",
    dynamic_shared="extern __shared__ __attribute__((aligned(128))) unsigned char {name}[];",
    indices=INDICES,
    barriers={
        "shared": "__syncthreads();",
        "warp": '__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront"); '
        "__builtin_amdgcn_wave_barrier();",
    },
    fail="__builtin_trap();",
    calls={
        "warp_shuffle": shuffle("__shfl({0}, {1}, {width})"),
        "warp_shuffle_up": shuffle("__shfl_up({0}, {1}, {width})"),
        "warp_shuffle_down": shuffle("__shfl_down({0}, {1}, {width})"),
        "warp_shuffle_xor": shuffle("__shfl_xor({0}, {1}, {width})"),
        "warp_any": vote("__any({0})", "int32"),
        "warp_all": vote("__all({0})", "int32"),
        "warp_ballot": vote("__ballot({0})", "uint64"),
        "warp_activemask": _active,
    },
    options={"capability": 0, "aligned_arguments": True, "dynamic_name": "dynamic_shared"},
)
"""HIP C++, for ``hipcc`` and ``hiprtc``."""


def emit_kernels(lowered: IRModule, target: Target) -> KernelCode:
    """Write the kernels of a lowered module in HIP C++; ``CodegenError`` if there is none."""
    return emit_kernels_text(lowered, HIP, target, KernelEmitter)
