"""Host functions: checked arguments, sizes of launches, memory of the device, errors."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from cuda_programs import TWO_KERNELS, add_one, bound, built, contents, matmul, on_device
from fake_cuda import FakeDriver, Refused, write_library

from tilewright.codegen.cuda import nvrtc
from tilewright.runtime import from_dlpack, load_module
from tilewright.runtime.dlpack import capsule
from tilewright.script import parse
from tilewright.support.errors import BuildError, CodegenError, MissingExtraError

RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype("float32")


def many_blocks(extents: str, scalar: str = "int64") -> Any:
    """Kernels whose blocks are as many as the caller says."""
    return parse(
        f"""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), m: T.{scalar}):
    {extents}
"""
    )


@pytest.mark.parametrize("size", [1, 31, 32, 100])
def test_a_call_runs_the_kernel(fake_cuda: FakeDriver, size: int) -> None:
    module = built(bound(add_one(), "B"))
    a = numbers(size)
    given, result = on_device(fake_cuda, a), on_device(fake_cuda, np.zeros_like(a))
    module(given, result)
    np.testing.assert_array_equal(contents(fake_cuda, result), a + 1)
    blocks = -(-size // 32)
    assert fake_cuda.launches == [("main_kernel", (blocks, 1, 1, 32, 1, 1), 0, 0)]


def test_nothing_is_launched_for_no_elements(fake_cuda: FakeDriver) -> None:
    module = built(bound(add_one(), "B"))
    empty = on_device(fake_cuda, numbers(0))
    module(empty, empty)
    assert not fake_cuda.launches


def test_reductions_and_two_dimensions(fake_cuda: FakeDriver) -> None:
    module = built(bound(matmul(5, 7, 6), "C"))
    a, b = numbers(5, 6), numbers(6, 7)
    given = [on_device(fake_cuda, item) for item in (a, b, np.zeros((5, 7), "float32"))]
    module(*given)
    np.testing.assert_allclose(contents(fake_cuda, given[2]), a @ b, rtol=1e-5)


def test_kernels_are_loaded_once_per_device_and_freed(fake_cuda: FakeDriver) -> None:
    module = built(bound(add_one(), "B"))
    for device in (0, 1, 1, 0):
        given, result = (on_device(fake_cuda, numbers(8), device) for _ in range(2))
        module(given, result)
        np.testing.assert_array_equal(
            contents(fake_cuda, result), contents(fake_cuda, given) + np.float32(1)
        )
    assert len(fake_cuda.called("cuModuleLoadData")) == 2
    assert not fake_cuda.called("cuModuleUnload")
    del module
    assert len(fake_cuda.called("cuModuleUnload")) == 2
    assert not fake_cuda.contexts  # what was pushed has been popped


# ---- arguments


def test_tensors_of_the_cpu_are_refused(fake_cuda: FakeDriver) -> None:
    module = built(bound(add_one(), "B"))
    with pytest.raises(ValueError, match=r"argument #1 'B': expected a tensor on cuda, got one on"):
        module(on_device(fake_cuda, numbers(8)), numbers(8))


def test_tensors_of_two_devices_are_refused(fake_cuda: FakeDriver) -> None:
    module = built(bound(add_one(), "B"))
    given, result = on_device(fake_cuda, numbers(8)), on_device(fake_cuda, numbers(8), 1)
    with pytest.raises(
        ValueError, match=r"'B': expected a tensor on cuda:0, where the first .*cuda:1"
    ):
        module(given, result)
    assert not fake_cuda.launches


def test_dtypes_and_shapes_are_checked(fake_cuda: FakeDriver) -> None:
    module = built(bound(add_one(), "B"))
    with pytest.raises(TypeError, match="expected dtype float32, got float64"):
        module(on_device(fake_cuda, np.zeros(8)), on_device(fake_cuda, numbers(8)))
    with pytest.raises(ValueError, match="'n' is 8 by argument #0 'A'"):
        module(on_device(fake_cuda, numbers(8)), on_device(fake_cuda, numbers(9)))


def test_addresses_must_fit_vectors(fake_cuda: FakeDriver) -> None:
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for x in T.thread_binding(16, thread="threadIdx.x"):
        for i in T.vectorized(4):
            B[x * 4 + i] = A[x * 4 + i]
"""
    )
    module, result = built(func), on_device(fake_cuda, numbers(64))
    odd = from_dlpack(capsule(fake_cuda.put(numbers(65)) + 4, (64,), "float32", (2, 0)))
    with pytest.raises(ValueError, match="'A': expected memory aligned to 16 bytes, got address"):
        module(odd, result)
    module(result, result)


# ---- sizes


def test_blocks_beyond_the_limit_are_an_error(fake_cuda: FakeDriver) -> None:
    func = many_blocks(
        """for y in T.thread_binding(m, thread="blockIdx.y"):
        for x in T.thread_binding(4, thread="threadIdx.x"):
            if y == 0:
                A[x] = T.float32(1)"""
    )
    module, a = built(func), on_device(fake_cuda, numbers(4))
    module(a, 0)
    module(a, -3)
    assert not fake_cuda.launches
    message = (
        r"main: kernel main_kernel .* \(1, 65536, 1\).*65536 blocks along y are more than 65535"
    )
    with pytest.raises(ValueError, match=message):
        module(a, 65536)
    with pytest.raises(ValueError, match=rf"{2**40} blocks along y"):
        module(a, 2**40)
    assert not fake_cuda.launches
    module(a, 3)
    assert fake_cuda.launches == [("main_kernel", (1, 3, 1, 4, 1, 1), 0, 0)]


def test_scalars_reach_kernels(fake_cuda: FakeDriver) -> None:
    for scalar, value in (("int8", -3), ("bool", True), ("float32", 1.5), ("uint16", 65535)):
        func = many_blocks(
            """for x in T.thread_binding(4, thread="threadIdx.x"):
        A[x] = T.Cast("float32", m)""",
            scalar,
        )
        module, a = built(func), on_device(fake_cuda, numbers(4))
        module(a, value)
        assert contents(fake_cuda, a).tolist() == [float(value)] * 4


def shared(elements: int) -> Any:
    """A kernel with so many numbers in shared memory."""
    return parse(
        f"""
@T.prim_func
def main(A: T.Buffer((4,), "float32")):
    for x in T.thread_binding(4, thread="threadIdx.x"):
        S = T.allocate(({elements},), "float32", scope="shared")
        S[x * {elements // 3 - 1}] = A[x]
        T.evaluate(T.storage_sync("shared", dtype="void"))
        A[x] = S[(3 - x) * {elements // 3 - 1}]
"""
    )


def test_shared_memory_beyond_48_kb_is_asked_for_once(fake_cuda: FakeDriver) -> None:
    module = built(shared(25_000), "nvidia/nvidia-h100")
    given = on_device(fake_cuda, np.arange(4, dtype="float32"))
    module(given)
    module(given)
    module(given)
    assert contents(fake_cuda, given).tolist() == [3, 2, 1, 0]
    (asked,) = fake_cuda.called("cuFuncSetAttribute")
    assert asked[1:] == (8, 100_096)
    assert [launch[2] for launch in fake_cuda.launches] == [100_096] * 3


def test_little_shared_memory_is_the_kernels_own(fake_cuda: FakeDriver) -> None:
    given = on_device(fake_cuda, np.arange(4, dtype="float32"))
    built(shared(100))(given)
    assert not fake_cuda.called("cuFuncSetAttribute") and fake_cuda.launches[0][2] == 0


def test_more_shared_memory_than_the_device_has(fake_cuda: FakeDriver) -> None:
    fake_cuda.attributes[0][97] = 65_536
    given = on_device(fake_cuda, numbers(4))
    message = r"100096 bytes of dynamic shared memory.*1024 threads and 65536 bytes of shared mem"
    with pytest.raises(RuntimeError, match=message):
        built(shared(25_000), "nvidia/nvidia-h100")(given)


def test_more_than_the_target_has_is_refused() -> None:
    with pytest.raises(CodegenError, match=r"needs 400000 bytes of shared memory, the target has"):
        built(shared(100_000))
    with pytest.raises(BuildError, match=r"blocks of 1024 threads, the target cuda .* at most 512"):
        built(bound(add_one(), "B", 1024), "cuda -max-threads=512")


# ---- workspaces


def test_memory_between_kernels_is_taken_in_the_order_of_the_stream(fake_cuda: FakeDriver) -> None:
    module = built(parse(TWO_KERNELS))
    a = numbers(64)
    given, result = on_device(fake_cuda, a), on_device(fake_cuda, a)
    used = fake_cuda.settled()
    module(given, result)
    assert len(fake_cuda.launches) == 2
    np.testing.assert_array_equal(contents(fake_cuda, result), a[::-1] * 2 + 1)
    assert fake_cuda.used() == used
    assert [args[1] for args in fake_cuda.called("cuMemAllocFromPoolAsync")] == [256]


def test_devices_without_pools(fake_cuda: FakeDriver) -> None:
    fake_cuda.attributes[7][115] = 0
    module = built(parse(TWO_KERNELS))
    a = numbers(64)
    given, result = on_device(fake_cuda, a, 7), on_device(fake_cuda, a, 7)
    used = fake_cuda.settled()
    module(given, result)
    np.testing.assert_array_equal(contents(fake_cuda, result), a[::-1] * 2 + 1)
    assert fake_cuda.used() == used and fake_cuda.called("cuMemAlloc_v2")


def test_too_little_memory(fake_cuda: FakeDriver) -> None:
    module = built(parse(TWO_KERNELS))
    given, result = on_device(fake_cuda, numbers(64)), on_device(fake_cuda, numbers(64))
    fake_cuda.capacity = fake_cuda.settled() + 100
    message = (
        r"main: no memory for W: 256 bytes on cuda:0: out of memory .*100 of \d+ bytes are free"
    )
    with pytest.raises(MemoryError, match=message):
        module(given, result)
    assert not fake_cuda.launches and not fake_cuda.contexts


def test_memory_is_freed_when_a_launch_fails(fake_cuda: FakeDriver) -> None:
    module = built(parse(TWO_KERNELS))
    given = on_device(fake_cuda, numbers(64))
    module(given, given)
    fake_cuda.finish()
    used = fake_cuda.settled()
    fake_cuda.failing["cuLaunchKernel"] = 701
    message = (
        r"main: kernel main_kernel can't be launched.*too many resources.*OUT_OF_RESOURCES, 701"
    )
    with pytest.raises(RuntimeError, match=message):
        module(given, given)
    fake_cuda.finish()
    assert fake_cuda.used() == used


# ---- the driver and the device


def test_a_device_that_is_not_there(fake_cuda: FakeDriver) -> None:
    module = built(bound(add_one(), "B"))
    given = on_device(fake_cuda, numbers(8), 9)
    message = "main: there is no cuda:9; this process sees 8 devices: no CUDA-capable device"
    with pytest.raises(RuntimeError, match=message):
        module(given, given)


def test_kernels_that_the_device_can_not_run(fake_cuda: FakeDriver) -> None:
    module = built(bound(add_one(), "B"))
    given = on_device(fake_cuda, numbers(8))
    fake_cuda.failing["cuModuleLoadData"] = 209
    message = (
        r"main: kernels for sm_80 can't be loaded on cuda:0 \(compute capability 9.0, "
        r"driver for CUDA 12.4\): build for the target 'cuda -arch=sm_90', or install"
    )
    with pytest.raises(RuntimeError, match=message):
        module(given, given)
    del fake_cuda.failing["cuModuleLoadData"]
    module(given, given)  # nothing of the failure is left


def test_a_fault_is_told_once_and_the_device_is_lost(fake_cuda: FakeDriver) -> None:
    module = built(bound(add_one(), "B"))
    given, gone = (on_device(fake_cuda, numbers(8), 6) for _ in range(2))
    fake_cuda.free(gone.data_ptr())
    module(given, gone)
    fake_cuda.errors.clear()
    with pytest.raises(Refused):
        fake_cuda.finish()
    with pytest.raises(RuntimeError, match=r"ILLEGAL_ADDRESS, 700\).*the last one was main_kernel"):
        module(given, given)
    with pytest.raises(RuntimeError, match="main: cuda:6 was lost to the fault of a kernel before"):
        module(given, given)
    fake_cuda.errors.clear()


def test_functions_that_compute_on_the_host_are_refused() -> None:
    with pytest.raises(BuildError, match=r"main: the host writes to B, which is memory of the dev"):
        built(add_one())


# ---- modules


def test_texts_need_no_device() -> None:
    module = built(bound(add_one(), "B"), "cuda -arch=sm_90a")
    assert "main_kernel" in module.get_source("cuda")
    assert ".target sm_90a" in module.inspect_source("ptx")
    assert "tw_cuda_launch" in module.get_source("ll")
    assert "tw_cuda_launch" in module.get_source("asm")
    assert "blockIdx.x" in module.get_source("tir")
    assert module.target.startswith("cuda -arch=sm_90a")


def test_modules_can_be_pickled(fake_cuda: FakeDriver) -> None:
    module = pickle.loads(pickle.dumps(built(bound(add_one(), "B"))))
    a = numbers(8)
    given = on_device(fake_cuda, a)
    module(given, given)
    np.testing.assert_array_equal(contents(fake_cuda, given), a + 1)


def test_exported_libraries_hold_their_kernels(fake_cuda: FakeDriver, tmp_path: Any) -> None:
    built(bound(add_one(), "B")).export_library(tmp_path / "one.so")
    module = load_module(tmp_path / "one.so")
    a = numbers(8)
    given = on_device(fake_cuda, a)
    module["main"](given, given)
    np.testing.assert_array_equal(contents(fake_cuda, given), a + 1)
    with pytest.raises(ValueError, match="expected a tensor on cuda"):
        module["main"](a, given)


def test_libraries_load_without_a_driver_and_without_us(tmp_path: Any) -> None:
    """A process with tvm-ffi alone is told what is missing, or that the driver is too old."""
    built(bound(add_one(), "B")).export_library(tmp_path / "one.so")
    for calls, wanted in (
        ({}, r"main: the CUDA driver is too old: it lacks cuInit; drivers for CUDA 12 have it"),
        (None, r"main: there is no CUDA driver \(libcuda.so.1: cannot open shared object file"),
    ):
        environment = {key: item for key, item in os.environ.items() if key != "PYTHONPATH"}
        if calls is not None:
            write_library(tmp_path, calls)
            environment["LD_LIBRARY_PATH"] = str(tmp_path)
        done = subprocess.run(
            [sys.executable, "-c", ALONE, str(tmp_path / "one.so")],
            capture_output=True,
            text=True,
            env=environment,
        )
        if calls is None and "cuda" in done.stdout and "no CUDA driver" not in done.stdout:
            pytest.skip("this machine has a driver")
        assert re.search(wanted, done.stdout), done


ALONE = """
import ctypes, sys, numpy
sys.modules["torch"] = None  # tvm-ffi would import it, which takes seconds
import tvm_ffi
module = tvm_ffi.load_module(sys.argv[1])
tensor = tvm_ffi.from_dlpack(numpy.zeros(8, "float32"))
# A tensor that says it is on a GPU: its memory is never looked at.
ctypes.c_int32.from_address(tensor.__chandle__() + 32).value = 2
try:
    module["main"](tensor, tensor)
except RuntimeError as error:
    print(error)
ctypes.c_int32.from_address(tensor.__chandle__() + 32).value = 1
assert "tilewright" not in sys.modules
"""


def test_compiling_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    nvrtc._nvrtc.cache_clear()
    with pytest.raises(MissingExtraError, match=r"tilewright\[cuda\]"):
        built(bound(add_one(), "B"))
    nvrtc._nvrtc.cache_clear()
