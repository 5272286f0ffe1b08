"""Tensor maps on the host: what the driver is told, kernels' parameters, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_programs import built, contents, on_device
from fake_cuda import FakeDriver

from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.ir import IRModule
from tilewright.runtime import CUDAGraph, Stream, from_dlpack, tensor
from tilewright.runtime.dlpack import capsule
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


def boxes_of(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What ``PROGRAM`` makes of a matrix."""
    rows = len(a)
    wanted = np.zeros((32, 64), "float16")
    inside = a[rows - 20 : rows + 12, 40:]
    wanted[: len(inside), :32] = inside * 2
    return wanted


def some(rows: int) -> np.ndarray[Any, Any]:
    return np.arange(rows * 72).reshape(rows, 72).astype("float16") % 64


def test_tensors_that_no_map_describes_are_refused(fake_cuda: FakeDriver) -> None:
    """Views begin anywhere, and their rows lie apart."""
    module = built(parse(PROGRAM), "cuda -arch=sm_90a")
    result = on_device(fake_cuda, np.zeros((64, 64), "float16"))
    memory = fake_cuda.put(np.zeros(40 * 80, "float16"))
    for start in (2, 8, 14):
        odd = from_dlpack(capsule(memory + start, (21, 72), "float16", (2, 0)))
        with pytest.raises(ValueError, match=r"'A': expected memory aligned to 16 bytes, got addr"):
            module(odd, result)
    wide = from_dlpack(capsule(memory, (21, 72), "float16", (2, 0), strides=(80, 1)))
    with pytest.raises(ValueError, match=r"'A': expected .*got strides \(80, 1\) for shape"):
        module(wide, result)
    assert not fake_cuda.launches and not fake_cuda.encoded
    even = from_dlpack(capsule(memory + 16, (21, 72), "float16", (2, 0)))
    module(even, result)
    assert fake_cuda.encoded[-1].address == memory + 16


def test_maps_on_other_streams_and_devices(fake_cuda: FakeDriver) -> None:
    """What is current makes no difference to a map: the tensors' device is used."""
    module = built(parse(PROGRAM), "cuda -arch=sm_90a")
    for device in (1, 0, 1):
        stream, a = Stream(device), some(30 + device)
        given = on_device(fake_cuda, a, device)
        result = on_device(fake_cuda, np.zeros((64, 64), "float16"), device)
        with stream:
            module(given, result)
        assert fake_cuda.launches[-1][3] == stream.handle
        np.testing.assert_array_equal(contents(fake_cuda, result)[:32], boxes_of(a))
    assert not fake_cuda.contexts


def test_maps_are_recorded_with_a_launch(fake_cuda: FakeDriver) -> None:
    """A CUDA graph keeps the parameters of its launches, so the maps as they were."""
    module, a = built(parse(PROGRAM), "cuda -arch=sm_90a"), some(40)
    given, result = tensor(a, device="cuda"), tensor(np.zeros((64, 64), "float16"), device="cuda")
    graph = CUDAGraph(module["main"], given, result)
    other = on_device(fake_cuda, some(21)), on_device(fake_cuda, np.zeros((64, 64), "float16"))
    module(*other)  # another map since
    for scale in (1, 2):
        given.copyfrom(a * np.float16(scale))
        graph.replay()
        np.testing.assert_array_equal(result.numpy()[:32], boxes_of(a * np.float16(scale)))
    np.testing.assert_array_equal(contents(fake_cuda, other[1])[:32], boxes_of(some(21)))
