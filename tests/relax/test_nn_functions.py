"""Functions of `relax.frontend.nn` take TVM's arguments, and give what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import random, same
from tilewright.relax import interpreter
from tilewright.relax.frontend import nn
from tilewright.relax.frontend.nn import op, spec

X, Y = random(2, 3, seed=1), random(2, 3, seed=2)
P = np.abs(X) + 0.5
WEIGHT = random(3, seed=3)
PROB = np.float32([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]])
SAMPLE = np.float32([[0.1], [0.95]])

Case = tuple[Callable[..., Any], list[np.ndarray], Any]

CASES: dict[str, Case] = {
    "add": (lambda x, y: op.add(x, y, "named"), [X, Y], X + Y),
    "subtract": (op.subtract, [X, Y], X - Y),
    "multiply": (op.multiply, [X, Y], X * Y),
    "divide": (op.divide, [X, P], X / P),
    "maximum": (op.maximum, [X, Y], np.maximum(X, Y)),
    "minimum": (op.minimum, [X, Y], np.minimum(X, Y)),
    "equal": (op.equal, [X, X], X == X),
    "not_equal": (op.not_equal, [X, X], X != X),
    "greater": (op.greater, [X, Y], X > Y),
    "greater_equal": (op.greater_equal, [X, X], X >= X),
    "less": (op.less, [X, Y], X < Y),
    "less_equal": (op.less_equal, [X, Y], X <= Y),
    "negative": (op.negative, [X], -X),
    "floor": (op.floor, [X], np.floor(X)),
    "log": (op.log, [P], np.log(P)),
    "sqrt": (op.sqrt, [P], np.sqrt(P)),
    "square": (op.square, [X], X * X),
    "tanh": (op.tanh, [X], np.tanh(X)),
    "sigmoid": (op.sigmoid, [X], 1 / (1 + np.exp(-X))),
    "silu": (op.silu, [X], X / (1 + np.exp(-X))),
    "relu": (lambda x: op.relu(x=x, name="relu"), [X], np.maximum(X, 0)),
    "split": (
        lambda x: op.split(ary=x, indices_or_sections=[1], axis=1, name="split"), [X],
        [X[:, :1], X[:, 1:]],
    ),
    "relu6": (op.relu6, [X * 9], np.clip(X * 9, 0, 6)),
    "softplus": (
        lambda x: op.softplus(x, 2.0, 1.0), [X], np.where(X * 2 > 1, X, np.log1p(np.exp(X * 2)) / 2)
    ),
    "prelu": (op.prelu, [X, WEIGHT], np.where(X > 0, X, X * WEIGHT)),
    "rms_norm": (
        lambda x, w: op.rms_norm(x, w, -1, 1e-3), [X, WEIGHT],
        X / np.sqrt((X * X).mean(-1, keepdims=True) + 1e-3) * WEIGHT,
    ),
    "sum": (lambda x: op.sum(x, 0, keepdims=True), [X], X.sum(0, keepdims=True)),
    "max": (lambda x: op.max(x, axis=1), [X], X.max(1)),
    "min": (lambda x: op.min(x, [0, 1]), [X], X.min()),
    "astype": (lambda x: op.astype(x, "int32"), [X * 9], (X * 9).astype("int32")),
    "broadcast_to": (lambda x: op.broadcast_to(x, [2, 2, 3]), [X], np.broadcast_to(X, (2, 2, 3))),
    "permute": (lambda x: op.permute(x, [1, 0]), [X], X.T),
    "take": (lambda x, i: op.take(x, i, 1), [X, np.int64([2, 0])], X[:, [2, 0]]),
    "argsort": (
        lambda x: op.argsort(x, 0, True, "int64"), [X], np.argsort(-X, 0, kind="stable"),
    ),
    "sort": (lambda x: op.sort(x, 1, True), [X], -np.sort(-X, 1)),
    "topk": (
        lambda x: op.topk(x, 2, 1, "both", False, "int64"), [X],
        [np.sort(X, 1)[:, :2], np.argsort(X, 1)[:, :2]],
    ),
    "zeros": (lambda x: op.zeros([2, 1], "int8"), [X], np.zeros((2, 1), "int8")),
    "ones": (lambda x: op.ones((3,)), [X], np.ones(3, "float32")),
    "multinomial_from_uniform": (
        lambda p, u, i: op.multinomial_from_uniform(p, u, i, "int32"),
        [PROB, SAMPLE, np.int64([[0], [1]])], np.int32([[0], [2]]),
    ),
    "a row for each sample": (
        op.multinomial_from_uniform, [PROB, SAMPLE], np.int64([[0], [2]]),
    ),
}  # fmt: skip


class Called(nn.Module):
    """A module whose one method is a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *x: nn.Tensor) -> Any:
        return self.function(*x)


def exported(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    names = [f"x{n}" for n in range(len(arrays))]
    specs = [spec.Tensor(a.shape, str(a.dtype)) for a in arrays]
    method = spec.MethodSpec(lambda *given: function(*given), names, specs, "none", "none")
    module = Called(function)
    mod, _ = module.export_tvm(spec.ModuleSpec(module, ["forward"], [method]))
    return mod


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    function, arrays, expected = CASES[name]
    same(
        interpreter.run(exported(function, *arrays), *arrays, name="forward"), expected, 1e-5, 1e-6
    )


def test_memory_that_nobody_wrote_has_a_shape_and_a_dtype() -> None:
    mod = exported(lambda x: op.empty([2, 5], "int8"), X)
    made = interpreter.run(mod, X, name="forward")
    assert (made.shape, made.dtype) == ((2, 5), "int8")


def test_a_specification_may_rename_and_reorder_what_a_method_takes() -> None:
    x = spec.Tensor((2, 3), "float32")
    same(
        interpreter.run(exported(lambda p, q: op.subtract(p, q), X, Y), X, Y, name="forward"),
        X - Y,
        1e-5,
        1e-6,
    )

    class Difference(nn.Module):
        def forward(self, a: nn.Tensor, b: nn.Tensor) -> nn.Tensor:
            return op.subtract(a, b)

    mod, _ = Difference().export_tvm({"forward": {"b": x, "a": x}})
    assert [param.name for param in mod["forward"].params][:2] == ["a", "b"]
