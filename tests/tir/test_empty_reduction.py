"""A reduction over nothing gives its initial value, whatever the order of its loops."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import te, topi
from tilewright.ir import IRModule, as_int
from tilewright.script import parse
from tilewright.script import tir as T
from tilewright.tir import PrimFunc, Schedule, analysis
from tilewright.tir.interpreter import run


@T.prim_func
def product(a: T.handle, b: T.handle, out: T.Buffer((6, 8), "float32")):
    k = T.int64()
    A = T.match_buffer(a, (6, k), "float32")
    B = T.match_buffer(b, (k, 8), "float32")
    for i, j, r in T.grid(6, 8, k):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, r])
            with T.init():
                out[vi, vj] = T.float32(0)
            out[vi, vj] = out[vi, vj] + A[vi, vk] * B[vk, vj]


def outside(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(k, i, j)


def between(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(i, k, j)
    sch.vectorize(j)


def tiled(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, [None, 4])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(k0, i0, j, k1, i1)
    sch.parallel(j)


def as_block(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, [3, 2])
    sch.reorder(k, i0, i1, j)
    sch.blockize(i1)


def with_copies(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(k, i, j)
    sch.compute_at(sch.cache_read(sch.get_block("C"), 0, "global"), k)
    sch.cache_write(sch.get_block("C"), 0, "global")


def decomposed(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(i, k, j)
    sch.decompose_reduction(sch.get_block("C"), k)


def nothing(sch: Schedule) -> None:
    pass


SCHEDULES = (nothing, outside, between, tiled, as_block, with_copies, decomposed)


def results(func: PrimFunc, *arrays: np.ndarray) -> list[np.ndarray]:
    """What the interpreter and compiled code make of some operands, one after the other."""
    analysis.verify(func)
    out = func.buffers[-1]
    found = [np.full([as_int(e) for e in out.shape], 7).astype(out.dtype) for _ in range(2)]
    run(func, *arrays, found[0])
    tilewright.compile(IRModule({"main": func}), "llvm")["main"](*arrays, found[1])
    return found


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda f: f.__name__)
def test_the_order_of_loops_does_not_matter(schedule: Callable[[Schedule], None]) -> None:
    sch = Schedule(product)
    schedule(sch)
    func = sch.mod["main"]
    rng = np.random.default_rng(0)
    for size in (0, 1, 5):
        a = rng.standard_normal((6, size), dtype=np.float32)
        b = rng.standard_normal((size, 8), dtype=np.float32)
        for found in results(func, a, b):
            np.testing.assert_allclose(found, a @ b, rtol=1e-5, atol=1e-6)


def test_known_sizes() -> None:
    a, b = te.placeholder((6, 0), name="a"), te.placeholder((0, 8), name="b")
    sch = Schedule(te.create_prim_func([a, b, topi.matmul(a, b)]))
    (block,) = sch.get_child_blocks(sch.get_block("root"))
    i, j, k = sch.get_loops(block)
    sch.reorder(k, i, j)
    for found in results(sch.mod["main"], np.zeros((6, 0), "float32"), np.zeros((0, 8), "float32")):
        np.testing.assert_array_equal(found, 0)


@T.prim_func
def chained(a: T.handle, out: T.Buffer((4,), "float32")):
    """Sums of sums: the inner ones have rows, of which there may be none, as axes."""
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    rows = T.alloc_buffer((n,), "float32")
    for r in range(n):
        for c in range(m):
            with T.block("rows"):
                v, w = T.axis.remap("SR", [r, c])
                with T.init():
                    rows[v] = T.float32(1)
                rows[v] = rows[v] + A[v, w]
        for i in range(4):
            with T.block("total"):
                u, v = T.axis.remap("SR", [i, r])
                with T.init():
                    out[u] = T.Cast("float32", u)
                out[u] = out[u] + rows[v]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 3)])
def test_only_what_reduces_over_nothing_is_initialised(shape: tuple[int, int]) -> None:
    a = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    for found in results(chained, a):
        expected = np.arange(4) + (1 + a.sum(1)).sum()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@T.prim_func
def repeated(n: T.int64, a: T.Buffer((4, 3), "float32"), out: T.Buffer((4,), "float32")):
    for _again in range(n):
        for i, k in T.grid(4, 3):
            with T.block("sum"):
                v, w = T.axis.remap("SR", [i, k])
                with T.init():
                    out[v] = T.float32(0)
                out[v] = out[v] + a[v, w]


def test_loops_that_do_not_reduce_do_nothing_without_iterations() -> None:
    a, found = np.ones((4, 3), np.float32), np.full(4, 7, np.float32)
    kernel = tilewright.compile(IRModule({"main": repeated}), "llvm")["main"]
    run(repeated, 0, a, found)
    np.testing.assert_array_equal(found, 7)
    kernel(0, a, found)
    np.testing.assert_array_equal(found, 7)
    kernel(2, a, found)
    np.testing.assert_array_equal(found, 3)


@T.prim_func
def is_nothing(a: T.handle, out: T.Buffer((1,), "int32")):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    if n <= 0:
        out[0] = 1
    else:
        out[0] = 0
    for i in range((n + 3) // 4):
        if n <= 0:
            out[0] = T.Cast("int32", A[i])


def test_sizes_may_be_zero_but_not_inside_loops_over_them() -> None:
    for size in (0, 5):
        for found in results(is_nothing, np.zeros(size, np.float32)):
            np.testing.assert_array_equal(found, size == 0)
    lowered = tilewright.lower(IRModule({"main": is_nothing}), "llvm")["main"].script()
    assert "n < 1" in lowered and "for" not in lowered


REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "sum": (topi.sum, np.sum, "float32"),
    "sum of int": (topi.sum, np.sum, "int64"),
    "prod": (topi.prod, np.prod, "float32"),
    "mean": (topi.mean, np.mean, "float32"),
    "all": (topi.all, np.all, "bool"),
    "any": (topi.any, np.any, "bool"),
}


@pytest.mark.parametrize("axis", [0, 1, (0, 1), None])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_numpys(name: str, shape: tuple[int, int], axis: Any) -> None:
    ours, theirs, dtype = REDUCTIONS[name]
    x = te.placeholder(shape, dtype, "x")
    array = np.zeros(shape, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = theirs(array, axis=axis)
    for found in results(te.create_prim_func([x, ours(x, axis=axis)]), array):
        np.testing.assert_array_equal(found, expected)


def test_threads_inside_of_a_reduction_over_nothing_start_it_too() -> None:
    func = parse("""
@T.prim_func
def main(z: T.handle, a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (3, n), "float32")
    Z = T.match_buffer(z, (3,), "float32")
    for k, i in T.grid(n, 3):
        with T.block("Z"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                Z[vi] = T.float32(5)
            Z[vi] = Z[vi] + A[vi, vk]
""")
    sch = Schedule(func)
    sch.bind(sch.get_loops("Z")[1], "threadIdx.x")
    for n in (0, 2):
        z = np.full(3, 9, "float32")
        run(sch.mod, z, np.ones((3, n), "float32"))
        assert z.tolist() == [5 + n] * 3
