"""Chains of operators on 16-bit floats give what the operators give one by one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.everyday import few
from tests.relax.helpers import graph_of
from tilewright import relax
from tilewright.ir import PassContext
from tilewright.relax import interpreter, op

NUMPY = {"float16": np.dtype("float16"), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
CHAINS = {
    "overflow": [lambda x: op.multiply(x, 3.0), lambda x: op.divide(x, 3.0)],
    "cancellation": [lambda x: op.add(x, 1000.0), lambda x: op.subtract(x, 1000.0)],
    "product and sum": [lambda x: op.multiply(x, 1.1), lambda x: op.add(x, -0.7)],
    "difference from a product": [lambda x: op.multiply(x, 1.1), lambda x: op.subtract(0.7, x)],
    "limits between": [
        lambda x: op.multiply(x, 1.1),
        lambda x: op.minimum(op.maximum(x, -3.3), 3.3),
        lambda x: op.multiply(x, 0.7),
    ],
    "choice": [
        lambda x: op.where(op.less(x, 1.0), op.multiply(x, 1.3), op.add(x, 0.1)),
        lambda x: op.multiply(x, 3.0),
    ],
    "functions": [op.exp, op.log1p, op.sqrt, op.tanh, op.nn.silu],
    "rounding up": [lambda x: op.multiply(x, 1.0009765625), op.floor, op.abs],
    "comparison": [lambda x: op.add(x, 0.0001), lambda x: op.greater(x, 1.0)],
    "conversion": [lambda x: op.multiply(x, 1.1), lambda x: op.astype(x, "float32")],
    "activations": [op.nn.hard_swish, op.nn.softplus, lambda x: op.nn.leaky_relu(x, 0.3)],
    "power": [lambda x: op.abs(x), lambda x: op.power(x, 1.5), op.rsqrt, op.reciprocal],
}


def one_by_one(chain, x: np.ndarray) -> np.ndarray:
    for step in chain:
        x = np.asarray(relax.build(graph_of(step, x))(x)).reshape(x.shape)
    return x


def together(chain, x):
    for step in chain:
        x = step(x)
    return x


def same(a: np.ndarray, b: np.ndarray) -> None:
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a.astype("float64"), b.astype("float64"))


@few("name", CHAINS, every=2)
@pytest.mark.parametrize("dtype", NUMPY)
def test_fused_operators_round_in_between(dtype, name):
    rng = np.random.default_rng(0)
    special = [65504.0, -65504.0, np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, 3e38, 1e-7, 6e-8]
    with np.errstate(all="ignore"):
        x = np.concatenate([rng.standard_normal(60) * 3, special]).astype(NUMPY[dtype])
    # Each operator by itself is a program of its own, that rounds when it stores.
    expected = one_by_one(CHAINS[name], x)
    mod = graph_of(lambda value: together(CHAINS[name], value), x)
    same(np.asarray(relax.build(mod)(x)), expected)


@pytest.mark.parametrize("dtype", NUMPY)
def test_the_interpreter_rounds_too(dtype):
    x = np.array([65504.0, 50000.0, 1.0, 0.1, -7.7]).astype(NUMPY[dtype])

    def body(value):
        value = op.divide(op.multiply(value, 3.0), 3.0)
        return op.subtract(op.add(value, 1000.0), 1000.0)

    mod = relax.get_pipeline("zero")(graph_of(body, x))
    same(np.asarray(interpreter.run(mod, x)), np.asarray(relax.build(mod)(x)))


def test_numpy_agrees_on_arithmetic():
    x = np.array([65504, 21000, 1 / 3, 2049, -5e-8], "float16")

    def chain(value):
        return (value * np.float16(3) / np.float16(3) + np.float16(0.1)) * value - value

    with np.errstate(all="ignore"):
        expected = chain(x)
    mod = graph_of(lambda v: op.subtract(op.multiply(op.add(op.divide(
        op.multiply(v, 3.0), 3.0), 0.1), v), v), x)  # fmt: skip
    same(np.asarray(relax.build(mod)(x)), expected)


def test_excess_precision_is_a_choice():
    x = np.full(64, 65504, "float16")
    mod = graph_of(lambda v: op.divide(op.multiply(v, 3.0), 3.0), x)
    assert np.isinf(np.asarray(relax.build(mod)(x))).all()
    with PassContext(config={"relax.excess_precision": True}):
        built = relax.build(mod)
    np.testing.assert_array_equal(np.asarray(built(x)), x)
