"""CUDA C++ as a dialect of C: words of the language, calls of GPU operators."""

from __future__ import annotations

from functools import cache

from tilewright.codegen.c import math_helpers as _math_helpers  # noqa: F401 - registers helpers
from tilewright.codegen.c import text as t
from tilewright.codegen.c.dialect import Dialect
from tilewright.codegen.c.emit_expr import INTRINSICS
from tilewright.codegen.c.kernels import KernelEmitter
from tilewright.codegen.c.text import Text
from tilewright.codegen.c.vector import Value, Vector
from tilewright.codegen.cuda.math import table
from tilewright.codegen.cuda.prelude import PRELUDE
from tilewright.codegen.cuda.ptx import PTX, PTX_HELPERS
from tilewright.ir import Call, as_int, dtypes
from tilewright.support.errors import CodegenError
from tilewright.target import Target
from tilewright.tir.thread_scope import CLUSTER_TAGS, LARGEST_CLUSTER

TYPES = {
    "int8_t": "signed char",
    "int16_t": "short",
    "int32_t": "int",
    "int64_t": "long long",
    "uint8_t": "unsigned char",
    "uint16_t": "unsigned short",
    "uint32_t": "unsigned int",
    "uint64_t": "unsigned long long",
}
VECTOR_TYPES = {
    (scalar, count): f"{name}{count}"
    for scalar, name, counts in (
        ("float", "float", (2, 4)),
        ("double", "double", (2,)),
        ("int", "int", (2, 4)),
        ("unsigned int", "uint", (2, 4)),
        ("long long", "longlong", (2,)),
        ("unsigned long long", "ulonglong", (2,)),
    )
    for count in counts
}
#: Operands may be numbers without a suffix: overloads must not depend on them.
_INTEGERS = {
    (name, dtype): f"{name}(({kind}){{0}}, ({kind}){{1}})" if dtype[-2:] == "64" else
    f"{name}({{0}}, {{1}})"
    for name in ("min", "max")
    for dtype, kind in (
        ("int32", "int"), ("uint32", "unsigned"),
        ("int64", "long long"), ("uint64", "unsigned long long"),
    )
}  # fmt: skip
_BITS = {
    ("bits", "float32"): "__float_as_uint({0})",
    ("from_bits", "float32"): "__uint_as_float({0})",
}
INDICES = {
    f"{group}.{axis}": f"{group}.{axis}" for group in ("blockIdx", "threadIdx") for axis in "xyz"
}
#: In a kernel with clusters, see ``CudaEmitter.thread_index``.
CLUSTER_INDICES = {tag: f"blockIdx.{tag[-1]}" for tag in CLUSTER_TAGS}
# The most that any NVIDIA GPU has; a launch with more is refused by the driver.
_LIMITS = {
    "blockIdx.x": 2**31 - 1,
    "blockIdx.y": 65535,
    "blockIdx.z": 65535,
    "threadIdx.x": 1024,
    "threadIdx.y": 1024,
    "threadIdx.z": 64,
    **dict.fromkeys(CLUSTER_TAGS, LARGEST_CLUSTER),
}
_CAST_PAIRS = (("float8_e4m3fn", "float16"), ("float8_e5m2", "float16"))


@cache
def cuda_dialect(capability: int, fast_math: bool = False) -> Dialect:
    """Return CUDA C++ for a compute capability: 80 for ``sm_80``."""
    return Dialect(
        name="cuda",
        types=TYPES,
        function="static __device__ __forceinline__",
        kernel='extern "C" __global__ void __launch_bounds__({bounds})',
        restrict="__restrict__",
        long_suffix="ll",
        infinity={
            "inf": "__int_as_float(0x7f800000)",
            "nan": "__int_as_float(0x7fffffff)",
            "inf64": "__longlong_as_double(0x7ff0000000000000ll)",
            "nan64": "__longlong_as_double(0x7fffffffffffffffll)",
        },
        math={**table(fast_math), **_INTEGERS, **_BITS},
        helpers={**PRELUDE, **PTX_HELPERS},
        vector_types=VECTOR_TYPES,
        shared="__shared__ __align__({align})",
        dynamic_shared="extern __shared__ __align__(1024) unsigned char {name}[];",
        align="__attribute__((aligned({align})))",
        indices={**INDICES, **CLUSTER_INDICES},
        barriers={"shared": "__syncthreads();", "warp": "__syncwarp();"},
        fail="__trap();",
        packed=frozenset(("float16", "bfloat16") if capability >= 80 else ("float16",)),
        calls={**CALLS, **PTX},
        options={
            "capability": capability,
            "thread_limits": _LIMITS,
            "cast_pairs": _CAST_PAIRS if capability >= 89 else (),
            "unpacked": () if capability >= 80 else ("min2", "max2"),
            "aligned_arguments": True,
            "dynamic_name": "dynamic_shared",
        },
    )


def dialect_of(target: Target) -> Dialect:
    """Return the dialect for a target."""
    return cuda_dialect(target.gpu.capability, target.has_fast_math)


# ---- operators of GPUs

_SHUFFLES = {
    "warp_shuffle": "__shfl_sync",
    "warp_shuffle_up": "__shfl_up_sync",
    "warp_shuffle_down": "__shfl_down_sync",
    "warp_shuffle_xor": "__shfl_xor_sync",
}
_VOTES = {"warp_ballot": "__ballot_sync", "warp_any": "__any_sync", "warp_all": "__all_sync"}


def _shuffle(emitter: KernelEmitter, call: Call) -> Value:
    """Exchange values of the lanes of a warp; short ones travel as words."""
    mask, value, lane, width = call.args
    element = dtypes.element_of(call.dtype)
    if as_int(width) not in (1, 2, 4, 8, 16, 32):
        raise CodegenError(f"{call.op.name}: the width is a power of two up to 32, got {width!r}")
    name = _SHUFFLES[call.op.name]
    others = f"{emitter.scalar(lane)}, {as_int(width)}"
    who = emitter.named(emitter.scalar(mask), "uint32", "mask")

    def exchange(x: str) -> Text:
        text = Text(f"{name}({who}, {x}, {others})")
        if dtypes.bits_of(element) < 32 and dtypes.kind_of(element) != "float":
            text = Text(f"{name}({who}, {t.prefix('(int)', x)}, {others})")
            return Text(emitter.let(emitter.convert(text, "int32", element), element, "other"))
        return Text(emitter.let(text, element, "other"))

    if not isinstance(source := emitter.visit(value), Vector):
        return exchange(source)
    if source.words is not None:
        words = [
            emitter.let(f"{name}({who}, {word}, {others})", "uint32", "other")
            for word in source.words
        ]
        return emitter.from_words(words, call.dtype)
    return Vector(call.dtype, [exchange(lane) for lane in source.lanes()])


def _vote(emitter: KernelEmitter, call: Call) -> Value:
    mask, condition = (emitter.scalar(arg) for arg in call.args)
    text = Text(f"{_VOTES[call.op.name]}({mask}, {condition})")
    source = "uint32" if call.op.name == "warp_ballot" else "int32"
    element = dtypes.element_of(call.dtype)
    return Text(emitter.let(emitter.convert(text, source, element), element, "vote"))


def _active(emitter: KernelEmitter, call: Call) -> Value:
    element = dtypes.element_of(call.dtype)
    text = emitter.convert(Text("__activemask()"), "uint32", element)
    return Text(emitter.let(text, element, "active"))


_DOTS = {("int8", "int8"): "dot_ss", ("uint8", "uint8"): "dot_uu", ("uint8", "int8"): "dot_us"}


def _dot_accumulate(emitter: KernelEmitter, call: Call) -> Value:
    """Four products of bytes in one instruction (``dp4a``)."""
    total, a, b = call.args
    kinds = (dtypes.element_of(a.dtype), dtypes.element_of(b.dtype))
    if kinds == ("int8", "uint8"):
        kinds, a, b = ("uint8", "int8"), b, a
    family = _DOTS.get(kinds)
    lanes = dtypes.lanes_of(call.dtype)
    if family is None or dtypes.element_of(call.dtype) not in ("int32", "uint32"):
        return INTRINSICS["dot_accumulate"](emitter, call)
    start = emitter.visit(total)
    words = [emitter.words(emitter.visit(arg)) for arg in (a, b)]
    made: list[str] = []
    for number in range(lanes):
        own = start.lane(number) if isinstance(start, Vector) else start
        pair = [word[number if len(word) > 1 else 0] for word in words]
        made.append(emitter.help(family, "int32", *pair, own))
    return made[0] if lanes == 1 else Vector(call.dtype, made)


CALLS = {
    **dict.fromkeys(_SHUFFLES, _shuffle),
    **dict.fromkeys(_VOTES, _vote),
    "warp_activemask": _active,
    "dot_accumulate": _dot_accumulate,
}
"""How GPU operators are written; ``codegen.cuda.ptx`` adds those that are PTX instructions."""
