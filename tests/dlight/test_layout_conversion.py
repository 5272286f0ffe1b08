"""The rule for images that lose their blocks of channels: whole vectors, right results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import driver, te, topi
from tilewright.dlight.base import NotApplicable
from tilewright.dlight.cpu import LayoutConversion
from tilewright.ir import IRModule, collect
from tilewright.target import Target
from tilewright.tir import IS_SCHEDULED, VECTORIZED, For, PrimFunc
from tilewright.tir.schedule import Schedule
from tilewright.topi.layout import layout_of, layout_transform

BLOCKS, PLAIN = layout_of("NCHW16c"), layout_of("NCHW")


def conversion(batch: Any, channels: int, height: int, width: int, relu: bool = False) -> PrimFunc:
    x = te.placeholder((batch, channels // 16, height, width, 16), name="x")
    y = layout_transform(x, BLOCKS.map_to(PLAIN))
    return te.create_prim_func([x, topi.nn.relu(y) if relu else y])


def apply(func: PrimFunc, target: Target) -> PrimFunc | str:
    sch = Schedule(IRModule({"main": func}))
    if len(sch.get_child_blocks(sch.get_block("root"))) > 1:
        sch.compute_inline(sch.get_block("layout_transform"))
    made = LayoutConversion().apply(sch, target)
    return made.reason if isinstance(made, NotApplicable) else made.mod["main"]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", [(1, 64, 8, 32), (2, 32, 7, 7), (3, 32, 1, 50), (1, 48, 5, 1)])
def test_results(shape: tuple[int, ...], relu: bool, cores: int) -> None:
    target = Target("native").with_options(num_cores=cores)
    func = apply(conversion(*shape, relu), target)
    if isinstance(func, str):
        assert shape[-1] == 1 and "no transposition" in func
        return
    expected = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    data, found = PLAIN.transform(expected, BLOCKS), np.empty(shape, np.float32)
    driver.compile(IRModule({"main": func.with_attr(IS_SCHEDULED, 1)}), target)(data, found)
    np.testing.assert_array_equal(found, np.maximum(expected, 0) if relu else expected)
    assert any(loop.kind == VECTORIZED for loop in collect(func.body, For))


def test_symbolic_batch() -> None:
    target = Target("native")
    func = apply(conversion(te.var("n"), 32, 6, 16), target)
    assert isinstance(func, PrimFunc)
    expected = np.random.default_rng(0).standard_normal((3, 32, 6, 16), dtype=np.float32)
    found = np.empty_like(expected)
    module = driver.compile(IRModule({"main": func.with_attr(IS_SCHEDULED, 1)}), target)
    module(PLAIN.transform(expected, BLOCKS), found)
    np.testing.assert_array_equal(found, expected)


def test_other_blocks_are_refused() -> None:
    x = te.placeholder((4, 32), name="x")
    func = te.create_prim_func([x, topi.transpose(x)])
    assert apply(func, Target("native")) == "no axis is read as quotient and remainder"
