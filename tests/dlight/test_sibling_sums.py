"""Reductions over the same elements, none of which needs another, in one loop."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import dlight, driver, te
from tilewright.ir import IRModule, Var, and_, const, if_then_else, or_
from tilewright.script import tir as T
from tilewright.target import Target
from tilewright.tir import PrimFunc, interpreter
from tilewright.tir import op as tir
from tilewright.tir.schedule import Schedule

WIDE = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=1")
AVX2 = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3 -num-cores=1")
NATIVE = [Target("native").with_options(num_cores=cores) for cores in (1, 2)]


def scheduled(func: PrimFunc, target: Target = WIDE) -> IRModule:
    return dlight.default_schedule(target)(IRModule({"main": func}))


def is_joined(func: PrimFunc, *names: str, target: Target = WIDE) -> bool:
    """Whether blocks share all loops."""
    sch = Schedule(scheduled(func, target))
    nests = [
        [loop.var for loop in sch.get_loops(sch.get_block(f"{name}_update"))]
        for name in names
        if sch.has_block(f"{name}_update")
    ]
    return len(nests) == len(names) and all(nest == nests[0] for nest in nests)


def check(func: PrimFunc, target: Target, shapes: Sequence[tuple[int, ...]], *inputs: Any) -> None:
    """Compare compiled and interpreted schedules with the program itself."""
    dtypes = [func.buffers[len(inputs) + n].dtype for n in range(len(shapes))]
    expected, found, told = ([np.zeros(*item) for item in zip(shapes, dtypes)] for _ in range(3))
    made = scheduled(func, target)
    for run, results in (
        (partial(interpreter.run, func), expected),
        (partial(interpreter.run, made), told),
        (driver.compile(made, target)["main"], found),
    ):
        run(*(np.copy(item) for item in inputs), *results)
    for results in (told, found):
        for a, b in zip(results, expected):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def drawn(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def bilateral(n: Any, m: Any, width: int) -> PrimFunc:
    x = te.placeholder((n, m), name="x")
    shape = (n - width + 1, m - width + 1)

    def near(i: Any, j: Any, di: Any, dj: Any) -> Any:
        d = x[i + di, j + dj] - x[i + width // 2, j + width // 2]
        return tir.exp(d * d * -0.5)

    a, b, c, d = (te.reduce_axis((0, width), name) for name in "abcd")
    total = te.compute(
        shape, lambda i, j: te.sum(near(i, j, a, b) * x[i + a, j + b], axis=[a, b]), name="total"
    )
    weights = te.compute(shape, lambda i, j: te.sum(near(i, j, c, d), axis=[c, d]), name="weights")
    filtered = te.compute(shape, lambda i, j: total[i, j] / weights[i, j], name="filtered")
    return te.create_prim_func([x, filtered])


@pytest.mark.parametrize("target", [WIDE, AVX2])
def test_each_weight_of_a_bilateral_filter_is_computed_once(target: Target) -> None:
    assert is_joined(bilateral(256, 256, 5), "total", "weights", target=target)


@pytest.mark.parametrize("target", NATIVE)
@few(("n", "m"), [(40, 40), (5, 5), (9, 70), (4, 12), (30, 133)], (5, 5), (9, 70), (4, 12))
def test_bilateral_filters_of_any_size(target: Target, n: int, m: int) -> None:
    x, shape = drawn(n, m), (n - 4, m - 4)
    x[n // 2, m // 2] = np.nan
    for func in (bilateral(n, m, 5), bilateral(Var("n", "int64"), Var("m", "int64"), 5)):
        check(func, target, [shape], x)


def sums(terms: Sequence[Any], shape: Sequence[Any], columns: int, dtype: str) -> PrimFunc:
    """Reductions of a matrix's columns, each a combiner and a term of an element."""
    x = te.placeholder((shape[0], columns), dtype, name="x")
    made = []
    for place, (combine, term) in enumerate(terms):
        k = te.reduce_axis((0, shape[place % len(shape)]), f"k{place}")
        made.append(
            te.compute(
                (columns,),
                lambda j, k=k, combine=combine, term=term: combine(term(x[k, j]), axis=k),
                name=f"r{place}",
            )
        )
    return te.create_prim_func([x, *made])


ANY = te.comm_reducer(or_, lambda dtype: const(False, dtype), name="any")
ALL = te.comm_reducer(and_, lambda dtype: const(True, dtype), name="all")
SQUARES = [(te.sum, lambda v: v), (te.sum, lambda v: v * v)]


def test_what_shares_too_little_stays_apart() -> None:
    assert is_joined(sums(SQUARES, [100], 64, "float32"), "r0", "r1")
    apart = [(te.sum, lambda v: v * v * v + v), (te.sum, lambda v: tir.exp(v))]
    assert not is_joined(sums(apart, [100], 64, "float32"), "r0", "r1")
    assert not is_joined(sums(SQUARES, [4096], 1024, "float32"), "r0", "r1"), "rows from afar"


def test_other_domains_stay_apart() -> None:
    assert not is_joined(sums(SQUARES, [100, 99], 64, "float32"), "r0", "r1")
    n, m = Var("n", "int64"), Var("m", "int64")
    assert not is_joined(sums(SQUARES, [n, m], 64, "float32"), "r0", "r1")


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize("rows", [0, 1, 7])
@few("columns", [1, 3, 17, 64, 100], 3, 100)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float16", "float64", "bool"])
def test_random_reductions(target: Target, rows: int, columns: int, dtype: str) -> None:
    rng = random.Random(f"{rows} {columns} {dtype}")
    kinds = {
        "bool": [(ANY, lambda v: v), (ALL, lambda v: v)],
        "float": [(te.max, lambda v: v), (te.min, lambda v: v * v), *SQUARES],
    }
    terms = kinds.get(dtype, kinds["float"])
    chosen = [rng.choice(terms) for _ in range(rng.choice((2, 3)))]
    numbers = np.random.default_rng(rows + columns)
    x = (numbers.standard_normal((rows, columns)) * 3).astype(dtype)
    if dtype.startswith("float") and x.size:
        x.flat[rng.randrange(x.size)] = np.nan
    func = sums(chosen, [rows], columns, dtype)
    if rows:
        assert columns == 1 or not dtype.startswith("int") or is_joined(func, "r0", "r1")
    check(func, target, [(columns,)] * len(chosen), x)


@T.prim_func
def second_needs_first(
    x: T.Buffer((6, 40), "float32"), a: T.Buffer((40,), "float32"), b: T.Buffer((40,), "float32")
):
    for j, k in T.grid(40, 6):
        with T.block("first"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                a[vj] = T.float32(0)
            a[vj] = a[vj] + T.exp(x[vk, vj])
    for j, k in T.grid(40, 6):
        with T.block("second"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                b[vj] = T.float32(0)
            b[vj] = b[vj] + T.exp(x[vk, vj]) * a[vj]


@T.prim_func
def first_is_overwritten(
    x: T.Buffer((6, 40), "float32"), a: T.Buffer((40,), "float32"), b: T.Buffer((40,), "float32")
):
    for j, k in T.grid(40, 6):
        with T.block("first"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                a[vj] = T.float32(0)
            a[vj] = a[vj] + T.exp(x[vk, vj])
    for j, k in T.grid(40, 6):
        with T.block("second"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                a[vj] = T.float32(0)
            a[vj] = a[vj] + T.exp(x[vk, vj]) * T.float32(2)
    for j in range(40):
        with T.block("copy"):
            vj = T.axis.spatial(40, j)
            b[vj] = a[vj]


@T.prim_func
def second_overwrites_what_first_reads(
    x: T.Buffer((6, 40), "float32"), a: T.Buffer((40,), "float32"), b: T.Buffer((6, 40), "float32")
):
    y = T.alloc_buffer((6, 40), "float32")
    for i, j in T.grid(6, 40):
        with T.block("copy"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj] * T.float32(0.5)
    for j, k in T.grid(40, 5):
        with T.block("first"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                a[vj] = T.float32(0)
            a[vj] = a[vj] + T.exp(y[vk + 1, vj])
    for j, k in T.grid(40, 5):
        with T.block("second"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                y[5, vj] = T.float32(0)
            y[5, vj] = y[5, vj] + T.exp(y[vk, vj])
    for i, j in T.grid(6, 40):
        with T.block("result"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = y[vi, vj]


@T.prim_func
def under_a_condition(
    x: T.Buffer((6, 40), "float32"), a: T.Buffer((40,), "float32"), b: T.Buffer((40,), "float32")
):
    for j, k in T.grid(40, 6):
        with T.block("first"):
            vj, vk = T.axis.remap("SR", [j, k])
            T.where(k < 4)
            with T.init():
                a[vj] = T.float32(0)
            a[vj] = a[vj] + T.exp(x[vk, vj])
    for j, k in T.grid(40, 6):
        with T.block("second"):
            vj, vk = T.axis.remap("SR", [j, k])
            T.where(k < 5)
            with T.init():
                b[vj] = T.float32(0)
            b[vj] = b[vj] + T.exp(x[vk, vj]) * x[vk, vj]


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize(
    ("func", "second"),
    [
        (second_needs_first, (40,)),
        (first_is_overwritten, (40,)),
        (second_overwrites_what_first_reads, (6, 40)),
        (under_a_condition, (40,)),
    ],
)
def test_what_depends_on_each_other(target: Target, func: PrimFunc, second: Any) -> None:
    if func is not under_a_condition:
        assert not is_joined(func, "first", "second", target=target)
    check(func, target, [(40,), second], drawn(6, 40))


def test_contractions_keep_their_tiles() -> None:
    x, k, l = te.placeholder((64, 64), name="x"), *(te.reduce_axis((0, 64)) for _ in range(2))
    w, v = te.placeholder((64, 64), name="w"), te.placeholder((64, 64), name="v")
    a = te.compute((64, 64), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="a")
    b = te.compute((64, 64), lambda i, j: te.sum(x[i, l] * v[l, j], axis=l), name="b")
    assert not is_joined(te.create_prim_func([x, w, v, a, b]), "a", "b")


@pytest.mark.parametrize("target", NATIVE)
def test_masked_terms(target: Target) -> None:
    x = te.placeholder((9, 50), name="x")
    k, l = te.reduce_axis((0, 9), "k"), te.reduce_axis((0, 9), "l")

    def term(k: Any, j: Any) -> Any:
        return if_then_else(k + j < 30, tir.exp(x[k, j]), 0.0)

    a = te.compute((50,), lambda j: te.sum(term(k, j), axis=k), name="a")
    b = te.compute((50,), lambda j: te.sum(term(l, j) * x[l, j], axis=l), name="b")
    func = te.create_prim_func([x, a, b])
    assert is_joined(func, "a", "b")
    check(func, target, [(50,), (50,)], drawn(9, 50))
