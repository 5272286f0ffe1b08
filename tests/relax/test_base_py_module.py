"""Modules whose functions are of Python, of loops and of graphs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import cpu, relax
from tilewright.relax import BasePyModule
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tirx as T
from tilewright.support.errors import RunError

X = np.array([1, -2, 3, -4], "float32")
INFO = relax.TensorType((4,), "float32")


@I.ir_module
class Functions:
    @T.prim_func
    def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("double"):
                v = T.axis.spatial(4, i)
                B[v] = A[v] + A[v]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.call_py_func("test.half", (x,), out_ty=R.Tensor((4,), "float32"))
        z = R.negative(y)
        return z


class Model(BasePyModule):
    def forward(self, x: Any) -> Any:
        y = self.call_tir("double", [x], R.Tensor((4,), "float32"))
        return self.main(y)


def half(x: Any) -> Any:
    return np.asarray(x) / np.float32(2)


@pytest.fixture
def model() -> Model:
    made = Model(Functions, cpu(), "llvm")
    made.add_python_function("test.half", half)
    return made


def test_functions_of_all_kinds_call_each_other(model: Model) -> None:
    np.testing.assert_array_equal(model.forward(X), -X)
    torch = pytest.importorskip("torch")
    made = model.forward(torch.from_numpy(X))
    assert isinstance(made, torch.Tensor)
    np.testing.assert_array_equal(made.numpy(), -X)
    assert isinstance(model.forward(tilewright.runtime.tensor(X)), tilewright.runtime.Tensor)


def test_functions_are_called_by_name(model: Model) -> None:
    assert model.list_functions() == {"tir": ["double"], "relax": ["main"], "python": ["test.half"]}
    assert model.get_function("none") is None
    np.testing.assert_array_equal(model.get_function("main")(X), -X / 2)  # type: ignore[misc]
    np.testing.assert_array_equal(model.call_py_func("test.half", [X]), X / 2)
    np.testing.assert_array_equal(
        model.call_tir(tir_func=model.double, args=[X], out_ty=INFO), 2 * X
    )
    (pair,) = model.call_tir("double", [X], [INFO])
    np.testing.assert_array_equal(pair, 2 * X)
    tilewright.register_global_func("test.copy", lambda x, y: y.copyfrom(x), override=True)
    np.testing.assert_array_equal(model.call_dps_packed("test.copy", [X], INFO), X)
    model.add_python_function("test.scaled", lambda self, x: x * len(self.pyfuncs))
    np.testing.assert_array_equal(model.call_py_func("test.scaled", [X]), 2 * X)
    assert model.script() == Functions.script()


def test_what_is_missing_is_said(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    for call, says in (
        (lambda: model.call_py_func("test.haf", [X]), "did you mean|test.half"),
        (lambda: model.call_tir("doubel", [X], INFO), "double"),
        (lambda: model.call_tir("double", [X], R.Tensor(None, "float32")), "numbers"),
        (lambda: model.add_python_function("x", 3), "must be a function"),  # type: ignore[arg-type]
        (lambda: model.add_python_function("main", half), "has a function 'main' already"),
    ):
        with pytest.raises(RunError, match=says):
            call()
    tilewright.register_global_func("test.taken", half, override=True)
    with pytest.raises(RunError, match="already"):
        model.add_python_function("test.taken", half)
    with pytest.raises(AttributeError, match="nothing"):
        model.nothing()
    model.show()
    assert "def main" in capsys.readouterr().out


def test_modules_have_their_own_functions() -> None:
    first, second, third = (Model(Functions, cpu(), "llvm") for _ in range(3))
    first.add_python_function("test.half", half)
    second.add_python_function("test.half", lambda x: np.asarray(x) * np.float32(3))
    for _ in range(2):
        np.testing.assert_array_equal(first.main(X), -X / 2)
        np.testing.assert_array_equal(second.main(X), -X * 3)
    np.testing.assert_array_equal(third.main(X), -X * 3)  # it has none: the latest of all
    first.add_python_function("test.half", lambda x: -np.asarray(x))
    np.testing.assert_array_equal(first.main(X), X)
    np.testing.assert_array_equal(second.main(X), -X * 3)


def test_functions_may_run_graphs_of_other_modules() -> None:
    inner, outer = (Model(Functions, cpu(), "llvm") for _ in range(2))
    inner.add_python_function("test.half", half)
    calls = []

    def nested(x: Any) -> Any:
        calls.append(inner.main(X))
        return np.asarray(x) * np.float32(3)

    outer.add_python_function("test.half", nested)
    np.testing.assert_array_equal(outer.main(X), -X * 3)
    np.testing.assert_array_equal(calls[0], -X / 2)
    outer.add_python_function("test.half", lambda x: 1 // 0)
    with pytest.raises(RuntimeError, match="division"):
        outer.main(X)
    np.testing.assert_array_equal(inner.main(X), -X / 2)


def test_modules_run_in_threads_of_their_own() -> None:
    models = [Model(Functions, cpu(), "llvm") for _ in range(2)]
    for number, each in enumerate(models):
        by = np.float32(number + 2)
        each.add_python_function("test.half", lambda x, by=by: np.asarray(x) * by)

    def run(number: int) -> bool:
        return all(np.array_equal(models[number].main(X), -X * (number + 2)) for _ in range(50))

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(run, (0, 1)))
