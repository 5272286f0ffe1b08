"""CUDA graphs, and the time of calls by events."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from cuda_programs import TWO_KERNELS, add_one, bound, built
from fake_cuda import FakeDriver

from tilewright.runtime import CUDAGraph, Stream, tensor
from tilewright.script import parse
from tilewright.support.errors import RunError

RNG = np.random.default_rng(0)


def test_a_call_is_recorded_and_launched_again(fake_cuda: FakeDriver) -> None:
    module = built(parse(TWO_KERNELS))
    a = RNG.standard_normal(64).astype("float32")
    given, result = tensor(a, device="cuda"), tensor(a, device="cuda")
    graph = CUDAGraph(module["main"], given, result)
    launches = len(fake_cuda.launches)
    for scale in (1, 2, 3):
        given.copyfrom(a * np.float32(scale))
        graph.replay()
        np.testing.assert_array_equal(result.numpy(), (a * np.float32(scale))[::-1] * 2 + 1)
    assert len(fake_cuda.launches) == launches
    del graph
    assert len(fake_cuda.called("cuGraphExecDestroy")) == 1
    assert not fake_cuda.contexts


def test_a_graph_is_launched_on_the_current_stream(fake_cuda: FakeDriver) -> None:
    given, stream = tensor(np.zeros(4, "float32"), device="cuda"), Stream()
    graph = CUDAGraph(built(bound(add_one(), "B"))["main"], given, given)
    with stream:
        graph.replay()
    assert [args[1] for args in fake_cuda.called("cuGraphLaunch")] == [stream.handle]


def test_a_graph_keeps_the_kernels_that_it_launches(fake_cuda: FakeDriver) -> None:
    given = tensor(np.zeros(4, "float32"), device="cuda")
    graph = CUDAGraph(built(bound(add_one(), "B"))["main"], given, given)
    gc.collect()
    assert not fake_cuda.called("cuModuleUnload")
    graph.replay()
    assert given.numpy().tolist() == [2, 2, 2, 2]
    del graph
    gc.collect()
    assert len(fake_cuda.called("cuModuleUnload")) == 1


def test_graphs_need_a_tensor_on_a_gpu() -> None:
    with pytest.raises(RunError, match="needs an argument that is a tensor on a GPU"):
        CUDAGraph(print, 1, np.zeros(4))


def test_what_waits_for_the_gpu_can_not_be_recorded(fake_cuda: FakeDriver) -> None:
    given = tensor(np.zeros(4, "float32"), device="cuda")
    with pytest.raises(RunError, match="while launches are captured nothing may wait for the dev"):
        CUDAGraph(lambda x: x.numpy(), given)
    assert all(stream.captured is None for stream in fake_cuda.streams.values())
    given.numpy()


def test_events_tell_the_time_of_calls(fake_cuda: FakeDriver) -> None:
    module = built(bound(add_one(), "B"))
    given = tensor(np.zeros(4, "float32"), device="cuda")
    found = module.time_evaluator("main", number=3, repeat=2)(given, given)
    # Once to check, once to warm up, then what is timed.
    assert len(fake_cuda.launches) == 2 + 6 and found.number == 3
    assert len(found.results) == 2 and min(found.results) > 0
    assert len(fake_cuda.called("cuEventRecord")) == 4


def test_the_cache_is_flushed_before_each_repeat(fake_cuda: FakeDriver) -> None:
    module = built(bound(add_one(), "B"))
    given = tensor(np.zeros(4, "float32"), device="cuda")
    module.time_evaluator("main", number=1, repeat=3, cache_flush_bytes=1 << 20)(given, given)
    assert [args[2] for args in fake_cuda.called("cuMemsetD8Async")] == [1 << 20] * 3


def test_numbers_grow_until_a_repeat_is_long_enough(fake_cuda: FakeDriver) -> None:
    module = built(bound(add_one(), "B"))
    given = tensor(np.zeros(4, "float32"), device="cuda")
    found = module.time_evaluator("main", number=1, repeat=1, min_repeat_ms=3)(given, given)
    assert found.number > 1 and found.results[0] * found.number >= 3e-3
