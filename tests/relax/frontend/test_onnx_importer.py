"""Importing whole ONNX models: names, symbolic sizes, functions, what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import relax
from tilewright.ir import IRModule, Var
from tilewright.relax.frontend import detach_params
from tilewright.relax.interpreter import run
from tilewright.runtime import Tensor
from tilewright.support.errors import ImportModelError

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx_models import model, node  # noqa: E402

from tilewright.relax.frontend.onnx import converts, from_onnx  # noqa: E402
from tilewright.relax.frontend.onnx.values import UnknownValueError  # noqa: E402


def call(mod: IRModule, *inputs: Any) -> Any:
    return run(mod, *inputs)


def test_weights_are_constants() -> None:
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    made = from_onnx(model([node("MatMul", "x w", "y")], {"x": [2, 3]}, ["y"], {"w": w}))
    assert [p.name for p in made["main"].params] == ["x"]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(call(made, x), x @ w)


def test_weights_as_inputs() -> None:
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    made = from_onnx(
        model([node("MatMul", "x w", "y")], {"x": [2, 3]}, ["y"], {"w": w}),
        keep_params_in_input=True,
    )
    assert [p.name for p in made["main"].params] == ["x", "w"]
    assert made["main"].attrs["num_input"] == 1
    plain, params = detach_params(made)
    assert "params" not in plain["main"].attrs
    assert isinstance(params["main"][0], Tensor)
    np.testing.assert_array_equal(params["main"][0].numpy(), w)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(relax.build(plain)(x, *params["main"]), x @ w)


def test_symbolic_sizes_are_named_as_in_the_model() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Unsqueeze", "n axes", "n1"),
        node("Concat", "n1 rest", "shape", axis=0),
        node("Reshape", "x shape", "y"),
    ]
    initial = {"zero": np.int64(0), "axes": np.array([0]), "rest": np.array([-1])}
    made = from_onnx(model(nodes, {"x": ["batch", 2, 3]}, ["y"], initial))
    (x,) = made["main"].params
    batch = x.struct_info.shape[0]
    assert isinstance(batch, Var) and batch.name == "batch"
    assert repr(made["main"].ret_struct_info) == "Tensor((batch, 6), float32)"
    data = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    np.testing.assert_array_equal(relax.build(made)(data), data.reshape(4, 6))


def test_sizes_as_results() -> None:
    made = from_onnx(model([node("Shape", "x", "s")], {"x": ["n", 3]}, ["s"]))
    found = relax.build(made)(np.zeros((5, 3), np.float32))
    np.testing.assert_array_equal(found, np.array([5, 3]))


def test_shapes_of_inputs_can_be_given() -> None:
    proto = model([node("Relu", "x", "y")], {"x": ["n", "n"]}, ["y"])
    (x,) = from_onnx(proto, {"x": [2, "m"]})["main"].params
    assert repr(x.struct_info) == "Tensor((2, m), float32)"
    with pytest.raises(ImportModelError, match="no input 'y'"):
        from_onnx(proto, {"y": [2]})


def test_names_are_made_fit() -> None:
    proto = model([node("Relu", "a/b:0", "y")], {"a/b:0": [2]}, ["y"])
    assert from_onnx(proto)["main"].params[0].name == "a_b_0"
    assert from_onnx(proto, sanitize_input_names=False)["main"].params[0].name == "a/b:0"


def test_functions_of_a_model_are_expanded() -> None:
    body = [
        helper.make_node("LeakyRelu", ["a"], ["b"]),
        helper.make_node("Add", ["b", "a"], ["c"]),
    ]
    ref = body[0].attribute.add()
    ref.name, ref.ref_attr_name, ref.type = "alpha", "slope", onnx.AttributeProto.FLOAT
    function = helper.make_function(
        "mine", "Twice", ["a"], ["c"], body, [helper.make_opsetid("", 21)], ["slope"]
    )
    proto = model(
        [node("mine.Twice", "x", "y", slope=0.5)], {"x": [2]}, ["y"],
        functions=[function], opsets=[helper.make_opsetid("mine", 1)],
    )  # fmt: skip
    found = call(from_onnx(proto), np.array([1, -2], np.float32))
    np.testing.assert_array_equal(found, [2, -3])


def test_functions_that_call_themselves_are_refused() -> None:
    function = helper.make_function(
        "mine", "F", ["a"], ["b"], [node("mine.F", "a", "b")],
        [helper.make_opsetid("mine", 1)],
    )  # fmt: skip
    proto = model(
        [node("mine.F", "x", "y")], {"x": [2]}, ["y"], functions=[function],
        opsets=[helper.make_opsetid("mine", 1)],
    )  # fmt: skip
    with pytest.raises(ImportModelError, match="nested deeper than"):
        from_onnx(proto)


def test_operators_that_onnx_defines_by_others() -> None:
    # There is no converter: ONNX's own definition is expanded.
    proto = model([node("NegativeLogLikelihoodLoss", "x t", "y")], {"x": [2, 3]}, ["y"])
    proto.graph.input.append(helper.make_tensor_value_info("t", TensorProto.INT64, [2]))
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    found = call(from_onnx(proto), x, np.array([0, 2]))
    np.testing.assert_allclose(found, -(1 + 6) / 2)


def test_an_unknown_operator_is_named() -> None:
    proto = model([node("Sofmax", "x", "y", name="last")], {"x": [2]}, ["y"])
    with pytest.raises(ImportModelError, match=r"Sofmax \(node 'last'\).*mean 'Softmax'"):
        from_onnx(proto)


def test_what_decides_sizes_must_be_known() -> None:
    proto = model([node("Reshape", "x s", "y")], {"x": [6]}, ["y"])
    proto.graph.input.append(helper.make_tensor_value_info("s", TensorProto.INT64, [2]))
    with pytest.raises(UnknownValueError, match="shape decides sizes") as found:
        from_onnx(proto)
    assert found.value.inputs == ("s",)


def test_attributes_are_checked() -> None:
    for attributes, message in (
        ({"axis": "one"}, "attribute 'axis' must be int, got 'one'"),
        ({"axes": 1}, "attribute 'axes' is not supported; supported: axis"),
        ({"axis": 7}, "axis 7 is out of range"),
    ):
        proto = model([node("Softmax", "x", "y", **attributes)], {"x": [2, 3]}, ["y"])
        with pytest.raises(ImportModelError, match=message):
            from_onnx(proto)


def test_order_of_nodes_does_not_matter_but_cycles_do() -> None:
    proto = model([node("Neg", "b", "y"), node("Abs", "x", "b")], {"x": [2]}, ["y"])
    np.testing.assert_array_equal(call(from_onnx(proto), np.float32([1, -2])), [-1, -2])
    proto = model([node("Neg", "b", "a"), node("Abs", "a", "b")], {"x": [2]}, ["b"])
    with pytest.raises(ImportModelError, match="need each other's results"):
        from_onnx(proto)


def test_versions_of_operators() -> None:
    x = np.random.default_rng(0).random((2, 3, 4), np.float32)
    last = model([node("Softmax", "x", "y")], {"x": [2, 3, 4]}, ["y"], opset=13)
    both = model([node("Softmax", "x", "y")], {"x": [2, 3, 4]}, ["y"], opset=11)
    np.testing.assert_allclose(call(from_onnx(last), x).sum(-1), np.ones((2, 3)), rtol=1e-6)
    np.testing.assert_allclose(call(from_onnx(both), x).sum((1, 2)), np.ones(2), rtol=1e-6)
    old = model([node("Add", "x w", "y", broadcast=1, axis=0)], {"x": [2, 3]}, ["y"],
                {"w": np.float32([1, 2])}, opset=6)  # fmt: skip
    np.testing.assert_array_equal(
        call(from_onnx(old), np.zeros((2, 3), np.float32)), [[1] * 3, [2] * 3]
    )
    old = model([node("Pad", "x", "y", paddings=[1, 1])], {"x": [2]}, ["y"], opset=1)
    with pytest.raises(ImportModelError, match="attribute 'paddings' is not supported"):
        from_onnx(old)


def test_converters_can_be_added() -> None:
    @converts("mine.Double")
    def double(ctx: Any, x: relax.Expr) -> relax.Expr:
        return relax.op.add(x, x)

    proto = model(
        [node("mine.Double", "x", "y")], {"x": [2]}, ["y"],
        opsets=[helper.make_opsetid("mine", 1)],
    )  # fmt: skip
    np.testing.assert_array_equal(call(from_onnx(proto), np.float32([1, 2])), [2, 4])


@dataclass(frozen=True, eq=False)
class Line:
    start: relax.Expr
    step: relax.Expr | None = None


@dataclass(frozen=True, kw_only=True)
class LineOptions:
    scale: float
    times: int = 2


def test_a_parameter_may_take_several_inputs_or_attributes() -> None:
    @converts("mine.Line")
    def line(ctx: Any, a: Line, b: Line, last: relax.Expr | None, *, options: LineOptions) -> Any:
        found = [a.start, a.step, b.start, b.step, last]
        parts = [relax.op.multiply(x, ctx.scalar(options.scale, x)) for x in found if x is not None]
        return relax.op.concat(parts * options.times, 0)

    def proto(inputs: str, **attributes: Any) -> Any:
        shapes = {"x": [1], "y": [1], "z": [1]}
        opsets = [helper.make_opsetid("mine", 1)]
        return model([node("mine.Line", inputs, "r", **attributes)], shapes, ["r"], opsets=opsets)

    x, y, z = (np.float32([n]) for n in (1, 2, 3))
    found = call(from_onnx(proto("x - y z", scale=2.0)), x, y, z)
    np.testing.assert_array_equal(found, [2, 4, 6, 2, 4, 6])
    found = call(from_onnx(proto("x y z - x", scale=1.0, times=1)), x, y, z)
    np.testing.assert_array_equal(found, [1, 2, 3, 1])
    for inputs, attributes, message in (
        ("x y", {"scale": 1.0}, "input b.start is missing"),
        ("x y z x y z", {"scale": 1.0}, "takes up to 5 inputs, got 6"),
        ("x y z", {"times": 1}, "attribute 'scale' is missing"),
        ("x y z", {"scale": 1}, "attribute 'scale' must be float, got 1"),
        ("x y z", {"scale": 1.0, "step": 1}, "'step' is not supported; supported: scale, times"),
    ):
        with pytest.raises(ImportModelError, match=message):
            from_onnx(proto(inputs, **attributes))


def test_external_data_stay_in_the_folder_of_the_model(tmp_path: Path) -> None:
    inside = tmp_path / "model"
    inside.mkdir()
    w = np.arange(3, dtype=np.float32)
    (inside / "w.bin").write_bytes(w.tobytes())
    (tmp_path / "secret.bin").write_bytes(w.tobytes())
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    (inside / "circle.bin").symlink_to("circle.bin")

    def with_weight(location: str, **entries: int) -> Any:
        proto = model([node("Add", "x w", "y")], {"x": [3]}, ["y"], {"w": w})
        (tensor,) = proto.graph.initializer
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **entries}.items():
            tensor.external_data.add(key=key, value=str(value))
        (inside / "m.onnx").write_bytes(proto.SerializeToString())
        return inside / "m.onnx"

    found = call(from_onnx(with_weight("w.bin")), np.ones(3, np.float32))
    np.testing.assert_array_equal(found, w + 1)
    outside = ("../secret.bin", str(tmp_path / "secret.bin"), "link.bin", "none.bin", ".")
    for place in (*outside, "circle.bin", "w.bin\0", "a" * 300, "a/" * 5000):
        with pytest.raises(ImportModelError, match="no file in the model's folder"):
            from_onnx(with_weight(place))
    for entries in ({"offset": 4}, {"offset": -4}, {"length": 8}):
        with pytest.raises(ImportModelError, match="needs 12 bytes"):
            from_onnx(with_weight("w.bin", **entries))
    with pytest.raises(ImportModelError, match="give the path of the model"):
        from_onnx(onnx.load(with_weight("w.bin"), load_external_data=False))


def test_sizes_that_the_bytes_do_not_bear_out() -> None:
    proto = model([node("Add", "x w", "y")], {"x": [3]}, ["y"], {"w": np.ones(3, np.float32)})
    (tensor,) = proto.graph.initializer
    tensor.dims[:] = [1 << 40]
    with pytest.raises(ImportModelError, match="needs 4398046511104 bytes, it has 12"):
        from_onnx(proto)
    tensor.dims[:] = [-3]
    with pytest.raises(ImportModelError, match="must not be negative"):
        from_onnx(proto)
    tensor.ClearField("raw_data")
    tensor.dims[:] = [4]
    tensor.float_data[:] = [1, 2]
    with pytest.raises(ImportModelError, match="needs 4 elements, it has 2"):
        from_onnx(proto)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(ImportModelError, match="No such file"):
        from_onnx(path)
    path.write_bytes(b"\xff" * 50)
    with pytest.raises(ImportModelError, match="is no ONNX model"):
        from_onnx(path)
    with pytest.raises(ImportModelError, match=r"expected an onnx.ModelProto .* got int"):
        from_onnx(3)  # type: ignore[arg-type]
