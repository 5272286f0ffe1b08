"""Reductions over what lies side by side: rows of any length, several of them at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, runtime, te, topi
from tilewright.dlight.cpu import RowWise
from tilewright.ir import IRModule, collect
from tilewright.scheduling import NotApplicable
from tilewright.target import Target
from tilewright.tir import For, PrimFunc
from tilewright.tir.schedule import Schedule

TARGET = Target("native").with_options(num_cores=1)


def scheduled(func: PrimFunc, cores: int = 1) -> IRModule:
    target = TARGET.with_options(num_cores=cores)
    return dlight.default_schedule(target)(IRModule({"main": func}))


def reduction(kind: str, shape: tuple[int, ...], axes: list[int], dtype: str) -> PrimFunc:
    x = te.placeholder(shape, dtype, name="x")
    return te.create_prim_func([x, getattr(topi, kind)(x, axis=axes)])


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    if dtype.startswith("int"):
        return rng.integers(-100, 100, shape, dtype)
    return rng.standard_normal(shape).astype(dtype)


def compiled(func: PrimFunc, *arrays: np.ndarray[Any, Any], cores: int = 1) -> np.ndarray[Any, Any]:
    out = func.buffers[-1]
    result = runtime.empty(tuple(int(n.value) for n in out.shape), out.dtype)  # type: ignore[attr-defined]
    module = driver.compile(scheduled(func, cores), TARGET.with_options(num_cores=cores))
    module(*map(runtime.tensor, arrays), result)
    return np.asarray(result.numpy())


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((32, 7, 7), [1, 2]),
        ((48, 16), [1]),
        ((3, 20, 33), [2]),
        ((5, 100), [1]),
        ((17, 64), [1]),
        ((8, 3, 5, 2), [1, 2, 3]),
        ((1, 130), [1]),
        ((4, 40, 9), [0, 2]),
        ((16, 1), [1]),
        ((600, 130), [1]),
    ],
)
def test_rows_of_all_lengths(shape: tuple[int, ...], axes: list[int], cores: int) -> None:
    x = numbers(shape, "float32")
    expected = x.astype("f8").sum(tuple(axes))
    got = compiled(reduction("sum", shape, axes, "float32"), x, cores=cores)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int8"])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_extrema_of_short_rows(kind: str, dtype: str) -> None:
    x = numbers((32, 21), dtype)
    got = compiled(reduction(kind, x.shape, [1], dtype), x)
    np.testing.assert_array_equal(got, getattr(x, kind)(1))


@pytest.mark.parametrize("width", [3, 16, 49, 200])
def test_a_nan_reaches_the_result_of_its_row_only(width: int) -> None:
    x = numbers((32, width), "float32")
    x[5, width - 1] = x[30, 0] = np.nan
    for kind in ("max", "sum"):
        got = compiled(reduction(kind, x.shape, [1], "float32"), x)
        assert np.flatnonzero(np.isnan(got)).tolist() == [5, 30]


def test_the_whole_of_a_row_runs_in_parallel() -> None:
    mod = scheduled(reduction("max", (1024, 1024), [1], "float32"), cores=2)
    outermost = mod["main"].root.body
    assert isinstance(outermost, For) and outermost.kind == "parallel"


@pytest.mark.parametrize(("shape", "axes"), [((33, 77, 129), [2]), ((8, 64, 7, 7), [2, 3])])
def test_threads_share_rows_of_several_axes(shape: tuple[int, ...], axes: list[int]) -> None:
    func = reduction("sum", shape, axes, "float32")
    outermost = scheduled(func, cores=2)["main"].root.body
    assert isinstance(outermost, For) and outermost.kind == "parallel"
    x = numbers(shape, "float32")
    expected = x.astype("f8").sum(tuple(axes))
    np.testing.assert_allclose(compiled(func, x, cores=2), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_threads_share_the_elements_of_one_result(kind: str) -> None:
    func = reduction(kind, (512, 1100), [0, 1], "float32")
    (parallel,) = [
        loop
        for loop in collect(scheduled(func, cores=2)["main"].body, For)
        if loop.kind == "parallel"
    ]
    assert any(str(loop.extent) == "256" for loop in collect(parallel.body, For))
    x = numbers((512, 1100), "float32")
    expected = getattr(x.astype("f8"), kind)()
    np.testing.assert_allclose(compiled(func, x, cores=2), expected, rtol=1e-5, atol=1e-3)


def test_short_rows_need_no_loop_over_their_elements() -> None:
    mod = driver.lower(scheduled(reduction("mean", (2048, 7, 7), [1, 2], "float32")), TARGET)
    extents = [str(loop.extent) for loop in collect(mod["main"].body, For)]
    assert all(extent not in ("7", "49") for extent in extents)


@pytest.mark.parametrize("shape", [(3, 8, 24), (6, 16), (5, 40), (4, 1), (1, 3000), (12, 130)])
@pytest.mark.parametrize("kind", ["softmax", "log_softmax"])
def test_rows_of_softmax_go_together(kind: str, shape: tuple[int, ...]) -> None:
    x = te.placeholder(shape, "float32", name="x")
    func = te.create_prim_func([x, getattr(topi.nn, kind)(x)])
    a = 5 * numbers(shape, "float32")
    powers = np.exp(a.astype("f8") - a.max(-1, keepdims=True))
    expected = powers / powers.sum(-1, keepdims=True)
    expected = np.log(expected) if kind == "log_softmax" else expected
    np.testing.assert_allclose(compiled(func, a), expected, rtol=3e-6, atol=1e-6)


def test_what_is_not_a_number_fills_its_row_of_a_softmax_only() -> None:
    x = te.placeholder((8, 24), "float32", name="x")
    func = te.create_prim_func([x, topi.nn.softmax(x)])
    a = numbers((8, 24), "float32")
    a[1, 3] = a[4, 0] = a[4, 9] = np.nan
    a[6, 5] = np.inf
    a[7, 5] = -np.inf
    got = compiled(func, a)
    assert np.isnan(got).all(1).tolist() == [False, True, False, False, True, False, True, False]
    assert np.isnan(got).any(1).tolist() == np.isnan(got).all(1).tolist()
    assert got[7, 5] == 0


@pytest.mark.parametrize(("rows", "fetched"), [(2, False), (1 << 16, True)])
def test_rows_from_far_memory_are_fetched_ahead(rows: int, fetched: bool) -> None:
    x, w = te.placeholder((rows, 4096), name="x"), te.placeholder((4096,), name="w")
    func = te.create_prim_func([x, w, topi.nn.rms_norm(x, w)])
    mod = driver.lower(scheduled(func), TARGET)
    assert ("prefetch" in mod["main"].script()) == fetched


@pytest.mark.parametrize("kind", ["max", "min", "argmax", "argmin"])
def test_extrema_of_narrow_floats_are_exact_and_keep_nan(kind: str) -> None:
    x = te.placeholder((16, 70), "float16", name="x")
    func = te.create_prim_func([x, getattr(topi, kind)(x, axis=1)])
    a = numbers((16, 70), "float16")
    a[3, 60] = a[9, 1] = np.nan
    a[4, 7], a[5, 8] = np.inf, -np.inf
    np.testing.assert_array_equal(compiled(func, a), getattr(a, kind)(1))
    loops = collect(driver.lower(scheduled(func), TARGET)["main"].body, For)
    assert all(str(loop.extent) not in ("70", "64", "32") for loop in loops)


@pytest.mark.parametrize(
    ("shape", "groups"), [((2, 12, 5, 7), 4), ((1, 8, 16), 8), ((1, 6, 4, 4), 1), ((3, 8), 2)]
)
def test_groups_of_channels_are_rows(shape: tuple[int, ...], groups: int) -> None:
    x = te.placeholder(shape, name="x")
    w, b = (te.placeholder((shape[1],), name=name) for name in "wb")
    func = te.create_prim_func([x, w, b, topi.nn.group_norm(x, w, b, groups)])
    assert not isinstance(RowWise().apply_to(Schedule(func), TARGET), NotApplicable)
    arrays = [numbers(size, "float32") for size in (shape, shape[1:2], shape[1:2])]
    rows = arrays[0].astype("f8").reshape(shape[0], groups, -1)
    centred = rows - rows.mean(-1, keepdims=True)
    plain = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    scale, shift = (a.reshape(-1, *(1 for _ in shape[2:])) for a in arrays[1:])
    expected = plain.reshape(shape) * scale + shift
    np.testing.assert_allclose(compiled(func, *arrays), expected, rtol=1e-4, atol=1e-5)


def is_scheduled(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether rules left nothing as serial loops."""
    return not any("no rule schedules" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("shape", [(1, 8, 5, 2), (3, 7, 5, 2), (17, 8, 16, 9), (80,), (20003,)])
@pytest.mark.parametrize(
    ("kind", "dtype"), [("sum", "float16"), ("sum", "float32"), ("max", "float32")]
)
def test_reductions_of_everything_are_scheduled(
    shape: tuple[int, ...], kind: str, dtype: str, cores: int, caplog: pytest.LogCaptureFixture
) -> None:
    x = numbers(shape, dtype)
    found = compiled(reduction(kind, shape, list(range(len(shape))), dtype), x, cores=cores)
    assert is_scheduled(caplog)
    wanted = getattr(np, kind)(x.astype("float64"))
    np.testing.assert_allclose(found, wanted, rtol=1e-2 if dtype == "float16" else 1e-5, atol=1e-2)


def test_reductions_of_everything_with_symbolic_rows_are_scheduled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x = te.placeholder((te.var("n", "int64") + 4, 13, 3, 16), name="x")
    module = driver.compile(scheduled(te.create_prim_func([x, topi.sum(x)])), TARGET)
    assert is_scheduled(caplog)
    for rows in (0, 5):
        given, found = numbers((rows + 4, 13, 3, 16), "float32"), np.zeros((), "float32")
        module(given, found)
        np.testing.assert_allclose(found, given.astype("float64").sum(), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((4,), [0]), ((1, 300), [0, 1]), ((17, 8, 16, 9), [0, 1]), ((3, 5, 70), [2])],
)
def test_deviations_that_keep_dimensions_are_scheduled(
    shape: tuple[int, ...], axes: list[int], cores: int, caplog: pytest.LogCaptureFixture
) -> None:
    x = te.placeholder(shape, name="x")
    func = te.create_prim_func([x, topi.std(x, axes, keepdims=True)])
    given = numbers(shape, "float32")
    found = compiled(func, given, cores=cores)
    assert is_scheduled(caplog)
    wanted = given.astype("float64").std(tuple(axes), keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_rows_are_shared_where_a_result_is_reshaped() -> None:
    """Axes of one element, which the last stage hasn't, or has more of."""
    for shape, result in (((1, 3, 6, 50), (3, 6, 50)), ((3, 6, 50), (3, 1, 6, 1, 50))):
        x = te.placeholder(shape, name="x")
        func = te.create_prim_func([x, topi.reshape(topi.nn.softmax(x, -1), result)])
        assert not isinstance(RowWise().apply_to(Schedule(func), TARGET), NotApplicable)
        given = numbers(shape, "float32")
        powers = np.exp(given.astype("float64"))
        expected = (powers / powers.sum(-1, keepdims=True)).reshape(result)
        np.testing.assert_allclose(compiled(func, given), expected, rtol=1e-5)


NORMS = {
    "instance": (lambda x, g, b: topi.nn.instance_norm(x, g, b), 1),
    "group": (lambda x, g, b: topi.nn.group_norm(x, g, b, 2), 3),
}


def normalized(x: np.ndarray, members: int, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Norms of groups of channels of ``[N, C, H, W]``."""
    wide = x.astype(np.float64).reshape(len(x), 6 // members, members * x.shape[2] * x.shape[3])
    with np.errstate(all="ignore"):
        centered = wide - wide.mean(2, keepdims=True)
        made = centered / np.sqrt((centered * centered).mean(2, keepdims=True) + 1e-5)
    return made.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("sides", [("h", "w"), ("h", 5), (5, "w")])
def test_norms_of_images_of_any_size_are_one_kernel(norm: str, sides: tuple[Any, Any]) -> None:
    """Rows and columns are joined, whichever has its size with the call."""
    define, members = NORMS[norm]
    named = {name: te.var(name, "int64") for name in "bhw"}
    x = te.placeholder((named["b"], 6, *(named.get(n, n) for n in sides)), name="x")
    gamma, beta = (te.placeholder((6,), name=name) for name in ("gamma", "beta"))
    func = te.create_prim_func([x, gamma, beta, define(x, gamma, beta)])
    made = RowWise().apply(func, TARGET)
    assert not isinstance(made, NotApplicable)
    kernel = driver.compile(IRModule({"main": made.mod["main"]}), TARGET)["main"]
    rng = np.random.default_rng(0)
    scale = [rng.standard_normal(6, dtype=np.float32) for _ in range(2)]
    for batch, high, wide in ((2, 3, 5), (1, 1, 1), (3, 5, 40), (1, 33, 5), (0, 4, 4), (2, 16, 16)):
        h, w = (n if isinstance(n, int) else size for n, size in zip(sides, (high, wide)))
        image = rng.standard_normal((batch, 6, h, w), dtype=np.float32)
        if batch == 3:
            image[1, 2, 1, 1] = np.nan
        out = np.empty_like(image)
        kernel(image, *scale, out)
        np.testing.assert_allclose(out, normalized(image, members, *scale), rtol=1e-3, atol=1e-4)


def test_rows_that_end_in_a_vector_are_read_in_place() -> None:
    """Indices of several joined axes become one number, also where it ends inside of a vector."""
    x = te.placeholder((4, 4, 125, 8), name="x")
    lowered = driver.lower(scheduled(te.create_prim_func([x, topi.sum(x, axis=[1, 2, 3])])), TARGET)
    assert "% " not in lowered.script() and "truncmod" not in lowered.script()
