"""Functions of elements by TVM's names, with TVM's arguments, against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.tir.interpreter import run

X = np.float32([[-2.5, -0.5, 0.25], [0.5, 1.5, 2.0]])
Y = np.float32([[1.0, -0.5, 3.0]])
UNIT = np.tanh(X)
POSITIVE = np.abs(X) + 1
ODD = np.float32([np.nan, np.inf, -np.inf, 1.0])
A, B = np.int32([12, -7, 5]), np.int32([10, 2, 5])
TRUE, FALSE = np.array([True, True, False]), np.array([True, False, False])
ERF = np.vectorize(math.erf)

Case = tuple[Callable[..., Any], list[np.ndarray], Any]

CASES: dict[str, Case] = {
    "abs": (topi.abs, [X], np.abs(X)),
    "acos": (topi.acos, [UNIT], np.arccos(UNIT)),
    "acosh": (topi.acosh, [POSITIVE], np.arccosh(POSITIVE)),
    "asin": (topi.asin, [UNIT], np.arcsin(UNIT)),
    "asinh": (topi.asinh, [X], np.arcsinh(X)),
    "atan": (topi.atan, [X], np.arctan(X)),
    "atan2": (topi.atan2, [X, Y], np.arctan2(X, Y)),
    "atanh": (topi.atanh, [UNIT], np.arctanh(UNIT)),
    "ceil": (topi.ceil, [X], np.ceil(X)),
    "cos": (topi.cos, [X], np.cos(X)),
    "cosh": (topi.cosh, [X], np.cosh(X)),
    "erf": (topi.erf, [X], ERF(X)),
    "fast_erf": (topi.fast_erf, [X], ERF(X)),
    "floor": (topi.floor, [X], np.floor(X)),
    "identity": (topi.identity, [X], X),
    "isfinite": (topi.isfinite, [ODD], np.isfinite(ODD)),
    "isinf": (topi.isinf, [ODD], np.isinf(ODD)),
    "isnan": (topi.isnan, [ODD], np.isnan(ODD)),
    "log": (topi.log, [POSITIVE], np.log(POSITIVE)),
    "log10": (topi.log10, [POSITIVE], np.log10(POSITIVE)),
    "log2": (topi.log2, [POSITIVE], np.log2(POSITIVE)),
    "rsqrt": (topi.rsqrt, [POSITIVE], 1 / np.sqrt(POSITIVE)),
    "sign": (topi.sign, [X], np.sign(X)),
    "sin": (topi.sin, [X], np.sin(X)),
    "sinh": (topi.sinh, [X], np.sinh(X)),
    "tan": (topi.tan, [X], np.tan(X)),
    "trunc": (topi.trunc, [X], np.trunc(X)),
    "log_add_exp": (topi.log_add_exp, [X, Y], np.logaddexp(X, Y)),
    "equal": (topi.equal, [X, Y], X == Y),
    "not_equal": (topi.not_equal, [X, Y], X != Y),
    "greater": (topi.greater, [X, Y], X > Y),
    "greater_equal": (topi.greater_equal, [X, Y], X >= Y),
    "less_equal": (topi.less_equal, [X, Y], X <= Y),
    "of a number": (lambda x: topi.less_equal(x, 0.5), [X], X <= 0.5),
    "bitwise_and": (topi.bitwise_and, [A, B], A & B),
    "bitwise_not": (topi.bitwise_not, [A], ~A),
    "bitwise_or": (topi.bitwise_or, [A, B], A | B),
    "bitwise_xor": (topi.bitwise_xor, [A, B], A ^ B),
    "right_shift": (topi.right_shift, [A, np.int32([1, 1, 2])], np.int32([6, -4, 1])),
    "logical_and": (topi.logical_and, [TRUE, FALSE], TRUE & FALSE),
    "logical_not": (topi.logical_not, [TRUE], ~TRUE),
    "logical_or": (topi.logical_or, [TRUE, FALSE], TRUE | FALSE),
    "logical_xor": (topi.logical_xor, [TRUE, FALSE], TRUE ^ FALSE),
    "leaky_relu": (lambda x: topi.nn.leaky_relu(x, 0.1), [X], np.where(X > 0, X, X * 0.1)),
    "prelu": (topi.nn.prelu, [X, Y[0]], np.where(X > 0, X, X * Y)),
    "softplus": (topi.nn.softplus, [X], np.log1p(np.exp(X))),
    "index_put": (
        lambda x, i, j, v: topi.index_put(x, [i, j], v, True),
        [X, np.int64([0, 0]), np.int64([1, 1]), Y[0, :2]],
        X + np.float32([[0, 0.5, 0], [0, 0, 0]]),
    ),
    "slice_scatter": (
        lambda x, y: topi.slice_scatter(x, y, 1, 2, 1, 0), [X, Y], np.stack([X[0], Y[0]]),
    ),
    "adaptive_pool1d": (
        lambda x: topi.nn.adaptive_pool1d(x, 2, "max", "NCW"), [X.reshape(1, 1, 6)],
        np.float32([[[0.25, 2.0]]]),
    ),
    "scale_shift_nchwc": (
        topi.nn.scale_shift_nchwc, [X.reshape(1, 2, 1, 1, 3), POSITIVE, UNIT],
        (X * POSITIVE + UNIT).reshape(1, 2, 1, 1, 3),
    ),
}  # fmt: skip


def found(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    inputs = [te.placeholder(a.shape, str(a.dtype), f"x{n}") for n, a in enumerate(arrays)]
    made = function(*inputs)
    result = np.zeros([int(extent) for extent in topi.get_const_tuple(made.shape)], made.dtype)
    run(te.create_prim_func([*inputs, made]), *arrays, result)
    return result


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    function, arrays, expected = CASES[name]
    made = found(function, *arrays)
    assert made.shape == expected.shape and made.dtype.kind == expected.dtype.kind
    np.testing.assert_allclose(made, expected, 2e-5, 2e-6)


WEIGHT = np.arange(1, 7, dtype="float32").reshape(2, 1, 3)
LINE = np.arange(8, dtype="float32").reshape(1, 2, 4) - 3


def line_convolved(x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    """Outputs ``(batch, filters, width)`` of a convolution without padding, one at a time."""
    made = np.zeros((1, w.shape[0], x.shape[2] - w.shape[2] + 1), "float32")
    per, filters = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        first = o // filters * per
        for i in range(made.shape[2]):
            made[0, o, i] = (x[0, first : first + per, i : i + w.shape[2]] * w[o]).sum()
    return made


WIDE = np.concatenate([WEIGHT, WEIGHT + 1], axis=1)


def channels_last(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 1))


def kernel_last(w: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(w.transpose(2, 1, 0))


def test_convolutions_of_lines() -> None:
    one, two = line_convolved(LINE, WIDE, 1), line_convolved(LINE, WEIGHT, 2)
    nn = topi.nn
    np.testing.assert_allclose(
        found(lambda x, w: nn.conv1d_ncw(x, w, 1, "VALID", 1, "float32"), LINE, WIDE), one
    )
    last, kernel = channels_last(LINE), kernel_last(WIDE)
    made = found(lambda x, w: nn.conv1d_nwc(x, w, strides=1, padding=0, dilation=1), last, kernel)
    np.testing.assert_allclose(made, channels_last(one))
    grouped = found(
        lambda x, w: nn.group_conv1d_nwc(x, w, 1, 0, 1, 2, "float32"), last, kernel_last(WEIGHT)
    )
    np.testing.assert_allclose(grouped, channels_last(two))
    general = found(lambda x, w: nn.conv(x, w, 1, 0, 1, 2, "NCW", "OIW", "float32"), LINE, WEIGHT)
    np.testing.assert_allclose(general, two)


def test_a_transposed_convolution_of_groups() -> None:
    x = np.float32([1, 2]).reshape(1, 2, 1, 1, 1)
    w = np.arange(16, dtype="float32").reshape(2, 1, 2, 2, 2)
    made = found(
        lambda x, w: topi.nn.group_conv3d_transpose_ncdhw(
            x, w, (1, 1, 1), (0, 0, 0), "float32", (0, 0, 0), 2
        ),
        x, w,
    )  # fmt: skip
    np.testing.assert_allclose(made, w.reshape(1, 2, 2, 2, 2) * x)


def test_helpers() -> None:
    assert topi.pi == math.pi
    shape = te.placeholder((2, 3)).shape
    assert tuple(int(n) for n in topi.get_const_tuple(shape)) == (2, 3)
    padded = topi.nn.get_padded_shape(te.placeholder((2, 3)), (0, 1), (2, 0))
    assert tuple(int(n) for n in padded) == (4, 4)
