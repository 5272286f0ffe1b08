"""Tensor maps on the host: what the driver is told, kernels' parameters, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_programs import built, contents, on_device
from fake_cuda import FakeDriver

from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.support.errors import CodegenError
from tilewright.target import Target
from tilewright.tir.transform import gpu_pipeline

# Two boxes of a matrix, whose rows come with the call, are multiplied by two numbers.
PROGRAM = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 72), "float16")
    B = T.match_buffer(b, (64, 64), "float16")
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            S = T.allocate((2048,), "float16", scope="shared")
            full = T.allocate((1,), "uint64", scope="shared")
            if tx == 0:
                T.evaluate(T.ptx_init_barrier_thread_count(T.address_of(full[0]), 1))
                T.evaluate(T.ptx_fence_barrier_init())
            T.evaluate(T.storage_sync("shared", dtype="void"))
            with T.attr(None, "memory_barriers", 1):
                if tx == 0:
                    T.evaluate(T.ptx_arrive_barrier_expect_tx(T.address_of(full[0]), 4096))
                    T.evaluate(T.ptx_cp_async_bulk_tensor(
                        T.tile_of(S[T.Ramp(0, 64, 32)], S[0:64]), T.address_of(A[0, 0]),
                        T.address_of(full[0]), 0, 0, n, 72, 32, n - 20, 72, 1, 64, 40))
                T.evaluate(T.ptx_wait_barrier(T.address_of(full[0]), 0))
                for i in range(32):
                    B[i, tx] = S[i * 64 + tx] * T.float16(2)
"""


def test_the_driver_is_told_of_a_tensor_at_each_call(fake_cuda: FakeDriver) -> None:
    module = built(parse(PROGRAM), "cuda -arch=sm_90a")
    for rows in (40, 21):
        a = np.arange(rows * 72).reshape(rows, 72).astype("float16") % 64
        given = on_device(fake_cuda, a), on_device(fake_cuda, np.zeros((64, 64), "float16"))
        fake_cuda.mapped.clear()
        module(*given)
        wanted = np.zeros((32, 64), "float16")
        inside = a[rows - 20 : rows + 12, 40:]
        wanted[: len(inside), :32] = inside * 2
        np.testing.assert_array_equal(contents(fake_cuda, given[1])[:32], wanted)
        (said,) = fake_cuda.mapped
        assert said == (6, given[0].data_ptr(), (72, rows), (144,), (64, 32), 0)


def test_maps_are_parameters_that_stay_where_they_are() -> None:
    target = Target("cuda -arch=sm_90a")
    with target:
        lowered = gpu_pipeline(target)(IRModule({"main": parse(PROGRAM)}))
    code = emit_kernels(lowered, target)
    assert "const __grid_constant__ tw_tensor_map_u32 map" in code.text
    assert "cp.async.bulk.tensor.2d.shared::cluster.global.tile" in code.text
    (kernel,) = code.kernels.values()
    (tensor,) = kernel.tensor_maps
    assert (tensor.box, tensor.swizzle, kernel.arguments[tensor.position].alignment) == (
        (32, 64),
        0,
        16,
    )
    older = Target("cuda -arch=sm_80")
    with pytest.raises(CodegenError, match="needs sm_90"):
        emit_kernels(lowered, older)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0, n, 72, 32, n - 20", "0, n, 73, 32, n - 20", "rows begin at multiples of 16 bytes"),
        ("n, 72, 32, n - 20", "n, 72, 300, n - 20", "a box has 1 to 256 elements"),
        ("72, 1, 64, 40", "72, 2, 64, 40", "rows are contiguous"),
        ("0, 0, n, 72, 32", "48, 0, n, 72, 32", "swizzle is 0, 32, 64 or 128"),
        ("0, 0, n, 72, 32", "64, 0, n, 72, 32", "a row is up to 64 bytes"),
        ("n - 20, 72, 1, 64, 40", "n - 20, 72, 1, 63, 40", "target is 2016 elements"),
        ("T.address_of(full[0]), 0, 0, n, 72", "0, 0, 0, n, 72", "has no barrier"),
    ],
)  # fmt: skip
def test_calls_that_mean_nothing_are_refused(old: str, new: str, message: str) -> None:
    assert old in PROGRAM
    target = Target("cuda -arch=sm_90a")
    with target:
        lowered = gpu_pipeline(target)(IRModule({"main": parse(PROGRAM.replace(old, new))}))
    with pytest.raises(CodegenError, match=message):
        emit_kernels(lowered, target)
