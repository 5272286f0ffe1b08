"""Looking elements up: axes, index modes, dtypes, rows that share places, odd extents, threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, collect
from tilewright.target import Target
from tilewright.tir import For

RNG = np.random.default_rng(0)


def compute(build: Any, *arrays: np.ndarray, cores: int = 1) -> tuple[np.ndarray, IRModule]:
    target = Target("native").with_options(num_cores=cores)
    tensors = [te.placeholder(a.shape, str(a.dtype), f"a{n}") for n, a in enumerate(arrays)]
    made = build(*tensors)
    func = te.create_prim_func([*tensors, made])
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))
    out = np.full([extent.value for extent in made.shape], 7, made.dtype)
    driver.compile(mod, target)["main"](*arrays, out)
    return out, mod


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("shape", [(5, 33), (4, 16), (3, 7), (1, 9), (130, 70)])
def test_last_axis(shape: tuple[int, int], mode: str, cores: int) -> None:
    x = RNG.standard_normal(shape).astype("float32")
    indices = RNG.integers(-2 * shape[1], 2 * shape[1], 21)
    made, _ = compute(lambda a, i: topi.take(a, i, 1, mode=mode), x, indices, cores=cores)
    np.testing.assert_array_equal(made, np.take(x, indices, 1, mode=mode))


@pytest.mark.parametrize("dtype", ["float16", "int8", "float64"])
@pytest.mark.parametrize("index_dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes_and_dtypes(axis: int, index_dtype: str, dtype: str) -> None:
    x = RNG.integers(-100, 100, (6, 9, 12)).astype(dtype)
    indices = RNG.integers(0, 12, (3, 5)).astype(index_dtype)
    made, _ = compute(lambda a, i: topi.take(a, i, axis), x, indices)
    np.testing.assert_array_equal(made, np.take(x, indices, axis, mode="clip"))


def test_rows_that_share_places_go_together() -> None:
    x = RNG.standard_normal((64, 50)).astype("float32")
    _, mod = compute(lambda a, i: topi.take(a, i, 1), x, RNG.integers(0, 50, 20))
    assert [loop.kind for loop in collect(mod["main"].body, For)][-1] == "unrolled"


@pytest.mark.parametrize("axis", [0, 1])
def test_places_for_each_element(axis: int) -> None:
    x = RNG.standard_normal((17, 19)).astype("float32")
    indices = RNG.integers(0, 17, (17, 19))
    made, _ = compute(lambda a, i: topi.gather(a, axis, i), x, indices)
    np.testing.assert_array_equal(made, np.take_along_axis(x, indices, axis))


def test_embedding_fused_with_a_sum() -> None:
    table, positions = RNG.standard_normal((2, 40, 24)).astype("float32")
    tokens = RNG.integers(0, 40, (3, 40))
    made, _ = compute(
        lambda t, p, i: topi.add(topi.take(t, i, 0), p), table, positions, tokens, cores=2
    )
    np.testing.assert_array_equal(made, table[tokens] + positions)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("width", "count"), [(16, 500), (64, 33), (200, 12), (1, 90)])
def test_rows_of_a_large_table_are_fetched_ahead(width: int, count: int, cores: int) -> None:
    target = Target("native")
    target = Target(f"llvm -mcpu={target.mcpu} -num-cores={cores} -l2=4096 -l3=8192")
    table = RNG.standard_normal((5000, width)).astype("float32")
    for tokens in (RNG.integers(-9, 5009, (2, count)), np.zeros((1, 1), "int64")):
        t, i = te.placeholder(table.shape, name="t"), te.placeholder(tokens.shape, "int64", "i")
        func = te.create_prim_func([t, i, topi.take(t, i, 0)])
        mod = IRModule({"main": func})
        mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(mod)
        code = driver.compile(mod, target)
        out = np.empty((*tokens.shape, width), "float32")
        code["main"](table, tokens, out)
        np.testing.assert_array_equal(out, np.take(table, tokens, 0, mode="clip"))
        if width > 1 and tokens.size > 1:
            assert "prefetch" in code.get_source("asm")


def test_what_mixes_gathered_elements_is_computed_in_vectors() -> None:
    """Four pixels that a box says make a result; boxes may lie outside of the image."""
    x, boxes = te.placeholder((1, 3, 9, 11), name="x"), te.placeholder((4, 4), name="boxes")
    number = te.placeholder((4,), "int32", name="number")
    crop = topi.image.crop_and_resize(x, boxes, number, (5, 13), layout="NCHW")
    target = Target("native").with_options(num_cores=1)
    func = te.create_prim_func([x, boxes, number, crop])
    mod = dlight.ApplyDefaultSchedule(target=target)(IRModule({"main": func}))
    assert any(loop.kind == "vectorized" for loop in collect(mod["main"].body, For))
    rng = np.random.default_rng(0)
    image = rng.standard_normal((1, 3, 9, 11), dtype=np.float32)
    where = np.array([[0, 0, 1, 1], [-0.5, 0.2, 0.7, 1.5], [1, 1, 0, 0], [2, 2, 3, 3]], np.float32)
    found, plain = np.empty((4, 3, 5, 13), np.float32), np.empty((4, 3, 5, 13), np.float32)
    for module, out in ((mod, found), (IRModule({"main": func}), plain)):
        driver.compile(module, target)["main"](image, where, np.zeros(4, np.int32), out)
    np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[0, :, ::4, ::12], image[0, :, ::8, ::10], rtol=1e-6)
