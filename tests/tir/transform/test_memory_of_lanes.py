"""Memory of an iteration's own in a vectorized loop: a copy for each lane."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import driver
from tilewright.ir import IRModule, collect
from tilewright.script import parse
from tilewright.script import tir as T
from tilewright.target import Target
from tilewright.tir import Allocate, For, PrimFunc, interpreter
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform import VectorizeLoop

TARGET = Target("native").with_options(num_cores=1)


@T.prim_func
def sums(x: T.Buffer((5, 4, 19), "float32"), y: T.Buffer((5, 19), "float32")):
    """Sums, in memory of each result's own."""
    for i, j in T.grid(5, 19):
        with T.block("sum"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            total = T.alloc_buffer((1,), "float32", scope="local")
            total[0] = T.float32(0)
            for k in range(4):
                total[0] = total[0] + x[v_i, k, v_j] * T.Cast("float32", v_j)
            y[v_i, v_j] = total[0] * T.float32(0.5)


@T.prim_func
def turned(x: T.Buffer((5, 4, 19), "float32"), y: T.Buffer((5, 19), "float32")):
    """Which of the elements a result is depends on its place."""
    for i, j in T.grid(5, 19):
        with T.block("turned"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            own = T.alloc_buffer((4,), "float32", scope="local")
            for k in range(4):
                own[(v_j + k) % 4] = x[v_i, k, v_j]
            y[v_i, v_j] = own[0] - own[v_j % 3] * T.float32(2)


@T.prim_func
def large(x: T.Buffer((5, 4, 19), "float32"), y: T.Buffer((5, 19), "float32")):
    """Too much memory for copies."""
    for i, j in T.grid(5, 19):
        with T.block("large"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            own = T.alloc_buffer((1000,), "float32")
            for k in range(4):
                own[k * 300] = x[v_i, k, v_j]
            y[v_i, v_j] = own[0] + own[300] - own[600] * own[900]


@pytest.mark.parametrize("size", [8, 19, 5])
@pytest.mark.parametrize("func", [sums, turned, large])
def test_results(func: PrimFunc, size: int) -> None:
    sch = Schedule(IRModule({"main": func}))
    (block,) = sch.get_child_blocks("root")
    _, inner = sch.split(sch.get_loops(block)[1], [None, size])
    sch.vectorize(inner)
    x = np.random.default_rng(0).standard_normal((5, 4, 19)).astype("float32")
    found, expected = np.zeros((2, 5, 19), "float32")
    driver.compile(func, TARGET)(x, expected)
    driver.compile(sch.mod, TARGET)["main"](x, found)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_lanes_lie_side_by_side() -> None:
    sch = Schedule(IRModule({"main": sums}))
    _, inner = sch.split(sch.get_loops("sum")[1], [None, 8])
    sch.vectorize(inner)
    made = driver.lower(sch.mod, TARGET)["main"]
    sizes = {int(item.buffer.shape[0].value) for item in collect(made.body, Allocate)}
    assert sizes == {8}
    assert all(loop.kind != "vectorized" for loop in collect(made.body, For))


def test_places_of_copies_have_room_in_any_index() -> None:
    func = parse("""
@T.prim_func
def main(x: T.Buffer((60,), "int8"), y: T.Buffer((60,), "int8")):
    for i in T.vectorized(60):
        own = T.allocate((40,), "int8", "local")
        for k in range(40):
            own[k] = T.Cast("int8", k)
        y[i] = own[x[i]]
""")
    mod = IRModule({"main": func})
    x = (np.arange(60) % 40).astype("int8")
    y = np.empty_like(x)
    driver.compile(mod, TARGET)(x, y)
    np.testing.assert_array_equal(y, x)


def test_scalable_vectors_have_no_copies_and_stay_loops() -> None:
    func = parse("""
@T.prim_func
def main(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for i in T.vectorized(T.vscale() * 4):
        own = T.allocate((2,), "float32", "local")
        own[0] = x[i]
        y[i] = own[0]
""")
    made = VectorizeLoop()(IRModule({"main": func}))["main"]
    assert [loop.kind for loop in collect(made.body, For)] == ["serial"]


@T.prim_func
def vectors_inside(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    """An iteration's own vectors, as long as there are iterations."""
    for i in T.vectorized(4):
        with T.block("vectors"):
            v_i = T.axis.spatial(4, i)
            own = T.alloc_buffer((4,), "float32", scope="local")
            one = T.alloc_buffer((1,), "float32", scope="local")
            one[0] = x[v_i]
            for j in T.vectorized(4):
                own[j] = x[j] + one[0]
            y[v_i] = own[0] + own[3] * T.float32(10)


def test_vectors_of_an_iteration_are_not_lanes() -> None:
    x = np.arange(4, dtype="float32")
    found, expected = np.zeros((2, 4), "float32")
    interpreter.run(vectors_inside, x, expected)
    driver.compile(vectors_inside, TARGET)(x, found)
    np.testing.assert_array_equal(found, expected)
