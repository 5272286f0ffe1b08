"""Rows that wrap around, as on periodic grids, are cut where they do: whole vectors in between."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import dlight, driver, te
from tilewright.ir import IRModule, collect
from tilewright.target import Target
from tilewright.tir import For

TARGET = Target("llvm -mcpu=skylake-avx512 -num-cores=1")


def moved(n: int, *steps: int, rows: int = 6) -> IRModule:
    x = te.placeholder((rows, n), "float32", "x")

    def total(i: object, j: object) -> object:
        parts = [x[(i + s % rows) % rows, (j + s % n) % n] for s in steps]
        return sum(parts[1:], parts[0])

    return IRModule({"main": te.create_prim_func([x, te.compute((rows, n), total, name="y")])})


@pytest.mark.parametrize("n", [32, 37, 100, 256])
@pytest.mark.parametrize("steps", [(3,), (-1,), (0, 1, -1), (5, -5, 31, 2)])
def test_results(n: int, steps: tuple[int, ...]) -> None:
    mod, target = moved(n, *steps), Target("native -num-cores=2")
    made = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(mod)
    x = np.random.default_rng(n).standard_normal((6, n)).astype("float32")
    found = np.zeros_like(x)
    driver.compile(made, target)["main"](x, found)
    expected = sum(np.roll(x, (-s, -s), (0, 1)) for s in steps)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_segments_are_vectors() -> None:
    made = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=TARGET)(moved(256, 1, -1))
    text = made.script()
    kinds = [loop.kind for loop in collect(made["main"].body, For)]
    assert "vectorized" in kinds
    # Three parts of a row: the first element, the last one, and those between.
    assert text.count('T.block("y') == 3


def test_too_many_parts_are_left_alone() -> None:
    mod = moved(256, *range(0, 200, 11))
    made = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=TARGET)(mod)
    assert made.script().count('T.block("y') == 1
