"""Where intermediate buffers are allocated: inside loops, unless iterations hand values on."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.ir import IRModule, pre_order
from tilewright.script import parse
from tilewright.tir import Allocate, For
from tilewright.tir.interpreter import run
from tilewright.tir.transform import PlanBufferAllocation

TWO_STEPS = """
@T.prim_func
def main(A: T.Buffer((9, 4), "float32"), C: T.Buffer((9, 4), "float32")):
    B = T.alloc_buffer((9, 4), "float32")
    for i in range(9):
        for j in range(4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for j in range(4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = VALUE
"""


@pytest.mark.parametrize(
    ("value", "inside"),
    [
        ("B[vi, 3 - vj]", True),
        ("T.if_then_else(vi >= 2, B[vi - 2, vj], T.float32(0))", False),
        ("B[vi // 2 * 2, vj]", False),
    ],
)
def test_values_that_iterations_hand_on_outlive_them(value: str, inside: bool) -> None:
    func = parse(TWO_STEPS.replace("VALUE", value))
    planned = PlanBufferAllocation()(IRModule({"main": func}))["main"]
    assert ("T.allocate" in planned.script()) == inside
    a = np.random.default_rng(0).integers(-4, 5, (9, 4)).astype("float32")
    expected, actual = np.zeros((9, 4), "float32"), np.zeros((9, 4), "float32")
    run(func, a, expected)
    tilewright.compile(IRModule({"main": func}), target="llvm")(a, actual)
    np.testing.assert_array_equal(actual, expected)


def test_conditions_of_any_integer_operator_are_counted() -> None:
    remapped = 'vi, vj = T.axis.remap("SS", [i, j])\n'
    guarded = remapped + "                T.where(T.bitwise_xor(j, 1) < 4)\n"
    func = parse(TWO_STEPS.replace(remapped, guarded, 1).replace("VALUE", "B[vi, vj]"))
    planned = PlanBufferAllocation()(IRModule({"main": func}))["main"]
    assert "T.allocate" in planned.script()


def test_values_handed_on_by_an_outer_loop_only() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((9, 4), "float32"), C: T.Buffer((9, 4), "float32")):
    B = T.alloc_buffer((9, 4), "float32")
    for i, j in T.grid(9, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.if_then_else(vi >= 1, B[vi - 1, vj], T.float32(0))
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj]
""")
    a = np.random.default_rng(0).integers(-4, 5, (9, 4)).astype("float32")
    expected, actual = np.zeros((9, 4), "float32"), np.zeros((9, 4), "float32")
    run(func, a, expected)
    tilewright.compile(IRModule({"main": func}), target="llvm")(a, actual)
    np.testing.assert_array_equal(actual, expected)


def test_values_that_conditions_hand_on() -> None:
    """Window 2 is not computed but read: its elements are those of windows 0 and 1."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), C: T.Buffer((4, 3), "float32")):
    B = T.alloc_buffer((6,), "float32")
    for i in range(4):
        for j in range(3):
            with T.block("B"):
                v = T.axis.spatial(6, i + j)
                T.where(i < 2)
                B[v] = A[v] * T.float32(2)
        for j in range(3):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(i + j < 4)
                C[vi, vj] = B[vi + vj]
""")
    a = np.random.default_rng(0).integers(-4, 5, 4).astype("float32")
    expected, actual = np.zeros((4, 3), "float32"), np.zeros((4, 3), "float32")
    run(func, a, expected)
    tilewright.compile(IRModule({"main": func}), target="llvm")(a, actual)
    np.testing.assert_array_equal(actual, expected)


def test_what_says_where_a_view_begins_is_allocated_around_it() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((2, 4), "float32"), G: T.Buffer((6,), "int8"), Z: T.Buffer((6, 4), "float32")):
    G_local = T.alloc_buffer((6,), "int8", scope="local")
    for i in range(6):
        with T.block("G_local"):
            v = T.axis.spatial(6, i)
            G_local[v] = G[v]
    for i in range(6):
        with T.block("Z"):
            v = T.axis.spatial(6, i)
            T.reads(A[T.Cast("int64", G_local[v]), 0:4], G_local[v])
            T.writes(Z[v, 0:4])
            row = T.match_buffer(A[T.Cast("int64", G_local[v]), 0:4], (4,), "float32")
            for j in range(4):
                Z[v, j] = row[j]
""")
    a, g = np.arange(8, dtype="float32").reshape(2, 4), np.array([0, 1, 1, 0, 1, 0], "int8")
    z = np.zeros((6, 4), "float32")
    tilewright.compile(func)(a, g, z)
    np.testing.assert_array_equal(z, a[g])
    run(func, a, g, z)
    np.testing.assert_array_equal(z, a[g])


def test_extents_of_the_loops_inside_that_are_long_formulas() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((2, 2), "int32"), C: T.Buffer((2, 2), "int32")):
    B = T.alloc_buffer((2, 2), "int32")
    for i, j, k0 in T.grid(2, 2, 2):
        for k1, k2 in T.grid((T.max(i, j) - T.min(i, j) + 10) // 10, 5):
            for y in range(2):
                with T.block("B"):
                    vx = T.axis.spatial(2, T.min(i, j)
                        + (k0 * ((T.max(i, j) - T.min(i, j) + 10) // 10 * 5) + k1 * 5 + k2))
                    vy = T.axis.spatial(2, y)
                    T.where(k0 * ((T.max(i, j) - T.min(i, j) + 10) // 10 * 5) + k1 * 5 + k2
                        < T.max(i, j) - T.min(i, j) + 1)
                    B[vx, vy] = A[vx, vy] * 2
            for y in range(2):
                with T.block("C"):
                    vx = T.axis.spatial(2, T.min(i, j)
                        + (k0 * ((T.max(i, j) - T.min(i, j) + 10) // 10 * 5) + k1 * 5 + k2))
                    vy = T.axis.spatial(2, y)
                    T.where(k0 * ((T.max(i, j) - T.min(i, j) + 10) // 10 * 5) + k1 * 5 + k2
                        < T.max(i, j) - T.min(i, j) + 1)
                    C[vx, vy] = B[vx, 1 - vy]
""")
    a = np.arange(4, dtype="int32").reshape(2, 2)
    actual = np.zeros_like(a)
    tilewright.compile(IRModule({"main": func}), target="llvm")(a, actual)
    np.testing.assert_array_equal(actual, a[:, ::-1] * 2)


HANDED_ON = """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
    B = T.alloc_buffer((16,), "float32")
    for i in range(4):
        for j in range(16):
            with T.block("start"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(i == 0)
                B[vj] = T.float32(5)
STEPS
"""
KEEP = """        for j in range(8):
            with T.block("keep"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[{}] = A[vi, vj]"""
KEEP_SOME = """        for j in range(8):
            with T.block("keep"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(B[vj])
                if A[vi, vj] > T.float32(0):
                    B[vj] = A[vi, vj]"""
KEEP_WHEN = """        if i % 2 == 0:
            for j in range(8):
                with T.block("keep"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vj] = A[vi, vj]"""
KEEP_OFTEN = """        for r, j in T.grid(i, 8):
            with T.block("keep"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vj] = A[vi, vj]"""
READ = """        for j in range(8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vj]"""
TURNS = """        for j in range(8):
            with T.block("keep"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vj] = A[vi, vj]
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[{}]"""


@pytest.mark.parametrize(
    ("steps", "inside"),
    [
        pytest.param([KEEP.format("vj"), READ], True, id="each iteration writes what it reads"),
        pytest.param([KEEP.format("7 - vj"), READ], True, id="backwards"),
        pytest.param([KEEP.format("vj * 2"), READ], False, id="every other element"),
        pytest.param([KEEP.format("vj // 2"), READ], False, id="half of the elements"),
        pytest.param([KEEP_SOME, READ], False, id="where data say so"),
        pytest.param([KEEP_WHEN, READ], False, id="in a branch"),
        pytest.param([KEEP_OFTEN, READ], False, id="in a loop that may be empty"),
        pytest.param([READ, KEEP.format("vj")], False, id="after it is read"),
        pytest.param([TURNS.format("vj")], True, id="in turns"),
        pytest.param([TURNS.format("7 - vj")], False, id="in turns, the others before or later"),
    ],
)
def test_only_what_each_iteration_writes_before_it_reads_is_allocated_inside(
    steps: list[str], inside: bool
) -> None:
    """New memory of the interpreter is not the old one again, which in machine code it often is."""
    func = parse(HANDED_ON.replace("STEPS", "\n".join(steps)))
    planned = PlanBufferAllocation()(IRModule({"main": func}))["main"]
    assert ("T.allocate" in planned.script()) == inside
    a = np.random.default_rng(0).integers(-4, 5, (4, 8)).astype("float32")
    results = []
    for version in (func, planned):
        results.append(np.zeros((4, 8), "float32"))
        run(version, a, results[-1])
    np.testing.assert_array_equal(*results)


def test_what_is_handed_on_shares_no_memory_with_what_comes_between() -> None:
    """Large buffers share storage; ``B`` inside of the loop took that of ``D``."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 8192), "float32"), C: T.Buffer((4, 8192), "float32"),
         E: T.Buffer((4, 8192), "float32")):
    B = T.alloc_buffer((8192,), "float32")
    D = T.alloc_buffer((8192,), "float32")
    for i in range(4):
        for j in range(8192):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vj] = A[vi, vj] * T.float32(3)
        for j in range(8192):
            with T.block("E"):
                vi, vj = T.axis.remap("SS", [i, j])
                E[vi, vj] = D[8191 - vj] + D[vj]
        for j in range(8192):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(i > 0)
                C[vi, vj] = B[vj]
        for j in range(8192):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vj] = A[vi, vj]
""")
    a = np.random.default_rng(0).integers(-4, 5, (4, 8192)).astype("float32")
    c, e = np.zeros_like(a), np.zeros_like(a)
    tilewright.compile(IRModule({"main": func}), target="llvm")(a, c, e)
    np.testing.assert_array_equal(c[1:], a[:-1])
    np.testing.assert_array_equal(e, 3 * (a + a[:, ::-1]))


def test_threads_have_sums_of_their_own() -> None:
    """No iteration of a parallel loop sees what another one sums up meanwhile."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((30, 64)), X: T.Buffer((30,)), Z: T.Buffer((7, 30))):
    B = T.alloc_buffer((30,))
    for i in T.parallel(7):
        for j, k in T.grid(30, 64):
            with T.block("B"):
                vj, vk = T.axis.remap("SR", [j, k])
                with T.init():
                    B[vj] = T.float32(0)
                B[vj] = B[vj] + A[vj, vk]
        for j in T.serial(30):
            with T.block("X"):
                vj = T.axis.spatial(30, j)
                X[vj] = B[vj]
        for j in T.serial(30):
            with T.block("Z"):
                vi, vj = T.axis.remap("SS", [i, j])
                Z[vi, vj] = B[vj] - A[vj, 0]
""")
    moved = PlanBufferAllocation().transform_function(func)
    (loop,) = [x for x in pre_order(moved.body) if isinstance(x, For) and x.kind == "parallel"]
    assert isinstance(loop.body, Allocate)
