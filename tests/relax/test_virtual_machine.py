"""TVM's interface to compiled graphs: calls in parts, timing, the profiler, instruments."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, random, symbol, tensor
from tilewright import relax
from tilewright.relax import op
from tilewright.relax.execution.stepwise import as_tensors
from tilewright.relax.values import numpy_dtype
from tilewright.runtime import Tensor, cpu, cuda
from tilewright.support.errors import RunError

N = symbol("n")
WEIGHT = random(4, 5, seed=1)


def body(x: Any, y: Any) -> Any:
    hidden = op.nn.softmax(op.matmul(x, relax.const(WEIGHT)), -1)
    return relax.Tuple((op.matmul(op.concat([hidden, hidden], 0), y), op.sum(hidden)))


def expected(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    exps = np.exp(x @ WEIGHT)
    hidden = exps / exps.sum(1, keepdims=True)
    return np.concatenate([hidden, hidden]) @ y, hidden.sum()


def built() -> relax.Executable:
    params = [relax.Var("x", tensor((N, 4))), relax.Var("y", tensor((5, 3)))]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            items = body(*params).fields
            outputs = [builder.emit_output(item) for item in items]
        builder.emit_func_output(relax.Tuple(tuple(outputs)))
    return relax.build(builder.get())


EXECUTABLE = built()
X, Y = random(3, 4), random(5, 3, seed=2)


def machine() -> relax.VirtualMachine:
    return relax.VirtualMachine(EXECUTABLE, [cpu()], "pooled", profile=True)


def check(found: Any, x: np.ndarray = X) -> None:
    for got, wanted in zip(found, expected(x, Y)):
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5)


def test_calls_in_parts() -> None:
    vm = machine()
    with pytest.raises(RunError, match=r"'main' has no inputs: call set_input\('main', ...\)"):
        vm.invoke_stateful("main")
    vm.set_input("main", X, y=Y)
    with pytest.raises(RunError, match="has no outputs: call invoke_stateful"):
        vm.get_outputs("main")
    vm.invoke_stateful("main")
    check(vm.get_outputs("main"))
    assert [vm.get_input_index(name, "main") for name in "xy"] == [0, 1]
    vm.save_function("main", "again", X, Y)
    check(vm["again"]())
    vm.save_function("main", "silent", y=Y, x=X, include_return=False)
    assert vm["silent"]() is None
    check(vm.invoke_closure(vm["main"], X, Y))
    assert vm.module is EXECUTABLE.module


def test_refusals() -> None:
    vm = machine()
    for call, message in (
        (lambda: vm.set_input("main", X), "takes 2 arguments .x, y., got 1 by position"),
        (lambda: vm.set_input("main", X, z=Y), "got 1 by position, z"),
        (lambda: vm.set_input("other", X), "no graph function 'other'; there is main"),
        (lambda: vm.get_input_index("z", "main"), "main has no input 'z'"),
        (lambda: vm.save_function("main", "main", X, Y), "is the name of a graph function"),
        (lambda: vm.time_evaluator("other"), "no graph function 'other'"),
        (lambda: vm.time_evaluator("main", f_preproc="warm"), "f_preproc must be ''"),
        (lambda: vm.time_evaluator("main", cuda(0)), "run on the cpu, got cuda"),
        (lambda: vm.time_evaluator(cooldown_interval_ms=-1), "must not be negative"),
        (lambda: relax.VirtualMachine(EXECUTABLE, cuda(0)), "run on the cpu, got cuda"),
        (lambda: relax.VirtualMachine(EXECUTABLE, cpu(), "naive"), "must be 'pooled'"),
        (lambda: relax.VirtualMachine(EXECUTABLE).profile("main", X, Y), "profiling is off"),
        (lambda: vm.profile("main", X), "takes 2 arguments, got 1"),
        (lambda: vm.profile("main", X, Y, repeat=0), "repeat must be positive"),
        (lambda: vm.profile("main", X, Y.astype("float64")), "expected Tensor"),
        (lambda: vm.profile("main", X, Y[:4]), "expected Tensor"),
    ):
        with pytest.raises(RunError, match=message):
            call()


def test_timing() -> None:
    vm = machine()
    timing = vm.time_evaluator("main", cpu(), number=2, repeat=3)(X, Y)
    assert len(timing.results) == 3
    assert timing.number == 2
    vm.set_input("main", X, Y)
    evaluator = vm.time_evaluator(
        "invoke_stateful", cpu(), 1, 3, 0, 1, 2, "cache_flush_cpu_non_first_arg"
    )
    assert len(evaluator("main").results) == 3
    vm.save_function("main", "saved", X, Y)
    assert vm.time_evaluator("saved", repeat=2)().min > 0


@pytest.mark.parametrize("rows", [3, 1, 0])
def test_the_profile_is_of_all_kernels(rows: int) -> None:
    report = machine().profile("main", random(rows, 4), Y, repeat=2)
    planned = EXECUTABLE.planned
    assert planned is not None
    called = [
        binding.value.args[0].name
        for binding in planned["main"].bindings
        if getattr(binding.value, "op_name", "") == "call_dps"
    ]
    assert [call.name for call in report.calls] == called
    assert abs(sum(call.share for call in report.calls) - 1) < 1e-6
    assert all(call.seconds > 0 for call in report.calls)
    product = next(call for call in report.calls if call.shapes[-1] == f"float32[{2 * rows}, 3]")
    assert product.flops is not None
    assert product.flops >= 2 * 2 * rows * 5 * 3
    assert product.nbytes >= 4 * (2 * rows * 3 + 15)
    if rows:
        assert product.gflops is not None
        assert 0 < product.roofline_share < 100


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "bool"])
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 2)])
def test_constants_are_converted_before_kernels_are_timed(
    dtype: str, shape: tuple[int, ...]
) -> None:
    array = np.ones(shape).astype(numpy_dtype(dtype))
    array.flags.writeable = False
    made, size = as_tensors([array, 3])
    assert isinstance(made, Tensor)
    assert size == 3
    assert (made.dtype, tuple(made.shape)) == (dtype, shape)
    np.testing.assert_array_equal(made.numpy(), array)
    assert np.shares_memory(made.numpy(), array) == (array.size > 0)

    mod = graph(lambda x: op.equal(x, relax.const(array)), tensor(shape, dtype))
    vm = relax.VirtualMachine(mod, cpu(), profile=True)
    (call,) = vm.profile("main", np.zeros(shape, array.dtype), repeat=1).calls
    assert len(call.shapes) == (3 if shape else 2)  # numbers are part of the kernel


def test_reports(tmp_path: Path) -> None:
    report = machine().profile("main", X, Y, repeat=2)
    table = report.table()
    for name in ("kernel", "share", "GFLOP/s", "GB/s", "roofline", "total", report.calls[0].name):
        assert name in table
    assert str(report) == table
    assert len(report.table(sort=False, aggregate=False).splitlines()) == len(report.calls) + 3
    data = json.loads(report.json())
    assert [call["kernel"] for call in data["calls"]] == [call.name for call in report.calls]
    assert len(report.csv().splitlines()) == len(report.calls) + 1
    report.chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events] == [call.name for call in report.calls]
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-9 for a, b in itertools.pairwise(events))


def test_instruments_see_and_skip_kernels() -> None:
    vm = machine()
    seen: list[tuple[str, bool]] = []

    def watch(function: Any, name: str, before_run: bool, result: Any, *operands: Any) -> Any:
        seen.append((name, before_run))
        return relax.VMInstrumentReturnKind.NO_OP

    vm.set_instrument(watch)
    check(vm["main"](X, Y))
    assert [before for _, before in seen] == [True, False] * (len(seen) // 2)

    def skip(function: Any, name: str, before_run: bool, result: Any, *operands: Any) -> Any:
        if before_run and name.startswith("matmul_1"):
            operands[2][...] = 7
            return relax.VMInstrumentReturnKind.SKIP_RUN
        return None

    vm.set_instrument(skip)
    assert (np.asarray(vm["main"](X, Y)[0]) == 7).all()
    vm.set_instrument(None)
    check(vm["main"](X, Y))


def test_executables_that_were_loaded_have_no_profile() -> None:
    vm = relax.VirtualMachine(pickle.loads(pickle.dumps(EXECUTABLE)), cpu(), profile=True)
    check(vm["main"](X, Y))
    with pytest.raises(RunError, match="not of those that were loaded or pickled"):
        vm.profile("main", X, Y)
    with pytest.raises(RunError, match="not of those that were loaded or pickled"):
        vm.set_instrument(print)


def test_sizes_are_checked_kernel_by_kernel() -> None:
    mod = graph(lambda x, y: op.add(x, y), tensor((N,)), tensor((symbol("m"),)))
    vm = relax.VirtualMachine(mod, cpu(), profile=True)
    assert len(vm.profile("main", random(3), random(3), repeat=1).calls) == 1
    with pytest.raises(RunError, match="n = 3 against m = 4"):
        vm.profile("main", random(3), random(4))
