"""Rows that wrap around, as on periodic grids, are cut where they do: whole vectors in between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te, tir
from tilewright.ir import IRModule, collect
from tilewright.target import Target
from tilewright.tir import For
from tilewright.topi import nn

TARGET = Target("llvm -mcpu=skylake-avx512 -num-cores=1")
HOST = Target("native").with_options(num_cores=1)


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


@pytest.mark.parametrize(("before", "after"), [(3, 3), (0, 5), (1, 0), (2, 30)])
@pytest.mark.parametrize("n", [31, 32, 40, 100])
@pytest.mark.parametrize(
    ("mode", "pad"),
    [
        ("reflect", nn.reflect_pad),
        ("symmetric", partial(nn.mirror_pad, mode="SYMMETRIC")),
        ("edge", nn.replicate_pad),
        ("wrap", nn.circular_pad),
    ],
)
def test_borders(mode: Any, pad: Callable[..., Any], n: int, before: int, after: int) -> None:
    x = te.placeholder((5, n), "float32", "x")
    func = te.create_prim_func([x, pad(x, (1, before), (2, after))])
    made = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=HOST)(IRModule({"main": func}))
    assert "vectorized" in {loop.kind for loop in collect(made["main"].body, For)}
    given = np.random.default_rng(n).standard_normal((5, n)).astype("float32")
    expected = np.pad(given, ((1, 2), (before, after)), mode)
    found = np.zeros_like(expected)
    driver.compile(made, HOST)["main"](given, found)
    np.testing.assert_array_equal(found, expected)


def test_rows_that_turn_at_a_place_that_is_no_constant_are_left_alone() -> None:
    x, start = te.placeholder((4, 64), "float32", "x"), te.placeholder((4,), "int64", "start")
    y = te.compute(
        (4, 64), lambda i, j: x[i, tir.max(tir.min(j - start[i], 63), 0)] * 2.0, name="y"
    )
    func = te.create_prim_func([x, start, y])
    made = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=HOST)(IRModule({"main": func}))
    given, starts = np.arange(256, dtype="float32").reshape(4, 64), np.array([0, 3, -70, 64])
    found = np.zeros_like(given)
    driver.compile(made, HOST)["main"](given, starts, found)
    places = np.clip(np.arange(64) - starts[:, None], 0, 63)
    np.testing.assert_array_equal(found, np.take_along_axis(given, places, 1) * 2)
