"""Attention on GPUs, simulated without races, against float64: shapes, masks, groups, refusals."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from attention_reference import attention, paged_attention, paged_hostile, paged_operands
from gpu_kernel_cases import CUDA, SMALL, applied, function, kernels_of, lowered, simulated

from tests.everyday import few
from tilewright import te, topi
from tilewright.ir import IRModule, Var
from tilewright.kernels import ApplyKernels
from tilewright.kernels.gpu.attention.decode import DecodeThreads
from tilewright.kernels.gpu.attention.prefill import PrefillThreads
from tilewright.kernels.gpu.attention.prefill_mma import PrefillWarps
from tilewright.scheduling.gpu.kernel_bounds import kernel_bounds
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule, Trace

RNG = np.random.default_rng(0)
BFLOAT = np.dtype(ml_dtypes.bfloat16)


def definition(arrays: list[Any], shapes: Any = None, **options: Any) -> PrimFunc:
    """The definition; ``shapes`` may be symbolic."""
    operands = [
        (shape, str(item.dtype)) for shape, item in zip(shapes or [a.shape for a in arrays], arrays)
    ]
    return function(lambda *x: topi.nn.scaled_dot_product_attention(*x, **options), *operands)


def heads(b: int, hq: int, hkv: int, sq: int, sk: int, d: int, dv: int | None = None) -> list[Any]:
    """Random queries, keys and values."""
    shapes = ((b, hq, sq, d), (b, hkv, sk, d), (b, hkv, sk, dv or d))
    return [RNG.standard_normal(shape, dtype="float32") for shape in shapes]


def check(
    arrays: list[Any], shapes: Any = None, tolerance: float = 3e-6, target: Target = SMALL,
    **options: Any,
) -> IRModule:  # fmt: skip
    func = definition(arrays, shapes, **options)
    expected = attention(*arrays, **options)
    found = np.full(expected.shape, 7, arrays[0].dtype)
    mod = simulated(func, arrays, [found], target)
    np.testing.assert_allclose(
        found.astype("float64"), expected, rtol=10 * tolerance, atol=tolerance
    )
    return mod


# ---- many queries ------------------------------------------------------------------------------


@few(
    ("shape", "causal"),
    [
        ((1, 1, 1, 16, 32, 8), None),  # whole tiles
        ((2, 2, 1, 19, 21, 5), None),  # nothing divides
        ((1, 2, 2, 20, 37, 4), "TopLeft"),
        ((1, 2, 2, 20, 37, 6), "BottomRight"),
        ((1, 1, 1, 30, 12, 8, 3), "BottomRight"),  # the first queries see nothing
        ((1, 1, 1, 17, 1, 1, 12), None),
        ((1, 6, 2, 4, 20, 8), "BottomRight"),  # a group makes one tile
    ],
    every=3,
)
def test_prefill(shape: Any, causal: str | None) -> None:
    check(heads(*shape), causal_mask=causal)


@few("layout", ["BSHD", ("BSHD", "BHSD", "BHSD", "BSHD")], every=2)
def test_layouts(layout: Any) -> None:
    arrays = heads(1, 2, 1, 18, 10, 4)
    layouts = (layout,) * 4 if isinstance(layout, str) else layout
    arrays = [a.transpose(0, 2, 1, 3).copy() if x == "BSHD" else a for a, x in zip(arrays, layouts)]
    check(arrays, layout=layout)


@few("shape", [(18, 10), (1, 2, 18, 10), (2, 1, 1, 10), (1, 1, 18, 1), (10,)], every=3)
def test_masks(shape: tuple[int, ...]) -> None:
    mask = RNG.standard_normal(shape) > 0
    values = mask if len(shape) % 2 else np.where(mask, 0, -np.inf).astype("float32")
    check([*heads(2, 2, 1, 18, 10, 4), values], causal_mask="TopLeft")


@pytest.mark.parametrize("causal", [None, "BottomRight"])
def test_rows_that_see_nothing_are_zero(causal: str | None) -> None:
    mask = np.ones((17, 9), bool)
    mask[[0, 5, 16]] = False
    check([*heads(1, 1, 1, 17, 9, 4), mask], causal_mask=causal)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-3), (BFLOAT, 2e-2)])
@pytest.mark.parametrize("queries", [1, 5])
def test_half_floats(dtype: Any, tolerance: float, queries: int) -> None:
    check([a.astype(dtype) for a in heads(1, 2, 1, queries, 20, 8)], tolerance=tolerance)


def test_large_scores() -> None:
    query, key, value = heads(1, 1, 1, 17, 9, 4)
    check([1e4 * query, key, value])


def test_nan_and_infinite_values() -> None:
    arrays = heads(1, 1, 1, 17, 9, 4)
    arrays[2][0, 0, 3, 1] = np.inf
    arrays[0][0, 0, 2, 0] = np.nan
    check(arrays)


@pytest.mark.parametrize("causal", [None, "BottomRight"])
@few("sizes", [(1, 17, 20), (2, 5, 3)], every=2)
def test_symbolic_sizes(sizes: tuple[int, int, int], causal: str | None) -> None:
    batch, queries, keys = (Var(name) for name in ("b", "n", "m"))
    b, n, m = sizes
    shapes = [(batch, 2, queries, 4), *[(batch, 1, keys, 4)] * 2]
    check(heads(b, 2, 1, n, m, 4), shapes, causal_mask=causal)


def test_no_keys_give_zeros() -> None:
    arrays, keys = heads(1, 2, 1, 5, 0, 4), Var("m")
    func = definition(arrays, [(1, 2, Var("n"), 4), *[(1, 1, keys, 4)] * 2])
    found = np.full((1, 2, 5, 4), 7, "float32")
    simulated(func, arrays, [found])
    assert not found.any()


def test_other_scales() -> None:
    check(heads(1, 1, 1, 17, 9, 4), scale=0.3)


# ---- tensor cores ------------------------------------------------------------------------------


@few(
    ("shape", "causal", "dtype"),
    [
        ((1, 1, 1, 32, 32, 16), None, np.float16),  # whole tiles
        ((2, 2, 1, 21, 37, 32, 16), "TopLeft", BFLOAT),
        ((1, 1, 1, 30, 20, 16, 32), "BottomRight", np.float16),  # the first queries see nothing
        ((1, 6, 2, 7, 20, 16), "BottomRight", BFLOAT),  # a group makes one tile
    ],
    every=2,
)
def test_products_on_tensor_cores(shape: Any, causal: str | None, dtype: Any) -> None:
    arrays = [a.astype(dtype) for a in heads(*shape)]
    mod = check(arrays, tolerance=2e-2 if dtype is BFLOAT else 2e-3, causal_mask=causal)
    assert "ptx_mma" in kernels_of(mod)[0].script()


@few("dtype", ["bool", "float16"], every=2)
def test_masks_on_tensor_cores(dtype: str) -> None:
    mask = RNG.standard_normal((2, 19, 23)) > 0
    mask[:, 4] = False
    values = mask if dtype == "bool" else np.where(mask, 0, -np.inf).astype(dtype)
    arrays = [a.astype("float16") for a in heads(1, 2, 1, 19, 23, 16)]
    check([*arrays, values], tolerance=2e-3)


@pytest.mark.parametrize("sizes", [(1, 20, 33), (2, 5, 3)])
def test_symbolic_sizes_on_tensor_cores(sizes: tuple[int, int, int]) -> None:
    batch, queries, keys = (Var(name) for name in ("b", "n", "m"))
    b, n, m = sizes
    shapes = [(batch, 2, queries, 16), *[(batch, 1, keys, 16)] * 2]
    arrays = [a.astype("float16") for a in heads(b, 2, 1, n, m, 16)]
    mod = check(arrays, shapes, 2e-3, causal_mask="BottomRight")
    assert "ptx_mma" in kernels_of(mod)[0].script()


@pytest.mark.parametrize("stages", [1, 3])
def test_blocks_of_keys_on_their_way(stages: int) -> None:
    arrays = [a.astype("float16") for a in heads(1, 1, 1, 17, 75, 16)]
    sch = Schedule(IRModule({"main": definition(arrays)}))
    sch.use_kernel("root", "attention_prefill_mma", {"warps": 2, "keys": 16, "stages": stages})
    found = np.zeros((1, 1, 17, 16), "float16")
    run(lowered(sch.mod), *arrays, found, check_races=True)
    np.testing.assert_allclose(found, attention(*arrays), rtol=2e-2, atol=2e-3)


def test_older_gpus_use_their_ordinary_units() -> None:
    target = Target("cuda -arch=sm_75")
    func = definition([np.zeros((1, 2, 64, 64), "float16")] * 3)
    assert "ptx_mma" not in kernels_of(lowered(applied(func, target), target))[0].script()


# ---- a few queries -----------------------------------------------------------------------------


@few(
    ("shape", "causal"),
    [
        ((1, 1, 1, 1, 64, 8), None),
        ((2, 3, 1, 1, 131, 20), None),  # a group; nothing divides
        ((1, 4, 2, 2, 150, 16), "BottomRight"),
        ((1, 1, 1, 16, 40, 8, 3), "TopLeft"),
        ((1, 1, 1, 5, 3, 1, 70), "BottomRight"),  # the first queries see nothing
        ((1, 1, 1, 1, 1, 1), None),
    ],
    every=3,
)
def test_decoding(shape: Any, causal: str | None) -> None:
    mod = check(heads(*shape), causal_mask=causal)
    assert len(kernels_of(mod)) == (2 if shape[4] > 100 else 1)


@pytest.mark.parametrize("shape", [(1, 2, 3, 40), (3, 1), (40,)])
def test_masks_of_a_few_queries(shape: tuple[int, ...]) -> None:
    mask = RNG.standard_normal(shape) > 0
    mask[..., 0] = False
    values = mask if len(shape) % 2 else np.where(mask, 0, -np.inf).astype("float32")
    check([*heads(1, 2, 1, 3, 40, 4), values])


def test_decoding_from_other_layouts() -> None:
    arrays = [a.transpose(0, 2, 1, 3).copy() for a in heads(2, 4, 2, 1, 40, 8)]
    check(arrays, layout="BSHD")


@few("keys", [0, 1, 40, 200], every=2)
def test_decoding_of_symbolic_lengths(keys: int) -> None:
    arrays, batch, length = heads(2, 2, 1, 1, keys, 4), Var("b"), Var("m")
    func = definition(arrays, [(batch, 2, 1, 4), *[(batch, 1, length, 4)] * 2])
    found = np.full((2, 2, 1, 4), 7, "float32")
    simulated(func, arrays, [found], Target("cuda -max-threads=32 -num-cores=1"))
    expected = attention(*arrays) if keys else np.zeros(found.shape)
    np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-6)


def test_special_values_of_a_few_queries() -> None:
    arrays = heads(1, 2, 1, 1, 40, 4)
    arrays[2][0, 0, 3, 1] = np.inf
    arrays[0][0, 1, 0, 0] = np.nan
    check(arrays)


# ---- windows -----------------------------------------------------------------------------------


@few(
    ("shape", "window", "causal", "dtype"),
    [
        ((1, 1, 1, 16, 32, 8), 5, "BottomRight", np.float32),
        ((2, 2, 1, 19, 61, 5), 1, "BottomRight", np.float32),  # one key
        ((1, 2, 1, 40, 37, 4), 20, "TopLeft", np.float32),  # the last queries see nothing
        ((1, 6, 2, 4, 40, 8), 12, "BottomRight", np.float32),  # a group makes one tile
        ((1, 1, 1, 30, 12, 8), 3, "BottomRight", np.float32),  # the first queries see nothing
        ((1, 1, 1, 17, 20, 8), 99, "TopLeft", np.float32),
        ((1, 1, 1, 34, 80, 16), 9, "BottomRight", np.float16),  # on tensor cores
        ((1, 4, 2, 1, 300, 16), 33, "BottomRight", np.float32),  # a few queries
        ((1, 4, 2, 3, 131, 16), 33, "BottomRight", np.float32),
    ],
    every=3,
)
def test_windows(shape: Any, window: int, causal: str, dtype: Any) -> None:
    arrays = [a.astype(dtype) for a in heads(*shape)]
    tolerance = 2e-3 if dtype is np.float16 else 3e-6
    check(arrays, tolerance=tolerance, causal_mask=causal, window_size=window)


@pytest.mark.parametrize("queries", [1, 17])
def test_windows_of_symbolic_lengths(queries: int) -> None:
    arrays, length = heads(1, 2, 1, queries, 90, 4), Var("m")
    shapes = [arrays[0].shape, *[(1, 1, length, 4)] * 2]
    check(arrays, shapes, causal_mask="BottomRight", window_size=21)


def test_keys_before_the_window_are_not_read() -> None:
    arrays = heads(1, 1, 1, 1, 256, 8)
    options = {"causal_mask": "BottomRight", "window_size": 100}
    expected, func = attention(*arrays, **options), definition(arrays, **options)
    for array in arrays[1:]:
        array[:, :, :128] = np.nan
    found = np.zeros(expected.shape, "float32")
    simulated(func, arrays, [found])
    np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-6)


# ---- pages -------------------------------------------------------------------------------------


def check_pages(arrays: list[Any], symbolic: bool, tolerance: float, window: int | None) -> None:
    shapes: list[Any] = [a.shape for a in arrays]
    if symbolic:
        batch, most, count = (Var(name) for name in ("b", "m", "n"))
        shapes = [(batch, *shapes[0][1:]), (count, *shapes[1][1:]), (batch, most), (batch,)]
    operands = [(shape, str(item.dtype)) for shape, item in zip(shapes, arrays)]
    func = function(lambda *x: topi.nn.paged_attention(*x, window_size=window), *operands)
    expected = paged_attention(*arrays, window_size=window)
    found = np.full(expected.shape, 7, arrays[0].dtype)
    simulated(func, arrays, [found])
    np.testing.assert_allclose(
        found.astype("float64"), expected, rtol=10 * tolerance, atol=tolerance
    )


@few(
    ("lengths", "queries", "heads_of", "page_size", "symbolic", "window"),
    [
        ([1, 48, 17], 1, (4, 2), 8, False, None),
        ([0, 48, 17], 1, (4, 2), 8, False, 5),  # a sequence of nothing
        ([2, 100], 3, (4, 1), 16, True, None),  # a query before its sequence
        ([20, 31], 20, (2, 1), 4, True, 7),
    ],
    every=2,
)
def test_keys_in_pages(
    lengths: Any, queries: int, heads_of: Any, page_size: int, symbolic: bool, window: int | None
) -> None:
    most = max(-(-max(lengths) // page_size), 6)
    arrays = paged_operands(RNG, lengths, queries, heads_of, page_size, most, 8)
    check_pages(arrays, symbolic, 3e-6, window)


@few(("symbolic", "queries"), [(False, 2), (True, 1)], (False, 2))
def test_pages_that_are_not_there(symbolic: bool, queries: int) -> None:
    arrays = paged_hostile(RNG, 8, 8)
    check_pages([arrays[0][:, -queries:].copy(), *arrays[1:]], symbolic, 3e-6, None)


@few("window", [None, 11], every=2)
def test_pages_on_tensor_cores(window: int | None) -> None:
    arrays = paged_operands(RNG, [64, 25], 20, (2, 1), 8, 8, 16)
    check_pages([a.astype("float16") for a in arrays[:2]] + arrays[2:], True, 2e-3, window)


# ---- sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["cuda", "cuda -arch=sm_75", "cuda -arch=sm_90a"])
@few("depth", [64, 96, 256], every=2)
def test_tiles_fit_into_shared_memory(arch: str, depth: int) -> None:
    target = Target(arch)
    func = definition([np.zeros((1, 8, 512, depth), "float16")] * 3)
    lowered(applied(func, target), target)


@pytest.mark.parametrize(
    ("heads_", "queries", "warps"), [(8, 4096, 8), (8, 2048, 4), (1, 256, 4), (8, None, 4)]
)
def test_many_queries_are_tiles_of_eight_warps(
    heads_: int, queries: int | None, warps: int
) -> None:
    """Blocks then read keys half as often, if there are enough of them; sizes may be unknown."""
    func = definition([np.zeros((1, heads_, queries or 64, 64), "float16")] * 3)
    if queries is None:
        shape = (1, heads_, te.var("n"), 64)
        inputs = [te.placeholder(shape, "float16", name) for name in "qkv"]
        made = topi.nn.scaled_dot_product_attention(*inputs)
        func = te.create_prim_func([*inputs, made])
    target = Target("nvidia/nvidia-h200")
    (bound,) = kernel_bounds(lowered(applied(func, target), target), target, {"n": 4096})
    assert bound.threads == 32 * warps
    if warps == 8:
        assert bound.limiter == "issue"


def test_each_form_replays() -> None:
    arrays = [a.astype("float16") for a in heads(1, 4, 2, 2, 50, 16)]
    func = definition(arrays, causal_mask="TopLeft")
    for name, plan in (
        ("attention_prefill_threads", PrefillThreads(4, 8, 2, 2)),
        ("attention_prefill_mma", PrefillWarps(2, 32)),
        ("attention_decode_threads", DecodeThreads(64, 32, 3)),
    ):
        sch = Schedule(IRModule({"main": func}), record=True)
        sch.use_kernel("root", name, asdict(plan))
        again = Schedule(IRModule({"main": func}))
        Trace.from_json(sch.trace.as_json()).apply_to_schedule(again)
        assert again.mod["main"].script() == sch.mod["main"].script()


def test_sizes_are_checked() -> None:
    func = definition(heads(1, 4, 2, 40, 50, 8))
    sch = Schedule(IRModule({"main": func}))
    good = {"row_threads": 4, "columns": 8, "rows": 2, "keys": 2}
    for name, value, said in (
        ("columns", 12, "power of two"),
        ("columns", 64, "power of two up to 32"),
        ("row_threads", 5, "whole warps"),
        ("row_threads", 256, "whole warps up to 1024"),
        ("rows", 0, "at least one"),
    ):
        with pytest.raises(ScheduleError, match=said):
            sch.use_kernel("root", "attention_prefill_threads", {**good, name: value})


def test_sizes_for_tensor_cores_are_checked() -> None:
    def refused(arrays: list[Any], options: dict[str, int], said: str) -> None:
        sch = Schedule(IRModule({"main": definition(arrays)}))
        with pytest.raises(ScheduleError, match=said):
            sch.use_kernel("root", "attention_prefill_mma", options)

    halves = [a.astype("float16") for a in heads(1, 4, 2, 20, 50, 16)]
    refused(halves, {"warps": 0, "keys": 32}, "at least one warp")
    refused(halves, {"warps": 40, "keys": 32}, "up to 1024 threads")
    refused(halves, {"warps": 2, "keys": 32, "stages": 0}, "at least one stage")
    refused(halves, {"warps": 2, "keys": 24}, "keys is a multiple of 16")
    refused(heads(1, 4, 2, 20, 50, 16), {"warps": 2, "keys": 32}, "float16 and bfloat16")
    halves = [a.astype("float16") for a in heads(1, 4, 2, 20, 50, 24)]
    refused(halves, {"warps": 2, "keys": 32}, "depth of heads is a multiple of 16")


def test_sizes_of_a_few_queries_are_checked() -> None:
    func = definition(heads(1, 4, 2, 2, 50, 8))
    sch = Schedule(IRModule({"main": func}))
    good = {"threads": 64, "keys": 32}
    for name, value, said in (
        ("threads", 96, "powers of two"),
        ("keys", 16, "a warp or more"),
        ("keys", 128, "up to the threads"),
        ("threads", 2048, "1024 fit"),
        ("splits", 0, "at least one"),
    ):
        with pytest.raises(ScheduleError, match=said):
            sch.use_kernel("root", "attention_decode_threads", {**good, name: value})
    sch = Schedule(IRModule({"main": definition(heads(1, 4, 2, 20, 50, 8))}))
    with pytest.raises(ScheduleError, match="at most 16"):
        sch.use_kernel("root", "attention_decode_threads", good)


def test_what_is_more_than_attention_is_for_rules() -> None:
    func = function(
        lambda q, k, v: topi.nn.relu(topi.nn.scaled_dot_product_attention(q, k, v)),
        *[((1, 2, 8, 4), "float32")] * 3,
    )
    assert ApplyKernels(target=CUDA)(IRModule({"main": func}))["main"] is func


def test_too_little_shared_memory() -> None:
    target = Target("cuda -max-shared-memory=1024")
    func = definition(heads(1, 1, 1, 20, 20, 256))
    assert ApplyKernels(target=target)(IRModule({"main": func}))["main"] is func
