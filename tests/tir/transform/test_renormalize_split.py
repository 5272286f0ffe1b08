"""RenormalizeSplitPattern: one form for divisions of divisions."""

from __future__ import annotations

import numpy as np
import pytest
from transform_cases import applied, lowered, unchanged

from tilewright.tir import transform

TEXT = """
@T.prim_func
def main(A: T.Buffer((4096,), "int64"), C: T.Buffer((97,), "int64")):
    for i in range(97):
        C[i] = {expr}
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A[i] // 4 // 6", "A_1[i] // 24"),
        ("A[i] % 24 // 4", "A_1[i] // 4 % 6"),
        ("A[i] % 24 % 4", "A_1[i] % 4"),
        ("i // 4 // 6", "i // 24"),
        ("i % 24 // 4", "i // 4 % 6"),
        ("i // 4 % 6 // 2", "i // 8 % 3"),
    ],
)
def test_nested_divisions(before, after):
    a = np.random.default_rng(0).integers(-1000, 1000, 4096)
    mod = lowered(TEXT.replace("{expr}", before))
    text = applied(transform.RenormalizeSplitPattern(), mod, a, np.zeros(97, "int64"))
    assert f"= {after}\n" in text + "\n"


def test_symbolic_factors_must_be_positive():
    text = """
@T.prim_func
def main(a: T.handle, n: T.int64, C: T.Buffer((97,), "int64")):
    m = T.int64()
    A = T.match_buffer(a, (m,), "int64")
    for row, i in T.grid(m, 97):
        C[i] = A[row] % (m * 4) // 4 + i // n // 2
"""
    arrays = np.array([77, 0, 0], "int64"), 5, np.zeros(97, "int64")
    made = applied(transform.RenormalizeSplitPattern(), lowered(text), *arrays)
    assert "A_1[row] // 4 % m" in made and "i // n // 2" in made


@pytest.mark.parametrize("expr", ["A[i] % 12 // 8", "A[i] // 3 * 3 + A[i] % 3", "(A[i] + i) // 4"])
def test_what_has_no_such_form_stays(expr):
    assert unchanged(transform.RenormalizeSplitPattern(), lowered(TEXT.replace("{expr}", expr)))
