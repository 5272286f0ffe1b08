"""What GPUs are, and their streams and events."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fake_cuda import CALLS, FakeDriver, write_library

from tilewright.runtime import Event, Stream, cpu, cuda, tensor
from tilewright.support.errors import RunError


def test_which_devices_there_are(fake_cuda: FakeDriver) -> None:
    assert cpu().exist and not cpu(1).exist
    assert cuda(7).exist and not cuda(8).exist
    fake_cuda.failing["cuDeviceGetCount"] = 100
    assert not cuda(0).exist


def test_what_a_device_is(fake_cuda: FakeDriver) -> None:
    device = cuda(1)
    assert device.device_name == "Imaginary H100"
    assert device.compute_version == "9.0"
    assert (device.warp_size, device.max_threads_per_block) == (32, 1024)
    assert device.max_shared_memory_per_block == 232_448
    assert (device.registers_per_block, device.multi_processor_count) == (65536, 132)
    assert (device.max_clock_rate, device.l2_cache_size_bytes) == (1_755_000, 50 << 20)
    assert device.memory_bandwidth == 2 * 1_593_000_000 * 640
    assert device.total_global_memory == fake_cuda.capacity
    assert device.available_global_memory == fake_cuda.capacity - fake_cuda.used()
    assert device.api_version == 12040
    with pytest.raises(RunError, match="there is no cuda:8; this process sees 8 devices"):
        cuda(8).device_name
    with pytest.raises(RunError, match="only cuda devices can be asked what they are, not cpu:0"):
        cpu().warp_size


def test_events_measure_time(fake_cuda: FakeDriver) -> None:
    first, second = Event(), Event()
    first.record()
    second.record()
    second.synchronize()
    assert first.elapsed_time(second) > 0
    del first, second
    assert len(fake_cuda.called("cuEventDestroy_v2")) == 2


def test_streams_wait_for_events(fake_cuda: FakeDriver) -> None:
    stream, event = Stream(), Event(timing=False)
    event.record(stream)
    stream.wait(event)
    assert fake_cuda.called("cuStreamWaitEvent") == [(stream.handle, event.handle, 0)]
    wrapped = Stream(handle=stream.handle)
    wrapped.synchronize()
    del wrapped
    assert not fake_cuda.called("cuStreamDestroy_v2")
    assert repr(stream).startswith("Stream(0, handle=0x")


def test_streams_by_their_handles(fake_cuda: FakeDriver) -> None:
    device = cuda(1)
    handle = device.create_raw_stream()
    assert fake_cuda.streams[handle].device == 1
    device.sync(handle)
    device.sync(Stream(1, handle=handle))
    assert fake_cuda.called("cuStreamSynchronize") == [(handle,), (handle,)]
    device.set_raw_stream(handle)
    made = tensor(np.arange(3), device=device)
    np.testing.assert_array_equal(made.copyto(device).numpy(), np.arange(3))
    assert [args[-1] for args in fake_cuda.called("cuMemcpyDtoDAsync_v2")] == [handle]
    device.set_raw_stream(0)
    device.free_raw_stream(handle)
    assert handle not in fake_cuda.streams
    with pytest.raises(RunError, match="waiting for"):
        device.sync(handle)
    with pytest.raises(RunError, match="only cuda devices"):
        cpu().create_raw_stream()


def test_how_many_threads_a_block_has_along_each_axis(fake_cuda: FakeDriver) -> None:
    for axis, most in enumerate((1024, 1024, 64)):
        fake_cuda.attributes[1][2 + axis] = most
    assert cuda(1).max_thread_dimensions == [1024, 1024, 64]


def test_a_failed_kernel_is_told_when_somebody_waits(fake_cuda: FakeDriver) -> None:
    fake_cuda.lost = 700
    with pytest.raises(RunError, match=r"waiting for cuda:0: an illegal.*compute-sanitizer tells"):
        cuda(0).sync()
    cpu().sync()
    assert not fake_cuda.contexts


def test_without_a_driver() -> None:
    program = """
import ctypes, tilewright
from tilewright.runtime import empty
try:
    ctypes.CDLL("libcuda.so.1")
except OSError:
    assert not tilewright.cuda(0).exist
    try:
        empty((4,), "float32", "cuda")
    except tilewright.TilewrightError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not done.stderr
    if not done.stdout:
        pytest.skip("this machine has a driver")
    assert done.stdout.startswith("there is no CUDA driver (libcuda.so.1: cannot open")


def test_a_driver_that_is_too_old(tmp_path: Path) -> None:
    write_library(tmp_path, {name: kinds for name, kinds in CALLS.items() if "Pool" not in name})
    program = """
import tilewright
from tilewright.runtime import empty
try:
    empty((4,), "float32", "cuda")
except tilewright.TilewrightError as error:
    print(error)
"""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.stdout.startswith("the CUDA driver is too old: it lacks cuMemPoolCreate"), done
