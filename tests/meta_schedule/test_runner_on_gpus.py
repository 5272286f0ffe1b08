"""Candidates for GPUs in the worker: checked against the CPU, guarded, timed by events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_programs import add_one, bound, built, matmul
from fake_cuda import FakeDriver

from tilewright import driver
from tilewright.meta_schedule.arg_info import arg_infos
from tilewright.meta_schedule.runner import EvaluatorConfig, Reference, on_device
from tilewright.meta_schedule.runner.on_device import reference_target
from tilewright.meta_schedule.runner.verification import Task
from tilewright.meta_schedule.runner.worker import evaluate, race
from tilewright.script import parse
from tilewright.target import Target
from tilewright.tir import PrimFunc

CONFIG = EvaluatorConfig(repeat=3, min_repeat_ms=0.01)


def add_to(size: int, result: str = "A[vi] + T.float32(1)", place: str = "B[vi]") -> PrimFunc:
    made: PrimFunc = parse(
        f"""
@T.prim_func
def main(A: T.Buffer(({size},), "float32"), B: T.Buffer(({size},), "float32")):
    for i in range({size}):
        with T.block("B"):
            vi = T.axis.spatial({size}, i)
            {place} = {result}
"""
    )
    return made


def task_of(func: PrimFunc, **options: Any) -> Task:
    """A task whose unscheduled program runs on the CPU."""
    module = driver.compile(func, reference_target(Target("cuda")))
    return Task(Reference("key", module, arg_infos(func)), **options)


def test_a_right_candidate_is_checked_and_timed(fake_cuda: FakeDriver) -> None:
    func = matmul(5, 7, 6)
    result = evaluate(built(bound(func, "C")), task_of(func), None, CONFIG)
    assert result.error is None
    assert result.run_secs is not None and len(result.run_secs) == 3
    assert result.verified and "again" in result.inputs
    assert fake_cuda.called("cuEventElapsedTime")
    assert not fake_cuda.errors


def test_memory_of_the_device_is_given_back(fake_cuda: FakeDriver) -> None:
    func = add_to(40)
    task, module = task_of(func), built(bound(func, "B"))
    evaluate(module, task, None, CONFIG)
    before = fake_cuda.used()
    evaluate(module, task, None, CONFIG)
    assert fake_cuda.used() == before


def test_a_wrong_candidate_has_no_time(fake_cuda: FakeDriver) -> None:
    wrong = built(bound(add_to(40, "A[vi] + T.float32(2)"), "B"))
    result = evaluate(wrong, task_of(add_to(40)), None, CONFIG)
    assert (result.run_secs, result.reason) == (None, "wrong")
    assert "differs from the unscheduled program" in str(result.error)


def test_an_unwritten_element_is_seen(fake_cuda: FakeDriver) -> None:
    partial = parse(
        """
@T.prim_func
def main(A: T.Buffer((40,), "float32"), B: T.Buffer((40,), "float32")):
    for t in T.thread_binding(39, thread="threadIdx.x"):
        B[t] = A[t] + T.float32(1)
"""
    )
    result = evaluate(built(partial), task_of(add_to(40)), None, CONFIG)
    assert result.reason == "wrong"


@pytest.mark.parametrize("flush", [0, 1])
def test_flushed_caches_are_the_device_s(fake_cuda: FakeDriver, flush: int) -> None:
    func = add_to(40)
    config = EvaluatorConfig(repeat=2, min_repeat_ms=0.01, flush_cache_bytes=flush)
    module = built(bound(func, "B"))
    result = evaluate(module, task_of(func), None, config)
    assert result.cold == bool(flush)
    assert bool(fake_cuda.called("cuMemsetD8Async")) == bool(flush)


def test_a_race_times_candidates_in_turn(fake_cuda: FakeDriver) -> None:
    func = add_to(64)
    task = task_of(func)
    entries = [(built(bound(func, "B", threads)), task, (), False) for threads in (32, 64)]
    first, second = race(entries, 4, CONFIG)
    assert first.error is None and second.error is None
    assert first.run_secs is not None and second.run_secs is not None
    assert len(first.run_secs) == len(second.run_secs) == 4


def test_a_fault_of_the_device_ends_the_process(
    fake_cuda: FakeDriver, capfd: pytest.CaptureFixture[str]
) -> None:
    func = add_to(40)
    module, task = built(bound(func, "B")), task_of(func)
    fake_cuda.failing["cuEventSynchronize"] = fake_cuda.failing["cuCtxSynchronize"] = 700
    with pytest.raises(SystemExit):
        evaluate(module, task, None, CONFIG)
    assert "700" in capfd.readouterr().err


def test_other_errors_end_the_candidate_only(fake_cuda: FakeDriver) -> None:
    func = add_to(40)
    module, task = built(bound(func, "B")), task_of(func)
    fake_cuda.failing["cuLaunchKernel"] = 701
    result = evaluate(module, task, None, CONFIG)
    assert (result.run_secs, result.reason) == (None, "run")
    del fake_cuda.failing["cuLaunchKernel"]
    assert evaluate(module, task, None, CONFIG).error is None


@pytest.mark.parametrize(
    ("argument", "offset", "error"),
    [
        (1, 160, "argument #1 was written outside its bounds"),
        (1, -4, "argument #1 was written outside its bounds"),
        (0, 8, "argument #0 was written, but is only read"),
    ],
)
def test_writes_that_must_not_be_are_found(
    fake_cuda: FakeDriver, monkeypatch: pytest.MonkeyPatch, argument: int, offset: int, error: str
) -> None:
    """The guard lies in the same allocation: nothing but a comparison sees it."""
    func = add_to(40)
    calls = on_device._seconds

    def stray(function: Any, arguments: Any, count: int) -> float:
        seconds = calls(function, arguments, count)
        address = int(arguments[argument].data_ptr()) + offset
        fake_cuda.find(address).bytes_from(address)[:1] ^= 1
        return seconds

    monkeypatch.setattr(on_device, "_seconds", stray)
    module = built(bound(func, "B"))
    result = evaluate(module, task_of(func), None, CONFIG)
    assert (result.run_secs, result.reason) == (None, "run")
    assert error in str(result.error)


def test_symbolic_programs_have_references_on_the_cpu() -> None:
    assert reference_target(Target("cuda")).kind == "llvm"
    assert str(reference_target(Target("llvm"))) == str(Target("llvm"))
    module = driver.compile(add_one(), reference_target(Target("cuda")))
    found = np.zeros(3, "float32")
    module(np.arange(3, dtype="float32"), found)
    assert found.tolist() == [1.0, 2.0, 3.0]
