"""NarrowDataType: 32-bit indices where every value fits, 64-bit ones elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from transform_cases import applied, body, lowered

from tilewright import driver
from tilewright.ir import BinaryExpr, Ramp, Select, assert_structural_equal, pre_order
from tilewright.script import parse
from tilewright.target import Target
from tilewright.tir import For, transform
from tilewright.tir.analysis import verify


def no_mixed_widths(mod):
    for item in pre_order(mod["main"].body):
        if isinstance(item, BinaryExpr):
            assert item.a.dtype == item.b.dtype, item
        elif isinstance(item, Ramp):
            assert item.base.dtype == item.stride.dtype, item
        elif isinstance(item, Select):
            assert item.true_value.dtype == item.false_value.dtype, item
        elif isinstance(item, For):
            assert item.loop_var.dtype == item.min.dtype == item.extent.dtype, item


def narrowed(text: str, *arrays) -> str:
    mod = lowered(text)
    made = transform.NarrowDataType()(mod)
    verify(made)
    no_mixed_widths(made)
    assert_structural_equal(parse(body(made)), made["main"])
    return applied(transform.NarrowDataType(), mod, *arrays)


def test_loops_and_their_indices():
    text = narrowed(
        """
@T.prim_func
def main(A: T.Buffer((4, 6), "float32"), C: T.Buffer((6, 4), "float32")):
    for i, j in T.grid(4, 6):
        if i + j < 8:
            C[j, i] = A[i, j] + T.Cast("float32", i)
""",
        np.arange(24, dtype="float32").reshape(4, 6),
        np.zeros((6, 4), "float32"),
    )
    assert "for i in range(T.int32(4))" in text or "T.int32(4)" in text
    assert "int64" not in text


def test_the_limits_are_those_of_every_intermediate():
    def of(extent: int) -> str:
        return f"""
@T.prim_func
def main(C: T.Buffer((4,), "int64")):
    for i in range(4):
        C[i] = (i * {extent} - {extent} * 3) // 1000 % 7
"""

    fits, too_large = 2**30 - 1, 2**31
    text = narrowed(of(fits), np.zeros(4, "int64"))
    assert f"T.int32({fits})" not in text  # i * (2**30 - 1) reaches 3 * 2**30
    text = narrowed(of(2**29), np.zeros(4, "int64"))
    assert f"T.int32({2**29})" in text and "% T.int32(7)" in text
    text = narrowed(of(too_large), np.zeros(4, "int64"))
    assert 'T.Cast("int64", i)' in text or "T.int64(i)" in text


def test_large_loops_and_symbolic_sizes_stay():
    large = """
@T.prim_func
def main(C: T.Buffer((4,), "float32")):
    for i in range(2147483648):
        C[i % 4] = T.float32(1)
"""
    made = transform.NarrowDataType()(lowered(large))
    assert "for i in range(2147483648)" in body(made)
    text = narrowed(
        """
@T.prim_func
def main(a: T.handle, C: T.Buffer((4,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    for i in range(n):
        for j in range(4):
            if i * 4 + j < n:
                C[j] = A[i * 4 + j]
""",
        np.arange(9, dtype="float32"),
        np.zeros(4, "float32"),
    )
    assert "T.grid(n, T.int32(4))" in text and 'i * 4 + T.Cast("int64", j) < n' in text


def test_lets_vectors_and_loaded_indices():
    text = narrowed(
        """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), I: T.Buffer((4,), "int32"), C: T.Buffer((64,), "float32")):
    for i in range(4):
        k: T.int64 = i * 16
        C[T.Ramp(k, 1, 16)] = A[T.Ramp(k, 1, 16)] + T.Broadcast(A[k + 1], 16)
        C[T.Cast("int64", I[i])] = T.float32(1)
""",
        np.arange(64, dtype="float32"),
        np.array([3, 2, 1, 0], "int32"),
        np.zeros(64, "float32"),
    )
    assert "k: T.int32" in text and "T.Ramp(k, T.int32(1), 16)" in text
    assert 'T.Cast("int64"' not in text


def test_sizes_of_allocations_stay_wide():
    text = narrowed(
        """
@T.prim_func
def main(C: T.Buffer((8,), "float32")):
    for i in range(1, 8):
        B = T.allocate((i * 2,), "float32")
        B[i] = T.float32(2)
        C[i] = B[i]
""",
        np.zeros(8, "float32"),
    )
    assert "T.allocate((T." in text


def test_parallel_loops_keep_what_the_pool_counts_in():
    text = narrowed(
        """
@T.prim_func
def main(C: T.Buffer((8, 8), "float32")):
    for i in T.parallel(8):
        for j in range(8):
            C[i, j] = T.float32(2)
""",
        np.zeros((8, 8), "float32"),
    )
    assert "for i in T.parallel(8)" in text and "j in range(T.int32(8)" in text


@pytest.mark.parametrize("expr", ["A[i]", "A[i] + i", "T.shift_left(i, 40)"])
def test_what_may_not_fit_stays_wide(expr):
    text = f"""
@T.prim_func
def main(A: T.Buffer((8,), "int64"), C: T.Buffer((8,), "int64")):
    for i in range(8):
        C[i] = {expr}
"""
    a = np.random.default_rng(0).integers(-(2**62), 2**62, 8)
    narrowed(text, a, np.zeros(8, "int64"))


def test_narrowed_programs_compile():
    text = """
@T.prim_func
def main(A: T.Buffer((6, 40), "float32"), C: T.Buffer((40, 6), "float32")):
    for i in T.parallel(6):
        for j in range(40):
            if i * 40 + j < 230:
                C[j, i] = A[i, j] * T.Cast("float32", (i * 40 + j) % 7)
"""
    mod = transform.NarrowDataType()(lowered(text))
    built = driver.build(mod, Target("native"))
    a, c = np.random.default_rng(0).random((6, 40), "float32"), np.zeros((40, 6), "float32")
    built["main"](a, c)
    i, j = np.indices((6, 40))
    flat = i * 40 + j
    np.testing.assert_allclose(c, np.where(flat < 230, a * (flat % 7), 0).T, rtol=1e-6)
