"""Kernels in CUDA C++: how they read, what GPUs have beyond operators, and what is refused."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import driver
from tilewright.codegen.cuda import sass
from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.support.errors import CodegenError
from tilewright.target import Target
from tilewright.tir import PrimFunc, Schedule
from tilewright.tir.interpreter import run

sys.path.insert(0, str(Path(__file__).parent / "cuda"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tir" / "transform"))
import test_random_gpu_schedules as random_schedules
from cuda_on_cpu import COMPILER, Program
from kernel_cases import ARCHS, compiled, emitted, function

THREADS = """
for b in T.thread_binding({blocks}, thread="blockIdx.x"):
    for t in T.thread_binding({threads}, thread="threadIdx.x"):
"""


def kernel(arguments: str, body: str, blocks: int = 2, threads: int = 32) -> PrimFunc:
    """A program of one kernel with the given body in ``b`` and ``t``."""
    lines = "\n".join("        " + line for line in body.strip("\n").splitlines())
    return function(arguments, THREADS.format(blocks=blocks, threads=threads) + lines)


# ---- how it reads -----------------------------------------------------------------------------

VECTOR_ADD = """extern "C" __global__ void __launch_bounds__(32) main_kernel(
    float* __restrict__ Z,
    const float* __restrict__ A,
    const float* __restrict__ B) {
  const int b = (int)blockIdx.x;
  const int t = (int)threadIdx.x;
  const int at = b * 128 + t * 4;
  const float4 A_1 = *(const float4*)(A + at);
  const float4 B_1 = *(const float4*)(B + at);
  *(float4*)(Z + at) = make_float4(A_1.x + B_1.x, A_1.y + B_1.y, A_1.z + B_1.z, A_1.w + B_1.w);
}
"""


def test_a_vector_add_moves_128_bits() -> None:
    arguments = ", ".join(f'{name}: T.Buffer((256,), "float32")' for name in "ABZ")
    body = """
for v in T.vectorized(4):
    Z[b * 128 + t * 4 + v] = A[b * 128 + t * 4 + v] + B[b * 128 + t * 4 + v]"""
    _, code = emitted(kernel(arguments, body))
    assert code.text == VECTOR_ADD
    assert [param.alignment for param in code.kernels["main_kernel"].arguments] == [16, 16, 16]
    compiled(code)


REVERSED_IN_SHARED = """extern "C" __global__ void __launch_bounds__(32) main_kernel(
    const float* __restrict__ A,
    float* __restrict__ Z,
    long long n) {
  const int b = (int)blockIdx.x;
  const int t = (int)threadIdx.x;
  __shared__ __align__(64) float S[32];
  if ((long long)(b * 32 + t) < n) {
    S[t] = A[b * 32 + t];
  } else {
    S[t] = 0.0f;
  }
  __syncthreads();
  Z[b * 32 + t] = __fmaf_rn(S[31 - t], 2.0f, 1.0f);
}
"""


def test_shared_memory_and_barriers() -> None:
    body = """
S = T.allocate((32,), "float32", scope="shared")
if b * 32 + t < n:
    S[t] = A[b * 32 + t]
else:
    S[t] = T.float32(0)
Z[b * 32 + t] = S[31 - t] * T.float32(2) + T.float32(1)"""
    arguments = 'A: T.Buffer((64,), "float32"), Z: T.Buffer((64,), "float32"), n: T.int64'
    _, code = emitted(kernel(arguments, body))
    assert code.text == REVERSED_IN_SHARED
    compiled(code)


PACKED_HALVES = """extern "C" __global__ void __launch_bounds__(32) main_kernel(
    unsigned short* __restrict__ Z,
    const unsigned short* __restrict__ A) {
  const int b = (int)blockIdx.x;
  const int t = (int)threadIdx.x;
  const int at = b * 128 + t * 4;
  const uint2 A_1 = *(const uint2*)(A + at);
  const unsigned int pair = tw_add2_f16(A_1.x, A_1.x);
  const unsigned int pair_1 = tw_add2_f16(A_1.y, A_1.y);
  *(uint2*)(Z + at) = make_uint2(pair, pair_1);
}
"""


def test_pairs_of_halves_are_added_at_once() -> None:
    body = """
for v in T.vectorized(4):
    Z[b * 128 + t * 4 + v] = A[b * 128 + t * 4 + v] + A[b * 128 + t * 4 + v]"""
    _, code = emitted(
        kernel('A: T.Buffer((256,), "float16"), Z: T.Buffer((256,), "float16")', body)
    )
    assert code.text[code.text.index("extern") :] == PACKED_HALVES


# ---- what is moved at once --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "loads"),
    [
        ("t * 4", "float4"),
        ("t * 4 + 4", "float4"),
        ("t * 2", "float2"),
        ("t * 4 + 2", "float2"),
        ("t * 3", ""),
        ("t * 4 + 1", ""),
        ("t * n", ""),
        ("t * n * 4", "float4"),
    ],
)
def test_only_what_is_aligned_is_moved_at_once(index: str, loads: str) -> None:
    body = f"""
for v in T.vectorized(4):
    Z[t * 4 + v] = A[{index} + v]"""
    arguments = 'A: T.Buffer((4096,), "float32"), Z: T.Buffer((256,), "float32"), n: T.int64'
    _, code = emitted(kernel(arguments, body, blocks=1))
    for kind in ("float2", "float4"):
        assert (f"const {kind}* " in code.text or f"(const {kind}*)" in code.text) == (
            kind == loads
        )
    expected = {"float4": 16, "float2": 8, "": 4}[loads]
    (own,) = [x for x in code.kernels["main_kernel"].arguments if x.name == "A"]
    assert own.alignment == expected


def test_indices_have_64_bits_only_where_sizes_need_them() -> None:
    body = "Z[b * 32 + t] = A[b * 32 + t]"
    for size, wide in ((2**20, False), (2**33, True)):
        arguments = ", ".join(f'{name}: T.Buffer(({size},), "float32")' for name in "AZ")
        _, code = emitted(kernel(arguments, body, blocks=size // 32))
        assert ("long long" in code.text) == wide


# ---- values, by the text on a CPU --------------------------------------------------------------


def agrees(func: PrimFunc, *args: Any) -> None:
    """Compare the text's results on a CPU with the interpreter's."""
    names = [buffer.name for buffer in func.buffers]
    target = Target("cuda -arch=sm_90a")
    lowered = driver.lower(func, target)
    program = Program(lowered, target)
    mine = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
    run(func, *args)
    scalars = {var.name: arg for var, arg in zip(func.params, args) if isinstance(arg, int)}
    (kernel_name,) = program.code.kernels
    program(kernel_name, **dict(zip(names, mine)), **scalars)
    for a, b in zip(args, mine):
        np.testing.assert_array_equal(b, a)


VALUES = {
    "order": (
        'A: T.Buffer((64,), "int32"), Z: T.Buffer((64,), "int32")',
        'Z[b * 32 + t] = A[t] + T.atomic_add(T.address_of(A[t]), 5, dtype="int32") * 3 + A[t]',
    ),
    "eight_bit_floats": (
        'A: T.Buffer((512,), "float8_e4m3fn"), Z: T.Buffer((512,), "float16")',
        """
for v in T.vectorized(8):
    i = (b * 32 + t) * 8 + v
    Z[i] = T.Cast("float16", A[i]) * Z[i]""",
    ),
    "dot_of_bytes": (
        'A: T.Buffer((1024,), "uint8"), B: T.Buffer((256,), "int8"), Z: T.Buffer((256,), "int32")',
        "at = b * 128 + t * 4\n"
        "Z[at : at + 4] = T.dot_accumulate("
        "Z[at : at + 4], A[at * 4 : at * 4 + 16], B[at : at + 4])",
    ),
    "atomics": (
        'A: T.Buffer((64,), "int8"), Z: T.Buffer((8,), "int8"), Y: T.Buffer((8,), "int64")',
        'T.evaluate(T.atomic_add(T.address_of(Z[t % 8]), A[t], dtype="int8"))\n'
        'T.evaluate(T.atomic_add(T.address_of(Y[t % 8]), T.int64(3), dtype="int64"))',
    ),
    "edges": (
        'A: T.Buffer((201,), "float32"), Z: T.Buffer((201,), "float32")',
        """
for v in T.vectorized(4):
    if (b * 32 + t) * 4 + v < 201:
        Z[(b * 32 + t) * 4 + v] = A[(b * 32 + t) * 4 + v] + T.float32(1)""",
    ),
    "padding": (
        'A: T.Buffer((200,), "float32"), Z: T.Buffer((256,), "float32")',
        """
for v in T.vectorized(4):
    i = b * 128 + t * 4 + v
    Z[i] = T.if_then_else(i < 199, A[T.min(i, 199)], T.float32(7))""",
    ),
    "strides": (
        'A: T.Buffer((512,), "float16"), Z: T.Buffer((512,), "float16")',
        """
for v in T.vectorized(4):
    Z[(3 - v) * 128 + t * 4 + b] = A[b * 256 + t * 8 + v * 2]""",
    ),
    "loops": (
        'A: T.Buffer((64,), "int32"), Z: T.Buffer((64,), "int32")',
        """
i = b * 32 + t
while A[i] > 0 and Z[i] < 1000:
    Z[i] = Z[i] * 3 + 1
    A[i] = A[i] - 1""",
    ),
    "registers": (
        'A: T.Buffer((256,), "bfloat16"), Z: T.Buffer((256,), "bfloat16")',
        """
R = T.allocate((4,), "bfloat16", scope="local")
for k in range(4):
    R[k] = A[(b * 32 + t) * 4 + 3 - k]
for v in T.vectorized(4):
    Z[(b * 32 + t) * 4 + v] = R[v] * R[v]""",
    ),
    "bits": (
        'A: T.Buffer((256,), "uint32"), Z: T.Buffer((1024,), "int8")',
        """
i = (b * 32 + t) * 4
Z[i * 4 : i * 4 + 16] = T.reinterpret(A[i : i + 4], dtype="int8x16")""",
    ),
    "halves": (
        'A: T.Buffer((512,), "float16"), Z: T.Buffer((512,), "float16")',
        """
for v in T.vectorized(8):
    i = (b * 32 + t) * 8 + v
    Z[i] = T.max(T.min(A[i] * A[i] - A[i], T.float16(9)), T.float16(-0.5))""",
    ),
    "truth": (
        'A: T.Buffer((64,), "bool"), Z: T.Buffer((64,), "bool"), n: T.int32',
        "Z[b * 32 + t] = T.And(A[b * 32 + t], n * n > b * 32 + t)",
    ),
}


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
@few("name", VALUES, every=2)
def test_values(name: str) -> None:
    arguments, body = VALUES[name]
    func = kernel(arguments, body)
    rng = np.random.default_rng(1)
    args: list[Any] = []
    for var in func.params:
        buffer = func.buffer_map.get(var)
        if buffer is None:
            args.append(7)
            continue
        shape = [int(extent.value) for extent in buffer.shape]  # type: ignore[attr-defined]
        made = rng.integers(0, 100, shape)
        kind = driver_dtype(buffer.dtype)
        args.append((made % 2 if buffer.dtype == "bool" else made).astype(kind))
    agrees(func, *args)


def driver_dtype(dtype: str) -> Any:
    """The NumPy dtype of an element type."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, dtype, None) or dtype)


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
def test_four_bit_integers_are_packed_in_pairs() -> None:
    body = """
for v in T.vectorized(8):
    Z[(b * 32 + t) * 8 + v] = T.Cast("int8", A[(b * 32 + t) * 8 + v]) * T.int8(3)
B[b * 32 + t] = A[(b * 32 + t) * 8] + T.int4(7)"""
    func = kernel(
        'A: T.Buffer((512,), "int4"), Z: T.Buffer((512,), "int8"), B: T.Buffer((64,), "int4")', body
    )
    target = Target("cuda -arch=sm_80")
    program = Program(driver.lower(func, target), target)
    numbers = np.random.default_rng(0).integers(-8, 8, 512)
    packed = ((numbers[0::2] & 15) | (numbers[1::2] & 15) << 4).astype("uint8")
    z, b = np.zeros(512, "int8"), np.zeros(36, "uint8")
    program("main_kernel", A=packed, Z=z, B=b)
    np.testing.assert_array_equal(z, numbers * 3)
    own = np.stack([b[:32] & 15, b[:32] >> 4], axis=1).reshape(-1)
    np.testing.assert_array_equal(own, (numbers[::8] + 7) & 15)


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
def test_a_failed_assertion_stops_the_kernel(capfd: pytest.CaptureFixture[str]) -> None:
    body = 'assert A[t] < 5, "too large: 100%"\nZ[b * 32 + t] = A[t]'
    func = kernel('A: T.Buffer((32,), "int32"), Z: T.Buffer((64,), "int32")', body)
    target = Target("cuda")
    program = Program(driver.lower(func, target), target)
    assert program("main_kernel", A=np.full(32, 4, "int32"), Z=np.zeros(64, "int32")) == 0
    assert program("main_kernel", A=np.full(32, 5, "int32"), Z=np.zeros(64, "int32")) == 1


# ---- what only GPUs have ----------------------------------------------------------------------

GPU_ONLY = {
    "shuffles": (
        'A: T.Buffer((64,), "float16"), Z: T.Buffer((64,), "float16"), Y: T.Buffer((64,), "int8")',
        """
m = T.uint32(0xFFFFFFFF)
Z[b * 32 + t] = T.warp_shuffle_xor(m, A[b * 32 + t], 1, 32, dtype="float16")
Y[b * 32 + t] = T.warp_shuffle_down(m, Y[b * 32 + t], 2, 16, dtype="int8")""",
        ("__shfl_xor_sync(4294967295u,", "__shfl_down_sync(4294967295u, (int)Y["),
    ),
    "votes": (
        'A: T.Buffer((64,), "float32"), Z: T.Buffer((64,), "uint32")',
        """
if T.warp_any(T.uint32(0xFFFFFFFF), A[b * 32 + t] > T.float32(0), dtype="bool"):
    m = T.warp_activemask(dtype="uint32")
    Z[b * 32 + t] = T.warp_ballot(m, A[t] > A[b], dtype="uint32")""",
        ("__any_sync(", "__ballot_sync(", "__activemask()"),
    ),
    "atomics": (
        'A: T.Buffer((64,), "bfloat16"), Z: T.Buffer((8,), "bfloat16"), '
        'Y: T.Buffer((8,), "float32")',
        """
T.evaluate(T.atomic_add(T.address_of(Z[t % 8]), A[t], dtype="bfloat16"))
T.evaluate(T.atomic_add(T.address_of(Y[t % 8]), T.float32(1), dtype="float32"))""",
        ("tw_atomic_add_bf16(", "atomicAdd("),
    ),
}


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
@pytest.mark.parametrize("name", GPU_ONLY)
def test_operators_of_gpus(name: str, arch: str) -> None:
    arguments, body, parts = GPU_ONLY[name]
    _, code = emitted(kernel(arguments, body), arch)
    for part in parts:
        assert part in code.text
    compiled(code, arch)


def test_much_shared_memory_is_sized_by_the_launch() -> None:
    body = """
S = T.allocate((10240,), "float32", scope="shared")
for k in range(320):
    S[k * 32 + t] = A[k * 32 + t]
Z[t] = S[A_at[t]]"""
    arguments = (
        'A: T.Buffer((10240,), "float32"), Z: T.Buffer((32,), "float32"), '
        'A_at: T.Buffer((32,), "int32")'
    )
    _, code = emitted(kernel(arguments, body), "sm_90a")
    info = code.kernels["main_kernel"]
    assert info.dynamic_shared_bytes == 0 and info.shared_bytes == 40960
    large = body.replace("10240", "51200").replace("320", "1600")
    _, code = emitted(kernel(arguments.replace("10240", "51200"), large), "sm_90a")
    info = code.kernels["main_kernel"]
    assert info.dynamic_shared_bytes == 204800 and info.shared_bytes == 0
    assert re.search(r"extern __shared__ __align__\(\d+\) unsigned char dynamic_shared", code.text)
    assert compiled(code, "sm_90a").resources["main_kernel"].shared_bytes <= 1024
    with pytest.raises(CodegenError, match="needs 204800 bytes of shared memory, the target has"):
        emitted(kernel(arguments.replace("10240", "51200"), large), "sm_80")


@pytest.mark.parametrize("name", ["expf", "fminf", "char16_t", "make_float4", "__syncthreads"])
def test_no_variable_hides_what_the_text_calls(name: str) -> None:
    body = f"""
for w in range({name}_n):
    {name}[T.Ramp(b * 128 + t * 4, 1, 4)] = T.exp({name}[T.Ramp(b * 128 + t * 4, 1, 4)])
"""
    func = kernel(f'{name}: T.Buffer((256,), "float32"), {name}_n: T.int32', body)
    compiled(emitted(func)[1])


def test_fast_math_is_asked_for() -> None:
    func = kernel('A: T.Buffer((64,), "float32")', "A[b * 32 + t] = T.exp(A[b * 32 + t])")
    for options, name in (("", "expf("), (" -math=fast", "__expf(")):
        target = Target(f"cuda -arch=sm_80{options}")
        assert f"= {name}" in emit_kernels(driver.lower(func, target), target).text


def test_kernels_inherit_what_is_said_of_arguments_and_numbers() -> None:
    body = "A[b * 32 + t] = A[b * 32 + t] * B[t] - B[t]"
    func = kernel('A: T.Buffer((64,), "float16"), B: T.Buffer((64,), "float16")', body)
    _, usual = emitted(func)
    assert "__restrict__" in usual.text and "tw_round_f16" in usual.text
    attrs = {"tir.noalias": False, "tir.excess_precision": True}
    _, other = emitted(func.replace(attrs={**func.attrs, **attrs}))
    assert "__restrict__" not in other.text and "tw_round_f16" not in other.text


# ---- what is refused --------------------------------------------------------------------------

REFUSED = {
    'Z[t] = T.call_llvm_pure_intrin("llvm.sqrt.f32", A[t], dtype="float32")': "of LLVM",
    'R = T.allocate((50000,), "float32", scope="local")\n'
    "for k in range(50000):\n    R[k] = A[k % 64]\n"
    "for k in range(50000):\n    Z[t] = Z[t] * R[49999 - k]": "each thread would need its own R",
    'Z[t] = T.call_pure_extern("a b", A[t], dtype="float32")': "'a b' is no function's name",
    'T.evaluate(T.ret(1, dtype="int32"))': "only ret\\(0\\) has code",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_has_no_code_is_refused(body: str) -> None:
    arguments = 'A: T.Buffer((64,), "float32"), Z: T.Buffer((64,), "float32"), n: T.int64'
    with pytest.raises(CodegenError, match=f"kernel main_kernel: .*{REFUSED[body]}"):
        emitted(kernel(arguments, body))


# ---- whole programs ---------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHS)
def test_random_gpu_schedules_compile(arch: str) -> None:
    kernels = {}
    for seed in range(ARCHS.index(arch), 48, 4):
        draw = random.Random(seed)
        func, stages = random_schedules.program(draw)
        try:
            sch = random_schedules.schedule(draw, func, stages)
            lowered = driver.lower(sch.mod, f"cuda -arch={arch}")
        except Exception as error:  # those that the primitives or passes refuse
            assert type(error).__name__ in ("ScheduleError", "LowerError")
            continue
        kernels.update({f"k{seed}_{n}": f for n, f in lowered.functions.items() if n != "main"})
    assert len(kernels) > 3
    compiled(emit_kernels(IRModule(kernels), Target(f"cuda -arch={arch}")), arch)


def test_a_register_tile_keeps_its_sums_in_registers() -> None:
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((512, 512), "float32"), B: T.Buffer((512, 512), "float32"),
         C: T.Buffer((512, 512), "float32")):
    for i, j, k in T.grid(512, 512, 512):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
    )
    _, code = emitted(register_tiles(func).mod)
    made = compiled(code)
    used = made.resources["main_kernel"]
    assert used.spill_bytes == 0 and used.stack_bytes == 0 and used.registers <= 168
    if sass.nvdisasm() is None:
        return
    (loop,) = [x for x in sass.innermost_loops(sass.disassemble(made.cubin)) if len(x) > 100]
    assert loop.count("FFMA") == 8 * 64
    assert loop.count("LDS.128") == 8 * 4 and not [name for name in loop if name == "LDS"]
    others = [name for name in loop if not name.startswith(("FFMA", "LDS", "LDG", "STS", "BAR"))]
    assert len(others) < 40


def register_tiles(func: PrimFunc) -> Schedule:
    """128 by 128 results of 256 threads, 8 by 8 each, operands through shared memory."""
    sch = Schedule(func)
    block = sch.get_block("C")
    writer = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    bi, ti, ii = sch.split(i, [None, 16, 8])
    bj, tj, jj = sch.split(j, [None, 16, 8])
    k0, k1 = sch.split(k, [None, 8])
    sch.reorder(bi, bj, ti, tj, k0, k1, ii, jj)
    for loop, tag in (
        (bi, "blockIdx.y"),
        (bj, "blockIdx.x"),
        (ti, "threadIdx.y"),
        (tj, "threadIdx.x"),
    ):
        sch.bind(loop, tag)
    sch.reverse_compute_at(writer, tj)
    sch.vectorize(sch.split(sch.get_loops(writer)[-1], [None, 4])[1])
    for number in (0, 1):
        loader = sch.cache_read(block, number, "shared")
        sch.compute_at(loader, k0)
        fused = sch.fuse(*sch.get_loops(loader)[-2:])
        _, y, x, lanes = sch.split(fused, [None, 16, 16, 4])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        sch.vectorize(lanes)
    for number in (0, 1):
        loader = sch.cache_read(block, number, "local")
        sch.compute_at(loader, k1)
        if number:
            sch.vectorize(sch.split(sch.get_loops(loader)[-1], [None, 4])[1])
    sch.decompose_reduction(block, k0)
    sch.unroll(k1)
    return sch
