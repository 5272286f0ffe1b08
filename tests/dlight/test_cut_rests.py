"""Rows that are no multiple of the turn in which they are read, as of dilated images."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import dlight, te, topi
from tilewright.ir import IRModule, collect
from tilewright.target import Target
from tilewright.tir import For
from tilewright.topi.testing import dilate_python

TARGET = Target("native").with_options(num_cores=1)


def scheduled(shape: tuple[int, ...], strides: tuple[int, ...], value: float = 0.0) -> IRModule:
    x = te.placeholder(shape, name="x")
    func = te.create_prim_func([x, topi.nn.dilate(x, strides, value)])
    return dlight.ApplyDefaultSchedule(target=TARGET)(IRModule({"main": func}))


def vectors(mod: IRModule) -> int:
    return sum(loop.kind == "vectorized" for loop in collect(mod["main"].body, For))


@pytest.mark.parametrize(
    ("shape", "strides", "value"),
    [
        ((3, 57), (1, 2), 0.0),
        ((2, 5, 33), (1, 2, 3), -1.5),
        ((100,), (5,), 0.0),
        ((2, 3), (1, 2), 1),
    ],
)
def test_dilated_rows(shape: tuple[int, ...], strides: tuple[int, ...], value: float) -> None:
    mod = scheduled(shape, strides, value)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    wanted = dilate_python(x, strides, value)
    found = np.empty_like(wanted, dtype="float32")
    tilewright.compile(mod, TARGET)["main"](x, found)
    np.testing.assert_array_equal(found, wanted)


def test_short_rows_have_no_vectors() -> None:
    assert vectors(scheduled((3, 57), (1, 2))) > 0
    assert vectors(scheduled((2, 3), (1, 2))) == 0
