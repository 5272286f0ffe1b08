"""Stages over rows as a software pipeline: where it is used, and that results stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, runtime, te, topi
from tilewright.codegen.llvm.emit import emit_module
from tilewright.ir import IRModule, collect
from tilewright.target import Target
from tilewright.tir import PARALLEL, For, PrimFunc
from tilewright.tir.attrs import PIPELINE_FUSE, PIPELINE_STAGE

Array = np.ndarray[Any, Any]

# Caches so small that results of a test's size go to memory.
TARGET = Target("native").with_options(num_cores=1, l1=1 << 12, l2=1 << 18, l3=1 << 15)


def scheduled(func: PrimFunc, cores: int = 1) -> IRModule:
    target = TARGET.with_options(num_cores=cores)
    return dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))


def softmax(rows: int, width: int, dtype: str = "float32") -> PrimFunc:
    x = te.placeholder((rows, width), dtype, name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def pipelines(module: IRModule) -> list[For]:
    return [
        loop for loop in collect(module["main"].body, For) if PIPELINE_STAGE in loop.annotations
    ]


def compiled(module: IRModule, *arrays: Array, cores: int = 1) -> Array:
    out = module["main"].buffers[-1]
    result = runtime.empty(tuple(int(n.value) for n in out.shape), out.dtype)  # type: ignore[attr-defined]
    driver.compile(module, TARGET.with_options(num_cores=cores))(
        *map(runtime.tensor, arrays), result
    )
    return np.asarray(result.numpy())


def softmax_reference(x: Array) -> Array:
    wide = x.astype("f8")
    with np.errstate(invalid="ignore"):
        e = np.exp(wide - wide.max(-1, keepdims=True))
        return np.asarray(e / e.sum(-1, keepdims=True))


def numbers(rows: int, width: int, dtype: str = "float32") -> Array:
    return (3 * np.random.default_rng(rows).standard_normal((rows, width))).astype(dtype)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("rows", "width"), [(16, 2048), (18, 2048), (9, 2064), (35, 1040), (64, 1100), (16, 2049)]
)
def test_softmax_in_a_pipeline(rows: int, width: int, cores: int) -> None:
    x = numbers(rows, width)
    module = scheduled(softmax(rows, width), cores)
    got = compiled(module, x, cores=cores)
    np.testing.assert_allclose(got, softmax_reference(x), rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("width", [2048, 2049])
def test_passes_run_as_one_loop(width: int) -> None:
    (loop,) = pipelines(scheduled(softmax(16, width)))
    assert list(loop.annotations[PIPELINE_STAGE]) == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert list(loop.annotations[PIPELINE_FUSE]) == [1, 5, 8]


def test_rows_are_fetched_ahead_by_the_first_pass_only() -> None:
    func = softmax(16, 2048)
    text = emit_module(driver.lower(scheduled(func), TARGET), TARGET).text
    # In the first row, in the second, and in all others, as often each.
    assert text.count("call void @llvm.prefetch") % 3 == 0 and "i64 8192" in text
    choices = dlight.Choices({"row_pipeline.ahead": 1})
    sch = dlight.first_schedule(func, dlight.cpu.rules(), TARGET, choices=choices)
    assert sch is not None
    assert "llvm.prefetch" not in emit_module(driver.lower(sch.mod, TARGET), TARGET).text


def test_threads_share_parts_of_the_rows() -> None:
    module = scheduled(softmax(64, 2048), cores=2)
    (loop,) = pipelines(module)
    outer = [item for item in collect(module["main"].body, For) if item.kind == PARALLEL]
    assert len(outer) == 1
    assert loop in collect(outer[0].body, For)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_dtypes(dtype: str) -> None:
    x = numbers(32, 2048, dtype)
    got = compiled(scheduled(softmax(32, 2048, dtype)), x)
    tolerance = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-13}[dtype]
    np.testing.assert_allclose(got, softmax_reference(x), rtol=tolerance, atol=1e-7)


def test_odd_rows_keep_to_themselves() -> None:
    """A NaN or an infinity makes its own row NaN, and nothing in the rows around it."""
    x = numbers(24, 2048)
    x[3, 7], x[9, 2047], x[14, :] = np.nan, np.inf, -np.inf
    x[20, 100] = -np.inf
    got = compiled(scheduled(softmax(24, 2048)), x)
    odd = [3, 9, 14]
    rest = [row for row in range(24) if row not in odd]
    assert np.isnan(got[odd]).any(1).all()
    np.testing.assert_allclose(got[rest], softmax_reference(x)[rest], rtol=2e-6, atol=1e-9)
    plain = compiled(without_pipeline(softmax(24, 2048)), x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(plain))


def without_pipeline(func: PrimFunc) -> IRModule:
    """The same rule without a pipeline: caches that hold everything."""
    target = Target("native").with_options(num_cores=1)
    return dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))


def test_log_softmax_and_rms_norm() -> None:
    x, w = numbers(32, 4096), numbers(1, 4096)[0]
    a = te.placeholder(x.shape, "float32", name="a")
    b = te.placeholder(w.shape, "float32", name="b")
    module = scheduled(te.create_prim_func([a, topi.nn.log_softmax(a)]))
    assert pipelines(module)
    np.testing.assert_allclose(
        compiled(module, x), np.log(softmax_reference(x)), rtol=1e-5, atol=1e-5
    )
    module = scheduled(te.create_prim_func([a, b, topi.nn.rms_norm(a, b)]))
    assert pipelines(module)
    wide = x.astype("f8")
    scale = 1 / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(compiled(module, x, w), wide * scale * w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "width", "why"),
    [
        (4, 2048, "too few rows to fill it"),
        (256, 64, "short rows go together"),
        (8, 500, "the result stays in the cache"),
        (8, 1 << 15, "rows that are under way don't fit the near cache"),
    ],
)
def test_where_it_does_not_pay(rows: int, width: int, why: str) -> None:
    assert not pipelines(scheduled(softmax(rows, width))), why
    x = numbers(rows, width)
    got = compiled(scheduled(softmax(rows, width)), x)
    np.testing.assert_allclose(got, softmax_reference(x), rtol=2e-6, atol=1e-9)


def test_three_cheap_passes_stay_apart() -> None:
    a = te.placeholder((64, 2048), "float32", name="a")
    assert not pipelines(scheduled(te.create_prim_func([a, topi.nn.layer_norm(a, None, None)])))


def test_symbolic_rows_are_not_pipelined() -> None:
    n = te.var("n")
    x = te.placeholder((n, 2048), "float32", name="x")
    assert not pipelines(scheduled(te.create_prim_func([x, topi.nn.softmax(x)])))
