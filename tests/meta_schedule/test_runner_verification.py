"""Checking candidates: kinds of inputs, guarded memory, second calls, tolerances."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.codegen.llvm.ffi_abi import FunctionSpec, TensorArg
from tilewright.codegen.llvm.package import build_module
from tilewright.ir import Expr, IRModule, Var, and_, cast, const, if_then_else, maximum, minimum
from tilewright.meta_schedule.arg_info import TensorInfo, arg_infos
from tilewright.meta_schedule.runner import (
    EvaluatorConfig,
    LocalRunner,
    Reference,
    RunnerInput,
    RunnerResult,
    worker,
)
from tilewright.meta_schedule.runner.inputs import KINDS, arguments_of
from tilewright.meta_schedule.runner.traits import Traits, traits_of, traits_of_arguments
from tilewright.meta_schedule.runner.verification import Checked, Expected, Task
from tilewright.runtime import GuardedArray, Module
from tilewright.target import Target
from tilewright.tir import PrimFunc

TARGET = Target("native").with_options(num_cores=1)
ALL = (*(kind.name for kind in KINDS), "again")


def function(*tensors: te.Tensor) -> PrimFunc:
    return te.create_prim_func(list(tensors))


def doubled(factor: float = 2.0) -> PrimFunc:
    a = te.placeholder((64,), name="A")
    return function(a, te.compute((64,), lambda i: a[i] * factor, name="B"))


def reference_of(func: PrimFunc) -> Reference:
    infos = arg_infos(func)
    module = driver.compile(func, TARGET)
    return Reference("reference", module, infos, traits=traits_of(func, infos))


def kernel(body: str, globals_: str = "") -> Module:
    """A module with a kernel of two vectors of 64 floats, by its LLVM text."""
    args = (TensorArg("A", "float32", (64,), written=False), TensorArg("B", "float32", (64,)))
    text = f"""{globals_}
define i32 @kernel(ptr %a, ptr %b) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %from = getelementptr float, ptr %a, i64 %i
  %to = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %from
  %y = fmul float %x, 2.0
{body}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 64
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}}"""
    return build_module(text, [FunctionSpec("main", args, "kernel")])


RIGHT = "  store float %y, ptr %to"
# Kernels that double, but for one thing; and whether that ends their process.
FAULTS: dict[str, tuple[str, str, bool]] = {
    "writes past the end": (
        RIGHT + "\n  %up = getelementptr float, ptr %to, i64 1\n  store float %y, ptr %up", "", True
    ),
    "writes far past the end": (
        RIGHT + "\n  %up = getelementptr float, ptr %to, i64 90000\n  store float %y, ptr %up",
        "",
        True,
    ),
    "writes before the beginning": (
        "  %up = getelementptr float, ptr %to, i64 -1\n  store float %y, ptr %up\n" + RIGHT, "",
        False,
    ),
    "reads past the end": (
        RIGHT + "\n  %up = getelementptr float, ptr %from, i64 1\n"
        "  %z = load volatile float, ptr %up",
        "",
        True,
    ),
    "changes its input": (RIGHT + "\n  store float %y, ptr %from", "", True),
    "keeps a state": (
        "  %s = load float, ptr @state\n  %z = fadd float %y, %s\n"
        "  %last = icmp eq i64 %i, 63\n  %t = select i1 %last, float 1.0, float %s\n"
        "  store float %t, ptr @state\n  store float %z, ptr %to",
        "@state = internal global float 0.0",
        False,
    ),
    "knows no NaN": (
        "  %n = fcmp ord float %y, 0.0\n  %z = select i1 %n, float %y, float 0.0\n"
        "  store float %z, ptr %to",
        "",
        False,
    ),
    "knows no infinity": (
        "  %n = fcmp ogt float %y, 0x47EFFFFFE0000000\n"
        "  %z = select i1 %n, float 0x47EFFFFFE0000000, float %y\n  store float %z, ptr %to",
        "",
        False,
    ),
    "leaves an element out": (
        "  %n = icmp eq i64 %i, 40\n  %old = load float, ptr %to\n"
        "  %z = select i1 %n, float %old, float %y\n  store float %z, ptr %to",
        "",
        False,
    ),
    "adds to what was there": (
        "  %old = load float, ptr %to\n  %z = fadd float %y, %old\n  store float %z, ptr %to", "",
        False,
    ),
    "is right for small numbers": (
        "  %n = fcmp ogt float %y, 1.0e4\n  %z = select i1 %n, float 1.0e4, float %y\n"
        "  store float %z, ptr %to",
        "",
        False,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    config = EvaluatorConfig(repeat=1, min_repeat_ms=0.2, retries=0)
    made = LocalRunner(evaluator_config=config, timeout_sec=20.0, num_threads=1)
    yield made
    made.close()


@pytest.fixture(scope="module")
def reference() -> Reference:
    return reference_of(doubled())


@pytest.fixture(scope="module")
def task(reference: Reference) -> Task:
    return Task(reference)


def run(runner: LocalRunner, reference: Reference, *modules: Module) -> list[RunnerResult]:
    return list(runner.run([RunnerInput(module=module, reference=reference) for module in modules]))


def test_what_is_right_is_right_for_all_kinds(runner: LocalRunner, reference: Reference) -> None:
    (result,) = run(runner, reference, kernel(RIGHT))
    assert result.run_secs and result.seed == 0
    # On a busy machine the rarer kinds may be left out.
    assert set(result.inputs) <= set(ALL) and {*ALL[:2], "again"} <= set(result.inputs)
    assert result.verdict == {
        "against": "unscheduled program",
        "relative_difference": 0.0,
        "trusted_timing": result.trusted,
        "inputs": list(result.inputs),
        "seed": 0,
    }
    (raced,) = runner.race([RunnerInput(module=kernel(RIGHT), reference=reference)], rounds=1)
    assert raced.inputs == ALL


@pytest.mark.parametrize("name", [name for name, (*_, dies) in FAULTS.items() if not dies])
def test_a_fault_is_found(name: str, task: Task) -> None:
    body, globals_, _ = FAULTS[name]
    assert task.check(kernel(body, globals_)).error is not None


@pytest.mark.parametrize("name", [name for name, (*_, dies) in FAULTS.items() if dies])
def test_what_leaves_its_memory_ends(name: str, task: Task) -> None:
    body, globals_, _ = FAULTS[name]
    child = os.fork()
    if child == 0:
        task.check(kernel(body, globals_))
        os._exit(0)
    assert os.waitpid(child, 0)[1] & 0x7F == signal.SIGSEGV


def test_a_write_outside_ends_the_candidate_and_not_the_runner(
    runner: LocalRunner, reference: Reference
) -> None:
    fault = kernel(*FAULTS["writes past the end"][:2])
    results = run(runner, reference, fault, kernel(RIGHT))
    assert [item.reason for item in results] == ["crash", None]


def test_messages_name_the_kind(task: Task) -> None:
    found = task.check(kernel(*FAULTS["knows no NaN"][:2]))
    assert found.error is not None and found.error.endswith("(inputs: special)")


def test_without_verification_anything_passes_and_says_so(reference: Reference) -> None:
    config = EvaluatorConfig(repeat=1, min_repeat_ms=0.2, retries=0, verify=False)
    runner = LocalRunner(evaluator_config=config, num_threads=1)
    (result,) = run(runner, reference, driver.compile(doubled(3.0), TARGET))
    (raced,) = runner.race(
        [RunnerInput(module=driver.compile(doubled(3.0), TARGET), reference=reference)], 2
    )
    runner.close()
    for item in (result, raced):
        assert item.run_secs and item.verdict == {} and not item.verified


def test_hopeless_ones_are_called_once(task: Task) -> None:
    found = task.check(kernel(RIGHT), hopeless=0.0)
    assert found == Checked({}, 0.0, found.seconds, None, ("random",))


def test_slow_ones_are_checked_with_random_inputs_only_unless_they_win(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EvaluatorConfig(repeat=1, min_repeat_ms=0.2, retries=0)
    for best, few in ((1e-12, True), (None, False)):
        result = worker.evaluate(kernel(RIGHT), task, best, config)
        assert (result.inputs == ("random",)) is few
    monkeypatch.setattr(worker, "_SLOW", 0.0)  # every first call is slow
    result = worker.evaluate(kernel(RIGHT), task, 1e-2, config)
    wrong = worker.evaluate(kernel(*FAULTS["knows no NaN"][:2]), task, 1e-2, config)
    assert "again" in result.inputs and wrong.reason == "wrong"


def test_two_calls_may_round_differently_if_their_order_varies(task: Task) -> None:
    # The second of two calls has another last bit.
    globals_ = "@calls = internal global i64 0"
    body = """
  %c = load i64, ptr @calls
  %d = add i64 %c, 1
  store i64 %d, ptr @calls
  %late = icmp sge i64 %c, 448
  %bit = zext i1 %late to i32
  %z = bitcast float %y to i32
  %w = xor i32 %z, %bit
  %v = bitcast i32 %w to float
  store float %v, ptr %to"""
    assert "between two calls" in (task.check(kernel(body, globals_)).error or "")
    assert task.check(kernel(body, globals_), varies=True).error is None


def test_products_of_bytes_that_saturate_are_found() -> None:
    """Extreme bytes tell what adds pairs of products in 16 bits, as some instructions do."""
    a, b = te.placeholder((4, 8), "uint8", "a"), te.placeholder((8, 4), "int8", "b")
    exact = reference_of(function(a, b, topi.matmul(a, b, out_dtype="int32")))
    k = te.reduce_axis((0, 4), name="k")

    def products(i: Var, j: Var) -> Expr:
        terms = (cast(a[i, n], "int32") * cast(b[n, j], "int32") for n in (2 * k, 2 * k + 1))
        return te.sum(maximum(minimum(sum(terms), 32767), -32768), axis=k)

    wrong = driver.compile(function(a, b, te.compute((4, 4), products, name="c")), TARGET)
    found = Task(exact).check(wrong)
    assert found.error is not None and "(inputs: special)" in found.error


# ---- what is demanded ----------------------------------------------------------------------------


def test_infinite_results_of_large_numbers_are_not_compared() -> None:
    expected = np.array([np.inf, 1.0, np.nan], "float32")
    actual = np.array([3.0, 1.0, 7.0], "float32")
    assert Expected(expected, "float32", overflows=True).difference(actual)[0] == 0.0
    assert Expected(expected, "float32").difference(actual) == (math.inf, "(0,)")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_all_float_types_are_compared(dtype: str) -> None:
    info = TensorInfo(dtype, (70000,))
    (expected,) = arguments_of(1, [info], 0)
    actual = expected.copy()
    assert Expected(expected, dtype).difference(actual)[0] == 0.0
    actual[69000] = 3.0 if np.isfinite(expected[69000].astype("float64")) else 0.0
    ratio, where = Expected(expected, dtype).difference(actual)
    assert ratio > 1.0 and where == "(69000,)"


@pytest.mark.parametrize("wrong", [False, True])
def test_products_with_zeros_of_padding_may_be_left_out_and_no_others(wrong: bool) -> None:
    """NaN times the zero of padding is NaN only if it is computed."""
    x, w = te.placeholder((6,), name="x"), te.placeholder((4, 3), name="w")
    k, k2 = (te.reduce_axis((0, 3), name="k") for _ in range(2))

    def element(i: Var) -> Expr:
        return if_then_else(and_(i >= 1, i < 7), x[i - 1], const(0.0, "float32"))

    padded = te.compute((8,), element, name="padded")
    out = te.compute((4, 6), lambda c, i: te.sum(padded[i + k] * w[c, k], axis=k), name="out")
    task = Task(reference_of(function(x, w, out)))
    assert task.reference.traits.pads
    zero = const(0.0, "float32")

    def skipping(c: Var, i: Var) -> Expr:
        place = i + k2 - 1
        product = x[place] * w[c, k2]
        if wrong:  # no product is NaN
            product = if_then_else(product == product, product, zero)
        return te.sum(if_then_else(and_(place >= 0, place < 6), product, zero), axis=k2)

    other = function(x, w, te.compute((4, 6), skipping, name="out"))
    found = task.check(driver.compile(other, TARGET))
    assert (found.error is not None) is wrong


def test_cancellation_is_not_blamed_on_candidates() -> None:
    """All is noise in a variance of equal numbers, which differs with the order of the sum."""
    x = te.placeholder((4, 100), name="x")
    k = te.reduce_axis((0, 100), name="k")
    mean = te.compute((4,), lambda i: te.sum(x[i, k] * 0.01, axis=k), name="mean")
    out = te.compute((4, 100), lambda i, j: (x[i, j] - mean[i]) * 1000.0, name="out")
    task = Task(reference_of(function(x, out)))
    k2 = te.reduce_axis((0, 100), name="k")
    mean2 = te.compute((4,), lambda i: te.sum(x[i, 99 - k2] * 0.01, axis=k2), name="mean")
    out2 = te.compute((4, 100), lambda i, j: (x[i, j] - mean2[i]) * 1000.0, name="out")
    assert task.check(driver.compile(function(x, out2), TARGET)).error is None


def test_traits_of_programs() -> None:
    a, b = te.placeholder((8, 300), name="a"), te.placeholder((300, 4), name="b")
    product = function(a, b, topi.matmul(a, b))
    traits = traits_of(product, arg_infos(product))
    assert traits == Traits(300, float(np.finfo("float32").eps), frozenset())
    assert 1e-5 < traits.tolerance < 2e-5
    halves = [te.placeholder(shape, "float16", "x") for shape in ((8, 300), (300, 4))]
    narrow = function(*halves, topi.matmul(*halves))
    assert traits_of(narrow, arg_infos(narrow)).epsilon == float(np.finfo("float16").eps)
    wide = function(*halves, topi.matmul(*halves, out_dtype="float32"))
    assert traits_of(wide, arg_infos(wide)).epsilon == float(np.finfo("float32").eps)
    n = Var("n")
    x = te.placeholder((4, n), name="x")
    rows = function(x, topi.sum(x, axis=1))
    assert traits_of(rows, arg_infos(rows, {"n": 7})).reduction == 7


def test_arguments_that_make_addresses_are_fixed() -> None:
    table, rows = te.placeholder((9, 4), name="t"), te.placeholder((5,), "int32", "rows")
    taken = function(table, rows, topi.take(table, rows, axis=0))
    infos = arg_infos(taken)
    traits = traits_of(taken, infos)
    assert traits.fixed == {1}
    for number in range(len(KINDS)):
        arguments = arguments_of(number, infos, 0, traits.fixed, written=[2])
        assert arguments[1].min() >= 0 and arguments[1].max() < 9
        if number:
            assert np.isnan(arguments[2]).all()
    a, b = te.placeholder((5,), "int32", "a"), te.placeholder((5,), "int32", "b")
    divided = function(a, b, te.compute((5,), lambda i: a[i] // b[i], name="c"))
    assert traits_of(divided, arg_infos(divided)).fixed == {1}


def test_of_unknown_programs_only_random_inputs_are_tried(reference: Reference) -> None:
    unknown = replace(reference, traits=traits_of_arguments(reference.args_info))
    task = Task(unknown)
    assert [case.name for case in task.cases] == ["random", "random"]
    first, second = (case.arguments[0] for case in task.cases)
    assert np.isfinite(second).all() and not np.array_equal(first, second)
    assert task.check(kernel(RIGHT)).kinds == ("random", "again")


@pytest.mark.parametrize("from_start", [False, True])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (1024,), (3, 1000)])
def test_guarded_arrays(shape: tuple[int, ...], from_start: bool) -> None:
    memory = GuardedArray(shape, "float32", from_start=from_start)
    memory.array[...] = 1.0
    assert memory.array.shape == shape and not memory.overrun()
    address = memory.array.ctypes.data
    assert (address if from_start else address + memory.array.nbytes) % 4096 == 0
    memory.set_writable(False)
    memory.set_writable(True)
    memory.array[...] = 2.0
    aligned = GuardedArray((5,), "float32", alignment=64)
    assert aligned.array.ctypes.data % 64 == 0
    np.lib.stride_tricks.as_strided(aligned.array, (7,), (4,))[6] = 0.0
    assert [aligned.overrun(), aligned.overrun()] == [True, False]


def test_sums_may_leave_padding_out_but_must_be_right_where_results_are_finite() -> None:
    """A tap of a filter that is infinite makes NaN of the zeros around an image, or nothing."""
    x, w = te.placeholder((1, 16, 8, 8), name="x"), te.placeholder((16, 16, 3, 3), name="w")
    func = function(x, w, topi.nn.conv2d(x, w, 1, 1, 1))
    by_rule = dlight.ApplyDefaultSchedule(*dlight.kernels_and_rules(), target=TARGET)(
        IRModule({"main": func})
    )
    padded = Task(reference_of(func))
    assert padded.reference.traits.pads
    assert padded.check(driver.compile(by_rule, TARGET)).error is None
    other = function(x, w, topi.nn.relu(topi.nn.conv2d(x, w, 1, 1, 1)))
    assert padded.check(driver.compile(other, TARGET)).error is not None


@pytest.mark.parametrize("mask", ["causal", "bool"])
def test_what_is_masked_is_finite(mask: str) -> None:
    """Kernels may add minus infinity to masked scores, or leave them out."""
    q, k, v = (te.placeholder((1, 2, 24, 16), name="qkv") for _ in range(3))
    seen = te.placeholder((1, 1, 24, 24), "bool", name="seen")
    masks = [seen] if mask == "bool" else []
    causal = None if mask == "bool" else "TopLeft"
    attention = topi.nn.scaled_dot_product_attention
    func = function(q, k, v, *masks, attention(q, k, v, *masks, scale=0.3, causal_mask=causal))
    task = Task(reference_of(func))
    assert task.reference.traits.masks
    for case in task.cases:
        assert all(np.isfinite(case.arguments[index]).all() for index in range(3))
    by_rule = dlight.ApplyDefaultSchedule(*dlight.kernels_and_rules(), target=TARGET)(
        IRModule({"main": func})
    )
    assert task.check(driver.compile(by_rule, TARGET)).error is None


def test_large_numbers_are_finite() -> None:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        (large,) = arguments_of(3, [TensorInfo(dtype, (50,))], 0)
        wide = large.astype("float64")
        assert np.isfinite(wide**3).all() and np.abs(wide).max() > 4.0
