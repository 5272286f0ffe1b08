"""Scans on GPUs, simulated without races, against NumPy: operators, lengths, axes, dtypes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gpu_kernel_cases import CUDA, SMALL, function, kernels_of, simulated

from tests.everyday import few
from tilewright import topi
from tilewright.ir import IRModule, Var
from tilewright.kernels import ApplyKernels
from tilewright.kernels.gpu.scan.kernel import choose_threads
from tilewright.kernels.gpu.scan.tiles import ScanThreads
from tilewright.kernels.problems.scan import read_scan
from tilewright.scheduling import Choices
from tilewright.scheduling.gpu import limits_of
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

RNG = np.random.default_rng(0)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
OPERATORS = ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")


def check(
    x: np.ndarray, axis: int = 1, operator: str = "cumsum", *, shape: Any = None,
    target: Target = SMALL, **options: Any,
) -> IRModule:  # fmt: skip
    """Compare with the definition as it is; ``shape`` may be symbolic."""
    func = function(
        lambda t: getattr(topi, operator)(t, axis, **options), (shape or x.shape, str(x.dtype))
    )
    dtypes = [item.dtype for item in func.buffers if item is not func.buffers[0]]
    expected, found = ([np.full(x.shape, 3, d) for d in dtypes] for _ in range(2))
    run(func, x, *expected)
    mod = simulated(func, [x], found, target)
    for a, b in zip(found, expected):
        if b.dtype.kind in "iub":
            np.testing.assert_array_equal(a, b)
        else:
            wide = 2e-2 if b.dtype.itemsize == 2 else 1e-5
            np.testing.assert_allclose(a.astype("f8"), b.astype("f8"), rtol=wide, atol=wide)
    return mod


def numbers(*shape: int, dtype: Any = "float32") -> np.ndarray:
    """Small numbers, many of them equal."""
    return (RNG.integers(-3, 4, shape) / 2).astype(dtype)


@few("operator", OPERATORS, every=3)
def test_operators(operator: str) -> None:
    check(numbers(3, 37), 1, operator)


@pytest.mark.parametrize("operator", ["logcumsumexp", "cummax"])
@pytest.mark.parametrize(("shape", "axis"), [((1, 300), 1), ((40, 3), 0)])
def test_several_warps_and_strided_rows(operator: str, shape: tuple[int, int], axis: int) -> None:
    check(numbers(*shape), axis, operator)


@pytest.mark.parametrize("length", [1, 5, 64, 129])
def test_lengths(length: int) -> None:
    check(RNG.integers(-9, 9, (2, length)), 1)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes(axis: int) -> None:
    check(RNG.integers(-9, 9, (3, 4, 5)), axis, "cummax")


@pytest.mark.parametrize(
    ("dtype", "operator"),
    [
        ("float16", "cumsum"),
        (BFLOAT16, "cummax"),
        ("float64", "cumprod"),
        ("int8", "cumsum"),
        ("uint8", "cummin"),
        ("int64", "cummax"),
        ("bool", "cumsum"),
    ],
)
def test_dtypes(dtype: Any, operator: str) -> None:
    check(numbers(2, 50, dtype=dtype), 1, operator)


def test_sums_of_another_dtype() -> None:
    check(numbers(2, 50, dtype="int8"), 1, dtype="int32")


@pytest.mark.parametrize("operator", ["cumprod", "logcumsumexp", "cummax", "cummin"])
def test_special_values(operator: str) -> None:
    x = numbers(5, 24)
    x[0, [7, 21]] = np.nan
    x[1] = -np.inf
    x[2, 5] = np.inf
    x[3, ::2], x[3, 1::2] = 0.0, -0.0
    x[4, 11], x[4, 17] = -np.inf, np.nan
    check(x, 1, operator)


@pytest.mark.parametrize("sizes", [(3, 40), (0, 5), (2, 0)])
@pytest.mark.parametrize("axis", [0, 1])
def test_symbolic_sizes(sizes: tuple[int, int], axis: int) -> None:
    check(RNG.integers(-9, 9, sizes), axis, shape=(Var("n"), Var("m")))


@few("operator", ["cumsum", "cummin"], every=2)
def test_a_few_long_rows_are_scanned_in_parts(operator: str) -> None:
    mod = check(numbers(1, 2500), 1, operator)
    assert len(kernels_of(mod)) == 2


@few("length", [0, 700], every=2)
def test_parts_of_rows_of_unknown_length(length: int) -> None:
    mod = check(RNG.integers(-9, 9, (length,)), 0, "cummax", shape=(Var("n"),))
    assert len(kernels_of(mod)) == 2


def test_plans() -> None:
    def plan(shape: Any, axis: int) -> ScanThreads:
        func = function(lambda x: topi.cumsum(x, axis), (shape, "float32"))
        scan = read_scan(func)
        return choose_threads(scan, limits_of(CUDA), Choices())

    assert plan((4096, 4096), 0) == ScanThreads(1, 4, 128)  # neighbours take neighbouring columns
    assert plan((4096, 20), 1) == ScanThreads(8, 4, 16)
    assert plan((4096, 4096), 1) == ScanThreads(256, 4)
    assert plan((1, 1 << 20), 1).parts > 100


def test_sizes_are_checked() -> None:
    sch = Schedule(IRModule({"main": function(lambda x: topi.cumsum(x, 0), ((64,), "float32"))}))
    good = asdict(ScanThreads(32, 4, 2))
    for name, value, said in (
        ("lanes", 12, "power of two"),
        ("lanes", 64, "one row"),
        ("rows", 64, "up to 1024 threads"),
        ("items", 0, "at least one"),
    ):
        with pytest.raises(ScheduleError, match=said):
            sch.use_kernel("root", "scan_tiles", {**good, name: value})


def test_what_is_more_than_a_scan_is_for_rules() -> None:
    func = function(lambda x: topi.exp(topi.cumsum(x, 1)), ((5, 40), "float32"))
    assert ApplyKernels(target=CUDA)(IRModule({"main": func}))["main"] is func
