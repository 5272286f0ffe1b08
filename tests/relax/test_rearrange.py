"""Rolls, rotations, diagonals, strided views, grids, slices backwards, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tests.relax.helpers import graph, graph_of, random, symbol, tensor
from tests.relax.test_gradients import check_with_torch
from tilewright import relax
from tilewright.relax import interpreter, op
from tilewright.support.errors import VerifyError

torch = pytest.importorskip("torch")

X, EMPTY = random(3, 4, 5), np.zeros((0, 3), "float32")
INDEX = np.array([[2, -1], [0, 5]])
END = -(2**31)


def strided(x: np.ndarray, size: Any, stride: Any, offset: int = 0) -> np.ndarray:
    return as_strided(x.ravel()[offset:], size, [4 * step for step in stride])


CASES: dict[str, tuple[Callable[..., Any], np.ndarray, Any]] = {
    "roll": (lambda x: op.roll(x, 7, 1), X, np.roll(X, 7, 1)),
    "roll_back": (lambda x: op.roll(x, -2, -1), X, np.roll(X, -2, -1)),
    "roll_flat": (lambda x: op.roll(x, 8), X, np.roll(X, 8)),
    "roll_axes": (lambda x: op.roll(x, (1, -1), (0, 2)), X, np.roll(X, (1, -1), (0, 2))),
    "roll_none": (lambda x: op.roll(x, 1, 0), EMPTY, EMPTY),
    **{
        f"rot90_{k}": (lambda x, k=k: op.rot90(x, k, (2, 0)), X, np.rot90(X, k, (2, 0)))
        for k in (-1, 0, 1, 2, 3)
    },
    "diagonal": (op.diagonal, X, np.diagonal(X)),
    "diagonal_above": (lambda x: op.diagonal(x, 2, -1, 0), X, np.diagonal(X, 2, -1, 0)),
    "diagonal_below": (lambda x: op.diagonal(x, -1, 1, 2), X, np.diagonal(X, -1, 1, 2)),
    "diagonal_outside": (lambda x: op.diagonal(x, 9, 1, 2), X, np.zeros((3, 0), "float32")),
    "diag_embed": (op.diag_embed, X, torch.diag_embed(torch.tensor(X)).numpy()),
    "diag_embed_above": (lambda x: op.diag_embed(x, 2, 0, -2), X,
                         torch.diag_embed(torch.tensor(X), 2, 0, -2).numpy()),
    "diag_embed_below": (lambda x: op.diag_embed(x, -1), X[0, 0],
                         torch.diag_embed(torch.tensor(X[0, 0]), -1).numpy()),
    "as_strided": (lambda x: op.as_strided(x, (4, 3), (7, 2), 5), X, strided(X, (4, 3), (7, 2), 5)),
    "as_strided_again": (lambda x: op.as_strided(x, (3, 2), (0, 1)), X, strided(X, (3, 2), (0, 1))),
    "as_strided_scalar": (lambda x: op.as_strided(x, (), (), 59), X, X[2, 3, 4]),
    "as_strided_nothing": (lambda x: op.as_strided(x, (0,), (1,), 99), X, X[0, 0, :0]),
    "one_hot": (lambda i: op.one_hot(i, 3, 1, 4, 1, "int32"), INDEX,
                np.stack([np.where(k == INDEX, 3, 1) for k in range(4)], 1).astype("int32")),
    "backwards": (lambda x: op.strided_slice(x, [2, 0], [-1, 5], [END, 0], [-2, -1]), X,
                  X[5:0:-1, :, ::-2]),
    "backwards_mixed": (lambda x: op.strided_slice(x, [2, 1], [1, 3], [5, -4], [3, -2]), X,
                        X[:, 3:-4:-2, 1:5:3]),
    "backwards_nothing": (lambda x: op.strided_slice(x, [1], [0], [2], [-1]), X, X[:, 0:2:-1]),
    "backwards_inside": (lambda x: op.strided_slice(x, [1], [-1], [END], [-1], True), X,
                         X[:, ::-1]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_moves(name: str) -> None:
    body, x, expected = CASES[name]
    mod = graph_of(body, x)
    folded = relax.transform.FoldConstant()(graph(lambda: body(relax.const(x))))
    found = [relax.build(mod)(x), interpreter.run(mod, x), interpreter.run(folded)]
    for item in map(np.asarray, found):
        assert item.dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(item, expected)


def test_meshgrid() -> None:
    a, b = random(3), random(4)
    for indexing in ("ij", "xy"):
        mod = graph_of(lambda a, b, i=indexing: op.meshgrid([a, b], i), a, b)
        for found, expected in zip(
            interpreter.run(mod, a, b), np.meshgrid(a, b, indexing=indexing)
        ):
            np.testing.assert_array_equal(found, expected)


def test_symbolic_extents() -> None:
    n, m = symbol("n"), symbol("m")

    def body(x: Any) -> Any:
        return [
            op.roll(x, 3, 1), op.roll(x, -1, 0), op.diagonal(x, -1), op.diag_embed(x, 1),
            op.strided_slice(x, [0, 1], [3, -2], [END, 0], [-2, -1]),
            op.strided_slice(x, [1], [-1], [END], [-3], True),
            op.as_strided(x, (n,), (m,)),
        ]  # fmt: skip

    mod = graph(lambda x: relax.Tuple(tuple(body(x))), tensor((n, m)))
    run = relax.build(mod)
    for shape in ((4, 5), (1, 1), (7, 2), (3, 40)):
        x = random(*shape)
        expected = [
            np.roll(x, 3, 1), np.roll(x, -1, 0), np.diagonal(x, -1),
            torch.diag_embed(torch.tensor(x), 1).numpy(), x[3::-2, -2:0:-1], x[:, ::-3], x[:, 0],
        ]  # fmt: skip
        for found, again, wanted in zip(run(x), interpreter.run(mod, x), expected):
            np.testing.assert_array_equal(np.asarray(found), wanted)
            np.testing.assert_array_equal(again, wanted)


def test_gradients() -> None:
    x = X[:, :, 0]
    check_with_torch(lambda x: op.roll(x, 2, 1), lambda x: x.roll(2, 1), [x])
    for offset in (-2, 0, 3):
        check_with_torch(
            lambda x, o=offset: op.diagonal(x, o), lambda x, o=offset: x.diagonal(o), [x]
        )
        check_with_torch(
            lambda x, o=offset: op.diag_embed(x, o), lambda x, o=offset: torch.diag_embed(x, o), [x]
        )
    check_with_torch(
        lambda x: op.as_strided(x, (3, 4), (2, 1), 1), lambda x: x.as_strided((3, 4), (2, 1), 1),
        [x],
    )  # fmt: skip
    check_with_torch(
        lambda x: op.strided_slice(x, [1], [-1], [END], [-2]), lambda x: x.flip(1)[:, ::2], [x]
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x: op.roll(x, (1, 2), 0), "2 shifts for 1 axes"),
        (lambda x: op.rot90(x, 1, (0, -3)), "are the same"),
        (lambda x: op.diagonal(x, 0, 1, -2), "axes 1 and -2 are the same"),
        (lambda x: op.as_strided(x, (4, 3), (20, 2)), "reads 65 elements of a tensor that has 60"),
        (lambda x: op.as_strided(x, (4,), (-1,)), "must not be negative"),
        (lambda x: op.as_strided(x, (4,), (1, 1)), "1 extents and 2 strides"),
        (lambda x: op.one_hot(x, depth=3), "indices must be integers, got float32"),
        (lambda x: op.one_hot(op.argsort(x), depth=-1), "must not be negative, got -1"),
        (lambda x: op.meshgrid([x]), "one or more vectors"),
        (lambda x: op.strided_slice(x, [0], [0], [1], [0]), "must not be 0"),
        (lambda x: op.strided_slice(x, [0], [3], [0], [-1], True), "3:0 is not in axis 0"),
    ],
)
def test_refusals(body: Callable[..., Any], message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        graph(body, tensor((3, 4, 5)))
