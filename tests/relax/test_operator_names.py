"""Operators by TVM's names, called as TVM calls them, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph_of, random
from tilewright import relax
from tilewright.relax import interpreter, op
from tilewright.script import relax as R

X, Y = random(2, 3, seed=1), random(2, 3, seed=2)
UNIT = np.tanh(X)
ODD = np.float32([np.nan, 1.0, np.inf])
LINE = random(1, 2, 6)

Case = tuple[Callable[..., Any], list[np.ndarray], Any]

CASES: dict[str, Case] = {
    "acos": (op.acos, [UNIT], np.arccos(UNIT)),
    "asin": (op.asin, [UNIT], np.arcsin(UNIT)),
    "atan": (op.atan, [X], np.arctan(X)),
    "ceil": (op.ceil, [X], np.ceil(X)),
    "cosh": (op.cosh, [X], np.cosh(X)),
    "sinh": (op.sinh, [X], np.sinh(X)),
    "tan": (op.tan, [X], np.tan(X)),
    "round": (op.round, [X * 4], np.round(X * 4)),
    "trunc": (op.trunc, [X * 4], np.trunc(X * 4)),
    "isnan": (op.isnan, [ODD], np.isnan(ODD)),
    "greater_equal": (op.greater_equal, [X, X], X >= X),
    "less_equal": (op.less_equal, [X, Y], X <= Y),
    "not_equal": (op.not_equal, [X, X], X != X),
    "ones": (lambda x: op.ones((2, 3), "int8"), [X], np.ones((2, 3), "int8")),
    "ones_like": (lambda x: op.ones_like(x, "int32"), [X], np.ones((2, 3), "int32")),
    "std": (lambda x: op.std(x, 1, True), [X], X.std(1, keepdims=True)),
    "variance": (lambda x: op.variance(x, axis=[0, 1]), [X], X.var()),
    "gelu_tanh": (
        op.nn.gelu_tanh, [X],
        0.5 * X * (1 + np.tanh(np.sqrt(2 / np.pi) * (X + 0.044715 * X**3))),
    ),
    "adaptive_avg_pool1d": (
        lambda x: op.nn.adaptive_avg_pool1d(x, 2, "NCW"), [LINE],
        LINE.reshape(1, 2, 2, 3).mean(-1),
    ),
    "adaptive_avg_pool3d": (
        lambda x: op.nn.adaptive_avg_pool3d(x, (1, 1, 2), "NCDHW"), [LINE.reshape(1, 2, 1, 1, 6)],
        LINE.reshape(1, 2, 1, 1, 2, 3).mean(-1),
    ),
    "wrap_param": (
        lambda x: x + op.wrap_param(relax.const(np.float16(2)), "float32"), [X], X + 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    function, arrays, expected = CASES[name]
    found = np.asarray(interpreter.run(graph_of(function, *arrays), *arrays))
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


def test_calls_of_functions_that_are_told_what_they_give() -> None:
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    info = relax.TensorStructInfo((2,), "float32")
    python = op.call_py_func("doubled", (x,), info)
    assert python.struct_info.dtype == "float32"
    closure = relax.Var("f", relax.ObjectStructInfo())
    for pure in (
        op.invoke_pure_closure(closure, (x,), info),
        R.invoke_pure_closure(closure, (x,), info),
    ):
        assert pure.struct_info.ndim == 1 and pure.args[0] is closure
    assert isinstance(op.null_value().struct_info, relax.ObjectStructInfo)
    assert not op.null_value().args
    inplace = R.call_inplace_packed("twice", x, inplace_indices=[0], ty_args=info)
    assert inplace.struct_info.dtype == "float32"


def test_a_call_that_knows_its_gradient() -> None:
    var = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    info = relax.TensorStructInfo((2,), "float32")
    call = op.call_tir_with_grad(relax.GlobalVar("f"), (var,), info, "f_grad", {"k": 1})
    assert call.attrs["te_grad_name"] == "f_grad" and dict(call.attrs["te_grad_kwargs"]) == {"k": 1}
