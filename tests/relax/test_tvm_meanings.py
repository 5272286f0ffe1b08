"""Operators give what TVM's give for the same arguments, also where these are unusual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph_of, random, same
from tilewright import relax, tirx
from tilewright.relax import interpreter, op
from tilewright.support.errors import VerifyError

X = random(2, 3, 4)
FIVE = np.arange(5, dtype="float32")
PLACES = np.int64([-7, 1, 9])
ONES = np.ones((1, 2), "float32")

Case = tuple[Callable[..., Any], list[np.ndarray], Any]

CASES: dict[str, Case] = {
    "sections that are not equal": (
        lambda x: op.split(x, 2), [FIVE], [FIVE[:3], FIVE[3:]],
    ),
    "a last section of nothing": (
        lambda x: op.split(x, indices_or_sections=4, axis=-1), [np.arange(6)],
        [np.int64(part) for part in ([0, 1], [2, 3], [4, 5], [])],
    ),
    "tiles of the last axis": (lambda x: op.tile(x, 2), [X], np.tile(X, 2)),
    "a zero keeps an extent": (lambda x: op.reshape(x, (0, -1)), [X], X.reshape(2, 12)),
    "zeros keep extents of their places": (
        lambda x: op.reshape(x, shape=(2, 0, 2, 2)), [X], X.reshape(2, 3, 2, 2),
    ),
    "a zero of an empty tensor": (
        lambda x: op.reshape(x, (0, 7)), [np.zeros((3, 0), "float32")], np.zeros((0, 7), "float32"),
    ),
    "take nothing outside": (
        lambda x, i: op.take(x, i, 0, "nan"), [FIVE, PLACES], np.float32([np.nan, 1, np.nan]),
    ),
    "take nothing of the flat tensor": (
        lambda x, i: op.take(x, i, mode="nan"), [X, np.int64([[5], [24]])],
        np.float32([[X.flat[5]], [np.nan]]),
    ),
    "dropout and its mask": (lambda x: op.nn.dropout(x, 0.3), [ONES], [ONES, ONES]),
    "one hot of integers": (
        lambda i: op.one_hot(i, 1, 0, 3), [np.int64([2, 0])], np.int64([[0, 0, 1], [1, 0, 0]]),
    ),
    "one hot of floats": (
        lambda i: op.one_hot(i, 2.5, 0.0, depth=2, axis=0), [np.int32([1])],
        np.float32([[0], [2.5]]),
    ),
    "one hot of typed numbers": (
        lambda i: op.one_hot(i, relax.PrimValue(tirx.const(1, "int8")), tirx.const(0, "int8"), 2),
        [np.int64([1, 5])], np.int8([[0, 1], [0, 0]]),
    ),
    "triangles by scalars": (
        lambda x: op.triu(x, relax.PrimValue(1)), [X], np.triu(X, 1),
    ),
    "constants of numbers": (
        lambda i: i + relax.const(2), [np.int32([1, 2])], np.int32([3, 4]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operators_give_what_tvm_gives(name: str) -> None:
    body, arrays, expected = CASES[name]
    mod = graph_of(body, *arrays)
    same(interpreter.run(mod, *arrays), expected)
    same(relax.build(mod, schedule=None)(*arrays), expected)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x: op.split(x, 4), "5 does not divide into 4 sections: 3 of 2 leave nothing"),
        (lambda x: op.take(op.astype(x, "int32"), PLACES, 0, "nan"), "nan needs floating-point"),
        (lambda x: op.take(x, PLACES, 0, "none"), "one of clip, wrap, fast, nan, got 'none'"),
        (lambda x: op.one_hot(PLACES, tirx.Var("n", "int64"), 0, 3), "must be constants"),
        (lambda x: op.tile(x, -1), "must not be negative"),
    ],
)  # fmt: skip
def test_what_is_refused(body: Any, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        graph_of(body, FIVE)
