"""Reductions scheduled by rule against numpy: odd and unit extents, axes, NaN, ties, threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, as_int
from tilewright.target import Target

ONE, TWO = (Target("native").with_options(num_cores=cores) for cores in (1, 2))


def scheduled(build: Callable[[te.Tensor], te.Tensor], x: Any, target: Target = ONE) -> Any:
    tensor = te.placeholder(x.shape, str(x.dtype), name="x")
    out = build(tensor)
    rules = dlight.default_schedule(target)
    module = driver.compile(rules(IRModule({"main": te.create_prim_func([tensor, out])})), target)
    result = np.zeros([as_int(extent) for extent in out.shape], out.dtype)
    module(x, result)
    return result


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


SHAPES = [(1, 1), (5, 1), (1, 7), (3, 130), (130, 3), (67, 201), (40, 500), (257, 300), (9, 16, 33)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axis", [0, -1, None, (0, -1)])
@pytest.mark.parametrize("target", [ONE, TWO], ids=["one", "two"])
def test_sums(shape: tuple[int, ...], axis: Any, target: Target) -> None:
    x = numbers(*shape)
    found = scheduled(lambda t: topi.sum(t, axis), x, target)
    expected = x.astype("float64").sum(axis)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 400000), (400000,), (2, 3, 70001)])
def test_few_results_are_shared_among_threads(shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    found = scheduled(topi.sum, x, TWO)
    np.testing.assert_allclose(found, x.astype("float64").sum(), rtol=1e-5, atol=1e-1)
    np.testing.assert_array_equal(scheduled(topi.max, x, TWO), x.max())


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float64", "float16"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_other_numbers(dtype: str, axis: int | None) -> None:
    x = (np.arange(45 * 70).reshape(45, 70) * 31 % 101 - 50).astype(dtype)
    np.testing.assert_array_equal(scheduled(lambda t: topi.max(t, axis), x), x.max(axis))
    found = scheduled(lambda t: topi.argmin(t, axis), x)
    np.testing.assert_array_equal(found, x.argmin(axis))


def awkward(*shape: int) -> Any:
    """Few different values, infinities, zeros of both signs: many ties."""
    x = np.random.default_rng(3).choice([1.0, -1.0, 0.0, -0.0, np.inf, -np.inf, 2.0], shape)
    return x.astype("float32")


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@few("shape", [(1, 1), (7, 1), (1, 9), (6, 37), (50, 131), (3, 20, 70)], every=3)
@pytest.mark.parametrize("axis", [0, -1, None])
@pytest.mark.parametrize("nans", [0.0, 0.02, 1.0])
def test_places_of_extrema(
    name: str, shape: tuple[int, ...], axis: int | None, nans: float
) -> None:
    x = awkward(*shape)
    x[np.random.default_rng(4).random(shape) < nans] = np.nan
    found = scheduled(lambda t: getattr(topi, name)(t, axis), x)
    np.testing.assert_array_equal(found, getattr(np, name)(x, axis))


@pytest.mark.parametrize("axis", [0, 1, None])
def test_last_of_equals(axis: int | None) -> None:
    x = awkward(30, 70)
    found = scheduled(lambda t: topi.argmax(t, axis, select_last_index=True), x)
    if axis is None:
        assert found == x.size - 1 - x.ravel()[::-1].argmax()
    else:
        extent = x.shape[axis]
        np.testing.assert_array_equal(found, extent - 1 - np.flip(x, axis).argmax(axis))


def test_dimensions_are_kept() -> None:
    x = awkward(4, 5, 6)
    for axis in (1, 2):
        found = scheduled(lambda t, a=axis: topi.argmax(t, a, keepdims=True), x)
        np.testing.assert_array_equal(found, x.argmax(axis, keepdims=True))
    assert scheduled(lambda t: topi.argmax(t, None, keepdims=True), x).shape == (1, 1, 1)


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_unknown_extents(rows: int) -> None:
    n = te.var("n")
    x = te.placeholder((n, 70), name="x")
    rules = dlight.default_schedule(ONE)
    data = awkward(rows, 70)
    for build, expected in (
        (lambda t: topi.argmax(t, 1), data.argmax(1)),
        (lambda t: topi.max(t, 0), data.max(0)),
        (lambda t: topi.min(t), data.min()),
    ):
        out = build(x)
        module = driver.compile(rules(IRModule({"main": te.create_prim_func([x, out])})), ONE)
        result = np.zeros(expected.shape, out.dtype)
        module(data, result)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("shape", [(3, 1), (5, 100), (2, 3000), (2, 40000)])
def test_softmax_of_awkward_rows(shape: tuple[int, int]) -> None:
    x = numbers(*shape) * 30
    x[0, 0] = 1e30
    wide = np.exp(x.astype("float64") - x.max(1, keepdims=True))
    found = scheduled(topi.nn.softmax, x)
    np.testing.assert_allclose(found, wide / wide.sum(1, keepdims=True), rtol=1e-5, atol=1e-30)
    x[1, -1] = np.nan
    found = scheduled(topi.nn.softmax, x)
    assert np.isnan(found[1]).all()
    assert not np.isnan(found[0]).any()
