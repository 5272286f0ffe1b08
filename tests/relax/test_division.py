"""Quotients and remainders of floats, counted ranges, repetitions of nothing: as NumPy has them."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from tests.relax.helpers import graph_of
from tilewright import relax, te, topi
from tilewright.relax import op
from tilewright.support.errors import VerifyError
from tilewright.tir.interpreter import run as interpret

FLOATS = {"bfloat16": ml_dtypes.bfloat16, "float16": "float16", "float32": "float32"}
NUMPY = {"floor_divide": np.floor_divide, "floor_mod": np.mod, "mod": np.fmod}
VALUES = [0.0, -0.0, 1, -1, 2.5, -2.5, 0.1, np.inf, -np.inf, np.nan, 7, -7, 3e4, -1e-6]


def compiled(body, *arrays):
    return np.asarray(relax.build(graph_of(body, *arrays))(*arrays))


def same_with_signs(a, b):
    a, b = a.astype("float64"), b.astype("float64")
    np.testing.assert_array_equal(a, b)
    numbers = ~np.isnan(a)
    np.testing.assert_array_equal(np.signbit(a[numbers]), np.signbit(b[numbers]))


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("dtype", [*FLOATS, "float64"])
def test_quotients_and_remainders_of_floats(dtype, name):
    kind = np.dtype(FLOATS.get(dtype, dtype))
    pairs = list(itertools.product(VALUES, VALUES))
    x, y = (np.array(side).astype(kind) for side in zip(*pairs))
    with np.errstate(all="ignore"):
        expected = NUMPY[name](x, y)
    same_with_signs(compiled(getattr(op, name), x, y), expected)
    a, b = te.placeholder(x.shape, dtype, "a"), te.placeholder(x.shape, dtype, "b")
    out = np.zeros(x.shape, kind)
    interpret(te.create_prim_func([a, b, getattr(topi, name)(a, b)]), x, y, out)
    same_with_signs(out, expected)


def test_remainders_of_large_quotients_are_exact():
    x, y = np.array([1e30, 1.0, 16777217.0]), np.array([7.0, 0.1, 3.0])
    for name, function in NUMPY.items():
        same_with_signs(compiled(getattr(op, name), x, y), function(x, y))


def test_numbers_take_the_tensors_dtype():
    x = np.array([-7.5, 7.5], "float32")
    np.testing.assert_array_equal(compiled(lambda v: op.floor_mod(v, 2.0), x), np.mod(x, 2))
    np.testing.assert_array_equal(compiled(lambda v: op.mod(v, -2.0), x), np.fmod(x, -2))


@pytest.mark.parametrize(
    "bounds",
    [
        (1, 10, 0.4),
        (0, 1, 0.1),
        (10, 0, -1.5),
        (0.5,),
        (0, 7, 2),
        (7, 0, -2),
        (3, 1),
        (1, 1.3, 0.1),
    ],
)
def test_arange_counts_as_numpy(bounds):
    expected = np.arange(*bounds)
    call = op.arange(*bounds)
    dtype = "int64" if expected.dtype.kind == "i" else "float32"
    assert call.attrs["dtype"] == dtype
    zero = np.zeros((), dtype)
    found = compiled(lambda z: op.add(op.arange(*bounds), z), zero)
    np.testing.assert_allclose(found, expected.astype(dtype), rtol=1e-6)
    made = topi.arange(*bounds, dtype=None)
    assert (made.shape[0].value, made.dtype) == (len(expected), dtype)


def test_arange_of_floats_is_computed_in_double_precision():
    found = compiled(lambda z: op.add(op.arange(0, 1, 1e-5), z), np.zeros((), "float32"))
    np.testing.assert_array_equal(found, np.arange(0, 1, 1e-5).astype("float32"))


def test_arange_without_end_is_refused():
    with pytest.raises(VerifyError, match="no finite number"):
        relax.BlockBuilder().normalize(op.arange(0, float("inf"), 1))
    with pytest.raises(VerifyError, match="zero"):
        topi.arange(0, 4, 0)


def test_repetitions_of_nothing():
    x, empty = np.ones((2, 3), "float32"), np.ones((0, 3), "float32")
    assert compiled(lambda v: op.tile(v, (2, 2)), empty).shape == (0, 6)
    assert compiled(lambda v: op.tile(v, (0, 2)), x).shape == (0, 6)
    assert compiled(lambda v: op.repeat(v, 0, 1), x).shape == (2, 0)
    assert compiled(lambda v: op.repeat(v, 2, 0), empty).shape == (0, 3)


def test_negative_repetitions_are_refused():
    x = te.placeholder((2, 3))
    for refused in (lambda: topi.tile(x, (2, -1)), lambda: topi.repeat(x, -1, 0)):
        with pytest.raises(VerifyError, match="negative"):
            refused()
    for graph in (lambda v: op.tile(v, (-1,)), lambda v: op.repeat(v, -1, 0)):
        with pytest.raises(VerifyError, match="must not be negative"):
            graph_of(graph, np.ones((2, 3), "float32"))


@pytest.mark.parametrize("dtype", ["uint8", "uint64", "bool", "int8", "float32"])
def test_sign_of_every_kind(dtype):
    x = np.array([0, 1, 1] if dtype == "bool" else [0, 1, 200]).astype(dtype)
    expected = x if dtype == "bool" else np.sign(x)
    np.testing.assert_array_equal(compiled(op.sign, x), expected)


def test_quotients_of_quotients() -> None:
    """The formula names its parts: inlined, each place where it is read has names of its own."""
    x, y = (relax.Var(name, relax.TensorStructInfo((3, 9), "float32")) for name in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            out = builder.emit_output(op.floor_divide(op.floor_divide(x, y), y))
        builder.emit_func_output(out)
    a, b = np.random.default_rng(0).standard_normal((2, 3, 9)).astype("float32") * 5
    made = relax.build(builder.get())["main"](a, b).numpy()
    np.testing.assert_array_equal(made, np.floor_divide(np.floor_divide(a, b), b))
