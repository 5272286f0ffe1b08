"""Operators, scheduled by rule, against float64 on ordinary and on awkward numbers and shapes.

Each operator is compiled once per shape and run on each kind of input. What overflows, what is no
number and where must agree with the same formula in float64, rounded to float32; everything else
must lie within a bound that the operator's condition justifies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import special

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, as_int
from tilewright.target import Target

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Operator:
    """How to build it, what it should give (on float64 arrays), and on which shapes to try it.

    An element may differ from ``reference`` by ``tolerance`` times the same element of
    ``magnitude`` (the reference itself if that is not given): for sums of products, the sum of
    their absolute values.
    """

    build: Callable[..., Any]
    reference: Callable[..., Array]
    shapes: tuple[Shapes, ...]
    tolerance: float = 2e-6
    magnitude: Callable[..., Array] | None = None
    kinds: tuple[str, ...] = ("ordinary", "denormal", "huge", "nan", "inf")


def ordinary(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(-2, 2, shape).astype("float32")


def sprinkled(rng: np.random.Generator, shape: tuple[int, ...], values: list[float]) -> Array:
    """Ordinary numbers, a few of them replaced."""
    made = ordinary(rng, shape)
    where = rng.random(shape) < 0.07
    made[where] = rng.choice(np.array(values, "float32"), int(where.sum()))
    return made


KINDS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "ordinary": ordinary,
    "denormal": lambda rng, shape: (
        rng.integers(-(1 << 20), 1 << 20, shape).astype("float32") * np.float32(2.0**-149)
    ),
    "huge": lambda rng, shape: (rng.uniform(0.5, 1.0, shape) * 3e38).astype("float32"),
    "nan": lambda rng, shape: sprinkled(rng, shape, [np.nan]),
    "inf": lambda rng, shape: sprinkled(rng, shape, [np.inf, -np.inf, -0.0]),
}


def pad2d(x: Array, pad: int, value: float = 0.0) -> Array:
    return np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=value)


def windows(x: Array, size: int, stride: int) -> Array:
    made = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))
    return made[:, :, ::stride, ::stride]


def conv2d(x: Array, w: Array, stride: int = 1, pad: int = 1) -> Array:
    seen = windows(pad2d(x, pad), w.shape[2], stride)
    return np.asarray(np.einsum("nchwij,fcij->nfhw", seen, w))


def depthwise(x: Array, w: Array) -> Array:
    return np.asarray(np.einsum("nchwij,cij->nchw", windows(pad2d(x, 1), 3, 1), w[:, 0]))


def transposed(x: Array, w: Array) -> Array:
    """Stride 2, padding 1, window 4: each input adds its window to the output."""
    n, _, h, width = x.shape
    made = np.zeros((n, w.shape[1], 2 * h + 2, 2 * width + 2), x.dtype)
    for i in range(4):
        for j in range(4):
            part = np.einsum("nchw,cf->nfhw", x, w[:, :, i, j])
            made[:, :, i : i + 2 * h : 2, j : j + 2 * width : 2] += part
    return made[:, :, 1:-1, 1:-1]


def softmax(x: Array) -> Array:
    if x.shape[-1] == 0:
        return x
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def layer_norm(x: Array, w: Array, b: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w + b)


def rms_norm(x: Array, w: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


MATRICES = (
    ((5, 7), (7, 3)),
    ((1, 1), (1, 1)),
    ((33, 65), (65, 17)),
    ((1, 300), (300, 40)),
    ((40, 64), (64, 1)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 4)),
)
ROWS: tuple[Shapes, ...] = (((7, 33),), ((1, 1),), ((3, 1),), ((2, 1000),), ((0, 5),))
FLAT: tuple[Shapes, ...] = (((77,),), ((1,),), ((3, 64),), ((0,),))
IMAGES: tuple[Shapes, ...] = (
    ((1, 3, 9, 9), (5, 3, 3, 3)),
    ((2, 16, 6, 7), (8, 16, 3, 3)),
    ((1, 1, 1, 1), (1, 1, 3, 3)),
    ((0, 3, 5, 5), (4, 3, 3, 3)),
)
FINITE = ("ordinary", "denormal", "huge")

OPERATORS: dict[str, Operator] = {
    "add": Operator(topi.add, np.add, (((5, 7), (5, 7)), ((5, 1), (1, 7)), ((0, 3), (3,)))),
    "divide": Operator(topi.divide, np.divide, (((5, 7), (5, 7)), ((3, 64), (1,)))),
    "maximum": Operator(topi.maximum, np.maximum, (((5, 77), (5, 77)),)),
    "relu": Operator(topi.nn.relu, lambda x: np.maximum(x, 0), FLAT),
    "sigmoid": Operator(topi.sigmoid, sigmoid, FLAT),
    "tanh": Operator(topi.tanh, np.tanh, FLAT),
    "exp": Operator(topi.exp, np.exp, FLAT),
    "gelu": Operator(
        topi.nn.gelu,
        lambda x: 0.5 * x * (1 + special.erf(x * 0.5**0.5)),
        FLAT,
        magnitude=np.abs,
        kinds=(*FINITE, "nan"),
    ),
    "silu": Operator(topi.nn.silu, lambda x: x * sigmoid(x), FLAT, kinds=(*FINITE, "nan")),
    "sum of rows": Operator(
        lambda x: topi.sum(x, axis=1),
        lambda x: x.sum(1),
        ROWS,
        magnitude=lambda x: np.abs(x).sum(1),
    ),
    "sum of columns": Operator(
        lambda x: topi.sum(x, axis=0),
        lambda x: x.sum(0),
        ROWS,
        magnitude=lambda x: np.abs(x).sum(0),
    ),
    "sum of all": Operator(
        topi.sum, np.sum, (((13, 65),), ((1,),), ((0, 3),)), magnitude=lambda x: np.abs(x).sum()
    ),
    "max of rows": Operator(lambda x: topi.max(x, axis=1), lambda x: x.max(1), ROWS),
    "max of columns": Operator(lambda x: topi.max(x, axis=0), lambda x: x.max(0), ROWS[:-1]),
    "mean of rows": Operator(
        lambda x: topi.mean(x, axis=1),
        lambda x: x.mean(1),
        ROWS[:-1],
        magnitude=lambda x: np.abs(x).mean(1),
        kinds=("ordinary", "denormal", "nan", "inf"),
    ),
    "softmax": Operator(topi.nn.softmax, softmax, ROWS),
    "log_softmax": Operator(
        topi.nn.log_softmax,
        lambda x: (
            x
            - x.max(-1, keepdims=True)
            - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))
        ),
        ROWS[:-1],
        magnitude=lambda x: 4 + np.abs(x),
        kinds=("ordinary", "denormal", "nan"),
    ),
    "layer_norm": Operator(
        lambda x, w, b: topi.nn.layer_norm(x, w, b, axis=-1, epsilon=1e-5),
        layer_norm,
        (((7, 33), (33,), (33,)), ((1, 1), (1,), (1,)), ((2, 768), (768,), (768,))),
        tolerance=2e-5,
        magnitude=lambda x, w, b: np.full(x.shape, 4.0),
        kinds=("ordinary", "denormal", "nan"),
    ),
    "rms_norm": Operator(
        lambda x, w: topi.nn.rms_norm(x, w, axis=-1, epsilon=1e-5),
        rms_norm,
        (((7, 33), (33,)), ((1, 1), (1,)), ((2, 768), (768,))),
        tolerance=4e-6,
        kinds=("ordinary", "nan"),
    ),
    "matmul": Operator(
        topi.matmul, np.matmul, MATRICES, magnitude=lambda a, b: np.abs(a) @ np.abs(b)
    ),
    "dense": Operator(
        lambda x, w: topi.nn.dense(x, w),
        lambda x, w: x @ w.T,
        (((5, 7), (3, 7)), ((1, 300), (40, 300)), ((64, 32), (48, 32))),
        magnitude=lambda x, w: np.abs(x) @ np.abs(w).T,
    ),
    "batch_matmul": Operator(
        lambda a, b: topi.nn.batch_matmul(a, b, transpose_b=False),
        np.matmul,
        (((3, 5, 7), (3, 7, 9)), ((1, 1, 1), (1, 1, 1)), ((0, 2, 3), (0, 3, 4))),
        magnitude=lambda a, b: np.abs(a) @ np.abs(b),
    ),
    "conv2d": Operator(
        lambda x, w: topi.nn.conv2d(x, w, strides=1, padding=1),
        conv2d,
        IMAGES,
        magnitude=lambda x, w: conv2d(np.abs(x), np.abs(w)),
        kinds=("ordinary", "denormal", "huge"),
    ),
    "conv2d with stride": Operator(
        lambda x, w: topi.nn.conv2d(x, w, strides=2, padding=1),
        lambda x, w: conv2d(x, w, 2),
        IMAGES,
        magnitude=lambda x, w: conv2d(np.abs(x), np.abs(w), 2),
        kinds=("ordinary", "denormal", "huge"),
    ),
    "conv2d of points": Operator(
        lambda x, w: topi.nn.conv2d(x, w, strides=1, padding=0),
        lambda x, w: conv2d(x, w, 1, 0),
        (((1, 16, 7, 7), (32, 16, 1, 1)), ((1, 1, 3, 5), (1, 1, 1, 1))),
        magnitude=lambda x, w: conv2d(np.abs(x), np.abs(w), 1, 0),
    ),
    "depthwise_conv2d": Operator(
        lambda x, w: topi.nn.depthwise_conv2d(x, w, padding=1),
        depthwise,
        (
            ((1, 6, 14, 14), (6, 1, 3, 3)),
            ((2, 3, 7, 9), (3, 1, 3, 3)),
            ((1, 1, 1, 1), (1, 1, 3, 3)),
        ),
        magnitude=lambda x, w: depthwise(np.abs(x), np.abs(w)),
        kinds=("ordinary", "denormal", "huge"),
    ),
    "conv2d_transpose": Operator(
        lambda x, w: topi.nn.conv2d_transpose(x, w, strides=2, padding=1),
        transposed,
        (((1, 8, 5, 6), (8, 4, 4, 4)), ((1, 1, 1, 1), (1, 1, 4, 4))),
        magnitude=lambda x, w: transposed(np.abs(x), np.abs(w)),
        kinds=("ordinary", "denormal", "huge"),
    ),
    "max_pool2d": Operator(
        lambda x: topi.nn.max_pool2d(x, 3, strides=2, padding=1),
        lambda x: windows(pad2d(x, 1, -np.inf), 3, 2).max((4, 5)),
        (((1, 3, 15, 15),), ((2, 2, 8, 9),), ((1, 1, 1, 1),)),
    ),
    "transpose": Operator(
        lambda x: topi.transpose(x, (1, 0)), lambda x: x.T, (((17, 33),), ((1, 5),), ((0, 4),))
    ),
}


def test_there_is_a_case_for_each_kind_of_input() -> None:
    assert {kind for item in OPERATORS.values() for kind in item.kinds} == set(KINDS)


@cache
def compiled(name: str, shapes: Shapes) -> Any:
    target = Target("native").with_options(num_cores=1)
    tensors = [te.placeholder(shape, name=f"x{n}") for n, shape in enumerate(shapes)]
    result = OPERATORS[name].build(*tensors)
    mod = IRModule({"main": te.create_prim_func([*tensors, result])})
    mod = dlight.default_schedule(target)(mod)
    return driver.compile(mod, target), tuple(as_int(extent) for extent in result.shape)


def cases() -> list[Any]:
    return [
        pytest.param(name, shapes, kind, id=f"{name}-{'x'.join(map(str, shapes[0]))}-{kind}")
        for name, operator in OPERATORS.items()
        for shapes in operator.shapes
        for kind in operator.kinds
        if kind == "ordinary" or 0 not in shapes[0]
    ]


@pytest.mark.parametrize(("name", "shapes", "kind"), cases())
def test_agrees_with_float64(name: str, shapes: Shapes, kind: str) -> None:
    operator = OPERATORS[name]
    rng = np.random.default_rng(len(name))
    arrays = [KINDS[kind](rng, shape) for shape in shapes]
    function, shape = compiled(name, shapes)
    found = np.full(shape, 12345.0, "float32")
    function(*arrays, found)
    wide = [array.astype("float64") for array in arrays]
    with np.errstate(all="ignore"):
        exact = np.asarray(operator.reference(*wide))
        expected = exact.astype("float32")
        size = np.abs(operator.magnitude(*wide) if operator.magnitude else exact)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    finite = np.isfinite(expected)
    # Rounding may overflow just below the largest number, and only there.
    near = np.abs(exact) > 3.4e38
    with np.errstate(all="ignore"):
        same = (found == expected) | np.isnan(expected) | (near & ~np.isfinite(found))
        error = np.abs(np.where(finite, found, 0) - np.where(finite, exact, 0))
        bound = operator.tolerance * np.where(finite, size, 0) + 2.0**-149
        wrong = ~(same | (finite & (error <= bound)))
    assert not wrong.any(), (
        f"{wrong.sum()} of {wrong.size} are wrong, first {found[wrong][0]!r} for "
        f"{exact[wrong][0]!r} (bound {bound[wrong][0]:.2e})"
    )
