"""Looked-up vectors whose elements lie near each other, or don't: the same results."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import driver, te
from tilewright.ir import IRModule
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

TARGET = Target("native")


def looked_up(size: int, dtype: str, index_dtype: str, target: Target) -> IRModule:
    x = te.placeholder((size,), dtype, "x")
    at = te.placeholder((64,), index_dtype, "at")
    out = te.compute((64,), lambda i: x(at(i)), name="out")
    sch = Schedule(te.create_prim_func([x, at, out]))
    _, inner = sch.split(sch.get_loops(sch.get_block("out"))[0], [None, 16])
    sch.vectorize(inner)
    return sch.mod


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "int8"])
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("size", [5, 16, 17, 31, 32, 33, 200])
def test_results(size: int, index_dtype: str, dtype: str) -> None:
    rng = np.random.default_rng(size)
    x = rng.integers(-100, 100, size).astype(dtype)
    module = driver.compile(looked_up(size, dtype, index_dtype, TARGET), TARGET)
    places = {
        "near": np.minimum(np.arange(64) // 2 + size // 3, size - 1),
        "backwards": np.maximum(size - 1 - np.arange(64), 0),
        "anywhere": rng.integers(0, size, 64),
        "last": np.full(64, size - 1),
        "mixed": np.where(np.arange(64) == 20, 0, np.minimum(np.arange(64), size - 1)),
    }
    for name, at in places.items():
        out = np.zeros(64, dtype)
        module["main"](x, at.astype(index_dtype), out)
        np.testing.assert_array_equal(out, x[at], err_msg=name)


def test_two_vectors_are_permuted_where_there_is_an_instruction() -> None:
    wide = Target("llvm -mcpu=znver4 -mtriple=x86_64-unknown-linux-gnu")
    for size, name in ((200, "vpermt2"), (17, "vperm")):
        module = driver.compile(looked_up(size, "float32", "int32", wide), wide)
        assert name in module.get_source("asm")
    narrow = Target("llvm -mcpu=haswell -mtriple=x86_64-unknown-linux-gnu")
    text = driver.compile(looked_up(200, "float32", "int32", narrow), narrow).get_source("ll")
    assert "gather.near" not in text
