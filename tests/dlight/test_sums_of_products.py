"""Products that a sum adds several of at a time, by rule: each is a multiply-add of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te
from tilewright.ir import IRModule, if_then_else
from tilewright.target import Target
from tilewright.tir import PrimFunc

WIDE = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=1")


def planes(n: Any, dtype: str = "float32") -> PrimFunc:
    """Real and imaginary parts of a product of complex matrices, as planes."""
    a, b = (te.placeholder((2, n, n), dtype, name) for name in ("a", "b"))
    k = te.reduce_axis((0, n), "k")

    def part(c: Any, i: Any, j: Any) -> Any:
        real = a[0, i, k] * b[0, k, j] - a[1, i, k] * b[1, k, j]
        imaginary = a[0, i, k] * b[1, k, j] + a[1, i, k] * b[0, k, j]
        return te.sum(if_then_else(c == 0, real, imaginary), axis=k)

    return te.create_prim_func([a, b, te.compute((2, n, n), part, name="c")])


@pytest.mark.parametrize(
    ("n", "dtype", "apart"),
    [(64, "float32", 1), (64, "float64", 1), (64, "int32", 0), (2, "float32", 0)],
)
def test_terms_are_added_one_by_one(n: int, dtype: str, apart: int) -> None:
    """Where a tile has enough sums to go on with, and numbers are floats."""
    mod = dlight.default_schedule(WIDE)(IRModule({"main": planes(n, dtype)}))
    # The negated factor is written as one times -1.
    assert " ".join(mod.script().split()).count("+ a[1, v_i, v_k] * T.float") == apart


@pytest.mark.parametrize("n", [64, 67, "n"])
def test_values(n: Any) -> None:
    size = 37 if n == "n" else n
    func = planes(te.var("n") if n == "n" else n)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 2, size, size), "float32")
    found = np.zeros((2, size, size), "float32")
    mod = dlight.default_schedule(Target("native"))(IRModule({"main": func}))
    driver.compile(mod, Target("native"))(a, b, found)
    expected = (a[0] + 1j * a[1]).astype("complex128") @ (b[0] + 1j * b[1])
    np.testing.assert_allclose(found, [expected.real, expected.imag], rtol=1e-4, atol=1e-4)


def test_steps_that_add_nothing_are_left_out_as_a_whole() -> None:
    """Sums over some of their steps keep the form that lowering puts one test around."""
    a, b = te.placeholder((2, 64, 64), name="a"), te.placeholder((2, 64, 64), name="b")
    k = te.reduce_axis((0, 64), "k")

    def part(i: Any, j: Any) -> Any:
        both = a[0, i, k] * b[0, k, j] - a[1, i, k] * b[1, k, j]
        return te.sum(both, axis=k, where=k % 3 != 0)

    func = te.create_prim_func([a, b, te.compute((64, 64), part, name="c")])
    mod = dlight.default_schedule(WIDE)(IRModule({"main": func}))
    assert "T.float32(-1.0)" not in mod.script() and "T.if_then_else" in mod.script()
