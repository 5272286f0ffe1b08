"""Vectorised loops of symbolic extent: the last lanes are masked off, and touch no memory."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.ir import IRModule
from tilewright.script import parse

GUARD = 64

PROGRAMS = {
    "elements by turns": """
for u in T.vectorized(n):
    for q in range(4):
        with T.block("Z"):
            v, w = T.axis.remap("SS", [u, q])
            Z[v, w] = A[v, w] * 3
""",
    "elements that lie apart": """
for u in T.vectorized(n):
    for q in T.unroll(4):
        with T.block("Z"):
            v, w = T.axis.remap("SS", [u, q])
            Z[w, v] = A[v, w] * 3
""",
}


@pytest.mark.parametrize("n", [1, 3, 16, 21])
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_nothing_is_written_beyond_the_end(name: str, n: int) -> None:
    shape = "(n, 4)" if name == "elements by turns" else "(4, n)"
    body = PROGRAMS[name].strip("\n").replace("\n", "\n    ")
    func = parse(f"""
@T.prim_func
def main(a: T.handle, z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 4), "int32")
    Z = T.match_buffer(z, {shape}, "int32")
    {body}
""")
    values = np.arange(n * 4, dtype="int32").reshape(n, 4)
    memory = np.full(n * 4 + GUARD, -1, "int32")
    expected = values * 3 if shape == "(n, 4)" else values.T * 3
    found = memory[: n * 4].reshape(expected.shape)
    tilewright.compile(IRModule({"main": func}), target="llvm")(values, found)
    np.testing.assert_array_equal(found, expected)
    assert (memory[n * 4 :] == -1).all()


@pytest.mark.parametrize("n", [0, 1, 2, 18])
@pytest.mark.parametrize("inner", [False, True])
def test_less_than_nothing_is_no_iteration(n: int, inner: bool) -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (2, n), "float32")
    Z = T.match_buffer(z, (2, 64), "float32")
    for i, j in T.grid(2, n - 1):
        with T.block("Z"):
            v, w = T.axis.remap("SS", [i, j])
            Z[v, w] = A[v, w + 1]
""")
    sch = tilewright.tir.Schedule(func)
    row, column = sch.get_loops("Z")
    if not inner:
        sch.reorder(column, row)
    sch.vectorize(column)
    values = np.ones((2, n), "float32")
    memory = np.full(2 * GUARD + 128, -1, "float32")
    found = memory[GUARD:-GUARD].reshape(2, 64)
    tilewright.compile(sch.mod, target="llvm")(values, found)
    count = max(n - 1, 0)
    assert (found[:, :count] == 1).all()
    assert (memory == -1).sum() == memory.size - 2 * count
