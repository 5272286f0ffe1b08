"""Operators that are a few others, and quantization: values against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph_of, random
from tilewright import relax
from tilewright.ir import Var
from tilewright.relax import op
from tilewright.support.errors import VerifyError

X, Y = random(2, 4), random(3, 4, seed=1)
IMAGE = random(2, 8, 2, 3)
WHOLE = np.array([[3, 0, 250], [7, 128, 9]], "uint8")


def reversed_rows(x: np.ndarray, lengths: Any) -> np.ndarray:
    made = x.copy()
    for row, length in enumerate(lengths):
        made[row, :length] = x[row, :length][::-1]
    return made


def quantized(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    return np.clip(np.round(x / scale) + zero, -128, 127).astype("int8")


SCALE, ZERO = np.array([0.1, 0.2, 0.3, 1e-4], "float32"), np.array([0, 1, -2, 3], "int8")
LENGTHS = np.array([3, 0], "int32")

CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], np.ndarray]] = {
    "outer": (op.outer, (X[0], Y[0]), np.outer(X[0], Y[0])),
    "ewise_fma": (op.ewise_fma, (X, X, Y[0]), X * X + Y[0]),
    "collapse_sum_to": (lambda a: op.collapse_sum_to(a, (1, 4)), (X,), X.sum(0, keepdims=True)),
    "collapse_sum_like": (op.collapse_sum_like, (X, Y[0]), X.sum(0)),
    "collapse_sum_to itself": (lambda a: op.collapse_sum_to(a, (2, 4)), (X,), X),
    "eye": (lambda a: a + op.eye(2, 4, 1), (X,), X + np.eye(2, 4, 1, dtype="float32")),
    "eye below": (lambda a: a + op.eye_like(a, -1), (Y,), Y + np.eye(3, 4, -1, dtype="float32")),
    "size": (op.size, (X,), np.array(8, "int64")),
    "hamming_window": (
        lambda a: a * op.hamming_window(4, False, 0.54, 0.46, "float32"),
        (X,),
        X * np.hamming(4).astype("float32"),
    ),
    "periodic window": (
        lambda a: a * op.hamming_window(4, True, 0.5, 0.5, "float32"),
        (X,),
        X * np.hanning(5)[:4].astype("float32"),
    ),
    "reverse_sequence": (op.reverse_sequence, (X, LENGTHS), reversed_rows(X, LENGTHS)),
    "reverse columns": (
        lambda a, n: op.reverse_sequence(a, n, seq_axis=0, batch_axis=1),
        (X.T, LENGTHS),
        reversed_rows(X, LENGTHS).T,
    ),
    "einsum": (lambda a, b: op.einsum((a, b), "ij,kj->ki"), (X, Y), Y @ X.T),
    "exclusive sums": (
        lambda a: op.cumsum(a, 1, exclusive=True),
        (X,),
        np.pad(np.cumsum(X, 1), [(0, 0), (1, 0)])[:, :-1],
    ),
    "exclusive products": (
        lambda a: op.cumprod(a, exclusive=True),
        (X,),
        np.concatenate([[1], np.cumprod(X)[:-1]]).astype("float32"),
    ),
    "quantize": (lambda *a: op.quantize(*a, axis=1), (X, SCALE, ZERO), quantized(X, SCALE, ZERO)),
    "dequantize": (
        lambda *a: op.dequantize(*a, axis=0),
        (WHOLE, SCALE[:2], np.array([128, 0], "uint8")),
        (WHOLE.astype("int32") - [[128], [0]]).astype("float32") * SCALE[:2, None],
    ),
    "quantize by one number": (
        op.quantize,
        (X, np.array(SCALE[1]), np.array(ZERO[2])),
        quantized(X, SCALE[1], ZERO[2]),
    ),
    "dequantize by one number": (
        op.dequantize,
        (WHOLE, np.array(SCALE[0]), np.array(WHOLE[1, 1])),
        (WHOLE.astype("int32") - 128).astype("float32") * SCALE[0],
    ),
    "leakyrelu": (lambda a: op.nn.leakyrelu(a, 0.1), (X,), np.where(X < 0, X * 0.1, X)),
    "batch_flatten": (op.nn.batch_flatten, (IMAGE,), IMAGE.reshape(2, 48)),
    "pixel_shuffle": (
        lambda a: op.nn.pixel_shuffle(a, 2),
        (IMAGE,),
        IMAGE.reshape(2, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 4, 6),
    ),
    "slice by constants": (
        lambda a: op.dynamic_strided_slice(
            a, *(relax.const(np.array(v)) for v in ([0, 3], [2, 0], [1, -2]))
        ),
        (X,),
        X[:, 3:0:-2],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    function, arrays, expected = CASES[name]
    mod = graph_of(function, *arrays)
    found = np.asarray(relax.interpreter.run(mod, *arrays))
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_choosing_by_probabilities() -> None:
    prob = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]], "float32")
    sample = np.array([[0.0], [0.35], [1.0], [0.1]], "float32")
    rows = np.array([[0], [1], [1], [0]], "int64")
    mod = graph_of(op.multinomial_from_uniform, prob, sample, rows)
    found = np.asarray(relax.build(mod)(prob, sample, rows))
    np.testing.assert_array_equal(found, [[0], [0], [3], [1]])


def test_sizes_that_are_symbolic() -> None:
    n = Var("n")
    x = relax.Var("x", relax.TensorStructInfo((n, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        made = builder.emit(op.add(op.eye_like(x, 1), x))
        builder.emit_func_output((made, builder.emit(op.size(x))))
    run = relax.build(builder.get())
    for rows in (1, 4):
        array = random(rows, 3)
        result, count = run(array)
        np.testing.assert_allclose(np.asarray(result), array + np.eye(rows, 3, 1), rtol=1e-6)
        assert int(np.asarray(count)) == 3 * rows


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: op.outer(x, x), "must have 1 dimensions"),
        (lambda x: op.collapse_sum_to(x, (3,)), "does not broadcast"),
        (lambda x: op.einsum((x,), "i->i"), "has labels for 1 axes, the tensor has 2"),
        (lambda x: op.dynamic_strided_slice(x, x, x, x), "begin must be a constant"),
        (lambda x: op.quantize(x, x, x), "scale is one number, or one for each place"),
        (lambda x: op.dequantize(x, relax.const(1.0), relax.const(0)), "integers are dequantized"),
        (lambda x: op.reverse_sequence(x, x), "must have 1 dimensions"),
        (lambda x: op.nn.pixel_shuffle(x, 2), "has no channels to move"),
    ],
)
def test_operands_that_do_not_fit(make: Callable[..., Any], message: str) -> None:
    x = relax.Var("x", relax.TensorStructInfo((2, 4), "float32"))
    with pytest.raises(VerifyError, match=message):
        make(x)
