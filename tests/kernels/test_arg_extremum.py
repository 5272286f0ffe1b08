"""Places of extrema along long rows, found in one pass: ties, NaN, ends of rows, threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, as_int, collect, structural_hash
from tilewright.runtime import Module
from tilewright.target import Target
from tilewright.tir import Block, PrimFunc
from tilewright.tir.interpreter import run

ONE, TWO = (Target("native").with_options(num_cores=cores) for cores in (1, 2))
SMALL = Target("llvm -num-cores=1")


def made(build: Callable[[te.Tensor], te.Tensor], x: te.Tensor, target: Target) -> IRModule:
    func = te.create_prim_func([x, build(x)])
    return dlight.default_schedule(target)(IRModule({"main": func}))


def goes_once(func: PrimFunc) -> bool:
    return any(block.name.endswith("_lanes") for block in collect(func.body, Block))


COMPILED: dict[tuple[int, Target], Module] = {}
"""Kernels by their definitions: many tests give one of them other data."""


def found(build: Callable[[te.Tensor], te.Tensor], data: Any, target: Target = ONE) -> Any:
    x = te.placeholder(data.shape, str(data.dtype), name="x")
    out = build(x)
    key = structural_hash(te.create_prim_func([x, out])), target
    if key not in COMPILED:
        mod = made(build, x, target)
        assert goes_once(mod["main"])
        COMPILED[key] = driver.compile(mod, target)
    result = np.zeros([as_int(extent) for extent in out.shape], out.dtype)
    COMPILED[key](data, result)
    return result


def ties(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    drawn = np.random.default_rng(seed).choice([1.0, -1.0, 0.0, -0.0, 2.0], shape)
    return drawn.astype(dtype)


@pytest.mark.parametrize("target", [ONE, TWO, SMALL], ids=["one", "two", "128 bits"])
@pytest.mark.parametrize(
    "shape", [(3, 256), (5, 1000), (2, 3, 333), (1, 20011), (7, 9001), (40001,)]
)
@pytest.mark.parametrize("nans", [0.0, 0.004, 1.0])
def test_rows(target: Target, shape: tuple[int, ...], nans: float) -> None:
    x = ties(*shape)
    x[np.random.default_rng(1).random(shape) < nans] = np.nan
    np.testing.assert_array_equal(
        found(lambda t: topi.argmax(t, -1, dtype="int64"), x, target), x.argmax(-1)
    )
    np.testing.assert_array_equal(
        found(lambda t: topi.argmin(t, -1, dtype="int64"), x, target), x.argmin(-1)
    )
    np.testing.assert_array_equal(found(topi.argmax, x, target), x.argmax())


@pytest.mark.parametrize("target", [ONE, TWO], ids=["one", "two"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, 0.0])
def test_rows_of_one_value(target: Target, value: float) -> None:
    for length in (257, 300, 33000):
        x = np.full((1, length), value, "float32")
        for name, expected in (("argmax", 0), ("argmin", 0)):
            assert found(lambda t, n=name: getattr(topi, n)(t, 1), x, target) == expected
        last = found(lambda t: topi.argmax(t, 1, select_last_index=True, dtype="int64"), x, target)
        assert last == length - 1
        last = found(lambda t: topi.argmin(t, 1, select_last_index=True, dtype="int64"), x, target)
        assert last == length - 1


@pytest.mark.parametrize("nans", [0.0, 0.01])
def test_last_of_equals(nans: float) -> None:
    x = ties(4, 1003)
    x[np.random.default_rng(1).random(x.shape) < nans] = np.nan
    for name in ("argmax", "argmin"):
        expected = 1002 - getattr(np, name)(np.flip(x, 1), 1)
        for target in (ONE, TWO):
            np.testing.assert_array_equal(
                found(
                    lambda t, n=name: getattr(topi, n)(t, 1, select_last_index=True, dtype="int64"),
                    x,
                    target,
                ),
                expected,
            )


@pytest.mark.parametrize("place", [0, 1, 63, 64, 999, 1000, 1023, 1024, 20479, 20480, 40000])
def test_every_part_of_a_row_counts(place: int) -> None:
    x = np.zeros((1, 40001), "float32")
    x[0, place] = 1.0
    for target in (ONE, TWO):
        assert found(lambda t: topi.argmax(t, 1, dtype="int64"), x, target) == place
    x[0, place] = np.nan
    assert found(lambda t: topi.argmin(t, 1, dtype="int64"), x, TWO) == place


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int32", "int64", "uint32", "float64", "float16", "bfloat16"]
)
def test_other_numbers(dtype: str) -> None:
    values = np.random.default_rng(2).integers(0, 100, (6, 1500))
    x = te.placeholder(values.shape, dtype, name="x")
    data = values.astype("float32" if dtype == "bfloat16" else dtype)
    given = (data.view("uint32") >> 16).astype("uint16") if dtype == "bfloat16" else data
    mod = made(lambda t: topi.argmin(t, 1, dtype="int64"), x, ONE)
    assert goes_once(mod["main"])
    result = np.zeros(6, "int64")
    module = driver.compile(mod, ONE)
    if dtype == "bfloat16":
        ml_dtypes = pytest.importorskip("ml_dtypes")
        given = given.view(ml_dtypes.bfloat16)
    module(given, result)
    np.testing.assert_array_equal(result, data.argmin(1))


def test_elements_that_are_computed_first() -> None:
    x = np.random.default_rng(3).standard_normal((5, 700)).astype("float32")
    for target in (ONE, TWO):
        result = found(
            lambda t: topi.argmax(topi.multiply(t, t), 1, keepdims=True, dtype="int64"), x, target
        )
        np.testing.assert_array_equal(result, (x * x).argmax(1, keepdims=True))


@pytest.mark.parametrize("length", [1, 3, 64, 65, 1000, 0])
def test_unknown_lengths(length: int) -> None:
    rows, extent = te.var("m"), te.var("n")
    mod = made(
        lambda t: topi.argmax(t, 1, dtype="int64"), te.placeholder((rows, extent), name="x"), ONE
    )
    assert goes_once(mod["main"])
    x = ties(7, length)
    result = np.zeros(7, "int64")
    driver.compile(mod, ONE)(x, result)
    expected = x.argmax(1) if length else np.full(7, np.iinfo("int64").max)
    np.testing.assert_array_equal(result, expected)


def test_short_rows_are_left_to_other_rules() -> None:
    mod = made(lambda t: topi.argmax(t, 1, dtype="int64"), te.placeholder((100, 30), name="x"), ONE)
    assert not goes_once(mod["main"])


def test_the_interpreter_agrees() -> None:
    x = ties(3, 400)
    x[1, 70] = np.nan
    mod = made(lambda t: topi.argmax(t, 1, dtype="int64"), te.placeholder(x.shape, name="x"), SMALL)
    result = np.zeros(3, "int64")
    run(mod["main"], x, result)
    np.testing.assert_array_equal(result, x.argmax(1))


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (5, 7), (1, 2, 17)])
@pytest.mark.parametrize("operator", [topi.argmin, topi.argmax])
def test_places_in_everything(operator: Any, shape: tuple[int, ...]) -> None:
    """Short rows first, then the best of the rows under masks, by gathers."""
    numpy = getattr(np, operator.__name__)
    x = te.placeholder(shape, "float32", name="x")
    for dtype in ("int32", "int64"):
        mod = made(
            lambda t, dtype=dtype: operator(t, dtype=dtype),
            x,
            Target("native").with_options(num_cores=1),
        )
        compiled = driver.compile(mod, Target("native").with_options(num_cores=1))
        for seed in range(6):
            data = np.random.default_rng(seed).standard_normal(shape).astype("float32")
            place = np.zeros((), dtype)
            compiled(data, place)
            assert place == numpy(data)
