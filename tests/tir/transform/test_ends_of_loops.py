"""Ends of loops are computed where the loop needn't run: what holds inside isn't known there."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import driver
from tilewright.runtime import guarded
from tilewright.script import from_source

# Where n is less than 4, the first of the two loops that the mask is divided into ends before it
# begins, and the quotient is negative.
WINDOWS = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (5, n))
    B = T.match_buffer(b, ((n + -3) // 3 + 1, 6))
    for i, c in T.grid((n + -3) // 3 + 1, 6):
        with T.block("B"):
            vi, vc = T.axis.remap("SS", [i, c])
            B[vi, vc] = T.max(B[vi, vc], T.if_then_else(
                vc >= 1 and vi * 3 + {first} >= 0 and vi * 3 + {first} < n,
                A[vc - 1, vi * 3 + {first}], T.float32(0)
            ))
"""


@pytest.mark.parametrize("first", [-1, 1, 3, 5])
def test_loops_that_do_not_run(first: int) -> None:
    module = driver.compile(from_source(WINDOWS.format(first=first)), "native")
    rng = np.random.default_rng(0)
    for n in range(14):
        data = rng.standard_normal((5, n), "float32")
        expected = np.zeros((n // 3, 6), "float32")
        for i in range(n // 3):
            if 0 <= i * 3 + first < n:
                expected[i, 1:] = data[:, i * 3 + first]
        found = guarded(np.full((n // 3, 6), -9, "float32"))
        module(guarded(data), found)
        np.testing.assert_array_equal(found, expected)
