"""The local runner: wrong, crashing, hanging and slow candidates are told apart and survived."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from started import processes

from tilewright import driver, te
from tilewright.codegen.llvm.ffi_abi import FunctionSpec, TensorArg
from tilewright.codegen.llvm.package import build_module
from tilewright.ir import IRModule
from tilewright.meta_schedule.arg_info import (
    ArgInfo,
    ScalarInfo,
    TensorInfo,
    arg_infos,
    random_arguments,
)
from tilewright.meta_schedule.runner import (
    EvaluatorConfig,
    LocalRunner,
    NoReferenceError,
    Reference,
    RunnerInput,
    RunnerResult,
)
from tilewright.meta_schedule.runner.verification import _CHUNK, Expected, Task
from tilewright.meta_schedule.runner.worker import _fresh
from tilewright.runtime import Module
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

TARGET = Target("native").with_options(num_cores=1)
CONFIG = EvaluatorConfig(repeat=2, min_repeat_ms=0.5, retries=0)


def double(size: int = 64, factor: float = 2.0) -> PrimFunc:
    a = te.placeholder((size,), name="A")
    return te.create_prim_func([a, te.compute((size,), lambda i: a[i] * factor, name="B")])


def kernel(body: str, declared: str = "") -> Module:
    """A module with a kernel of the same signature, by its LLVM text."""
    args = (TensorArg("A", "float32", (64,), written=False), TensorArg("B", "float32", (64,)))
    text = f"{declared}define i32 @kernel(ptr %a, ptr %b) {{\n{body}\n}}"
    return build_module(text, [FunctionSpec("main", args, "kernel")])


def crashing() -> Module:
    return kernel("store volatile float 1.0, ptr null\nret i32 0")


def hanging() -> Module:
    return kernel("entry:\nbr label %loop\nloop:\nstore volatile float 1.0, ptr %b\nbr label %loop")


def failing() -> Module:
    return kernel("ret i32 5")


@pytest.fixture(scope="module")
def right() -> Module:
    return driver.compile(double(), TARGET)


@pytest.fixture(scope="module")
def reference(right: Module) -> Reference:
    return Reference("double", right, arg_infos(double()))


@pytest.fixture
def runner() -> Iterator[LocalRunner]:
    made = LocalRunner(evaluator_config=CONFIG, timeout_sec=20.0, num_threads=1)
    yield made
    made.close()


def run(runner: LocalRunner, reference: Reference, *modules: Module) -> list[RunnerResult]:
    return list(runner.run([RunnerInput(module=module, reference=reference) for module in modules]))


def test_a_right_candidate_is_timed(
    runner: LocalRunner, reference: Reference, right: Module
) -> None:
    (result,) = run(runner, reference, right)
    assert result.run_secs is not None and len(result.run_secs) == 2
    assert all(0 < seconds < 1e-3 for seconds in result.run_secs)
    assert result.error is None and result.reason is None and result.error_ratio == 0.0


def test_each_failure_costs_its_candidate_only(reference: Reference, right: Module) -> None:
    wrong = driver.compile(double(factor=2.1), TARGET)
    runner = LocalRunner(evaluator_config=CONFIG, timeout_sec=3.0, num_threads=1)
    start = time.monotonic()
    results = run(
        runner,
        reference,
        right,
        wrong,
        right,
        crashing(),
        right,
        hanging(),
        right,
        failing(),
        right,
    )
    runner.close()
    assert time.monotonic() - start < 60  # one that hangs ends after 3, whatever else runs
    assert [result.reason for result in results] == [
        None, "wrong", None, "crash", None, "timeout", None, "run", None,
    ]  # fmt: skip
    assert "argument #1 differs from the unscheduled program at (" in (results[1].error or "")
    assert 0.04 < (results[1].error_ratio or 0) < 0.06
    assert "the process that ran it died (SIGSEGV)" in (results[3].error or "")
    assert results[5].error == "it ran longer than 3 s"
    assert "5" in (results[7].error or "")
    assert all(results[n].run_secs for n in (0, 2, 4, 6, 8))


def test_memory_of_a_candidate_is_limited(reference: Reference, right: Module) -> None:
    """Without a limit it gets the eight gigabytes that it asks for, as long as it writes none."""
    greedy = kernel(
        "entry:\n%p = call ptr @malloc(i64 8589934592)\n%none = icmp eq ptr %p, null\n"
        "br i1 %none, label %no, label %yes\nno:\nret i32 5\n"
        "yes:\nstore volatile i8 1, ptr %p\ncall void @free(ptr %p)\nret i32 0",
        "declare ptr @malloc(i64)\ndeclare void @free(ptr)\n",
    )
    for limit, reason in ((1 << 29, "run"), (1 << 45, "wrong")):
        limited = LocalRunner(evaluator_config=CONFIG, num_threads=1, memory_bytes=limit)
        assert [x.reason for x in run(limited, reference, greedy, right)] == [reason, None]
        limited.close()


def test_a_worker_is_replaced_after_some_candidates(
    reference: Reference, right: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = LocalRunner(evaluator_config=CONFIG, num_threads=1, candidates_per_worker=2)
    begun: list[None] = []
    start = runner._start
    monkeypatch.setattr(runner, "_start", lambda: (begun.append(None), start())[1])
    assert all(result.run_secs for result in run(runner, reference, *[right] * 5))
    assert 2 <= len(begun) <= 3
    runner.close()
    with pytest.raises(TuneError, match="positive memory_bytes and candidates_per_worker"):
        LocalRunner(candidates_per_worker=0)


def test_an_output_that_is_not_written_is_wrong(runner: LocalRunner, reference: Reference) -> None:
    (result,) = run(runner, reference, kernel("ret i32 0"))
    assert result.reason == "wrong"


def test_not_a_number_is_wrong(runner: LocalRunner, reference: Reference, right: Module) -> None:
    nan = driver.compile(double(factor=float("nan")), TARGET)
    (result,) = run(runner, reference, nan)
    assert result.reason == "wrong" and result.error_ratio == float("inf")
    # But where the unscheduled program gives it too, it is right.
    results = run(runner, Reference("nan", nan, reference.args_info), nan, right)
    assert [item.reason for item in results] == [None, "wrong"]


def test_tolerance_can_be_given(runner: LocalRunner, reference: Reference) -> None:
    near = driver.compile(double(factor=2.02), TARGET)
    loose = Reference("loose", reference.module, reference.args_info, tolerance=0.02)
    assert run(runner, loose, near)[0].reason is None
    assert run(runner, reference, near)[0].reason == "wrong"


def test_clearly_slower_candidates_are_given_up_early(runner: LocalRunner) -> None:
    size = 1 << 16
    big = driver.compile(double(size), TARGET)
    reference = Reference("big", big, arg_infos(double(size)))
    (raced,) = runner.run([RunnerInput(module=big, reference=reference, best_seconds=1e-8)])
    assert raced.run_secs is not None and len(raced.run_secs) == 1
    (measured,) = runner.run([RunnerInput(module=big, reference=reference, best_seconds=1.0)])
    assert measured.run_secs is not None and len(measured.run_secs) == 2


def test_a_race_takes_turns_and_drops_what_is_wrong_or_far_behind(
    runner: LocalRunner, right: Module
) -> None:
    size = 1 << 14
    func = double(size)
    fast, args = driver.compile(func, TARGET), arg_infos(func)
    wrong = driver.compile(double(size, factor=2.1), TARGET)
    scalar = Schedule(IRModule({"main": func}))
    (loop,) = scalar.get_loops(scalar.get_block("B"))
    outer, inner = scalar.split(loop, [None, 512])
    scalar.reorder(inner, outer)  # from one cache line to another
    slow = driver.compile(scalar.mod, TARGET)
    reference = Reference("race", fast, args)
    results = runner.race(
        [RunnerInput(module=m, reference=reference) for m in (fast, wrong, slow, fast)], rounds=10
    )
    assert [result.reason for result in results] == [None, "wrong", None, None]
    counts = [len(result.run_secs or ()) for result in results]
    assert counts[1] == 0 and 8 <= counts[2] <= 10
    assert max(counts[0], counts[3]) == 10
    assert runner.race([], rounds=6) == []


def test_candidates_of_several_tasks_take_turns(runner: LocalRunner) -> None:
    entries = []
    for size in (1 << 18, 64):
        module = driver.compile(double(size), TARGET)
        reference = Reference(f"double {size}", module, arg_infos(double(size)))
        entries.append(RunnerInput(module=module, reference=reference))
    long, short = runner.race(entries, rounds=10)
    # The long one is far behind, but it does something else.
    assert len(long.run_secs or ()) == len(short.run_secs or ()) == 10
    assert min(long.run_secs or ()) > 10 * min(short.run_secs or ())
    many = [replace(entries[0].reference, key=str(number)) for number in range(100)]
    with pytest.raises(TuneError, match="of up to 24 tasks, got 100"):
        runner.race(
            [RunnerInput(module=entries[0].module, reference=item) for item in many], rounds=1
        )


def test_a_crash_in_a_race_is_the_failure_of_its_candidate_only(
    runner: LocalRunner, reference: Reference, right: Module
) -> None:
    entries = [RunnerInput(module=module, reference=reference) for module in (right, crashing())]
    results = runner.race(entries, rounds=2)
    assert [result.reason for result in results] == [None, "crash"]
    assert results[0].run_secs and len(results[0].run_secs) == 2
    assert run(runner, reference, right)[0].run_secs


def test_results_come_one_by_one_and_a_runner_can_be_used_again(
    runner: LocalRunner, reference: Reference, right: Module
) -> None:
    results = runner.run(
        [
            RunnerInput(module=right, reference=reference),
            RunnerInput(module=right, reference=reference),
        ]
    )
    assert next(results).run_secs
    runner.close()
    assert next(results).run_secs
    assert run(runner, reference, right)[0].run_secs


def test_what_a_candidate_prints_does_not_disturb(
    runner: LocalRunner, reference: Reference, right: Module
) -> None:
    args = (TensorArg("A", "float32", (64,), written=False), TensorArg("B", "float32", (64,)))
    text = """
@text = constant [6 x i8] c"hello\\00"
declare i32 @puts(ptr)
define i32 @kernel(ptr %a, ptr %b) {
  %1 = call i32 @puts(ptr @text)
  ret i32 0
}"""
    noisy = build_module(text, [FunctionSpec("main", args, "kernel")])
    assert [r.reason for r in run(runner, reference, noisy, right)] == ["wrong", None]


def test_an_unscheduled_program_that_can_not_run_is_an_error(
    runner: LocalRunner, reference: Reference, right: Module
) -> None:
    for module, why in ((crashing(), "SIGSEGV"), (failing(), "5")):
        broken = Reference("broken", module, reference.args_info)
        with pytest.raises(NoReferenceError, match=f"could not be run as the reference: .*{why}"):
            run(runner, broken, right)
    assert run(runner, reference, right)[0].run_secs


def test_more_tasks_than_are_kept(
    runner: LocalRunner, right: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.meta_schedule.runner.local._TASKS_KEPT", 2)
    for number in range(4):
        reference = Reference(f"task {number}", right, arg_infos(double()))
        assert run(runner, reference, right)[0].run_secs


def test_a_task_that_is_being_prepared_counts_before_a_race(
    runner: LocalRunner, right: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the worker would be replaced in the middle, without the tasks that it had got."""
    monkeypatch.setattr("tilewright.meta_schedule.runner.local._TASKS_KEPT", 3)
    a, b, c, d = (Reference(f"task {n}", right, arg_infos(double())) for n in range(4))
    assert run(runner, a, right)[0].run_secs
    runner.prepare(b)
    results = runner.race([RunnerInput(module=right, reference=item) for item in (a, c, d)], 1)
    assert all(result.run_secs for result in results)


def test_what_went_wrong_in_prepare_is_forgotten_when_the_runner_is_closed(
    runner: LocalRunner, reference: Reference, right: Module
) -> None:
    runner.prepare(Reference("crashes", crashing(), arg_infos(double())))
    assert run(runner, reference, right)[0].run_secs
    runner.close()
    assert run(runner, Reference("crashes", right, arg_infos(double())), right)[0].run_secs


def test_an_interrupt_leaves_no_stale_answer(reference: Reference, right: Module) -> None:
    runner = LocalRunner(evaluator_config=CONFIG, timeout_sec=20.0, num_threads=1)
    assert run(runner, reference, right)[0].run_secs
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run(runner, reference, hanging())
    timer.join()
    assert run(runner, reference, crashing(), right)[1].run_secs
    runner.close()


def test_closing_leaves_no_process(reference: Reference, right: Module) -> None:
    children = processes()
    runner = LocalRunner(evaluator_config=CONFIG, num_threads=1)
    run(runner, reference, right)
    runner.close()
    runner.close()
    assert processes() <= children


@pytest.mark.parametrize("size", [5, 64, 300_000])
def test_candidates_are_timed_on_aligned_memory(size: int) -> None:
    """NumPy's large arrays begin 16 bytes into a page, where vectors cross lines of the cache."""
    func = double(size)
    task = Task(Reference("double", driver.compile(func, TARGET), arg_infos(func)))
    moved = _fresh(task.timing)
    for item in (*task.timing, *moved):
        assert item.numpy().ctypes.data % 64 == 0
    for item, other, argument in zip(task.timing, moved, task.arguments):
        assert item.numpy().ctypes.data != other.numpy().ctypes.data
        np.testing.assert_array_equal(item.numpy(), argument)
        np.testing.assert_array_equal(other.numpy(), argument)


@pytest.mark.parametrize("odd", [0, -1, float("nan")])
def test_a_timeout_must_be_positive(odd: float) -> None:
    for name in ("timeout_sec", "reference_timeout_sec"):
        options: dict[str, float] = {name: odd}
        with pytest.raises(TuneError, match="LocalRunner needs positive timeouts"):
            LocalRunner(**options)  # type: ignore[arg-type]


# ---- comparing, arguments ------------------------------------------------------------------------


def test_differences_are_found_anywhere_in_large_arrays() -> None:
    size = 3 * _CHUNK + 17
    expected = np.linspace(-4.0, 1.0, size, dtype="float32").reshape(1, size)
    for place in (0, _CHUNK, size - 1):
        actual = expected.copy()
        actual[0, place // 2] += 0.25
        actual[0, place] += 1.0
        ratio, where = Expected(expected, "float32").difference(actual)
        assert abs(ratio - 0.25) < 0.1 and where == f"(0, {place})"
        actual[0, size // 2] = np.nan
        assert Expected(expected, "float32").difference(actual)[0] == np.inf
    strange = expected.copy()
    strange[0, -1] = np.nan
    assert Expected(strange, "float32").difference(strange) == (0.0, "(0, 0)")


@pytest.mark.parametrize(
    ("actual", "expected", "dtype", "ratio"),
    [
        ([1.0, 2.0], [1.0, 2.0], "float32", 0.0),
        ([1.0, 3.0], [1.0, 2.0], "float32", 0.5),
        ([np.inf, 1.0], [np.inf, 1.0], "float32", 0.0),
        ([-np.inf, 1.0], [np.inf, 1.0], "float32", np.inf),
        ([np.nan, 1.0], [np.nan, 1.0], "float32", 0.0),
        ([1.0, np.nan], [1.0, 2.0], "float32", np.inf),
        ([1.0, np.inf], [1.0, 2.0], "float32", np.inf),
        ([], [], "float32", 0.0),
        ([1, 2], [1, 3], "int32", np.inf),
        ([1, 2], [1, 2], "int32", 0.0),
        ([True], [False], "bool", np.inf),
    ],
)
def test_difference(actual: list[float], expected: list[float], dtype: str, ratio: float) -> None:
    found, _ = Expected(np.array(expected, dtype), dtype).difference(np.array(actual, dtype))
    assert found == ratio


def test_random_arguments_can_be_repeated_and_serve_as_indices() -> None:
    infos: tuple[ArgInfo, ...] = (
        TensorInfo("float32", (5, 4)),
        TensorInfo("int64", (1000,)),
        TensorInfo("int8", (1000,)),
        TensorInfo("uint8", (1000,)),
        TensorInfo("bool", (1000,)),
        TensorInfo("bfloat16", (7,)),
        TensorInfo("float32", ()),
        ScalarInfo("int64", 3),
    )
    first, again = random_arguments(infos, 1), random_arguments(infos, 1)
    other = random_arguments(infos, 2)
    assert not np.array_equal(first[0], other[0])
    for info, a, b in zip(infos, first, again):
        assert np.array_equal(a, b)
        if isinstance(info, TensorInfo):
            assert a.shape == info.shape and a.dtype.name == info.dtype
    assert set(first[1]) == {0, 1, 2, 3}
    assert first[2].min() < 0 and first[3].max() < 8
    assert first[-1] == 3


def test_inputs_may_be_built_meanwhile(
    runner: LocalRunner, reference: Reference, right: Module
) -> None:
    asked: list[int] = []

    def inputs() -> Iterator[RunnerInput]:
        for number in range(3):
            asked.append(number)
            yield RunnerInput(module=right, reference=reference)

    results = runner.run_each(inputs())
    for number in range(3):
        assert next(results).run_secs is not None
        assert asked == list(range(number + 1))


def test_how_a_subclass_runs_is_how_each_is_run(reference: Reference, right: Module) -> None:
    class Own(LocalRunner):
        def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
            for result in super().run(inputs):
                yield replace(result, error_msg=f"one of {len(inputs)}")

    own = Own(evaluator_config=CONFIG, num_threads=1)
    try:
        results = list(own.run_each(iter([RunnerInput(module=right, reference=reference)] * 2)))
    finally:
        own.close()
    assert [result.error for result in results] == ["one of 2"] * 2
