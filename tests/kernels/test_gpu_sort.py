"""Sorts on GPUs, simulated without races: dtypes, lengths, axes, special values, orders."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gpu_kernel_cases import CUDA, SMALL, applied, function, kernels_of, lowered, simulated
from sort_reference import awkward, order

from tests.everyday import few
from tilewright import topi
from tilewright.ir import IRModule, Var
from tilewright.kernels import ApplyKernels
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule, Trace

RNG = np.random.default_rng(0)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
#: Tiles of 32 elements, so that short rows take several passes.
TINY = Target("cuda -max-threads=4")


def check(
    x: np.ndarray, k: int = -1, axis: int = -1, is_ascend: bool = True, *, shape: Any = None,
    target: Target = SMALL,
) -> IRModule:  # fmt: skip
    """Values and places, bit by bit; ``shape`` may be symbolic."""
    func = function(
        lambda t: topi.topk(t, k, axis, "both", is_ascend, "int32"),
        (shape or x.shape, str(x.dtype)),
    )
    axis %= x.ndim
    expected = order(x, axis, is_ascend)
    expected = np.take(expected, range(x.shape[axis] if k == -1 else k), axis)
    values, indices = np.full(expected.shape, 7, x.dtype), np.full(expected.shape, 7, "int32")
    mod = simulated(func, [x], [values, indices], target)
    np.testing.assert_array_equal(indices, expected)
    wanted = np.take_along_axis(x, expected, axis)
    np.testing.assert_array_equal(values.view(np.uint8), wanted.view(np.uint8))
    return mod


# ---- rows that are tiles -----------------------------------------------------------------------


@few(
    ("dtype", "is_ascend"),
    [
        ("float32", True),
        ("float32", False),
        ("float64", False),
        ("float16", True),
        (BFLOAT16, False),
        ("int8", True),
        ("uint32", False),
        ("int64", True),
        ("bool", False),
    ],
    every=3,
)
def test_every_dtype_with_places(dtype: Any, is_ascend: bool) -> None:
    mod = check(awkward(RNG, (1, 40), dtype), is_ascend=is_ascend)
    assert len(kernels_of(mod)) == 1


@few(
    ("dtype", "is_ascend"),
    [
        ("float32", True),
        ("float64", False),
        ("float16", False),
        ("int64", False),
        ("uint64", True),
        ("int16", True),
    ],
    every=3,
)
def test_every_dtype_without_places(dtype: Any, is_ascend: bool) -> None:
    x = awkward(RNG, (1, 40), dtype)
    made = np.full(x.shape, 7, dtype)
    simulated(function(lambda t: topi.sort(t, 1, is_ascend), (x.shape, dtype)), [x], [made])
    np.testing.assert_array_equal(made, np.take_along_axis(x, order(x, 1, is_ascend), 1))


@pytest.mark.parametrize("length", [1, 2, 9, 33])
def test_every_length(length: int) -> None:
    check(awkward(RNG, (3, length), "float32"))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_axis(axis: int) -> None:
    check(awkward(RNG, (3, 4, 5), "float32"), axis=axis, is_ascend=False)


@pytest.mark.parametrize("k", [1, 5, 40])
def test_the_first_of_short_rows(k: int) -> None:
    check(awkward(RNG, (3, 40), "float32"), k, is_ascend=False)


# ---- longer rows -------------------------------------------------------------------------------


@few(("length", "is_ascend"), [(33, True), (64, False), (150, True)], every=3)
def test_tiles_are_merged(length: int, is_ascend: bool) -> None:
    rows = 2 if length < 64 else 1
    mod = check(awkward(RNG, (rows, length), "float32"), is_ascend=is_ascend, target=TINY)
    assert len(kernels_of(mod)) == 3


@few("k", [1, 16, 60], every=3)
def test_the_first_of_long_rows(k: int) -> None:
    check(awkward(RNG, (1, 150), "float32"), k, is_ascend=False, target=TINY)


def test_many_equal_elements_stay_in_order() -> None:
    check(RNG.integers(0, 2, (1, 90)).astype("int32"), target=TINY)
    check(np.full((1, 90), np.nan, "float32"), 9, target=TINY)


def test_greatest_elements_are_not_taken_for_the_end() -> None:
    x = np.full((1, 70), np.iinfo("int32").max, "int32")
    x[0, ::3] = np.iinfo("int32").min
    check(x, 30, target=TINY)


@few("sizes", [(1, 70), (3, 32), (0, 5), (2, 0)], every=2)
def test_symbolic_sizes(sizes: tuple[int, int]) -> None:
    x = awkward(RNG, sizes, "float32")
    check(x, shape=(Var("n"), Var("m")), target=TINY)


@few("length", [5, 130], every=2)
def test_the_first_of_rows_of_unknown_length(length: int) -> None:
    check(awkward(RNG, (1, length), "float32"), 5, shape=(1, Var("m")), target=TINY)


# ---- sizes -------------------------------------------------------------------------------------


def test_short_rows_share_a_block() -> None:
    func = function(lambda x: topi.argsort(x, axis=1, dtype="int64"), ((512, 16), "float32"))
    (kernel,) = kernels_of(lowered(applied(func)))
    assert 'T.thread_binding(256, thread="threadIdx.x")' in kernel.script() or (
        'T.thread_binding(128, thread="threadIdx.x")' in kernel.script()
    )


def test_forms_replay() -> None:
    func = function(lambda x: topi.argsort(x, axis=1, dtype="int64"), ((5, 100), "float32"))
    sch = Schedule(IRModule({"main": func}), record=True)
    sch.use_kernel("root", "merge_sort", {"threads": 8, "items": 4})
    again = Schedule(IRModule({"main": func}))
    Trace.from_json(sch.trace.as_json()).apply_to_schedule(again)
    assert again.mod["main"].script() == sch.mod["main"].script()


def test_sizes_are_checked() -> None:
    sch = Schedule(IRModule({"main": function(lambda x: topi.sort(x, 1), ((5, 100), "float32"))}))
    for options, said in (
        ({"threads": 12, "items": 4}, "power of two"),
        ({"threads": 8, "items": 0}, "at least one"),
        ({"threads": 2048, "items": 4}, "at most 1024"),
        ({"threads": 8, "items": 4, "rows": 2}, "known to be tiles"),
    ):
        with pytest.raises(ScheduleError, match=said):
            sch.use_kernel("root", "merge_sort", options)


def test_what_is_more_than_a_sort_is_for_rules() -> None:
    func = function(lambda x: topi.exp(topi.sort(x, 1)), ((5, 40), "float32"))
    assert ApplyKernels(target=CUDA)(IRModule({"main": func}))["main"] is func
