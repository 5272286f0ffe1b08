"""Parallel loops: as many threads as the work is worth, shared out as the loop asks."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tilewright import driver, te
from tilewright.arith import simplify
from tilewright.codegen.llvm.emit import emit_module
from tilewright.ir import IRModule, Var, as_int, const, substitute
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import BufferStore, For, decl_buffer
from tilewright.tir.parallel_work import iteration_work
from tilewright.tir.schedule import Schedule

FOUR = Target("native").with_options(num_cores=4)


def exp_rows(rows: Any, columns: Any, **annotations: Any) -> IRModule:
    """``exp`` of a matrix, parallel over rows."""
    a = te.placeholder((rows, columns), name="A")
    b = te.compute((rows, columns), lambda i, j: te.exp(a[i, j]), name="B")
    sch = Schedule(te.create_prim_func([a, b]))
    row, _ = sch.get_loops(sch.get_block("B"))
    sch.parallel(row)
    for key, value in annotations.items():
        sch.annotate(row, key, value)
    return sch.mod


def launches(mod: IRModule, target: Target = FOUR) -> list[str]:
    """The launches in the code: their name and what follows the context."""
    text = emit_module(driver.lower(mod, target), target).text
    return re.findall(r"call i32 @tw_(\w+)\(ptr @\S+ ptr \S+ (.*)\)", text)


def check(mod: IRModule, rows: int = 37, columns: int = 24) -> None:
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype("float32")
    y = np.zeros_like(x)
    driver.compile(mod, FOUR)["main"](x, y)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-5)


def test_small_work_stays_on_one_thread():
    mod = exp_rows(37, 24)
    assert launches(mod) == []
    check(mod)


def test_threads_grow_with_the_work():
    found = [launches(exp_rows(rows, 64)) for rows in (16, 40, 64, 4000)]
    counts = [1 if not made else int(made[0][1].split()[-1]) for made in found]
    assert counts == sorted(counts)
    assert counts[0] == 1 and 1 < counts[1] < 4 and counts[3] == 4
    assert launches(exp_rows(4000, 64), Target("native").with_options(num_cores=1)) == []


def test_symbolic_work_is_computed_before_the_loop():
    mod = exp_rows(Var("n"), Var("m"))
    ((name, args),) = launches(mod)
    assert name == "parallel_launch" and re.fullmatch(r"i64 %\w+, i32 %\w+", args)
    check(mod)
    check(mod, 700, 500)


def test_a_grain_goes_before_the_estimate():
    mod = exp_rows(37, 24, parallel_grain=10)
    assert launches(mod) == [("parallel_launch", "i64 37, i32 4")]
    check(mod)
    assert launches(exp_rows(37, 24, parallel_grain=20)) == [("parallel_launch", "i64 37, i32 2")]
    assert launches(exp_rows(37, 24, parallel_grain=37)) == []


@pytest.mark.parametrize("rows", [37, "n"])
def test_dynamic_loops_take_a_few_iterations_at_once(rows: Any):
    extent = Var(rows) if isinstance(rows, str) else rows
    mod = exp_rows(extent, 24, parallel_schedule="dynamic", parallel_grain=3)
    ((name, args),) = launches(mod)
    assert name == "parallel_launch_dynamic" and args.endswith("i64 3")
    check(mod)


def test_without_a_grain_cheap_iterations_are_taken_by_the_dozen():
    ((_, cheap),) = launches(exp_rows(100_000, 8, parallel_schedule="dynamic"))
    ((_, dear),) = launches(exp_rows(100, 5000, parallel_schedule="dynamic"))
    assert int(cheap.split()[-1]) > 4
    assert dear.endswith("i64 1")


@pytest.mark.parametrize(
    "annotation, message",
    [
        ({"parallel_schedule": "guided"}, "takes 'static' or 'dynamic'; found 'guided'"),
        ({"parallel_grain": 0}, "takes an integer from 1 up; found 0"),
    ],
)
def test_what_is_not_known_is_refused(annotation: dict[str, Any], message: str):
    with pytest.raises(ScheduleError, match=message):
        launches(exp_rows(64, 64, **annotation))


@pytest.mark.parametrize("lanes", [3, 4, 16, 64])
def test_vectors_of_the_enclosing_function_are_passed_on(lanes: int):
    program = parse(f"""
@T.prim_func
def main(A: T.Buffer((100,), "float32"), B: T.Buffer((4096, {lanes}), "float32")):
    with T.LetStmt(A[T.Ramp(3, 1, {lanes})]) as v:
        for i in T.parallel(4096, annotations={{"parallel_grain": 16}}):
            B[i, T.Ramp(0, 1, {lanes})] = v
""")
    mod = IRModule({"main": program})
    assert launches(mod)
    a = np.arange(100, dtype="float32")
    b = np.zeros((4096, lanes), "float32")
    driver.compile(mod, FOUR)["main"](a, b)
    assert (b == a[3 : 3 + lanes]).all()


def loop_over(extent_of: Any, n: Var) -> For:
    """``for i < n: for j < extent_of(i): B[j] = 1``, parallel over ``i``."""
    i, j = Var("i"), Var("j")
    store = BufferStore(decl_buffer((100,), "float32", "B"), const(1.0, "float32"), (j,))
    inner = For(j, const(0), extent_of(i), "serial", store)
    return For(i, const(0), n, "parallel", inner)


def test_work_of_a_triangular_loop_is_that_of_its_middle():
    n = Var("n")
    triangle, square = (iteration_work(loop_over(f, n)) for f in (lambda i: i, lambda i: const(50)))
    assert as_int(square) is not None
    for size in (10, 100):
        each = as_int(simplify(substitute(triangle, {n: const(size)})))
        assert each == size // 2 * as_int(square) // 50


def test_a_count_from_memory_leaves_the_work_open():
    counts = decl_buffer((10,), "int64", "counts")
    assert iteration_work(loop_over(lambda i: counts[i], Var("n"))) is None


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize(("low", "high"), [(0, 5), (2, 5), (3, 3), (-2, 1)])
def test_the_pool_counts_loops_of_every_dtype(dtype: str, low: int, high: int) -> None:
    func = parse(
        f"""
@T.prim_func
def main(low: T.{dtype}, high: T.{dtype}, A: T.Buffer((8,), "float32")):
    for i in T.parallel(low, high):
        A[i + T.{dtype}(2)] = 1.0
"""
    )
    found = np.zeros(8, "float32")
    driver.compile(func, FOUR)(low, high, found)
    assert np.flatnonzero(found).tolist() == [i + 2 for i in range(low, high)]
