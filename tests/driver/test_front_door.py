"""``tilewright.compile``: whatever holds a program goes in, and is called as it was."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import relax, te, topi
from tilewright.ir import IRModule
from tilewright.relax.execution.profiling import profile
from tilewright.relax.frontend import nn as own
from tilewright.support.errors import BuildError, ImportModelError, RunError

A = np.arange(12, dtype="float32").reshape(3, 4)


def doubled() -> Any:
    a = te.placeholder((3, 4), name="a")
    return te.create_prim_func([a, topi.multiply(a, 2.0)])


def graph() -> IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((3, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.add(x, x))
        builder.emit_func_output(out)
    return builder.get()


class OwnModel(own.Module):
    def __init__(self) -> None:
        self.fc = own.Linear(4, 2)
        self.fc.weight.data = np.ones((2, 4), "float32")
        self.fc.bias.data = np.zeros(2, "float32")

    def forward(self, x: Any) -> Any:
        return self.fc(x)


@pytest.mark.parametrize("program", [doubled(), IRModule({"twice": doubled()})])
@pytest.mark.parametrize("budget", [{}, {"tune": 8}])
def test_tensor_functions(program: Any, budget: dict[str, Any]) -> None:
    module = tw.compile(program, **budget)
    out = np.zeros((3, 4), "float32")
    module(A, out)
    np.testing.assert_array_equal(out, A * 2)


def test_a_single_function_gets_a_name() -> None:
    assert tw.compile(doubled(), name="twice").function_names == ("twice",)


@pytest.mark.parametrize("program", [graph(), graph()["main"]])
def test_graphs(program: Any) -> None:
    np.testing.assert_array_equal(tw.compile(program)(A), A + A)


def test_inputs_of_a_graph_by_name() -> None:
    np.testing.assert_array_equal(tw.compile(graph())(x=A), A + A)
    with pytest.raises(RunError, match=r"main takes 1 arguments \(x\), got 0 and y"):
        tw.compile(graph())(y=A)


def test_models_of_ours_by_example() -> None:
    for example in (A, (A,), {"x": A}):
        made = tw.compile(OwnModel(), example_inputs=example)
        np.testing.assert_allclose(made(A), A.sum(1, keepdims=True) @ np.ones((1, 2)))
    with pytest.raises(ImportModelError, match="example 'y' is none of them"):
        tw.compile(OwnModel(), example_inputs={"y": A})


def test_what_is_tuned_is_kept_and_used(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    tw.compile(graph(), database=folder, tune=8)
    lines = (folder / "database_tuning_record.json").read_text().splitlines()
    assert lines
    np.testing.assert_array_equal(tw.compile(graph(), database=folder)(A), A + A)
    assert (folder / "database_tuning_record.json").read_text().splitlines() == lines


def test_a_budget_in_seconds_ends() -> None:
    start = time.monotonic()
    np.testing.assert_array_equal(tw.compile(graph(), tune="1s")(A), A + A)
    assert time.monotonic() - start < 60  # of a space that takes far longer


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3,), "expected an IRModule or a PrimFunc, got int"),
        (
            ("model.pth",),
            "'model.pth' is no model file that can be compiled: known are .onnx, and .pt2",
        ),
        ({"tune": "5 days"}, "tune is a number of trials or a time such as '90s'"),
        ({"tune": -1}, "got -1"),
        ({"tune": True}, "got True"),
        ({"database": 3}, "database is a Database, or the folder or URL of one, got int"),
        ({"database": "/nowhere"}, "there is no database folder '/nowhere'"),
        ({"example_inputs": A}, "a IRModule takes no example_inputs"),
        ({"dynamic_shapes": {}}, "dynamic_shapes= is for a torch.nn.Module"),
        ({"name": "f"}, "name= is for a single function"),
    ],
)
def test_arguments_that_do_not_belong(arguments: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        if isinstance(arguments, dict):
            tw.compile(graph(), **arguments)
        else:
            tw.compile(*arguments)


# ---- PyTorch ----------------------------------------------------------------------------------


@pytest.fixture
def model() -> Any:
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.fc = torch.nn.Linear(4, 2)
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, x: Any, mask: Any = None, *, scale: float = 2.0) -> Any:
            y = self.drop(self.fc(x)) * scale
            return {"y": y if mask is None else y * mask, "more": [x.sum(), (x + 1,)]}

    return Model()


def expected(model: Any, *args: Any, **kwargs: Any) -> Any:
    import torch

    with torch.no_grad():
        return model.eval()(*args, **kwargs)


def agree(found: Any, wanted: Any) -> None:
    import torch

    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        found, wanted = list(found.values()), list(wanted.values())
    if isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for item, other in zip(found, wanted):
            agree(item, other)
    else:
        torch.testing.assert_close(found, wanted)


Examples = Callable[[Any, Any], Any]


@pytest.mark.parametrize(
    "examples",
    [lambda x, m: (x, m), lambda x, m: {"x": x, "mask": m}, lambda x, m: {"mask": m, "x": x}],
)
def test_a_model_is_called_as_it_was(model: Any, examples: Examples) -> None:
    import torch

    x, mask = torch.randn(3, 4), torch.tensor([[1.0], [0.0], [2.0]])
    made = tw.compile(model, example_inputs=examples(x, mask))
    assert model.training  # as it was before
    wanted = expected(model, x, mask)
    agree(made(x, mask), wanted)
    agree(made(x, mask=mask), wanted)
    agree(made(mask=mask, x=x), wanted)
    agree(pickle.loads(pickle.dumps(made))(x, mask), wanted)


def test_one_tensor_is_an_example(model: Any) -> None:
    import torch

    x = torch.randn(3, 4)
    agree(tw.compile(model, example_inputs=x)(x), expected(model, x))


def test_arrays_give_tensors_of_ours(model: Any) -> None:
    import torch

    made = tw.compile(model, example_inputs=torch.from_numpy(A))
    found = made(A)["y"]
    assert isinstance(found, tw.runtime.Tensor)
    wanted = expected(model, torch.from_numpy(A))["y"].numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_views_are_inputs_of_a_model(model: Any) -> None:
    import torch

    made = tw.compile(model, example_inputs=torch.from_numpy(A))
    memory = np.zeros(A.nbytes + 1, "uint8")
    misaligned = memory[1:].view("float32").reshape(A.shape)
    misaligned[...] = A
    wanted = made(A)["y"].numpy()
    for view in (np.asfortranarray(A), A[::-1, ::-1].copy()[::-1, ::-1], misaligned):
        np.testing.assert_array_equal(made(view)["y"], wanted)
    np.testing.assert_array_equal(made(torch.from_numpy(A.T.copy()).t())["y"], wanted)


@pytest.mark.parametrize("kind", ["meta", "sparse"])
def test_tensors_that_are_no_inputs_of_a_model(model: Any, kind: str) -> None:
    import torch

    made = tw.compile(model, example_inputs=torch.from_numpy(A))
    x = torch.empty(3, 4, device="meta") if kind == "meta" else torch.zeros(3, 4).to_sparse()
    with pytest.raises(TypeError, match=r"argument #0 'x': .* can't be exported") as caught:
        made(x)
    assert "\n" not in str(caught.value)


def test_sizes_of_a_model_may_be_dynamic(model: Any) -> None:
    import torch

    rows = torch.export.Dim("rows")
    made = tw.compile(model, example_inputs=torch.randn(3, 4), dynamic_shapes={"x": {0: rows}})
    for count in (2, 5, 17):
        x = torch.randn(count, 4)
        agree(made(x), expected(model, x))


def test_exported_programs_and_their_files(model: Any, tmp_path: Path) -> None:
    import torch

    x = torch.randn(3, 4)
    program = torch.export.export(model.eval(), (x,), {"scale": 3.0})
    torch.export.save(program, tmp_path / "model.pt2")
    for given in (program, tmp_path / "model.pt2", str(tmp_path / "model.pt2")):
        agree(tw.compile(given)(x, scale=3.0), expected(model, x, scale=3.0))
    with pytest.raises(RunError, match=r"input 'scale' was fixed to 3.0 by the export, got 4.0"):
        tw.compile(program)(x, scale=4.0)


def test_nested_inputs() -> None:
    torch = pytest.importorskip("torch")

    class Nested(torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, pair: Any, named: Any) -> Any:
            return pair[0] - pair[1][0], named["a"] * 2

    x, y, z = torch.randn(2), torch.randn(2), torch.randn(3)
    made = tw.compile(Nested(), example_inputs=((x, [y]), {"a": z}))
    agree(made((x, [y]), {"a": z}), (x - y, z * 2))
    with pytest.raises(RunError, match=r"of the structure \(\(\*, \[\*\]\), dict\(\*\)\), got"):
        made((x, y), {"a": z})


def test_kernels_of_a_model_are_profiled(model: Any) -> None:
    import torch

    x = torch.randn(3, 4)
    made = tw.compile(model, example_inputs=x)
    assert profile(made, "main", [x], repeat=1).kernels()


@pytest.mark.parametrize("count", [1, 3])
def test_a_tuple_stays_a_tuple(count: int) -> None:
    torch = pytest.importorskip("torch")

    class Several(torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, x: Any) -> Any:
            return tuple(x + number for number in range(count))

    x = torch.randn(2)
    found = tw.compile(Several(), example_inputs=x)(x)
    assert type(found) is tuple
    agree(found, tuple(x + number for number in range(count)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f, x: f(), r"exported for inputs of the structure \(\*\), got \(\)"),
        (lambda f, x: f(x, x), r"got \(\*, \*\)"),
        (lambda f, x: f(x, other=x), r"got \(\*, other=\*\)"),
    ],
)
def test_calls_of_another_structure(model: Any, call: Any, message: str) -> None:
    import torch

    x = torch.randn(3, 4)
    made = tw.compile(model, example_inputs=x)
    with pytest.raises(RunError, match=message):
        call(made, x)


def test_what_cannot_be_exported_says_why(model: Any) -> None:
    import torch

    with pytest.raises(BuildError, match="compiling the model Model needs example_inputs"):
        tw.compile(model)
    with pytest.raises(ImportModelError) as info:
        tw.compile(model, example_inputs=torch.randn(3, 5))
    message = str(info.value)
    assert "torch.export can't export Model (" in message and "test_front_door.py, line" in message
    assert "must have same reduction dim" in message and len(message.splitlines()) == 1
    with pytest.raises(
        ImportModelError, match=r"don't fit Model.forward\(x.*a required argument: 'x'"
    ):
        tw.compile(model, example_inputs={"z": torch.randn(3, 4)})


# ---- ONNX -------------------------------------------------------------------------------------


@pytest.fixture
def onnx_model() -> Any:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 2])],
        [onnx.numpy_helper.from_array(np.arange(-3, 3, dtype=np.float32).reshape(3, 2), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def test_an_onnx_model(onnx_model: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((4, 3), np.float32)
    wanted = np.maximum(x @ np.arange(-3, 3, dtype=np.float32).reshape(3, 2), 0)
    np.testing.assert_allclose(tw.compile(onnx_model)(x), wanted, rtol=1e-5)
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_model.SerializeToString())
    fixed = tw.compile(path, example_inputs=x)
    np.testing.assert_allclose(fixed(x), wanted, rtol=1e-5)
    with pytest.raises(ValueError, match="x"):
        fixed(x[:2])
    assert tw.compile(path, example_inputs={"x": x}).signatures["main"].inputs[0].shape == (4, 3)
    with pytest.raises(BuildError, match="the model has 1 inputs, 2 examples were given"):
        tw.compile(path, example_inputs=(x, x))


def test_each_part_of_a_model_stays_in_its_mode() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Dropout(0.5).eval(), torch.nn.Linear(4, 2))
    modes = [part.training for part in model.modules()]
    assert modes == [True, False, True]
    compiled = tw.compile(model, example_inputs=(torch.ones(3, 4),))
    assert compiled.planned is not None  # which a profile needs
    assert [part.training for part in model.modules()] == modes
    torch.testing.assert_close(compiled(torch.ones(3, 4)), model(torch.ones(3, 4)))
