"""Sorting kernels against NumPy: dtypes, lengths, axes, special values, orders, refusals."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sort_reference import awkward, order

from tests.everyday import few
from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, assert_structural_equal, collect
from tilewright.kernels.cpu.sort.kernel import choose_tiles
from tilewright.kernels.cpu.sort.network import batcher
from tilewright.kernels.cpu.sort.top_k import TopKTiles
from tilewright.kernels.problems.sorting import read_sorting
from tilewright.scheduling import NotApplicable
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block, For, PrimFunc
from tilewright.tir.analysis.verify import verify
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule, Trace

RNG = np.random.default_rng(0)
NATIVE = Target("native")
BFLOAT16 = ml_dtypes.bfloat16


def function(shape: Any, dtype: Any, build: Any) -> PrimFunc:
    x = te.placeholder(shape, str(np.dtype(dtype)), "x")
    made = build(x)
    return te.create_prim_func([x, *(made if isinstance(made, (tuple, list)) else [made])])


def scheduled(func: PrimFunc, target: Target = NATIVE) -> IRModule:
    mod = dlight.default_schedule(target)(IRModule({"main": func}))
    assert mod["main"].attrs.get(IS_SCHEDULED), "the rule does not apply"
    verify(mod)
    return mod


def block_names(mod: IRModule) -> set[str]:
    return {item.name for item in collect(mod["main"].body, Block)} - {"root"}


@cache
def compiled_topk(shape: Any, dtype: Any, options: Any, target: Target) -> tuple[IRModule, Any]:
    func = function(shape, dtype, lambda t: topi.topk(t, *options, "int32"))
    mod = scheduled(func, target)
    return mod, driver.compile(mod, target)["main"]


def check_topk(
    x: np.ndarray, k: int, axis: int, is_ascend: bool, target: Target = NATIVE, shape: Any = None
) -> IRModule:
    """Values and places, bit by bit; ``shape`` may be symbolic."""
    mod, kernel = compiled_topk(shape or x.shape, x.dtype, (k, axis, "both", is_ascend), target)
    expected = order(x, axis, is_ascend)
    expected = np.take(expected, range(x.shape[axis] if k == -1 else k), axis)
    values, indices = np.full(expected.shape, 7, x.dtype), np.full(expected.shape, 7, "int32")
    kernel(x, values, indices)
    np.testing.assert_array_equal(indices, expected)
    wanted = np.take_along_axis(x, expected, axis)
    np.testing.assert_array_equal(values.view(np.uint8), wanted.view(np.uint8))
    return mod


# ---- whole rows -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_ascend", [True, False])
@few(
    "dtype",
    ["float32", "float16", BFLOAT16, "int8", "uint8", "int32", "uint32", "bool", "uint16"],
    every=3,
)
def test_every_dtype_with_places(dtype: Any, is_ascend: bool) -> None:
    mod = check_topk(awkward(RNG, (2, 300), dtype), -1, 1, is_ascend)
    assert block_names(mod) == {"sort_rows"}


@pytest.mark.parametrize("is_ascend", [True, False])
@few("dtype", ["float32", "float64", "float16", "int64", "uint64", "uint32", "int16"], every=3)
def test_every_dtype_without_places(dtype: Any, is_ascend: bool) -> None:
    x = awkward(RNG, (2, 300), dtype)
    mod = scheduled(function(x.shape, dtype, lambda t: topi.sort(t, 1, is_ascend)))
    made = np.full(x.shape, 7, dtype)
    driver.compile(mod, NATIVE)["main"](x, made)
    np.testing.assert_array_equal(made, np.take_along_axis(x, order(x, 1, is_ascend), 1))
    assert block_names(mod) == {"sort_rows"}


@pytest.mark.parametrize("length", [1, 15, 16, 257, 900, 5000])
def test_every_length(length: int) -> None:
    x = awkward(RNG, (2, length), "float32")
    made = np.full(x.shape, 7, "float32")
    mod = scheduled(function(x.shape, "float32", topi.sort))
    driver.compile(mod, NATIVE)["main"](x, made)
    np.testing.assert_array_equal(made, np.sort(x, 1))


@pytest.mark.parametrize("length", [20_000, 40_001, 131_072])
def test_rows_of_several_blocks(length: int) -> None:
    check_topk(awkward(RNG, (1, length), "float32"), -1, 1, True)


TWO = NATIVE.with_options(num_cores=2)


def are_shared(mod: IRModule) -> bool:
    """Whether threads share rows, and not one row after another."""
    inner = [item for item in collect(mod["main"].body, Block) if item.name == "sort_block"]
    return bool(inner) and any(item.kind == "parallel" for item in collect(mod["main"].body, For))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@few("length", [131_072, 200_003], every=2)
def test_threads_share_a_long_row(length: int, dtype: str) -> None:
    x = RNG.integers(99, size=length)
    assert are_shared(check_topk(x.reshape(1, length).astype(dtype), -1, 1, True, TWO))


@pytest.mark.parametrize("length", [131_073, 300_000])
def test_threads_share_a_long_row_without_places(length: int) -> None:
    x = awkward(RNG, (length,), "float64")
    made = np.full(x.shape, 7, "float64")
    mod = scheduled(function(x.shape, "float64", topi.sort), TWO)
    assert are_shared(mod)
    driver.compile(mod, TWO)["main"](x, made)
    np.testing.assert_array_equal(made, np.sort(x))


def test_enough_rows_are_not_shared() -> None:
    assert not are_shared(scheduled(function((2, 131_072), "float32", topi.sort), TWO))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_axis(axis: int) -> None:
    check_topk(awkward(RNG, (20, 3, 33), "float32"), 3, axis, False)


def test_symbolic_length() -> None:
    mod = scheduled(function((2, te.var("n")), "float32", lambda x: topi.argsort(x, dtype="int64")))
    kernel = driver.compile(mod, NATIVE)["main"]
    for n in (0, 1, 100, 3000, 50_000):
        x = awkward(RNG, (2, n), "float32")
        made = np.full(x.shape, 7, "int64")
        kernel(x, made)
        np.testing.assert_array_equal(made, order(x, 1, True))


@pytest.mark.parametrize("cpu", ["haswell", "x86-64"])
def test_narrow_vectors(cpu: str) -> None:
    target = Target({"kind": "llvm", "mcpu": cpu, "num-cores": 1})
    check_topk(awkward(RNG, (2, 130), "float32"), -1, 1, True, target)
    check_topk(awkward(RNG, (1, 3000), "float32"), 5, 1, False, target)


def test_the_interpreter_agrees() -> None:
    """The kernels are TensorIR like any other."""
    target = Target({"kind": "llvm", "mcpu": "x86-64", "num-cores": 1})
    for shape, k in (((2, 70), -1), ((1, 600), 3)):
        x = awkward(RNG, shape, "float32")
        func = function(shape, "float32", lambda t, k=k: topi.topk(t, k))
        results = []
        for body in (func, scheduled(func, target)["main"]):
            count = shape[1] if k == -1 else k
            values, places = (
                np.zeros((shape[0], count), "float32"),
                np.zeros((shape[0], count), int),
            )
            run(body, x, values, places)
            results.append((values, places))
        for a, b in zip(*results):
            np.testing.assert_array_equal(a, b)


def test_parallel_rows() -> None:
    mod = scheduled(function((64, 1000), "float32", topi.sort), NATIVE.with_options(num_cores=2))
    assert any(loop.kind == "parallel" for loop in collect(mod["main"].body, For))


@pytest.mark.parametrize("is_ascend", [True, False])
def test_64_bit_integers_near_each_other(is_ascend: bool) -> None:
    x = RNG.integers(-5, 60, (4, 301))
    x[1] += 2**61
    x[2] = 2**31 * RNG.integers(0, 2, 301)  # just too far
    x[3, 7], x[3, 9] = -(2**63), 2**63 - 1
    mod = check_topk(x, -1, 1, is_ascend)
    assert block_names(mod) == {"sort_rows"}


@pytest.mark.parametrize("dtype", ["float64", "uint64"])
def test_what_has_no_room_for_places_runs_as_defined(dtype: str) -> None:
    mod = check_topk(awkward(RNG, (2, 90), dtype), 5, 1, True)
    assert block_names(mod) == {"sort"}


# ---- the first few --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["random", "up", "down", "equal"])
@pytest.mark.parametrize(("k", "is_ascend"), [(50, False), (1, True), (700, False)])
def test_topk_of_long_rows(k: int, is_ascend: bool, kind: str) -> None:
    length = 9001
    x = awkward(RNG, (2, length), "float32")
    if kind != "random":
        x = np.sort(x, 1)
    if kind == "down":
        x = np.ascontiguousarray(np.flip(x, 1))
    if kind == "equal":
        x[1] = x[0, 0]
    mod = check_topk(x, k, 1, is_ascend)
    assert block_names(mod) == {"top_k"}


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint32"])
def test_topk_dtypes(dtype: str) -> None:
    mod = check_topk(awkward(RNG, (6000, 2), dtype), 20, 0, False)
    assert block_names(mod) == {"top_k"}


def test_topk_of_symbolic_rows() -> None:
    shape = (2, te.var("n"))
    for n in (5, 100, 9000):
        check_topk(awkward(RNG, (2, n), "float32"), 5, 1, False, shape=shape)


# ---- the rule -------------------------------------------------------------------------------


def test_more_than_a_sort_is_left_to_others() -> None:
    func = function((2, 100), "float32", lambda t: topi.negative(topi.sort(t)))
    assert isinstance(read_sorting(func), NotApplicable)
    assert "one sort" in str(read_sorting(function((2, 9), "float32", topi.negative)))
    x = awkward(RNG, (2, 100), "float32")
    made = np.zeros_like(x)
    mod = dlight.default_schedule(NATIVE)(IRModule({"main": func}))
    driver.compile(mod, NATIVE)["main"](x, made)
    np.testing.assert_array_equal(made, -np.sort(x, 1))


def test_trace_replays() -> None:
    func = function((2, 5000), "float32", lambda t: topi.topk(t, 5))
    sch = dlight.first_schedule(func, dlight.kernels_and_rules(), NATIVE, record=True)
    assert sch is not None and sch.trace is not None
    again = Schedule(func)
    Trace.from_json(sch.trace.as_json()).apply_to_schedule(again)
    assert_structural_equal(again.mod, sch.mod)


def test_impossible_sizes_are_refused() -> None:
    func = function((2, 5000), "float32", lambda t: topi.topk(t, 5))
    sorting = read_sorting(func)
    assert not isinstance(sorting, NotApplicable)
    tiles = choose_tiles(sorting, NATIVE)
    assert isinstance(tiles, TopKTiles)
    for changed, message in (({"tile": 3}, "power of two"), ({"groups": 1}, "whole tiles")):
        sch = Schedule(IRModule({"main": func}))
        with pytest.raises(ScheduleError, match=message):
            sch.use_kernel("root", "top_k", {**asdict(tiles), **changed})


def test_batchers_network_sorts_zeros_and_ones() -> None:
    """By the 0-1 principle it then sorts anything."""
    rows = np.array([[n >> bit & 1 for bit in range(8)] for n in range(256)])
    for i, j in batcher(8):
        rows[:, [i, j]] = np.sort(rows[:, [i, j]], 1)
    np.testing.assert_array_equal(rows, np.sort(rows, 1))
