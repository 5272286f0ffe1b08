"""Order statistics, counts and choices by data, against PyTorch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, graph_of, random, symbol, tensor
from tilewright import relax
from tilewright.relax import interpreter, op
from tilewright.support.errors import VerifyError

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
FEW = RNG.integers(-2, 3, (4, 7))


def results(body: Any, *arrays: np.ndarray) -> list[Any]:
    mod = graph_of(body, *arrays)
    return [relax.as_numpy(relax.build(mod)(*arrays)), interpreter.run(mod, *arrays)]


def check(body: Any, expected: Any, *arrays: np.ndarray) -> None:
    for found in results(body, *arrays):
        pairs = (
            zip(found, expected, strict=True)
            if isinstance(expected, tuple)
            else [(found, expected)]
        )
        for item, wanted in pairs:
            wanted = np.asarray(wanted)
            assert item.dtype == wanted.dtype
            np.testing.assert_array_equal(item, wanted)


def test_order_statistics() -> None:
    x = random(3, 5, 4)
    x[0, 1, 2], x[2, :2, 0] = np.nan, np.nan
    t = torch.from_numpy(x)
    for axis, keep in ((0, False), (1, True), (-1, False)):
        check(lambda x, a=axis, k=keep: op.median(x, a, k), tuple(t.median(axis, keep)), x)
        check(lambda x, a=axis, k=keep: op.kthvalue(x, 2, a, k)[0],
              t.kthvalue(2, axis, keep).values, x)  # fmt: skip
    few = torch.from_numpy(FEW)
    for axis, keep in ((0, True), (1, False)):
        values, _ = few.mode(axis, keep)
        check(lambda x, a=axis, k=keep: op.mode(x, a, k)[0], values, FEW)
        for found in results(lambda x, a=axis: op.mode(x, a, True), FEW):
            np.testing.assert_array_equal(np.take_along_axis(FEW, found[1], axis), found[0])


def test_counts() -> None:
    x = np.array([3, 0, 3, -1, 9, 4, 3], "int32")
    check(lambda x: op.bincount(x, 6), np.bincount([3, 0, 3, 4, 3], minlength=6), x)
    weights = random(7)
    expected = np.zeros(6, "float32")
    np.add.at(expected, x[[0, 1, 2, 5, 6]], weights[[0, 1, 2, 5, 6]])
    check(lambda x, w: op.bincount(x, 6, w), expected, x, weights)
    y = np.append(random(200) * 2, np.array([-1, 1, np.nan, np.inf, -np.inf], "float32"))
    y = y.astype("float32")
    check(lambda x: op.histc(x, 9, -1, 1), torch.histc(torch.from_numpy(y[:202]), 9, -1, 1), y)


def test_masks() -> None:
    x, mask = random(3, 4), RNG.random((3, 4)) < 0.5
    source, t = random(15, seed=1), torch.from_numpy(x)
    row = mask[0]
    check(lambda x, m: op.masked_fill(x, m, 3.0), np.where(mask, np.float32(3), x), x, mask)
    for m in (mask, row):
        expected = t.masked_scatter(torch.from_numpy(np.broadcast_to(m, x.shape).copy()),
                                    torch.from_numpy(source))  # fmt: skip
        check(lambda x, m, s: op.masked_scatter(x, m, s), expected, x, m, source)
        chosen = x[np.broadcast_to(m, x.shape)]
        for size in (None, len(chosen), 2, 14):
            room = 12 if size is None else size
            wanted = np.append(chosen, np.zeros(12, "float32"))[:room]
            check(lambda x, m, s=size: op.masked_select(x, m, s),
                  (wanted, np.int64(len(chosen))), x, m)  # fmt: skip


@pytest.mark.parametrize("shape", [(4, 7), (5,), (), (0, 3), (2, 3, 2)])
def test_nonzero(shape: tuple[int, ...]) -> None:
    x = RNG.integers(-1, 2, shape).astype("float32")
    places = np.stack(np.nonzero(x)) if shape else np.zeros((0, int(x != 0)), "int64")
    for array in (x, np.asarray(x != 0)):
        for found in results(op.nonzero, array):
            count = int(found[1])
            assert count == places.shape[1]
            assert found[0].shape == (len(shape), x.size)
            np.testing.assert_array_equal(found[0][:, :count], places)
            assert not found[0][:, count:].any()


def test_unique() -> None:
    for x in (FEW, random(5), np.zeros((0,), "float32"), np.array([True, False, True])):
        values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
        for found in results(lambda x: op.unique(x), x):
            count = int(found[1])
            np.testing.assert_array_equal(found[0][:count], values)
            np.testing.assert_array_equal(found[2], inverse.reshape(x.shape))
            np.testing.assert_array_equal(found[3][:count], counts)
            assert count == len(values) and not found[3][count:].any()


def test_symbolic_extents() -> None:
    n, m = symbol("n"), symbol("m")
    mod = graph(lambda x: op.nonzero(x, 9), tensor((n, m), "bool"))
    run = relax.build(mod)
    for shape in ((3, 4), (1, 1), (2, 0), (0, 5), (8, 8)):
        x = RNG.random(shape) < 0.3
        places, count = map(np.asarray, run(x))
        expected = np.stack(np.nonzero(x))[:, :9]
        np.testing.assert_array_equal(places[:, : expected.shape[1]], expected)
        assert count == x.sum()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x: op.kthvalue(x, 0), "counted from 1, got 0"),
        (lambda x: op.kthvalue(x, 9), "8:9 is not in axis 1"),
        (lambda x: op.bincount(x, 3), "needs integers"),
        (lambda x: op.histc(x, 3, 1, 1), "min less than max"),
        (lambda x: op.masked_select(x, x), "mask must be bool"),
        (lambda x: op.masked_scatter(x, x, x), "mask must be bool"),
    ],
)
def test_refusals(body: Any, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        graph(body, tensor((2, 3)))
