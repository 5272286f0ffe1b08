"""Strided vector loads become whole rows and shuffles, where no statement minds the new order."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import driver
from tilewright.ir import IRModule, Ramp, Shuffle, collect, if_then_else
from tilewright.script import tir as T
from tilewright.target import Target
from tilewright.te import compute, create_prim_func, placeholder
from tilewright.tir import BufferLoad, PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver4 -num-cores=1")


def transposition(
    rows: int, columns: int, high: int, wide: int, dtype: str = "float32"
) -> IRModule:
    """``y[i, j] = x[j, i] * b[i]`` with ``high`` rows of ``wide`` lanes unrolled."""
    x, b = placeholder((rows, columns), dtype, name="x"), placeholder((columns,), dtype, name="b")
    y = compute((columns, rows), lambda i, j: x(j, i) * b(i), name="y")
    sch = Schedule(IRModule({"main": create_prim_func([x, b, y])}))
    i, j = sch.get_loops(sch.get_block("y"))
    (i_outer, i_inner), (j_outer, j_inner) = sch.split(i, [None, high]), sch.split(j, [None, wide])
    sch.reorder(i_outer, j_outer, i_inner, j_inner)
    sch.vectorize(j_inner)
    sch.unroll(i_inner)
    return sch.mod


def shuffles(func: PrimFunc) -> int:
    return len(collect(func.body, Shuffle))


def strided(func: PrimFunc) -> list[BufferLoad]:
    return [
        load
        for load in collect(func.body, BufferLoad)
        if isinstance(load.indices[0], Ramp) and load.indices[0].stride.value != 1
    ]


def check(mod: IRModule, rows: int, columns: int) -> PrimFunc:
    """The lowered function, after the interpreter has shown that it transposes."""
    func = driver.lower(mod, TARGET)["main"]
    x = np.arange(rows * columns, dtype="float32").reshape(rows, columns)
    b = np.arange(columns, dtype="float32") + 1
    y = np.zeros((columns, rows), "float32")
    run(func, x, b, y)
    np.testing.assert_array_equal(y, x.T * b[:, None])
    return func


@pytest.mark.parametrize(
    "rows, columns, high, wide, count",
    [
        (16, 16, 16, 16, 64),
        (16, 8, 8, 16, 8 + 24),
        (16, 4, 4, 16, 12 + 8),
        (8, 8, 8, 8, 24),
        (8, 4, 4, 8, 4 + 8),
        (4, 4, 4, 4, 8),
        (32, 16, 16, 16, 64),
        (20, 16, 16, 20, 64 + 8),
        (14, 16, 16, 14, 24),
        (14, 14, 14, 14, 24),
        (7, 16, 16, 7, 8),
        (56, 16, 16, 56, 64 + 24),
        (32, 32, 32, 32, 64),
        (9, 11, 11, 9, 24),
    ],
)
def test_tiles(rows: int, columns: int, high: int, wide: int, count: int) -> None:
    func = check(transposition(rows, columns, high, wide), rows, columns)
    assert shuffles(func) == count
    assert not strided(func)


@pytest.mark.parametrize("columns", [5, 6, 7, 14, 19])
def test_what_is_left_over_goes_with_its_neighbours(columns: int) -> None:
    func = check(transposition(16, columns, columns, 16), 16, columns)
    assert shuffles(func) and not strided(func)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_few_columns_stay(columns: int) -> None:
    assert not shuffles(check(transposition(16, columns, columns, 16), 16, columns))


def test_other_widths_of_elements_stay() -> None:
    mod = transposition(8, 8, 8, 8, "float64")
    assert not shuffles(driver.lower(mod, TARGET)["main"])


def test_compiled() -> None:
    native = Target("native").with_options(num_cores=1)
    x, b = np.random.default_rng(0).random((32, 28), "float32"), np.ones(28, "float32")
    y = np.zeros((28, 32), "float32")
    driver.compile(transposition(32, 28, 14, 16), native)(x, b, y)
    np.testing.assert_array_equal(y, x.T)


@T.prim_func
def in_place(x: T.Buffer((64,), "float32")):
    for i in T.unroll(4):
        for j in T.vectorized(4):
            x[i * 4 + j] = x[j * 4 + i] + T.float32(1)


@T.prim_func
def overlapping(x: T.Buffer((64,), "float32"), y: T.Buffer((16,), "float32")):
    for i in T.unroll(4):
        for j in T.vectorized(4):
            y[i * 2 + j] = x[j * 8 + i]


@T.prim_func
def into_one_another(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for i in T.unroll(4):
        for j in T.vectorized(4):
            y[i * 4 + j] = x[j * 8 + i]
        x[i + 1] = T.float32(7)


@T.prim_func
def overlapping_tiles(x: T.Buffer((256,), "float32"), y: T.Buffer((44,), "float32")):
    for i in T.unroll(16):
        for j in T.vectorized(14):
            y[i * 2 + j] = x[j * 16 + i]


@T.prim_func
def in_place_tiles(x: T.Buffer((256,), "float32")):
    for i in T.unroll(16):
        for j in T.vectorized(14):
            x[i * 16 + j] = x[j * 16 + i] + T.float32(1)


@pytest.mark.parametrize(
    "func", [in_place, overlapping, into_one_another, overlapping_tiles, in_place_tiles]
)
def test_an_order_that_matters_is_kept(func: PrimFunc) -> None:
    lowered = driver.lower(IRModule({"main": func}), TARGET)["main"]
    assert not shuffles(lowered)
    arrays = [np.arange(b.shape[0].value, dtype="float32") for b in func.buffers]
    expected, found = [a.copy() for a in arrays], [a.copy() for a in arrays]
    run(func, *expected)
    run(lowered, *found)
    for a, b in zip(expected, found):
        np.testing.assert_array_equal(a, b)


@T.prim_func
def rows_below(x: T.Buffer((256,), "float32"), y: T.Buffer((256,), "float32")):
    for i in T.unroll(16):
        for j in T.vectorized(8):
            if j < 7:
                y[i * 16 + j] = T.max(x[j * 16 + i], T.float32(0)) + y[200]


@T.prim_func
def rows_not_below(x: T.Buffer((256,), "float32"), y: T.Buffer((256,), "float32")):
    for i in T.unroll(16):
        for j in T.vectorized(14):
            if j < 7:
                y[i * 16 + j] = T.max(x[j * 16 + i], T.float32(0))
            else:
                y[i * 16 + j] = x[j * 16 + i]


@T.prim_func
def known_rows(x: T.Buffer((256,), "float32"), y: T.Buffer((256,), "float32")):
    for i in T.unroll(16):
        for j in T.vectorized(8):
            if j < 7:
                y[i * 16 + j] = T.max(x[j * 16 + i], T.float32(0))


@pytest.mark.parametrize(
    "func, tiled", [(known_rows, True), (rows_below, False), (rows_not_below, False)]
)
def test_rows_under_a_condition(func: PrimFunc, tiled: bool) -> None:
    lowered = driver.lower(IRModule({"main": func}), TARGET)["main"]
    assert bool(shuffles(lowered)) is tiled
    x = np.random.default_rng(0).standard_normal(256).astype("float32")
    expected, found = np.ones(256, "float32"), np.ones(256, "float32")
    run(func, x, expected)
    run(lowered, x, found)
    np.testing.assert_array_equal(expected, found)
    driver.compile(IRModule({"main": func}), Target("native").with_options(num_cores=1))(x, found)
    np.testing.assert_array_equal(expected, found)


@pytest.mark.parametrize(
    "rows, columns", [(14, 16), (7, 16), (12, 16), (28, 32), (13, 13), (56, 4)]
)
def test_tiles_are_loops(rows: int, columns: int) -> None:
    """Whatever the number of rows, there is one tile, or one and a smaller one."""
    func = check(transposition(rows, columns, columns, rows), rows, columns)
    assert 0 < shuffles(func) <= 24 + 64
    native = Target("native").with_options(num_cores=1)
    x = np.random.default_rng(0).random((rows, columns), "float32")
    y, b = np.zeros((columns, rows), "float32"), np.full(columns, 2, "float32")
    driver.compile(transposition(rows, columns, columns, rows), native)(x, b, y)
    np.testing.assert_array_equal(y, x.T * 2)


def test_rows_that_a_mask_leaves_out_are_not_read() -> None:
    x = placeholder((21, 8), name="x")
    y = compute((8, 32), lambda i, j: if_then_else(j < 21, x(j, i), 0.0), name="y")
    sch = Schedule(IRModule({"main": create_prim_func([x, y])}))
    i, j = sch.get_loops(sch.get_block("y"))
    j_outer, j_inner = sch.split(j, [None, 16])
    sch.reorder(j_outer, i, j_inner)
    sch.vectorize(j_inner)
    sch.unroll(i)
    assert not shuffles(driver.lower(sch.mod, TARGET)["main"])
    values = np.arange(21 * 8, dtype="float32").reshape(21, 8)
    result = np.full((8, 32), np.nan, "float32")
    driver.compile(sch.mod, Target("native"))["main"](values, result)
    np.testing.assert_array_equal(result[:, :21], values.T)
    assert not result[:, 21:].any()
