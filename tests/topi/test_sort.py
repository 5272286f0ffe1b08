"""Sorting as defined, by the interpreter: order, ties, NaN, axes, dtypes, empty rows, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sort_reference import awkward, order

from tilewright import te, topi
from tilewright.support.errors import VerifyError
from tilewright.tir.interpreter import run

RNG = np.random.default_rng(0)


def evaluate(x: np.ndarray, build: Any) -> list[np.ndarray]:
    source = te.placeholder(x.shape, str(x.dtype), "x")
    made = build(source)
    made = list(made) if isinstance(made, (tuple, list)) else [made]
    outputs = [np.full([extent.value for extent in item.shape], 7, item.dtype) for item in made]
    run(te.create_prim_func([source, *made]), x, *outputs)
    return outputs


@pytest.mark.parametrize("is_ascend", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint64", "bool"])
def test_sort_and_argsort(dtype: str, is_ascend: bool) -> None:
    x = awkward(RNG, (2, 13), dtype)
    expected = order(x, 1, is_ascend)
    (values,) = evaluate(x, lambda t: topi.sort(t, is_ascend=is_ascend))
    (indices,) = evaluate(x, lambda t: topi.argsort(t, is_ascend=is_ascend, dtype="int32"))
    np.testing.assert_array_equal(indices, expected)
    assert indices.dtype == np.int32
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats(dtype: str) -> None:
    kind = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, np.float16)
    x = awkward(RNG, (11,), kind)
    (indices,) = evaluate(x, lambda t: topi.argsort(t, dtype="int64"))
    np.testing.assert_array_equal(indices, order(x, 0, True))


@pytest.mark.parametrize("shape", [(4, 3, 2), (1, 1), (3, 0), (0, 3), (5,)])
def test_every_axis(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape).astype("float32")
    for axis in range(-len(shape), len(shape)):
        (values,) = evaluate(x, lambda t, axis=axis: topi.sort(t, axis))
        np.testing.assert_array_equal(values, np.sort(x, axis))


@pytest.mark.parametrize("is_ascend", [True, False])
@pytest.mark.parametrize("k", [1, 4, 9, 0, -1])
def test_topk(k: int, is_ascend: bool) -> None:
    x = awkward(RNG, (3, 9, 2), "float32")
    expected = order(x, 1, is_ascend)[:, : k if k > 0 else 9]
    values, indices = evaluate(x, lambda t: topi.topk(t, k, 1, "both", is_ascend))
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))
    for returns, wanted in (("values", values), ("indices", indices)):
        (made,) = evaluate(x, lambda t, r=returns: topi.topk(t, k, 1, r, is_ascend))
        np.testing.assert_array_equal(made, wanted)


def test_two_sorts_in_one_function() -> None:
    x = RNG.standard_normal((2, 5)).astype("float32")
    (made,) = evaluate(x, lambda t: topi.sort(topi.sort(t, 0), 1))
    np.testing.assert_array_equal(made, np.sort(np.sort(x, 0), 1))


def test_refusals() -> None:
    x = te.placeholder((2, 5), "float32", "x")
    for build, message in (
        (lambda: topi.topk(x, 6), "at most 5, got 6"),
        (lambda: topi.topk(x, 2, ret_type="all"), "both, values, indices"),
        (lambda: topi.sort(x, 2), "out of range"),
        (lambda: topi.sort(x, 1.0), "an axis is an integer"),
        (lambda: topi.sum(x, [True]), "an axis is an integer"),
        (lambda: topi.cummax(x, 1, "float32"), "integers"),
    ):
        with pytest.raises(VerifyError, match=message):
            build()


def test_counts_and_axes_may_be_of_numpy() -> None:
    x = RNG.standard_normal((3, 5)).astype("float32")
    values, _ = evaluate(x, lambda t: topi.topk(t, np.int64(2), axis=np.int32(1)))
    np.testing.assert_array_equal(values, -np.sort(-x, axis=1)[:, :2])
    (total,) = evaluate(x, lambda t: topi.max(t, axis=np.int64(0)))
    np.testing.assert_array_equal(total, x.max(axis=0))
    with pytest.raises(VerifyError, match="topk: k is an integer"):
        topi.topk(te.placeholder((4,)), 1.5)
