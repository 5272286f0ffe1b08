"""The thread pool: every index runs once, whatever else goes on."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tilewright import runtime
from tilewright.codegen.llvm import jit, pool
from tilewright.runtime import Library
from tilewright.support.errors import CodegenError, RunError

# count: adds 1 to each element of its range. nested: launches `count` over 10 elements per index.
# failing: code 9 for the range that holds 3. many: launches again and again.
CODE = """
declare i32 @tw_parallel_launch(ptr, ptr, i64, i32)

define i32 @count(ptr %c, i64 %b, i64 %e) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %b, %entry ], [ %i1, %loop ]
  %p = getelementptr i32, ptr %c, i64 %i
  %v = load i32, ptr %p
  %v1 = add i32 %v, 1
  store i32 %v1, ptr %p
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %e
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}

define i32 @nested(ptr %c, i64 %b, i64 %e) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %b, %entry ], [ %i1, %loop ]
  %at = mul i64 %i, 10
  %p = getelementptr i32, ptr %c, i64 %at
  %r = call i32 @tw_parallel_launch(ptr @count, ptr %p, i64 10, i32 0)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %e
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}

define i32 @failing(ptr %c, i64 %b, i64 %e) {
  %r = call i32 @count(ptr %c, i64 %b, i64 %e)
  %low = icmp sle i64 %b, 3
  %high = icmp sgt i64 %e, 3
  %hit = and i1 %low, %high
  %code = select i1 %hit, i32 9, i32 0
  ret i32 %code
}

define i32 @many(ptr %f, ptr %c, i64 %n, i32 %threads, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %r = call i32 @tw_parallel_launch(ptr %f, ptr %c, i64 %n, i32 %threads)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %times
  br i1 %more, label %loop, label %out
out:
  ret i32 %r
}
"""
MANY = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int32,
    ctypes.c_int64,
)


@pytest.fixture(scope="module")
def code() -> Library:
    return Library([jit.compile_ll(CODE)], ["count", "nested", "failing", "many"])


@pytest.fixture(autouse=True)
def _default_threads() -> Iterator[None]:
    yield
    runtime.set_num_threads(0)


def launch(
    code: Library, task: str, size: int, n: int, *, threads: int = 0, times: int = 1
) -> tuple[int, Any]:
    """Launch ``task`` over ``n`` ``times`` times; returns the last code and the counts."""
    counts = np.zeros(size, np.int32)
    many = MANY(code.addresses["many"])
    result = many(code.addresses[task], counts.ctypes.data, n, threads, times)
    return result, counts


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_every_index_runs_once_per_launch(code: Library, threads: int, n: int) -> None:
    runtime.set_num_threads(threads)
    result, counts = launch(code, "count", n, n, times=300)
    assert result == 0
    assert (counts == 300).all()


def test_thousands_of_launches(code: Library) -> None:
    runtime.set_num_threads(2)
    _, counts = launch(code, "count", 5, 5, times=20_000)
    assert (counts == 20_000).all()


def test_nothing_to_do(code: Library) -> None:
    assert launch(code, "count", 1, 0)[1].tolist() == [0]
    assert launch(code, "count", 1, -5)[1].tolist() == [0]


def test_limit_of_one_launch(code: Library) -> None:
    runtime.set_num_threads(4)
    _, counts = launch(code, "count", 9, 9, threads=2, times=100)
    assert (counts == 100).all()


def test_nested_launches_run_serially(code: Library) -> None:
    runtime.set_num_threads(3)
    _, counts = launch(code, "nested", 80, 8, times=100)
    assert (counts == 100).all()


@pytest.mark.parametrize("threads", [1, 4])
def test_code_of_a_task_is_returned_and_the_rest_still_runs(code: Library, threads: int) -> None:
    runtime.set_num_threads(threads)
    result, counts = launch(code, "failing", 8, 8)
    assert result == 9
    assert (counts == 1).all()
    assert launch(code, "count", 8, 8)[0] == 0  # the next launch starts clean


def test_concurrent_callers(code: Library) -> None:
    runtime.set_num_threads(2)
    failures: list[int] = []

    def work() -> None:
        _, counts = launch(code, "count", 16, 16, times=3000)
        if not (counts == 3000).all():
            failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_pool_works_in_the_child_of_a_fork(code: Library) -> None:
    runtime.set_num_threads(2)
    launch(code, "count", 4, 4)
    for _ in range(3):
        child = os.fork()
        if child == 0:
            _, counts = launch(code, "count", 8, 8, times=200)
            os._exit(0 if (counts == 200).all() else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert (launch(code, "count", 4, 4)[1] == 1).all()


def test_workers_sleep_when_idle_and_wake(code: Library) -> None:
    runtime.set_num_threads(2)
    for _ in range(5):
        launch(code, "count", 4, 4)
        _wait_until_idle()
        assert (launch(code, "count", 4, 4)[1] == 1).all()


def _wait_until_idle() -> None:
    """Wait until every other thread of this process is asleep."""
    for _ in range(100_000):
        states = []
        for thread in os.listdir("/proc/self/task"):
            if int(thread) != threading.get_native_id():
                with open(f"/proc/self/task/{thread}/stat") as file:
                    states.append(file.read().rsplit(")", 1)[1].split()[0])
        if "R" not in states:
            return
    raise AssertionError("a worker spins on while there is nothing to do")


def test_number_of_threads(code: Library) -> None:
    runtime.support_addresses("pool")
    runtime.set_num_threads(3)
    assert runtime.num_threads() == 3
    runtime.set_num_threads(0)
    assert runtime.num_threads() == len(os.sched_getaffinity(0))
    with pytest.raises(RunError, match="must not be negative"):
        runtime.set_num_threads(-1)


def test_both_architectures_compile() -> None:
    for triple in ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"):
        assert b"tw_parallel_launch" in pool.pool_object(triple)
    with pytest.raises(CodegenError, match="runs on Linux on x86_64 and aarch64"):
        pool.pool_ll("riscv64-unknown-linux-gnu")


DYNAMIC = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int32,
    ctypes.c_int64,
)


@pytest.fixture
def python_task() -> Any:
    """Make a task of a Python function of a range."""
    kept = []

    def make(function: Any) -> Any:
        @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        def task(_context: object, begin: int, end: int) -> int:
            function(begin, end)
            return 0

        kept.append(task)
        return ctypes.cast(task, ctypes.c_void_p).value

    return make


def test_a_slow_thread_keeps_no_other_work_waiting(code: Library, python_task: Any) -> None:
    """Pieces behind the one that a thread is busy with are taken over by the others."""
    runtime.set_num_threads(2)
    busy, others = threading.Event(), threading.Event()
    seen: set[int] = set()
    waited: list[tuple[int, int]] = []

    def task(begin: int, end: int) -> None:
        if threading.current_thread() is not threading.main_thread() and not waited:
            waited.append((begin, end))
            busy.set()
            assert others.wait(30)
        else:
            assert busy.wait(30)
            seen.update(range(begin, end))
            if len(seen) == 15:
                others.set()

    assert MANY(code.addresses["many"])(python_task(task), None, 16, 0, 1) == 0
    assert waited == [(8, 9)]
    assert others.is_set()


def test_short_work_is_not_worth_waking_a_worker(code: Library) -> None:
    """Known to be short, and not in quick succession: then the caller does it."""
    runtime.set_num_threads(2)
    launch(code, "count", 2, 2)
    _wait_until_idle()
    before = _turns_of_workers()
    for _ in range(20):
        time.sleep(0.002)
        assert (launch(code, "count", 2, 2)[1] == 1).all()
    assert _turns_of_workers() - before < 10  # a disturbance may make it seem long now and then


def test_work_in_quick_succession_wakes_the_workers(code: Library) -> None:
    runtime.set_num_threads(2)
    launch(code, "count", 4, 4)
    _wait_until_idle()
    before = _turns_of_workers()
    for _ in range(100):  # waking may have seemed dear
        launch(code, "count", 4, 4, times=100_000)
        if _turns_of_workers() > before:
            return
    raise AssertionError("nobody has woken the worker")


def _turns_of_workers() -> int:
    """How often the scheduler has let any other thread of this process run."""
    if not os.path.exists("/proc/self/schedstat"):
        pytest.skip("the system doesn't count this")
    total = 0
    for thread in os.listdir("/proc/self/task"):
        if int(thread) != threading.get_native_id():
            with open(f"/proc/self/task/{thread}/schedstat") as file:
                total += int(file.read().split()[2])
    return total


def launch_dynamic(code: Library, task: str, n: int, grain: int, *, threads: int = 0) -> Any:
    """Launch ``task`` over ``n`` in pieces of ``grain``; returns the code and the counts."""
    counts = np.zeros(max(n, 1), np.int32)
    function = DYNAMIC(runtime.support_addresses("pool")["tw_parallel_launch_dynamic"])
    result = function(code.addresses[task], counts.ctypes.data, n, threads, grain)
    return result, counts


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("n", "grain"), [(1, 1), (7, 1), (100, 3), (100, 1000), (64, 0), (64, -3)])
def test_dynamic_launch_runs_every_index_once(
    code: Library, threads: int, n: int, grain: int
) -> None:
    runtime.set_num_threads(threads)
    for _ in range(50):
        result, counts = launch_dynamic(code, "count", n, grain)
        assert result == 0
        assert (counts == 1).all()


def test_dynamic_launch_of_nothing(code: Library) -> None:
    assert launch_dynamic(code, "count", 0, 4)[1].tolist() == [0]


@pytest.mark.parametrize("threads", [1, 3])
def test_dynamic_launch_returns_the_code_and_still_runs_the_rest(
    code: Library, threads: int
) -> None:
    runtime.set_num_threads(threads)
    result, counts = launch_dynamic(code, "failing", 8, 1)
    assert result == 9
    assert (counts == 1).all()


def _cpus_of_workers() -> list[set[int]]:
    return [
        os.sched_getaffinity(int(thread))
        for thread in os.listdir("/proc/self/task")
        if int(thread) != threading.get_native_id()
    ]


def test_affinity(code: Library) -> None:
    before = set(os.sched_getaffinity(0))
    last = max(before)
    runtime.set_num_threads(3)
    launch(code, "count", 8, 8)
    try:
        runtime.set_thread_affinity([last])
        assert runtime.thread_affinity() == (last,)
        assert {last} in _cpus_of_workers()  # one that runs already
        runtime.set_num_threads(6)
        launch(code, "count", 8, 8)  # and those that start now
        assert _cpus_of_workers().count({last}) >= 2 or before == {last}
        assert (launch(code, "count", 8, 8, times=50)[1] == 50).all()
        assert os.sched_getaffinity(0) == before  # the caller isn't bound
        runtime.set_thread_affinity(f"{last}-{last},{last}")
        runtime.set_thread_affinity("cores")
        assert (launch(code, "count", 8, 8)[1] == 1).all()
        with pytest.raises(RunError, match="numbers of CPUs that this process may use"):
            runtime.set_thread_affinity([100_000])
        with pytest.raises(RunError, match="expected 'none', 'cores' or"):
            runtime.set_thread_affinity("here-and-there")
    finally:
        runtime.set_thread_affinity("none")
    assert all(cpus == before for cpus in _cpus_of_workers()) or len(before) == 1


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_workers_that_sleep_are_woken_elsewhere(code: Library) -> None:
    """They stay off the CPU of the thread that wakes them, wherever that one has moved."""
    before = set(os.sched_getaffinity(0))
    runtime.set_num_threads(2)
    launch(code, "count", 2, 2)
    try:
        for cpu in sorted(before)[:2] * 2:
            os.sched_setaffinity(0, {cpu})
            os.sched_setaffinity(0, before)  # stays where it is for now
            time.sleep(0.002)  # longer than workers spin
            assert (launch(code, "count", 2, 2)[1] == 1).all()
            assert any(len(cpus) == len(before) - 1 for cpus in _cpus_of_workers())
        with_many = len(before) + 1
        runtime.set_num_threads(with_many)
        launch(code, "count", with_many, with_many)
        time.sleep(0.002)
        assert (launch(code, "count", with_many, with_many)[1] == 1).all()
    finally:
        os.sched_setaffinity(0, before)
        runtime.set_thread_affinity("none")
        runtime.set_num_threads(0)
    assert all(cpus == before for cpus in _cpus_of_workers())
