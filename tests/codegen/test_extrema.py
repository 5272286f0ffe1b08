"""Minimum and maximum of floats: NaN comes through, in scalars, vectors, reductions and masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, as_int
from tilewright.target import Target
from tilewright.tir.interpreter import run

TARGET = Target("native").with_options(num_cores=1)


def results(build: Callable[..., te.Tensor], *arrays: Any) -> list[Any]:
    """What the interpreter, plain and scheduled code make of the arrays."""
    tensors = [te.placeholder(a.shape, str(a.dtype), name=f"x{n}") for n, a in enumerate(arrays)]
    out = build(*tensors)
    func = te.create_prim_func([*tensors, out])
    made = [np.zeros([as_int(e) for e in out.shape], out.dtype) for _ in range(3)]
    run(func, *arrays, made[0])
    mod = IRModule({"main": func})
    driver.compile(mod, TARGET)(*arrays, made[1])
    rules = dlight.default_schedule(TARGET)
    driver.compile(rules(mod), TARGET)(*arrays, made[2])
    return made


def with_nans(*shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    made = rng.standard_normal(shape).astype("float32")
    made[rng.random(shape) < 0.05] = np.nan
    made[rng.random(shape) < 0.05] = np.inf
    made[rng.random(shape) < 0.05] = -np.inf
    return made


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_nan_of_either_operand(name: str) -> None:
    a, b = with_nans(9, 37), with_nans(9, 37, seed=1)
    for made in results(getattr(topi, name), a, b):
        np.testing.assert_array_equal(made, getattr(np, name)(a, b))


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_nan_next_to_a_constant(name: str) -> None:
    x = with_nans(5, 21)
    for made in results(lambda t: getattr(topi, name)(t, te.const(0.5, "float32")), x):
        np.testing.assert_array_equal(made, getattr(np, name)(x, np.float32(0.5)))


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("shape", [(4, 5), (7, 200), (33, 67)])
def test_nan_in_a_reduction(shape: tuple[int, int], name: str, axis: int | None) -> None:
    x = with_nans(*shape)
    for made in results(lambda t: getattr(topi, name)(t, axis), x):
        np.testing.assert_array_equal(made, getattr(np, name)(x, axis))
