"""Resized images: rows are mixed where they are used, what follows is computed with the pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.dlight.cpu.resize import Resize
from tilewright.ir import IRModule, Var, collect
from tilewright.scheduling import NotApplicable
from tilewright.target import Target
from tilewright.tir import For
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

TARGET = Target("native").with_options(num_cores=2)
WIDE = Target("llvm -mcpu=skylake-avx512 -num-cores=2")


def function(shape: tuple[Any, ...], size: tuple[int, int], *, relu: bool, **options: Any) -> Any:
    x = te.placeholder(shape, "float32", "x")
    made = topi.image.resize2d_by_tables(x, size, **options)
    return te.create_prim_func([x, topi.nn.relu(made) if relu else made])


@pytest.mark.parametrize("method", ["linear", "nearest_neighbor"])
@pytest.mark.parametrize("size", [(16, 64), (9, 37), (30, 17)])
@pytest.mark.parametrize("relu", [False, True])
def test_results(size: tuple[int, int], method: str, relu: bool) -> None:
    func = function((2, 3, 12, 33), size, relu=relu, method=method)
    made = Resize().apply_to(Schedule(func), TARGET)
    assert not isinstance(made, NotApplicable)
    x = np.random.default_rng(0).standard_normal((2, 3, 12, 33)).astype("float32")
    expected, found = (np.zeros((2, 3, *size), "float32") for _ in range(2))
    run(func, x, expected)
    driver.compile(made.mod, TARGET)["main"](x, found)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_rows_are_shared_among_threads() -> None:
    made = Resize().apply_to(Schedule(function((8, 8, 40, 40), (80, 80), relu=True)), WIDE)
    assert not isinstance(made, NotApplicable)
    loops = collect(made.mod["main"].body, For)
    (rows,) = [loop for loop in loops if loop.kind == "parallel"]
    assert len(collect(rows.body, For)) == 3  # a mixed row; vectors of pixels


def test_symbolic_batches() -> None:
    n = Var("n")
    func = function((n, 2, 8, 20), (16, 40), relu=False)
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=TARGET)(IRModule({"main": func}))
    module = driver.compile(mod, TARGET)["main"]
    for count in (0, 1, 3):
        x = np.random.default_rng(0).standard_normal((count, 2, 8, 20)).astype("float32")
        expected, found = (np.zeros((count, 2, 16, 40), "float32") for _ in range(2))
        run(func, x, expected)
        module(x, found)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{"layout": "NHWC"}, {"method": "nearest_neighbor", "size": (4, 8)}],
)
def test_refusals(options: dict[str, Any]) -> None:
    size = options.pop("size", (20, 20))
    func = function((1, 10, 33, 33), size, relu=False, **options)
    assert isinstance(Resize().apply_to(Schedule(func), TARGET), NotApplicable)
