"""Buffers that loops fill which are as long as data says."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver import compile as compile_module
from tilewright.script import parse
from tilewright.tir.transform import CompactBufferAllocation, ConvertBlocksToOpaque

RAGGED = """
@T.prim_func
def main(a: T.handle, F: T.Buffer((5,), "{dtype}"), z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (5, n), "float32")
    Z = T.match_buffer(z, (5, n), "float32")
    B = T.alloc_buffer((5, n), "float32")
    for i in T.serial(5):
        for k in T.serial({first}, {first} + T.Cast("int64", F[i])):
            with T.block("B"):
                vi = T.axis.spatial(5, i)
                vk = T.axis.spatial(n, k - {first})
                B[vi, vk] = A[vi, vk] + T.float32(1)
    for i in T.serial(5):
        for k in T.serial(T.Cast("int64", F[i])):
            with T.block("Z"):
                vi, vk = T.axis.remap("SS", [i, k])
                Z[vi, vk] = B[vi, vk] * T.float32(2)
"""


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("first", ["0", 'T.Cast("int64", F[0])'])
def test_they_keep_their_shape(dtype: str, first: str) -> None:
    func = parse(RAGGED.format(dtype=dtype, first=first))
    lengths = np.array([2, 0, 3, 1, 3], dtype)
    a = np.arange(15, dtype="float32").reshape(5, 3)
    z = np.zeros((5, 3), "float32")
    compile_module(func)["main"](a, lengths, z)
    expected = np.where(np.arange(3) < lengths[:, None], (a + 1) * 2, 0)
    np.testing.assert_array_equal(z, expected)


def test_other_dimensions_are_still_cut() -> None:
    text = RAGGED.format(dtype="int32", first="0").replace(
        "B = T.alloc_buffer((5, n)", "B = T.alloc_buffer((9, n)"
    )
    made = CompactBufferAllocation()(ConvertBlocksToOpaque()(parse(text)))
    assert "alloc_buffer((5, n)" in made.script()
