"""Kernels by rule read nothing behind the end of their operands."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, Var
from tilewright.runtime import guarded
from tilewright.target import Target


def scheduled(*tensors):
    target = Target("native").with_options(num_cores=1)
    mod = IRModule({"main": te.create_prim_func(list(tensors))})
    mod = dlight.default_schedule(target)(mod)
    return driver.compile(mod, target)["main"]


@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_masks_of_attention_over_any_number_of_keys(dtype):
    n, m = Var("n"), Var("m")
    q, k, v = (te.placeholder((1, 2, x, 16), "float32", "qkv") for x in (n, m, m))
    mask = te.placeholder((1, 1, 1, m), dtype, "mask")
    out = topi.nn.scaled_dot_product_attention(q, k, v, mask, scale=0.3)
    run = scheduled(q, k, v, mask, out)
    rng = np.random.default_rng(0)
    for queries, keys in ((5, 7), (40, 70), (3, 1)):
        a, b, c = (
            guarded(rng.standard_normal((1, 2, size, 16)).astype("float32"))
            for size in (queries, keys, keys)
        )
        some = rng.integers(0, 2, (1, 1, 1, keys))
        some[..., 0] = 1
        seen = guarded(some.astype(dtype))
        found = guarded(np.zeros((1, 2, queries, 16), "float32"))
        run(a, b, c, seen, found)
        scores = a @ b.swapaxes(-1, -2) * 0.3
        scores = np.where(seen, scores, -np.inf) if dtype == "bool" else scores + seen
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        expected = powers / powers.sum(-1, keepdims=True) @ c
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("depth", [7, 64])
def test_products_of_bytes_over_any_number_of_rows(depth, transposed):
    n, columns = Var("n"), 33
    shape = (columns, depth) if transposed else (depth, columns)
    a, b = te.placeholder((n, depth), "uint8", "a"), te.placeholder(shape, "int8", "b")
    run = scheduled(a, b, topi.matmul(a, b, transp_b=transposed, out_dtype="int32"))
    rng = np.random.default_rng(0)
    weight = guarded(rng.integers(-9, 9, shape).astype("int8"))
    for rows in (1, 3, 17):
        data = guarded(rng.integers(0, 255, (rows, depth)).astype("uint8"))
        out = guarded(np.zeros((rows, columns), "int32"))
        run(data, weight, out)
        wide = weight.astype("int32").T if transposed else weight.astype("int32")
        np.testing.assert_array_equal(out, data.astype("int32") @ wide)


@pytest.mark.parametrize("causal", [None, "TopLeft", "BottomRight"])
def test_attention_of_no_queries_or_no_keys(causal):
    n, m = Var("n"), Var("m")
    q, k, v = (te.placeholder((1, 2, x, 16), "float32", "qkv") for x in (n, m, m))
    out = topi.nn.scaled_dot_product_attention(q, k, v, scale=0.3, causal_mask=causal)
    run = scheduled(q, k, v, out)
    for queries, keys in ((0, 5), (0, 0), (3, 0)):
        query, key = (guarded(np.ones((1, 2, size, 16), "float32")) for size in (queries, keys))
        found = np.ones((1, 2, queries, 16), "float32")
        run(query, key, key, found)
        assert not found.any()
