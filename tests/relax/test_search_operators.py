"""Searching sorted rows, running extrema, repetitions by count, against NumPy and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, graph_of, random, symbol, tensor
from tests.relax.test_gradients import check_with_torch
from tilewright import relax
from tilewright.relax import interpreter, op
from tilewright.support.errors import VerifyError

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)


def results(body: Any, *arrays: np.ndarray) -> list[Any]:
    mod = graph_of(body, *arrays)
    return [relax.as_numpy(relax.build(mod)(*arrays)), interpreter.run(mod, *arrays)]


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
def test_searchsorted(dtype: str, right: bool) -> None:
    values = RNG.integers(0, 9, (2, 5)).astype(dtype)
    if dtype == "float32":
        values[0, :3] = np.nan, np.inf, -np.inf
    for length in (0, 1, 6, 17):
        sequence = np.sort(RNG.integers(0, 9, length)).astype(dtype)
        side = "right" if right else "left"
        expected = np.searchsorted(sequence, values, side)
        for found in results(lambda s, v: op.searchsorted(s, v, right), sequence, values):
            assert found.dtype == np.int64
            np.testing.assert_array_equal(found, expected)
    rows = np.sort(RNG.integers(0, 9, (2, 7)).astype(dtype), 1)
    expected = np.stack([np.searchsorted(r, v, side) for r, v in zip(rows, values)])
    for found in results(lambda s, v: op.searchsorted(s, v, right, "int32"), rows, values):
        np.testing.assert_array_equal(found, expected.astype("int32"))


def test_bucketize_and_repeat_interleave() -> None:
    x, edges = random(3, 4), np.array([-0.5, 0.0, 0.5], "float32")
    for found in results(lambda x, b: op.bucketize(x, b, True), x, edges):
        np.testing.assert_array_equal(found, np.searchsorted(edges, x).astype("int32"))
    counts = np.array([2, 0, 3, 1])
    for size in (6, 8, 3, 0):
        wanted = np.repeat(x, counts, 1)
        wanted = np.concatenate([wanted, x[:, [3] * 2]], 1)[:, :size]
        for found in results(lambda x, r, s=size: op.repeat_interleave(x, r, 1, s), x, counts):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extrema(name: str) -> None:
    reference = getattr(torch, name)
    for x in (
        random(3, 17), RNG.integers(0, 3, (4, 5, 2)), RNG.random((3, 9)) < 0.5,
        random(2, 5, dtype="float16"), np.zeros((0, 3), "float32"), np.zeros((2, 0), "float32"),
        np.array([[1.0, np.nan, 2.0, np.nan, 5.0], [-np.inf, np.inf, np.inf, 0, np.nan]]),
    ):  # fmt: skip
        for axis in range(x.ndim):
            expected = reference(torch.from_numpy(x), axis)
            for found in results(lambda x, a=axis: getattr(op, name)(x, a), x):
                for item, wanted in zip(found, expected):
                    assert item.dtype == wanted.numpy().dtype
                    np.testing.assert_array_equal(item, wanted)


def test_logcumsumexp() -> None:
    x = random(4, 21) * 30
    x[0, 3], x[1, 2], x[2, 5], x[2, 9], x[3, :2] = np.nan, np.inf, np.inf, np.inf, -np.inf
    for axis in (0, -1):
        expected = torch.logcumsumexp(torch.from_numpy(x), axis)
        for found in results(lambda x, a=axis: op.logcumsumexp(x, a), x):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    half = random(3, 40, dtype="float16")
    for found in results(lambda x: op.logcumsumexp(x, 1), half):
        assert found.dtype == np.float16
        expected = torch.logcumsumexp(torch.from_numpy(half).float(), 1)
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


def test_symbolic_extents() -> None:
    n, k = symbol("n"), symbol("k")
    body = lambda s, v: op.searchsorted(op.sort(s), op.cummax(v, 1)[0])
    mod = graph(body, tensor((k,)), tensor((n, k)))
    run = relax.build(mod)
    for rows, length in ((3, 5), (1, 33), (0, 4), (2, 0)):
        s, v = random(length), random(rows, length, seed=1)
        expected = np.searchsorted(np.sort(s), np.maximum.accumulate(v, 1))
        np.testing.assert_array_equal(np.asarray(run(s, v)), expected)
        np.testing.assert_array_equal(interpreter.run(mod, s, v), expected)


def test_gradients() -> None:
    x = random(3, 6)
    check_with_torch(lambda x: op.logcumsumexp(x, 1), lambda x: x.logcumsumexp(1), [x])
    check_with_torch(lambda x: op.cummax(x, 0)[0], lambda x: x.cummax(0)[0], [x])
    check_with_torch(lambda x: op.cummin(x, 1)[0], lambda x: x.cummin(1)[0], [x])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x: op.searchsorted(x, op.astype(x, "int32")), "float32 and values are int32"),
        (lambda x: op.searchsorted(op.sum(x), x), "at least one dimension"),
        (lambda x: op.searchsorted(x, op.sum(x, 0)), "need values in as many, they have 1"),
        (lambda x: op.searchsorted(x, op.concat([x, x])), "extents of axis 0 differ"),
        (lambda x: op.searchsorted(x, x, dtype="float32"), "positions are integers"),
        (lambda x: op.bucketize(x, x), "boundaries must be a vector"),
        (lambda x: op.repeat_interleave(x, op.argsort(op.sum(x, 0)), 0, 3), "numbers of slices"),
        (lambda x: op.repeat_interleave(x, x, 0, 3), "a vector of integers"),
        (lambda x: op.cummax(x, 0, "float32"), "must be an integer"),
        (lambda x: op.logcumsumexp(op.astype(x, "int32")), "needs floating-point numbers"),
    ],
)
def test_refusals(body: Any, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        graph(body, tensor((2, 3)))
