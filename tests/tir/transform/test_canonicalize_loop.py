"""CanonicalizeLoops: loops that start at zero."""

from __future__ import annotations

import numpy as np
import pytest
from transform_cases import applied, lowered, module, unchanged

from tilewright.tir import transform
from tilewright.tir.interpreter import run

SHIFTED = """
@T.prim_func
def main(A: T.Buffer((20,), "float32"), C: T.Buffer((20,), "float32")):
    for i in range(3, 17):
        for j in range(i, i + 2):
            C[j] = A[j] + T.float32(1)
"""


def test_starts_are_moved_into_the_body():
    a, c = np.arange(20, dtype="float32"), np.zeros(20, "float32")
    text = applied(transform.CanonicalizeLoops(), lowered(SHIFTED), a, c)
    assert "for i, j in T.grid(14, 2)" in text
    assert "C_1[j + (i + 3)] = A_1[j + (i + 3)]" in text


def test_sizes_of_allocations_inside_follow():
    text = """
@T.prim_func
def main(C: T.Buffer((8,), "float32")):
    for i in range(2, 8):
        B = T.allocate((i,), "float32")
        for j in range(i):
            B[j] = T.Cast("float32", i)
        C[i] = B[i - 1]
"""
    made = applied(transform.CanonicalizeLoops(), lowered(text), np.zeros(8, "float32"))
    assert "for i in range(6)" in made and "T.allocate((i + 2,)" in made


def test_loops_from_zero_stay():
    text = SHIFTED.replace("range(3, 17)", "range(17)").replace("range(i, i + 2)", "range(2)")
    assert unchanged(transform.CanonicalizeLoops(), lowered(text))


WRITTEN_START = """
@T.prim_func
def main(A: T.Buffer((4,), "int64"), C: T.Buffer((8,), "int64")):
    for i in range(A[0], A[0] + {extent}):
        A[0] = A[0] + 1
        C[i] = i
        C[A[0]] = i + 10
"""


@pytest.mark.parametrize(
    "item",
    [
        transform.CanonicalizeLoops(),
        transform.Simplify(),
        transform.LowerOpaqueBlock(),
        transform.UnrollLoop(),
    ],
)
@pytest.mark.parametrize("extent", [1, 3])
@pytest.mark.parametrize("kind", ["range", "T.unroll"])
def test_a_start_that_the_body_changes_is_read_once(item, extent, kind):
    text = WRITTEN_START.replace("{extent}", str(extent)).replace("range", kind)
    mod = module(text)
    expected = [np.array([2, 0, 0, 0]), np.zeros(8, "int64")]
    run(mod, *expected)
    made = item(transform.LowerOpaqueBlock()(mod))
    actual = [np.array([2, 0, 0, 0]), np.zeros(8, "int64")]
    run(made, *actual)
    for a, b in zip(expected, actual):
        np.testing.assert_array_equal(a, b)


def test_what_a_loop_says_of_its_extent_holds_inside_only():
    text = """
@T.prim_func
def main(n: T.int64, C: T.Buffer((8,), "int64")):
    for i in range(n):
        C[i] = i
    if n < 1:
        C[0] = 7
"""
    for item in (transform.Simplify(), transform.RenormalizeSplitPattern()):
        assert "if n < 1" in applied(item, lowered(text), 0, np.zeros(8, "int64"))
