"""Minimum and maximum of floats: NaN comes through, in scalars, vectors, reductions and masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import dlight, driver, te, topi
from tilewright.codegen.llvm import emit_expr
from tilewright.ir import IRModule, as_int, if_then_else, maximum, minimum
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


MEDIAN = [(1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 3), (5, 8)]
MEDIAN += [(4, 7), (3, 6), (1, 4), (2, 5), (4, 7), (4, 2), (6, 4), (4, 2)]


def tree(kind: str, x: Any, at: Callable[[int], Any]) -> Any:
    """Trees of minima and maxima, as in the test of a ray against a box."""
    if kind == "box":
        near, far = te.const(0, x.dtype), te.const(100, x.dtype)
        for n in range(3):
            near = maximum(near, minimum(at(2 * n), at(2 * n + 1)))
            far = minimum(far, maximum(at(2 * n), at(2 * n + 1)))
        return if_then_else(near <= far, near, far)
    if kind == "balanced":
        pairs = [minimum(at(2 * n), at(2 * n + 1)) for n in range(3)]
        return minimum(maximum(pairs[0], pairs[1]), maximum(pairs[2], pairs[0]))
    if kind == "odd":
        return maximum(minimum(at(0), at(1)), maximum(minimum(at(2), at(3)), maximum(at(4), at(4))))
    if kind == "network":  # the median of nine
        v = [at(n % 6) * (1 + n // 6) for n in range(9)]
        for a, b in MEDIAN:
            v[a], v[b] = minimum(v[a], v[b]), maximum(v[a], v[b])
        return v[4]
    chain = at(0)
    for n in range(1, 6):
        chain = (minimum if n % 2 else maximum)(chain, at(n))
    return chain


@pytest.mark.parametrize("mcpu", ["native", "x86-64-v3", "x86-64"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("kind", ["box", "balanced", "odd", "chain", "network"])
@few("lanes", [1, 7, 64], 7)
def test_nan_at_any_place_of_a_tree(mcpu: str, dtype: str, kind: str, lanes: int) -> None:
    """Not a bit differs from what single minima and maxima give, but for which NaN it is."""
    rng = np.random.default_rng(lanes)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 5.0])
    x = special[rng.choice(8, (6, 40, lanes), p=[0.06, 0.1, 0.1, 0.2, 0.2, 0.14, 0.1, 0.1])]
    x = x.astype(dtype)
    given = te.placeholder(x.shape, dtype, name="x")
    made = te.compute(
        x.shape[1:], lambda i, j: tree(kind, given, lambda n: given[n, i, j]), name="made"
    )
    target = TARGET if mcpu == "native" else Target(f"llvm -mcpu={mcpu} -num-cores=1")
    func = dlight.default_schedule(target)(IRModule({"main": te.create_prim_func([given, made])}))
    found, single, expected = (np.zeros(x.shape[1:], dtype) for _ in range(3))
    run(func, x, expected)
    driver.compile(func, target)(x, found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emit_expr, "operands_to_test", lambda *_: None)
        driver.compile(func, target)(x, single)
    np.testing.assert_array_equal(found, expected)
    numbers = ~np.isnan(expected)
    assert (np.signbit(found) == np.signbit(single))[numbers].all()


def test_trees_ask_of_two_operands_at_once() -> None:
    x = te.placeholder((6, 64), name="x")
    made = te.compute((64,), lambda j: tree("box", x, lambda n: x[n, j]), name="made")
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3 -num-cores=1")
    func = dlight.default_schedule(target)(IRModule({"main": te.create_prim_func([x, made])}))
    text = driver.compile(func, target).inspect_source("ll")
    assert text.count("fcmp uno") == 3 and "@llvm.m" not in text.split("define", 2)[1]
