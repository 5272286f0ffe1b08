"""Loops over the lanes of a partial reduction become vector reductions, others stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import driver
from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.tir import PrimFunc, transform
from tilewright.tir.interpreter import run

TEXT = """
@T.prim_func
def main(A: T.Buffer((6, {n}), "{dtype}"), B: T.Buffer((6,), "{dtype}")):
    part = T.allocate(({n},), "{dtype}")
    for i in range(6):
        for j in range({n}):
            part[j] = A[i, j] * T.{dtype}(2)
        B[i] = {start}
        for l in range({n}):
            B[i] = {join}
"""


def joined(n: int = 16, join: str = "B[i] + part[l]", dtype: str = "float32") -> Any:
    start = "A[i, 0]" if "max" in join else f"T.{dtype}(0)"
    mod = IRModule({"main": parse(TEXT.format(n=n, join=join, dtype=dtype, start=start))})
    mod = transform.FlattenBuffer()(mod)
    return mod, transform.JoinLanes()(mod)


def agree(before: IRModule, after: IRModule, n: int) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((6, n)).astype("float32")
    first, second, third = (np.zeros(6, "float32") for _ in range(3))
    run(before, a, first)
    run(after, a, second)
    driver.compile(after)(a, third)
    np.testing.assert_allclose(second, first, rtol=1e-5)
    np.testing.assert_allclose(third, first, rtol=1e-5)


@pytest.mark.parametrize("n", [4, 16, 64])
@pytest.mark.parametrize(
    ("join", "name"),
    [
        ("B[i] + part[l]", "vector_reduce_add"),
        ("T.max(B[i], part[l])", "vector_reduce_max"),
        ("T.min(B[i], part[l])", "vector_reduce_min"),
    ],
)
def test_lanes_are_joined(n: int, join: str, name: str) -> None:
    before, after = joined(n, join)
    assert name in after["main"].script()
    agree(before, after, n)


@pytest.mark.parametrize(
    ("n", "join"),
    [
        (12, "B[i] + part[l]"),  # no power of two
        (256, "B[i] + part[l]"),  # a reduction of its own
        (16, "B[i] + A[i, l]"),  # the caller's numbers keep their order
        (16, "B[i] + part[15 - l]"),
        (16, "part[l] - B[i]"),
    ],
)
def test_other_loops_stay(n: int, join: str) -> None:
    _, after = joined(n, join)
    assert isinstance(after["main"], PrimFunc)
    assert "vector_reduce" not in after["main"].script()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16"])
def test_narrow_numbers_stay(dtype: str) -> None:
    _, after = joined(dtype=dtype)
    assert "vector_reduce" not in after["main"].script()


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
def test_integers_are_joined(dtype: str) -> None:
    _, after = joined(dtype=dtype)
    assert "vector_reduce_add" in after["main"].script()


def test_compiled_extrema_of_odd_vectors() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((14,), "float32"), B: T.Buffer((2,), "float32")):
    B[0] = T.vector_reduce_max(A[0:7], dtype="float32")
    B[1] = T.vector_reduce_min(A[0:14:2], dtype="float32")
"""
    a, b = np.random.default_rng(1).standard_normal(14).astype("float32"), np.zeros(2, "float32")
    driver.compile(parse(text))(a, b)
    np.testing.assert_array_equal(b, [a[:7].max(), a[::2].min()])


@pytest.mark.parametrize("lanes", [2, 4, 7, 16])
def test_every_second_element_reads_nothing_beyond_the_last(lanes: int) -> None:
    size = 2 * lanes - 1
    text = f"""
@T.prim_func
def main(A: T.Buffer(({size},), "float32"), B: T.Buffer(({lanes},), "float32")):
    for i in T.vectorized({lanes}):
        B[i] = A[i * 2]
"""
    a, b = np.random.default_rng(1).standard_normal(size).astype("float32"), np.zeros(lanes, "f4")
    driver.compile(parse(text))(a, b)
    np.testing.assert_array_equal(b, a[::2])


ROWS = """
@T.prim_func
def main(A: T.Buffer((3, {rows}, {n}), "{dtype}"), B: T.Buffer((3, {rows}), "{dtype}")):
    part = T.allocate(({rows}, {n}), "{dtype}", scope="local")
    for i in range(3):
        for r in T.unroll({rows}):
            for j in T.vectorized({n}):
                part[r, j] = A[i, r, j] * T.{dtype}(2)
        for r in T.vectorized({rows}):
            B[i, r] = A[i, r, 0]
        for l in range({n}):
            for r in T.vectorized({rows}):
                B[i, r] = {join}
"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize(("rows", "n"), [(2, 4), (2, 16), (4, 64), (8, 8), (8, 16), (16, 32)])
def test_lanes_of_several_results_are_joined_together(rows: int, n: int, dtype: str) -> None:
    join = "T.max(B[i, r], part[r, l])" if rows == 8 else "B[i, r] + part[r, l]"
    mod = IRModule({"main": parse(ROWS.format(rows=rows, n=n, join=join, dtype=dtype))})
    mod = transform.VectorizeLoop()(transform.FlattenBuffer()(mod))
    after = transform.JoinLanes()(mod)
    text = after["main"].script()
    width = 8 if dtype == "float64" else 16
    assert ("for l in" in text) == (rows > min(width, n))
    a = (np.random.default_rng(0).standard_normal((3, rows, n)) * 100).astype(dtype)
    first, second, third = (np.zeros((3, rows), dtype) for _ in range(3))
    run(mod, a, first)
    run(after, a, second)
    driver.compile(after)(a, third)
    np.testing.assert_allclose(second, first, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(third, first, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("n", [4, 16])
def test_extrema_of_several_results_keep_nan(n: int) -> None:
    join = "T.max(B[i, r], part[r, l])"
    mod = IRModule({"main": parse(ROWS.format(rows=4, n=n, join=join, dtype="float32"))})
    a, out = (
        np.random.default_rng(0).standard_normal((3, 4, n)).astype("f4"),
        np.zeros((3, 4), "f4"),
    )
    a[0, 1, 2] = a[2, 3, 3] = np.nan
    driver.compile(mod)(a, out)
    np.testing.assert_array_equal(out, np.maximum(a[:, :, 0], 2 * a.max(2)))
