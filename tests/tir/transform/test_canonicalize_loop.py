"""CanonicalizeLoops: loops that start at zero."""

from __future__ import annotations

import numpy as np
from transform_cases import applied, lowered, unchanged

from tilewright.tir import transform

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
