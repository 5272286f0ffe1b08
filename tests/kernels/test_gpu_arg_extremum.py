"""Argmax and argmin on GPUs, simulated without races, against NumPy; refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gpu_kernel_cases import CUDA, SMALL, applied, function, kernels_of, lowered, simulated

from tests.everyday import few
from tilewright import te, topi
from tilewright.ir import IRModule, Var
from tilewright.kernels import ApplyKernels
from tilewright.kernels.gpu.arg_extremum import kernel
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

RNG = np.random.default_rng(0)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def check(
    x: np.ndarray, axis: int, *, least: bool = False, last: bool = False, shape: Any = None,
    target: Target = SMALL,
) -> IRModule:  # fmt: skip
    """Indices as NumPy finds them; ``shape`` may be symbolic."""
    search = topi.argmin if least else topi.argmax
    func = function(
        lambda t: search(t, axis, select_last_index=last, dtype="int64"),
        (shape or x.shape, str(x.dtype)),
    )
    wide = x.astype("float32") if x.dtype == BFLOAT16 else x
    find = np.argmin if least else np.argmax
    expected = find(np.flip(wide, axis) if last else wide, axis)
    if last:
        expected = x.shape[axis] - 1 - expected
    found = np.full(expected.shape, -7, "int64")
    mod = simulated(func, [x], [found], target)
    np.testing.assert_array_equal(found, expected)
    return mod


def few_values(*shape: int, dtype: Any = "float32") -> np.ndarray:
    """Values of which many are equal."""
    return RNG.integers(0, 5, shape).astype(dtype)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 64), (5, 100), (70, 3), (1, 257)])
def test_first_of_equal_elements(shape: tuple[int, int]) -> None:
    check(few_values(*shape), 1)


@pytest.mark.parametrize("shape", [(40, 3), (7, 70), (1, 1)])
def test_columns_are_searched_by_neighbouring_threads(shape: tuple[int, int]) -> None:
    func = function(
        lambda x: topi.argmax(topi.transpose(x, (1, 0)), 1, dtype="int64"), (shape, "float32")
    )
    x, found = few_values(*shape), np.zeros(shape[1], "int64")
    mod = simulated(func, [x], [found])
    np.testing.assert_array_equal(found, x.argmax(0))
    assert len(kernels_of(mod)) == 1


def test_the_extremum_of_all_elements() -> None:
    func = function(lambda x: topi.argmax(x, None, dtype="int64"), ((5, 70), "float32"))
    x, found = few_values(5, 70), np.zeros((), "int64")
    simulated(func, [x], [found])
    assert found == x.argmax()


@few("dtype", ["float16", BFLOAT16, "float64", "int8", "uint8", "int64"], every=2)
@pytest.mark.parametrize("least", [False, True])
def test_dtypes(dtype: Any, least: bool) -> None:
    check(few_values(3, 50, dtype=dtype), 1, least=least)


@pytest.mark.parametrize("least", [False, True])
def test_the_last_of_equal_elements(least: bool) -> None:
    check(few_values(3, 50), 1, least=least, last=True)


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_special_values(least: bool, last: bool) -> None:
    x = few_values(6, 40)
    x[0, [7, 21]] = np.nan
    x[1] = np.nan
    x[2] = np.inf
    x[3] = -np.inf
    x[4, ::2], x[4, 1::2] = 0.0, -0.0
    x[5, 3], x[5, 9] = np.inf, -np.inf
    check(x, 1, least=least, last=last)


@pytest.mark.parametrize("shape", [(3, 40), (1, 1), (0, 5), (4, 130)])
def test_symbolic_sizes(shape: tuple[int, int]) -> None:
    check(few_values(*shape), 1, shape=(Var("n"), Var("m")))


def test_empty_rows_have_no_index() -> None:
    func = function(lambda x: topi.argmax(x, 1, dtype="int64"), ((Var("n"), Var("m")), "float32"))
    found = np.zeros(3, "int64")
    simulated(func, [few_values(3, 0)], [found])
    assert (found == np.iinfo("int64").max).all()


def test_a_few_long_rows_are_searched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_LEAST_PART", 100)
    x = few_values(777, dtype="int8")
    x[[450, 760]] = 90
    mod = check(x, 0)
    assert len(kernels_of(mod)) == 2


def test_several_axes() -> None:
    check(few_values(2, 3, 4, 5), 3)


def test_the_index_is_written_by_the_kernel_that_finds_it() -> None:
    func = function(lambda x: topi.argmax(x, 1, dtype="int64"), ((64, 1000), "float32"))
    (kernel,) = kernels_of(lowered(applied(func)))
    assert "warp_shuffle_xor" in kernel.script()


def test_what_follows_by_elements_joins() -> None:
    func = function(
        lambda x: topi.add(topi.argmax(x, 1, dtype="int64"), te.const(3, "int64")),
        ((5, 40), "float32"),
    )
    x, found = few_values(5, 40), np.zeros(5, "int64")
    mod = simulated(func, [x], [found])
    np.testing.assert_array_equal(found, x.argmax(1) + 3)
    assert len(kernels_of(mod)) == 1


def test_reductions_of_pairs_are_for_rules() -> None:
    func = function(lambda x: topi.argmax(x, 0, dtype="int64"), ((5, 40), "float32"))
    mod = ApplyKernels(target=CUDA)(IRModule({"main": func}))
    assert mod["main"] is func


def test_sizes_are_checked() -> None:
    func = function(lambda x: topi.argmax(x, 1, dtype="int64"), ((5, 40), "float32"))
    sch = Schedule(IRModule({"main": func}))
    with pytest.raises(ScheduleError, match="at least one part"):
        sch.use_kernel("root", "extremum_pairs", {"parts": 0})
