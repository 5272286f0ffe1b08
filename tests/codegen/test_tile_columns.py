"""Columns of tiles on the stack, read by shuffles: every size of element, square and not."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule
from tilewright.runtime import Module
from tilewright.target import Target

TARGET = Target("native").with_options(num_cores=1)


def transposition(
    shape: tuple[int, ...], order: tuple[int, ...], dtype: str, target: Target = TARGET
) -> Module:
    x = te.placeholder(shape, dtype, name="x")
    mod = IRModule({"main": te.create_prim_func([x, topi.transpose(x, order)])})
    return driver.compile(
        dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(mod), target
    )


def check(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> None:
    count = int(np.prod(shape))
    data = (np.arange(count) * 37 % 251).reshape(shape).astype(dtype)
    expected = np.ascontiguousarray(data.transpose(order))
    result = np.zeros_like(expected)
    transposition(shape, order, dtype)(data, result)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", ["float64", "int64", "float32", "int16", "float16", "uint8"])
@pytest.mark.parametrize("shape", [(64, 128), (70, 97), (16, 33), (200, 24), (5, 300), (1, 40)])
def test_matrices(dtype: str, shape: tuple[int, int]) -> None:
    check(shape, (1, 0), dtype)


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((2, 33, 7, 8), (0, 2, 3, 1)),
        ((2, 7, 8, 33), (0, 3, 1, 2)),
        ((2, 40, 3, 32), (0, 2, 1, 3)),
        ((2, 40, 3, 32), (0, 2, 3, 1)),
        ((3, 17, 1, 20), (3, 2, 1, 0)),
        ((1, 3, 20, 30), (0, 2, 3, 1)),
        ((1, 20, 30, 3), (0, 3, 1, 2)),
        ((2, 9, 70, 4), (0, 3, 1, 2)),
        ((2, 7, 65, 3), (0, 3, 1, 2)),
        ((2, 4, 9, 70), (0, 2, 3, 1)),
        ((2, 3, 7, 65), (0, 2, 3, 1)),
        ((2, 6, 7, 48), (0, 2, 3, 1)),
        ((2, 7, 48, 6), (0, 3, 1, 2)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_more_dimensions(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> None:
    check(shape, order, dtype)


def test_truth_values() -> None:
    check((48, 80), (1, 0), "bool")


def test_of_unknown_extent() -> None:
    n = te.var("n")
    x = te.placeholder((n, 50), name="x")
    mod = IRModule({"main": te.create_prim_func([x, topi.transpose(x)])})
    rules = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=TARGET)
    module = driver.compile(rules(mod), TARGET)
    for rows in (1, 16, 37):
        data = np.arange(rows * 50, dtype="float32").reshape(rows, 50)
        result = np.zeros((50, rows), "float32")
        module(data, result)
        np.testing.assert_array_equal(result, data.T)


def test_elements_are_moved_by_shuffles() -> None:
    target = Target("llvm -mcpu=znver4 -num-cores=1")
    code = transposition((64, 64), (1, 0), "float32", target).get_source("asm")
    assert code.count("vunpcklps") >= 16
    assert "vgather" not in code
    assert "vinsertps" not in code


@pytest.mark.parametrize("shape", [(512, 640), (500, 700)])
def test_large_matrices_go_by_blocks_of_tiles(shape: tuple[int, int]) -> None:
    target = TARGET.with_options(l3=1 << 20)
    data = np.arange(shape[0] * shape[1], dtype="float32").reshape(shape)
    result = np.zeros(shape[::-1], "float32")
    transposition(shape, (1, 0), "float32", target)(data, result)
    np.testing.assert_array_equal(result, data.T)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(
    "target",
    ["llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell", "llvm -mtriple=aarch64-linux-gnu"],
)
def test_fences_in_networks_of_shuffles_are_no_instructions(target: str, dtype: str) -> None:
    module = transposition((64, 128), (1, 0), dtype, Target(target).with_options(num_cores=1))
    assert "@llvm.arithmetic.fence" in module.get_source("ll")
    marks = "#" if "x86" in target else "//"
    for line in module.get_source("asm").splitlines():
        assert "fence" not in line.split(marks)[0]
