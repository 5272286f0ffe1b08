"""Kernels in HIP C++, OpenCL C and Metal: how they read, and what those languages lack."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tilewright import driver
from tilewright.support.errors import BuildError, CodegenError

sys.path.insert(0, str(Path(__file__).parent / "cuda"))
from kernel_cases import function

PROGRAM = """
for b in T.thread_binding(2, thread="blockIdx.x"):
    for t in T.thread_binding(32, thread="threadIdx.x"):
        S = T.allocate((32,), "float32", scope="shared")
        S[t] = A[b * 32 + t] * T.sin(A[b * 32 + t])
        for v in T.vectorized(4):
            Z[b * 128 + t * 4 + v] = Z[b * 128 + t * 4 + v] + S[31 - t]
        Y[b * 32 + t] = T.Cast("float16", n)
"""
ARGUMENTS = (
    'A: T.Buffer((64,), "float32"), Z: T.Buffer((256,), "float32"), Y: T.Buffer((64,), "float16"), '
    "n: T.int64"
)
HIP = """#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

static __device__ __forceinline__ unsigned short tw_to_f16(float x) { \
return __builtin_bit_cast(unsigned short, (_Float16)x); }

extern "C" __global__ void __launch_bounds__(32) main_kernel(
    const float* __restrict__ A,
    float* __restrict__ Z,
    unsigned short* __restrict__ Y,
    long long n) {
  const int b = (int)blockIdx.x;
  const int t = (int)threadIdx.x;
  __shared__ __attribute__((aligned(64))) float S[32];
  S[t] = A[b * 32 + t] * sinf(A[b * 32 + t]);
  __syncthreads();
  const int at = b * 128 + t * 4;
  const float4 Z_1 = *(float4*)(Z + at);
  const float x = S[31 - t];
  *(float4*)(Z + at) = make_float4(Z_1.x + x, Z_1.y + x, Z_1.z + x, Z_1.w + x);
  Y[b * 32 + t] = tw_to_f16((float)n);
}
"""
OPENCL = """
__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void main_kernel(
    __global const float* restrict A,
    __global float* restrict Z,
    __global ushort* restrict Y,
    long n) {
  const int b = (int)get_group_id(0);
  const int t = (int)get_local_id(0);
  __local __attribute__((aligned(64))) float S[32];
  S[t] = A[b * 32 + t] * sin(A[b * 32 + t]);
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  const int at = b * 128 + t * 4;
  const float4 Z_1 = *(__global float4*)(Z + at);
  const float x = S[31 - t];
  *(__global float4*)(Z + at) = (float4)(Z_1.x + x, Z_1.y + x, Z_1.z + x, Z_1.w + x);
  Y[b * 32 + t] = tw_to_f16((float)n);
}
"""
METAL = """
kernel [[max_total_threads_per_threadgroup(32)]] void main_kernel(
    device const float* A [[buffer(0)]],
    device float* Z [[buffer(1)]],
    device ushort* Y [[buffer(2)]],
    constant long& n [[buffer(3)]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 threadIdx [[thread_position_in_threadgroup]]) {
  const int b = (int)blockIdx.x;
  const int t = (int)threadIdx.x;
  alignas(64) threadgroup float S[32];
  S[t] = A[b * 32 + t] * precise::sin(A[b * 32 + t]);
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  const int at = b * 128 + t * 4;
  const float4 Z_1 = *(device float4*)(Z + at);
  const float x = S[31 - t];
  *(device float4*)(Z + at) = float4(Z_1.x + x, Z_1.y + x, Z_1.z + x, Z_1.w + x);
  Y[b * 32 + t] = tw_to_f16((float)n);
}
"""


@pytest.mark.parametrize(("kind", "expected"), [("hip", HIP), ("opencl", OPENCL), ("metal", METAL)])
def test_a_kernel(kind: str, expected: str) -> None:
    module = driver.compile(function(ARGUMENTS, PROGRAM), kind)
    assert module.get_source(kind).endswith(expected)
    assert module.function_names == ("main",)
    with pytest.raises(BuildError, match=f"kernels for {kind} are written here, not compiled"):
        module(1, 2, 3, 4)


EXCHANGE = """
for b in T.thread_binding(2, thread="blockIdx.x"):
    for t in T.thread_binding({warp}, thread="threadIdx.x"):
        Z[t] = T.warp_shuffle_down(T.uint{warp}({mask}), Z[t], 2, {warp}, dtype="float32")
        if T.warp_any(T.uint{warp}({mask}), Z[t] > T.float32(0), dtype="bool"):
            Z[t] = T.float32(0)
"""


@pytest.mark.parametrize(
    ("kind", "warp", "parts"),
    [
        ("hip", 64, ("__shfl_down(Z[t], 2, 64)", "__any(")),
        ("opencl", 32, ("sub_group_shuffle_down(Z[t], 2)", "sub_group_any(")),
        ("metal", 32, ("simd_shuffle_down(Z[t], 2)", "simd_any(")),
    ],
)
def test_threads_of_a_warp_exchange(kind: str, warp: int, parts: tuple[str, ...]) -> None:
    body = EXCHANGE.format(warp=warp, mask=2**warp - 1)
    text = driver.compile(function('Z: T.Buffer((64,), "float32")', body), kind).get_source(kind)
    assert all(part in text for part in parts)


@pytest.mark.parametrize(
    ("kind", "dtype", "text", "message"),
    [
        ("metal", "float64", "Z[t] + Z[t]", "metal has no double"),
        ("metal", "float32", "T.hypot(Z[t], Z[t])", "code generator has no helper 'hypot'"),
        ("opencl", "float32", "T.atomic_add(T.address_of(Z[t]), Z[t])", "OpenCL C adds int32"),
    ],
)
def test_what_a_language_lacks(kind: str, dtype: str, text: str, message: str) -> None:
    body = f'for t in T.thread_binding(4, thread="threadIdx.x"):\n    Z[t] = {text}'
    with pytest.raises(CodegenError, match=message):
        driver.compile(function(f'Z: T.Buffer((4,), "{dtype}")', body), kind)
