"""Where the CPU rules compute intermediate elements: at their use, or once beforehand."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import dlight, driver, runtime, te, topi
from tilewright.ir import IRModule, cast, collect
from tilewright.target import Target
from tilewright.tir import Block, For, PrimFunc

TARGET = Target("native").with_options(num_cores=1)


def scheduled(func: PrimFunc) -> PrimFunc:
    rules = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=TARGET)
    result = rules(IRModule({"main": func}))["main"]
    assert isinstance(result, PrimFunc)
    return result


def names(func: PrimFunc) -> set[str]:
    return {block.name for block in collect(func.body, Block)}


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(6, 40), (129, 257), (1, 1)])
def test_products_are_made_where_a_sum_reads_them(shape: tuple[int, int], axis: int) -> None:
    a, b = (te.placeholder(shape, "float32", name=name) for name in "ab")
    product = te.compute(shape, lambda i, j: a[i, j] * b[i, j], name="product")
    func = scheduled(te.create_prim_func([a, b, topi.sum(product, axis=axis)]))
    assert "product" not in names(func)
    x, y = np.random.default_rng(0).standard_normal((2, *shape)).astype("float32")
    out = runtime.empty((shape[1 - axis],))
    driver.compile(func, TARGET)(x, y, out)
    expected = (x.astype("f8") * y).sum(axis)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-4)


def test_operands_that_a_product_reads_often_are_made_beforehand() -> None:
    a, b = (te.placeholder((64, 64), "float32", name=name) for name in "ab")
    shifted = te.compute((64, 64), lambda i, j: a[i, j] + 1.0, name="shifted")
    assert "shifted" in names(scheduled(te.create_prim_func([a, b, topi.matmul(shifted, b)])))


def test_chains_of_reshapes_lose_their_quotients() -> None:
    """A shuffle of channels: its columns stay columns, and go in vectors."""
    x = te.placeholder((1, 6, 5, 32), "float32", name="x")
    split = topi.reshape(x, (1, 2, 3, 5, 32))
    func = te.create_prim_func([x, topi.reshape(topi.transpose(split, [0, 2, 1, 3, 4]), x.shape)])
    result = scheduled(func)
    assert any(loop.kind == "vectorized" for loop in collect(result.body, For))
    data = np.arange(960, dtype="float32").reshape(1, 6, 5, 32)
    out = runtime.empty(data.shape)
    driver.compile(result, TARGET)(data, out)
    expected = data.reshape(1, 2, 3, 5, 32).transpose(0, 2, 1, 3, 4).reshape(data.shape)
    np.testing.assert_array_equal(out.numpy(), expected)


def test_small_tables_of_indices_are_computed_once() -> None:
    x = te.placeholder((64, 20), "float32", name="x")
    rows = te.compute((40,), lambda i: cast(cast(i, "float32") * 0.5, "int64"), name="rows")
    func = te.create_prim_func([x, te.compute((64, 40), lambda i, j: x[i, rows[j]], name="y")])
    assert "rows" in names(scheduled(func))
    data = np.random.default_rng(0).standard_normal((64, 20)).astype("float32")
    out = runtime.empty((64, 40))
    driver.compile(scheduled(func), TARGET)(data, out)
    np.testing.assert_array_equal(out.numpy(), data[:, np.arange(40) // 2])
