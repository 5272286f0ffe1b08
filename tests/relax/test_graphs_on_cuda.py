"""Graphs for GPUs: one host function that launches kernels, scheduled by rule; without a GPU."""

from __future__ import annotations

import gc
import json
import pickle
from functools import cache
from typing import Any

import numpy as np
import pytest
from attention_reference import append_operands, append_paged_kv
from cuda_programs import contents, on_device
from fake_cuda import FakeDriver

from tests.relax.helpers import graph, random, symbol, tensor
from tilewright import relax
from tilewright.ir import IRModule
from tilewright.relax import interpreter, load_executable, op
from tilewright.relax.tuning import graph_race
from tilewright.runtime import Device, Stream, cpu, cuda
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.support.errors import RunError

WEIGHTS = random(16, 8)


def layers() -> IRModule:
    """Two operators that stay apart, and a weight."""
    weight = relax.const(WEIGHTS)
    return graph(
        lambda x: op.nn.softmax(op.nn.relu(op.matmul(x, weight))),
        tensor((symbol("n"), 16)),
    )


@I.ir_module
class Branches:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            a = R.exp(x)
            d = R.less(R.sum(a), R.const(40.0, "float32"))
            R.output(a, d)
        if c:
            r = R.tanh(a)
        else:
            if d:
                r = R.multiply(a, x)
            else:
                r = x
        return (r, a)


def agree(driver: FakeDriver, mod: IRModule, *inputs: np.ndarray[Any, Any], device: int = 0) -> Any:
    """Compare the graph on a GPU with the interpreter; return the executable."""
    want = interpreter.run(mod, *inputs)
    executable = relax.build(mod, "cuda")
    found = executable(*(on_device(driver, item, device) for item in inputs))
    compare(driver, want, found)
    return executable


def compare(driver: FakeDriver, want: Any, found: Any) -> None:
    if isinstance(want, tuple):
        for a, b in zip(want, found, strict=True):
            compare(driver, a, b)
        return
    np.testing.assert_allclose(contents(driver, found), np.asarray(want), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 5, 0, 33])
def test_a_graph_of_any_size(fake_cuda: FakeDriver, rows: int) -> None:
    executable = agree(fake_cuda, layers(), random(rows, 16), device=3)
    assert executable.device_kind == "cuda"
    assert len(fake_cuda.launches) == (2 if rows else 0)


def test_constants_are_copied_once_and_stay(fake_cuda: FakeDriver) -> None:
    executable = agree(fake_cuda, layers(), random(5, 16))
    x, used = on_device(fake_cuda, random(5, 16)), fake_cuda.settled()
    for _ in range(3):
        executable(x)
    copied = [args[2] for args in fake_cuda.called("cuMemcpyHtoD_v2")]
    assert copied == [WEIGHTS.nbytes]
    del executable
    gc.collect()
    fake_cuda.finish()
    assert fake_cuda.used() <= used - WEIGHTS.nbytes


def test_results_are_freed_with_their_last_owner(fake_cuda: FakeDriver) -> None:
    executable, x = relax.build(layers(), "cuda"), on_device(fake_cuda, random(5, 16))
    result = executable(x)
    fake_cuda.finish()
    used = fake_cuda.settled()
    again = executable(x)
    fake_cuda.finish()
    assert fake_cuda.used() == used + 5 * 8 * 4
    np.testing.assert_array_equal(again.numpy(), result.numpy())
    del result, again
    fake_cuda.finish()
    assert fake_cuda.used() == used - 5 * 8 * 4
    assert not fake_cuda.contexts


def test_results_without_pools(fake_cuda: FakeDriver) -> None:
    fake_cuda.attributes[7][115] = 0
    agree(fake_cuda, layers(), random(5, 16), device=7)
    assert not fake_cuda.called("cuMemAllocFromPoolAsync")


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("scale", [0.1, 9.0])
def test_the_host_reads_conditions(fake_cuda: FakeDriver, taken: bool, scale: float) -> None:
    agree(fake_cuda, Branches, np.array(taken), scale * np.ones((3, 4), "float32"))
    assert fake_cuda.called("cuMemcpyDtoHAsync_v2")


def test_all_is_launched_on_the_callers_stream(fake_cuda: FakeDriver) -> None:
    executable, x = relax.build(layers(), "cuda"), random(5, 16)
    given, stream = on_device(fake_cuda, x), Stream()
    with stream:
        result = executable(given)
    assert {launch[3] for launch in fake_cuda.launches} == {stream.handle}
    taken = fake_cuda.called("cuMemAllocFromPoolAsync")
    assert taken and {args[3] for args in taken} == {stream.handle}
    stream.synchronize()
    compare(fake_cuda, interpreter.run(layers(), x), result)


def test_wrong_inputs(fake_cuda: FakeDriver) -> None:
    executable = relax.build(layers(), "cuda")
    with pytest.raises(ValueError, match="argument 'x': expected a tensor on cuda, got one on the"):
        executable(random(5, 16))
    with pytest.raises(TypeError, match="expected a tensor of 2 dimensions, got list"):
        executable([1.0])
    with pytest.raises(ValueError, match=r"expected shape \(n, 16\), got \(5, 17\)"):
        executable(on_device(fake_cuda, random(5, 17)))
    n = symbol("n")
    two = graph(lambda x, y: op.add(x, y), tensor((n,)), tensor((n,)))
    given = [on_device(fake_cuda, random(4), device) for device in (1, 2)]
    with pytest.raises(ValueError, match="'y': expected a tensor on cuda:1, where the first"):
        relax.build(two, "cuda")(*given)


def test_too_little_memory_for_a_result(fake_cuda: FakeDriver) -> None:
    executable, given = relax.build(layers(), "cuda"), on_device(fake_cuda, random(500, 16))
    executable(given)
    fake_cuda.finish()
    fake_cuda.capacity = fake_cuda.settled() + 1000
    message = r"no memory for a result: 16000 bytes on cuda:0: out of memory.* bytes are free"
    with pytest.raises((MemoryError, RunError), match=message):
        executable(given)


def test_executables_are_kept_and_exported(fake_cuda: FakeDriver, tmp_path: Any) -> None:
    mod, x = layers(), random(5, 16)
    executable, want = relax.build(mod, "cuda"), interpreter.run(mod, x)
    compare(fake_cuda, want, pickle.loads(pickle.dumps(executable))(on_device(fake_cuda, x)))
    executable.export_library(tmp_path / "model.so")
    loaded = load_executable(tmp_path / "model.so")
    assert loaded.device_kind == "cuda"
    compare(fake_cuda, want, loaded(on_device(fake_cuda, x)))


def test_the_virtual_machine(fake_cuda: FakeDriver) -> None:
    executable, x = relax.build(layers(), "cuda"), random(5, 16)
    machine = relax.VirtualMachine(executable, cuda(0))
    compare(fake_cuda, interpreter.run(layers(), x), machine["main"](on_device(fake_cuda, x)))
    assert relax.VirtualMachine(executable).device.kind == "cuda"
    with pytest.raises(RunError, match="these graphs run on the cuda, got metal:0"):
        relax.VirtualMachine(executable, Device("metal"))
    with pytest.raises(RunError, match="these graphs run on the cpu, got cuda:0"):
        relax.VirtualMachine(cpu_build(), cuda(0))
    assert relax.VirtualMachine(executable, [cuda(0), cpu()]).device == cuda(0)


@cache
def cpu_build() -> relax.Executable:
    return relax.build(graph(lambda x: op.add(x, x), tensor((4,))), "llvm")


def test_a_graph_is_captured_and_launched_as_a_whole(fake_cuda: FakeDriver) -> None:
    mod = layers()
    executable, x = relax.build(mod, "cuda"), random(5, 16)
    captured = executable["main"].capture(on_device(fake_cuda, x))
    launches = len(fake_cuda.launches)
    for scale in (1, 2, -1):
        given = np.float32(scale) * x
        result = captured(on_device(fake_cuda, given))
        compare(fake_cuda, interpreter.run(mod, given), result)
    assert len(fake_cuda.launches) == launches
    assert len(fake_cuda.called("cuGraphLaunch")) == 3
    with pytest.raises(RunError, match=r"expected shape \(5, 16\) .*, got \(6, 16\)"):
        captured(on_device(fake_cuda, random(6, 16)))
    with pytest.raises(RunError, match="main takes 1 arguments, got 2"):
        captured(x, x)


def test_what_can_not_be_captured(fake_cuda: FakeDriver) -> None:
    with pytest.raises(RunError, match="main runs on the cpu; only GPUs have CUDA graphs"):
        cpu_build()["main"].capture(np.zeros(4, "float32"))
    executable = relax.build(Branches, "cuda")
    given = on_device(fake_cuda, np.array(True)), on_device(fake_cuda, np.ones((3, 4), "float32"))
    with pytest.raises(RuntimeError, match="a number that the host needs can't be read"):
        executable["main"].capture(*given)
    assert all(stream.captured is None for stream in fake_cuda.streams.values())


def test_what_is_left_to_numpy_goes_through_the_host(fake_cuda: FakeDriver) -> None:
    def body(a: Any, b: Any) -> Any:
        given = json.dumps({"results": 1})
        return op.call_dps_packed("relax.numpy", ["gcd", "rrr", given, a, b], a.struct_info)

    mod = graph(body, tensor((3,), "int64"), tensor((3,), "int64"))
    a, b = np.array([12, 18, 7]), np.array([8, 27, 21])
    found = relax.build(mod, "cuda")(on_device(fake_cuda, a), on_device(fake_cuda, b))
    assert contents(fake_cuda, found).tolist() == [4, 9, 7]


def test_kernels_are_not_called_one_by_one(fake_cuda: FakeDriver) -> None:
    machine = relax.VirtualMachine(relax.build(layers(), "cuda"), profile=True)
    with pytest.raises(RunError, match="one by one on the CPU only; these are for cuda"):
        machine.set_instrument(lambda *_: None)
    with pytest.raises(RunError, match="one by one on the CPU only"):
        machine.profile("main", on_device(fake_cuda, random(5, 16)))


def test_graphs_race_on_the_device(fake_cuda: FakeDriver) -> None:
    executable = relax.build(layers(), "cuda")
    inputs = graph_race._inputs(executable, {"n": 5})
    assert inputs is not None and str(inputs["main"][0].device) == "cuda:0"
    assert graph_race._turn(executable, inputs) > 0
    assert graph_race._inputs(executable, {}) is None
    assert fake_cuda.called("cuCtxSynchronize")


def test_pages_stay_where_they_are(fake_cuda: FakeDriver) -> None:
    """One launch appends in place; a copy is launched only for results apart."""
    arrays = append_operands(np.random.default_rng(0), [9, 3], 2, 2, 4, 3, 8)
    infos = [tensor(a.shape, a.dtype.name) for a in arrays]
    executable = relax.build(graph(lambda *x: op.nn.append_paged_kv(*x), *infos), "cuda")
    given, expected = [on_device(fake_cuda, a) for a in arrays], append_paged_kv(*arrays)
    np.testing.assert_array_equal(contents(fake_cuda, executable(*given)), expected)
    np.testing.assert_array_equal(contents(fake_cuda, given[2]), arrays[2])
    assert len(fake_cuda.launches) == 2
    executable["main"].run_into(given, [given[2]])
    np.testing.assert_array_equal(contents(fake_cuda, given[2]), expected)
    assert len(fake_cuda.launches) == 3
