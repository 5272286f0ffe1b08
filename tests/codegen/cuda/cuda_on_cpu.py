"""Runs generated CUDA C++ on a CPU.

A header stands for CUDA's built-ins, and C++ for the helpers that are PTX instructions; all else
is the text as NVRTC gets it. Blocks run one after the other; so do threads, unless they wait for
each other: then each is a thread of the system.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.codegen.c.dialect import SUFFIXES, Dialect, Helper, Maker
from tilewright.codegen.c.helpers import HELPERS, fill
from tilewright.codegen.c.kernels import KernelCode, KernelInfo, emit_kernels_text
from tilewright.codegen.cuda.dialect import dialect_of
from tilewright.codegen.cuda.emit import CudaEmitter
from tilewright.codegen.cuda.prelude import PRELUDE
from tilewright.ir import Call, IRModule, as_int, pre_order
from tilewright.target import Target

_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
COMPILER = shutil.which("g++") or shutil.which("clang++")

_HEADER = """
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static
#define __trap() (stopped = 1)
struct Index { unsigned int x, y, z; };
static thread_local Index threadIdx;
static thread_local unsigned thread = 0;
static Index blockIdx, blockSize;
static int stopped = 0;
alignas(128) static unsigned char dynamic_shared[1 << 18];
#define VECTOR(T, N) \\
  struct __attribute__((may_alias)) N##2 { T x, y; } __attribute__((aligned(2 * sizeof(T)))); \\
  struct __attribute__((may_alias)) N##4 { T x, y, z, w; } __attribute__((aligned(16))); \\
  static inline N##2 make_##N##2(T x, T y) { return {x, y}; } \\
  static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTOR(float, float)
VECTOR(int, int)
VECTOR(unsigned int, uint)
VECTOR(double, double)
VECTOR(long long, longlong)
VECTOR(unsigned long long, ulonglong)
template <class To, class From> static inline To as(From from) {
  To to; memcpy(&to, &from, sizeof to); return to;
}
static inline unsigned int __float_as_uint(float x) { return as<unsigned int>(x); }
static inline float __uint_as_float(unsigned int x) { return as<float>(x); }
static inline float __int_as_float(int x) { return as<float>(x); }
static inline long long __double_as_longlong(double x) { return as<long long>(x); }
static inline double __longlong_as_double(long long x) { return as<double>(x); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline int __popc(int x) { return __builtin_popcount(x); }
static inline int __popcll(long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
#define ATOMIC(name, op) \\
  template <class T, class U> static inline T name(T* at, U x) { \\
    T old = *at; *at op x; return old; \\
  }
ATOMIC(atomicAdd, +=)
ATOMIC(atomicAnd, &=)
ATOMIC(atomicOr, |=)
static unsigned threads = 1;
static pthread_barrier_t block_barrier, warp_barriers[32];
static unsigned char slots[1024][8];
static inline void __syncthreads() { pthread_barrier_wait(&block_barrier); }
static inline void __syncwarp() { pthread_barrier_wait(&warp_barriers[thread / 32]); }
template <class T> static inline T from_lane(T value, int lane) {
  memcpy(slots[thread], &value, sizeof value);
  __syncwarp();
  unsigned other = thread / 32 * 32 + lane;
  if (lane >= 0 && other < threads) memcpy(&value, slots[other], sizeof value);
  __syncwarp();
  return value;
}
static inline int kept(int lane, int width) {
  int own = thread % 32;
  return lane / width == own / width && lane >= 0 ? lane : own;
}
template <class T> static inline T __shfl_sync(unsigned, T value, int lane, int width) {
  return from_lane(value, (int)(thread % 32) / width * width + lane % width);
}
template <class T> static inline T __shfl_xor_sync(unsigned, T value, int mask, int width) {
  return from_lane(value, kept((int)(thread % 32) ^ mask, width));
}
template <class T> static inline T __shfl_down_sync(unsigned, T value, int delta, int width) {
  return from_lane(value, kept((int)(thread % 32) + delta, width));
}
template <class T> static inline T __shfl_up_sync(unsigned, T value, int delta, int width) {
  return from_lane(value, kept((int)(thread % 32) - delta, width));
}
static inline unsigned __ballot_sync(unsigned, int on) {
  unsigned made = 0;
  for (int lane = 0; lane < 32 && thread / 32 * 32 + lane < threads; ++lane)
    made |= (unsigned)(from_lane(on, lane) != 0) << lane;
  return made;
}
static inline unsigned __activemask() { return __ballot_sync(0, 1); }
static inline int __any_sync(unsigned mask, int on) { return __ballot_sync(mask, on) != 0; }
static inline int __all_sync(unsigned mask, int on) { return __ballot_sync(mask, !on) == 0; }
static inline Index index_of(unsigned n) {
  return {n % blockSize.x, n / blockSize.x % blockSize.y, n / (blockSize.x * blockSize.y)};
}
static void (*body)(void**);
static void** values;
static void* one_thread(void* number) {
  thread = (unsigned)(uintptr_t)number;
  threadIdx = index_of(thread);
  body(values);
  return 0;
}
static void run_block(bool together) {
  threads = blockSize.x * blockSize.y * blockSize.z;
  if (!together) {
    for (unsigned n = 0; n < threads; ++n) one_thread((void*)(uintptr_t)n);
    return;
  }
  static pthread_t running[1024];
  pthread_barrier_init(&block_barrier, 0, threads);
  for (unsigned warp = 0; warp * 32 < threads; ++warp)
    pthread_barrier_init(&warp_barriers[warp], 0, min(32u, threads - warp * 32));
  for (unsigned n = 0; n < threads; ++n)
    pthread_create(&running[n], 0, one_thread, (void*)(uintptr_t)n);
  for (unsigned n = 0; n < threads; ++n) pthread_join(running[n], 0);
}
static int run_grid(void (*kernel)(void**), void** args, const int* extents, bool together) {
  body = kernel, values = args, stopped = 0;
  blockSize = {(unsigned)extents[3], (unsigned)extents[4], (unsigned)extents[5]};
  for (blockIdx.z = 0; blockIdx.z < (unsigned)extents[2]; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < (unsigned)extents[1]; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < (unsigned)extents[0]; ++blockIdx.x) run_block(together);
  return stopped;
}
static inline unsigned atomicCAS(unsigned* at, unsigned seen, unsigned x) {
  unsigned old = *at; if (old == seen) *at = x; return old;
}
"""


def _pair(family: str, text: str) -> Maker:
    """A packed operation, half by half."""

    def make(dialect: Dialect, element: str) -> Helper:
        args = "abc" if family == "fma2" else "ab"
        halves = [text]
        for letter in args:
            halves = [
                half.replace(letter.upper(), f"tw_from_$s({letter} >> SH)") for half in halves
            ]
        body = halves[0]
        body = f"""
$fn unsigned int tw_{family}_$s({", ".join(f"unsigned int {letter}" for letter in args)}) {{
  unsigned int low = tw_to_$s({body.replace("SH", "0")});
  return low | (unsigned int)tw_to_$s({body.replace("SH", "16")}) << 16;
}}"""
        needs = (("to", element), ("from", element), ("min", "float32"), ("max", "float32"))
        return Helper(fill(dialect, element, body), needs)

    return make


def _dot(a: str, b: str, family: str) -> Maker:
    def make(dialect: Dialect, element: str) -> Helper:
        text = f"""
$fn int tw_{family}_i32(unsigned int a, unsigned int b, int total) {{
  unsigned int made = total;
  for (int n = 0; n < 32; n += 8) made += ({a})(a >> n) * ({b})(b >> n);
  return made;
}}"""
        return Helper(fill(dialect, "int32", text))

    return make


_PTX: dict[str, Maker] = {
    **{family: HELPERS[family] for family in ("to", "from", "min", "max")},
    "pack": lambda dialect, element: Helper(
        fill(
            dialect,
            element,
            "$fn unsigned int tw_pack_$s(float high, float low) "
            "{ return (unsigned int)tw_to_$s(high) << 16 | tw_to_$s(low); }",
        ),
        (("to", element),),
    ),
    "pair_from": lambda dialect, element: Helper(
        fill(
            dialect,
            element,
            "$fn unsigned int tw_pair_from_$s(unsigned short x) { return tw_to_f16(tw_from_$s("
            "(unsigned char)x)) | (unsigned int)tw_to_f16(tw_from_$s(x >> 8)) << 16; }",
        ),
        (("from", element), ("to", "float16")),
    ),
    "add2": _pair("add2", "A + B"),
    "sub2": _pair("sub2", "A - B"),
    "mul2": _pair("mul2", "A * B"),
    "min2": _pair("min2", "tw_min_f32(A, B)"),
    "max2": _pair("max2", "tw_max_f32(A, B)"),
    "fma2": _pair("fma2", "fmaf(A, B, C)"),
    "dot_ss": _dot("signed char", "signed char", "dot_ss"),
    "dot_uu": _dot("unsigned char", "unsigned char", "dot_uu"),
    "dot_us": _dot("unsigned char", "signed char", "dot_us"),
}


class Program:
    """The kernels of a module, which are called with arrays and numbers."""

    def __init__(self, lowered: IRModule, target: Target) -> None:
        dialect = replace(dialect_of(target), helpers={**PRELUDE, **_PTX})
        self.code: KernelCode = emit_kernels_text(lowered, dialect, target, CudaEmitter)
        own = re.sub(r"extern __shared__ .*dynamic_shared\[\];", "", self.code.text)
        assert "asm" not in own, "PTX instructions have no meaning on a CPU"
        runs = [_entry(info, "sync" in _body(own, info)) for info in self.code.kernels.values()]
        text = "\n".join([_HEADER, own, *runs])
        # Kept: a library whose file is gone is taken for the next one in the same place.
        folder = tempfile.TemporaryDirectory()
        _FOLDERS.append(folder)
        source, library = Path(folder.name, "kernels.cpp"), Path(folder.name, "kernels.so")
        source.write_text(text)
        flags = "-O1 -w -std=c++17 -shared -fPIC -ffp-contract=off -fno-strict-aliasing -pthread"
        assert COMPILER is not None
        command = [COMPILER, *flags.split(), "-o", str(library), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:4000]
        self.library = ctypes.CDLL(str(library))

    def __call__(self, name: str, launch: dict[str, int] | None = None, **given: Any) -> int:
        """Run a kernel over its grid; returns whether an assertion failed.

        Arguments go by the kernel's names: it has them in an order of its own.
        """
        info = self.code.kernels[name]
        args = [given[param.name] for param in info.arguments]
        sizes = launch or {tag: as_int(extent) or 0 for tag, extent in info.launch.items()}
        tags = [f"{group}.{axis}" for group in ("blockIdx", "threadIdx") for axis in "xyz"]
        extents = (ctypes.c_int * 6)(*(sizes.get(tag, 1) for tag in tags))
        cells = [
            arg.ctypes.data_as(ctypes.c_void_p) if isinstance(arg, np.ndarray)
            else ctypes.c_void_p(int(arg)) for arg in args
        ]  # fmt: skip
        values = (ctypes.c_void_p * max(1, len(cells)))(*cells)
        return int(self.library[f"run_{info.symbol}"](values, extents))


def launches(lowered: IRModule) -> list[tuple[str, list[Any]]]:
    """The kernels that ``main`` launches, in order, with what they are called with."""
    found = []
    for item in pre_order(lowered["main"].body):
        if isinstance(item, Call) and item.op.name == "call_extern":
            name, *args = item.args
            found.append((name.value, args))  # type: ignore[attr-defined]
    return found


def _entry(info: KernelInfo, together: bool) -> str:
    """A function that runs a kernel over its grid."""
    args = ", ".join(_argument(number, param) for number, param in enumerate(info.arguments))
    name = info.symbol
    return (
        f"static void call_{name}(void** args) {{ {name}({args}); }}\n"
        f'extern "C" int run_{name}(void** args, int* extents) {{\n'
        f"  return run_grid(call_{name}, args, extents, {str(together).lower()});\n}}"
    )


def _body(text: str, info: KernelInfo) -> str:
    """The text of one kernel."""
    start = text.index(f" {info.symbol}(")
    return text[start : text.index("\n}\n", start)]


def _argument(number: int, param: Any) -> str:
    kinds = {
        **{name: SUFFIXES[name] for name in SUFFIXES},
        "float16": "u16", "bfloat16": "u16", "bool": "u8", "int4": "u8", "uint4": "u8",
        "float8_e4m3fn": "u8", "float8_e5m2": "u8", "float32": "f32", "float64": "f64",
    }  # fmt: skip
    names = {
        "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
        "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned int",
        "u64": "unsigned long long", "f32": "float", "f64": "double",
    }  # fmt: skip
    kind = names[kinds[param.dtype]]
    return f"({kind}*)args[{number}]" if param.is_pointer else f"({kind})(long long)args[{number}]"
