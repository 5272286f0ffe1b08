"""Tensors on GPUs: made, copied, freed; by a driver without a GPU."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest
from fake_cuda import FakeDriver

import tilewright
from tilewright.runtime import Stream, cuda, empty, from_dlpack, tensor
from tilewright.support.errors import RunError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool", "bfloat16", "int64"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (0, 3), (1, 2, 1)])
def test_there_and_back(fake_cuda: FakeDriver, dtype: str, shape: tuple[int, ...]) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    array = (RNG.standard_normal(shape) * 9).astype(kind)
    made = tensor(array, device="cuda:1")
    assert (str(made.device), str(made.dtype), made.shape) == ("cuda:1", dtype, shape)
    back = made.numpy()
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
    np.testing.assert_array_equal(np.asarray(made), array)


def test_memory_goes_with_its_last_owner(fake_cuda: FakeDriver) -> None:
    used = fake_cuda.settled()
    made = empty((1000,), "float32", tilewright.cuda(0))
    other = from_dlpack(made)
    assert fake_cuda.used() == used + 4000
    del made
    gc.collect()
    fake_cuda.finish()
    assert fake_cuda.used() == used + 4000
    del other
    gc.collect()
    fake_cuda.finish()
    assert fake_cuda.used() == used


def test_memory_where_there_are_no_pools(fake_cuda: FakeDriver) -> None:
    fake_cuda.attributes[7][115] = 0
    used = fake_cuda.settled()
    made = tensor(np.arange(8), device="cuda:7")
    assert made.numpy().tolist() == list(range(8)) and fake_cuda.called("cuMemAlloc_v2")
    del made
    assert fake_cuda.used() == used


def test_copies(fake_cuda: FakeDriver) -> None:
    a = RNG.standard_normal((4, 6)).astype("float32")
    first = tensor(a, device="cuda")
    second = first.copyto("cuda:0")
    first.copyfrom(a * 2)
    np.testing.assert_array_equal(second.numpy(), a)
    np.testing.assert_array_equal(first.copyto("cpu").numpy(), a * 2)
    np.testing.assert_array_equal(first.copyto(cuda(1)).numpy(), a * 2)
    host = empty((4, 6))
    first.copyto(host)
    np.testing.assert_array_equal(host.numpy(), a * 2)
    np.testing.assert_array_equal(tensor(first).numpy(), a * 2)
    np.testing.assert_array_equal(tensor(second, device="cuda").numpy(), a)
    np.testing.assert_array_equal(
        tensor(second, "cuda", dtype="float64").numpy(), a.astype("float64")
    )
    # What isn't compact on the host is packed on the way.
    np.testing.assert_array_equal(tensor(a.T, device="cuda").numpy(), a.T)


def test_copies_of_other_shapes_and_dtypes_are_refused(fake_cuda: FakeDriver) -> None:
    made = empty((4,), "float32", "cuda")
    with pytest.raises(RunError, match=r"expected shape \(4,\) and dtype float32, got \(5,\) and"):
        made.copyfrom(np.zeros(5, "float32"))
    with pytest.raises(RunError, match="and float64"):
        made.copyfrom(np.zeros(4))


def test_copies_keep_the_order_of_their_stream(fake_cuda: FakeDriver) -> None:
    stream = Stream(0)
    with stream:
        made = tensor(np.ones(4, "float32"), device="cuda")
        second = made.copyto("cuda")
    assert [args[-1] for args in fake_cuda.called("cuMemcpyDtoDAsync_v2")] == [stream.handle]
    stream.synchronize()
    assert second.numpy().tolist() == [1, 1, 1, 1]
    handle = stream.handle
    del second, made, stream
    gc.collect()
    assert [args[0] for args in fake_cuda.called("cuStreamDestroy_v2")] == [handle]


def test_too_little_memory(fake_cuda: FakeDriver) -> None:
    fake_cuda.capacity = fake_cuda.settled() + 1000
    with pytest.raises(MemoryError, match="allocating 4000 bytes on cuda:0: out of memory"):
        empty((1000,), "float32", "cuda")


def test_devices_that_are_not_there(fake_cuda: FakeDriver) -> None:
    with pytest.raises(RunError, match="there is no cuda:12; this process sees 8 devices"):
        empty((4,), "float32", "cuda:12")
