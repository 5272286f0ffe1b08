"""Models of the command line: dynamic axes, inputs by name, sizes and files of inputs, doctor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_helpers import Done, Tilewright

from tilewright.meta_schedule.sizes import symbols_within, values_between

NETS = """
import numpy as np
import torch
from tilewright.relax.frontend import nn


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = torch.nn.Linear(16, 8)

    def forward(self, x, scale=None, *, shift=None):
        return self.inner(x) * scale + shift


class Any(torch.nn.Module):
    def forward(self, **inputs):
        return inputs["a"] + 2 * inputs["b"]


class Median(torch.nn.Module):
    def forward(self, x):
        x = torch.relu(x) + 1
        print("a graph break")
        return torch.linalg.householder_product(x, x[0]) * 2


class Ours(nn.Module):
    def __init__(self):
        self.inner = nn.Linear(16, 8)

    def forward(self, x):
        return self.inner(x)


def by_name():
    return Net(), {"shift": torch.ones(8), "x": torch.randn(5, 16), "scale": torch.randn(8)}


def any_names():
    return Any(), {"b": torch.randn(3), "a": torch.randn(3)}


def falls_back():
    return Median(), torch.randn(4, 4)


def ours():
    made = Ours()
    for parameter in made.parameters():
        parameter.data = np.ones(parameter.shape, "float32")
    return made, {"x": np.ones((3, 16), "float32")}


def module():
    from tilewright import relax
    from tilewright.relax.frontend.torch import from_exported_program
    model, inputs = any_names()
    exported = torch.export.export(model, (), {"a": inputs["a"], "b": inputs["b"]})
    return from_exported_program(exported), {k: v.numpy() for k, v in inputs.items()}
"""


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("sizes") / "nets.py"
    path.write_text(NETS)
    return str(path)


@pytest.fixture(scope="module")
def library(nets: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of a model whose batch may be 1 to 64."""
    from tilewright.cli import main

    made = tmp_path_factory.mktemp("library") / "net.so"
    with pytest.raises(SystemExit) as caught:
        main(["compile", f"{nets}:by_name", "--dynamic", "x:0=n:1..64", "-o", str(made)])
    assert not caught.value.code
    return made


def shapes(done: Done) -> list[list[int]]:
    assert done.code == 0, done.err
    return [item["shape"] for item in done.json["outputs"]]


@pytest.mark.parametrize("function", ["by_name", "any_names"])
def test_examples_may_have_names(tilewright: Tilewright, nets: str, function: str) -> None:
    done = tilewright("run", f"{nets}:{function}", "--json", "--repeat", "1")
    assert done.code == 0, done.err
    assert done.json["max_relative_error"] < 1e-5


def test_a_modules_examples_go_by_its_parameters(tilewright: Tilewright, nets: str) -> None:
    assert shapes(tilewright("run", f"{nets}:module", "--json", "--repeat", "1")) == [[3]]


def test_axes_that_pytorch_fixes(tilewright: Tilewright, nets: str) -> None:
    done = tilewright("run", f"{nets}:any_names", "--dynamic", "a:0")
    assert done.code == 2 and "that forward takes as **inputs" in done.err
    done = tilewright("run", f"{nets}:by_name", "--dynamic", "shift:0")  # 8, as the layer has it
    assert done.code == 1 and "torch.export can't export Net" in done.err


def test_a_library_runs_at_a_size(tilewright: Tilewright, library: Path) -> None:
    for given in ("n=32", "x=32x16"):
        assert shapes(tilewright("run", library, "--shape", given, "--json")) == [[32, 8]]
    assert shapes(tilewright("run", library, "--shape", "n=1", "--json")) == [[1, 8]]
    done = tilewright("run", library, "--shape", "n=65")
    assert done.code == 1 and "n <= 64" in done.err


@pytest.mark.parametrize(
    "given, code, message",
    [
        ([], 1, "input x has a symbolic shape ['n', 16]: give it by --shape x=8x8"),
        (["--shape", "m=3"], 2, "there is no input or size 'm'"),
        (["--shape", "n=3x4"], 2, "there is no input or size 'n'"),
        (["--shape", "x=3"], 2, "the input has 2 axes"),
        (["--shape", "x=3x17"], 2, "the input's shape is ['n', 16], here [3, 16]"),
        (["--shape", "n=4", "--shape", "x=3x16"], 2, "here [4, 16]"),
        (["--dynamic", "x:0"], 2, "is compiled already"),
        (["--input", "y=missing.npy"], 2, "there is no file missing.npy"),
    ],
)
def test_wrong_sizes_of_a_library(
    tilewright: Tilewright, library: Path, given: list[str], code: int, message: str
) -> None:
    done = tilewright("run", library, *given)
    assert (done.code, done.out) == (code, "")
    assert message in done.err


def test_inputs_come_from_files(tilewright: Tilewright, library: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((7, 16), "float32"))
    given = ["--input", f"x={tmp_path / 'x.npy'}"]
    assert shapes(tilewright("run", library, "--shape", "n=2", *given, "--json")) == [[7, 8]]
    (tmp_path / "x.npy").write_bytes(b"no array")
    done = tilewright("run", library, "--shape", "n=2", *given)
    assert done.code == 1 and "holds no array" in done.err
    np.save(tmp_path / "x.npy", np.array([{"an": "object"}]))
    done = tilewright("run", library, "--shape", "n=2", *given)
    assert done.code == 1 and "holds no array" in done.err
    done = tilewright("run", library, "--shape", "n=2", "--input", f"y={tmp_path / 'x.npy'}")
    assert done.code == 2 and "there is no input 'y'" in done.err


@pytest.mark.parametrize(
    "given, message",
    [
        ("x", "is no axis of an input such as x:0"),
        ("x:0=", "is no axis"),
        ("x:0=n:", "is no axis"),
        ("x:-1", "is no axis"),
        ("x:0=4..2", "4 is more than 2"),
        ("x:0=3..3", "leaves one size"),
        ("x:0=n:0..0", "leaves one size"),
        pytest.param("x:" + "9" * 5000, "is no axis", id="a long axis"),
        pytest.param("x:0=1.." + "9" * 5000, "is no axis", id="a long bound"),
        ("y:0", "the model has no input 'y'"),
        ("x:2", "the input has 2 axes, numbered from 0"),
    ],
)
def test_wrong_axes(tilewright: Tilewright, nets: str, given: str, message: str) -> None:
    done = tilewright("run", f"{nets}:by_name", "--dynamic", given)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_two_ranges_of_a_size(tilewright: Tilewright, nets: str) -> None:
    given = ["--dynamic", "x:0=n:1..4", "--dynamic", "shift:0=n:1..8"]
    done = tilewright("run", f"{nets}:by_name", *given)
    assert done.code == 2 and "gives the size n two ranges" in done.err


def test_our_modules_have_dynamic_axes(tilewright: Tilewright, nets: str, tmp_path: Path) -> None:
    made = tmp_path / "ours.so"
    done = tilewright("compile", f"{nets}:ours", "--dynamic", "x:0", "-o", made)
    assert done.code == 0, done.err
    assert shapes(tilewright("run", made, "--shape", "x_0=6", "--json")) == [[6, 8]]
    done = tilewright("compile", f"{nets}:ours", "--dynamic", "x:5", "-o", made)
    assert done.code == 1 and "has no axes 5 of an example 'x'" in done.err


def test_fixed_axes_of_an_onnx_model(tilewright: Tilewright, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "xy"]
    node = helper.make_node("Add", ["x", "y"], ["z"])
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("z")])
    path = tmp_path / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    path.write_bytes(model.SerializeToString())
    given = ["--dynamic", "x:0=n", "--dynamic", "y:0=n:1..64", "--shape", "n=9"]
    assert shapes(tilewright("run", path, *given, "--json")) == [[9, 3]]
    done = tilewright("run", path, "--dynamic", "z:0")
    assert done.code == 2 and "the model has no input 'z'" in done.err


@pytest.mark.parametrize(
    ("command", "option", "message"),
    [("run", "--shape", "is no shape"), ("tune", "--size", "is no list of sizes")],
)
def test_sizes_of_thousands_of_digits(
    tilewright: Tilewright, nets: str, command: str, option: str, message: str
) -> None:
    done = tilewright(command, f"{nets}:by_name", option, "n=" + "9" * 5000)
    assert done.code == 2 and message in done.err and "Traceback" not in done.err


def test_sizes_that_no_memory_holds(tilewright: Tilewright, library: Path) -> None:
    done = tilewright("run", library, "--shape", "x=99999999999999x16")
    assert done.code == 1 and "error: out of memory" in done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_a_size_is_tuned_at_several_values(
    tilewright: Tilewright, nets: str, tmp_path: Path
) -> None:
    given = [f"{nets}:by_name", "--dynamic", "x:0=n:1..64", "--work-dir", tmp_path]
    done = tilewright("tune", *given, "--trials", "6", "--no-race", "--json")
    assert done.code == 0, done.err
    names = [item["task"] for item in done.json["tasks"]]
    assert [name.partition("@")[2] for name in names] == ["n=1", "n=8", "n=64"]
    more = ["--size", "n=2,4", "--trials", "4", "--no-race", "--json"]
    done = tilewright("tune", *given, *more)
    assert [item["task"].partition("@")[2] for item in done.json["tasks"]] == ["n=2", "n=4"]
    done = tilewright("run", *given, "--json")
    assert done.json["max_relative_error"] < 1e-5


def test_a_size_that_no_function_has(tilewright: Tilewright, nets: str, tmp_path: Path) -> None:
    given = [f"{nets}:by_name", "--dynamic", "x:0=n", "--work-dir", tmp_path / "new"]
    done = tilewright("tune", *given, "--size", "m=2", "--trials", "1")
    assert done.code == 1 and "no function has a size 'm'; known: n" in done.err
    assert not (tmp_path / "new").exists()


def test_sizes_between_bounds() -> None:
    assert values_between(1, 64) == [1, 8, 64]
    assert values_between(0, 1) == [1]
    assert values_between(5, 5) == [5]
    assert values_between(2, 3) == [2, 3]
    assert values_between(1, 4096) == [1, 16, 256, 4096]
    assert len(values_between(1, 10**9)) == 5
    assert symbols_within({"b": (1, 4), "n": (1, 512)})["b"] == 2
    assert symbols_within({}) == {}


def test_doctor_counts_what_pytorch_runs(tilewright: Tilewright, nets: str) -> None:
    done = tilewright("doctor", "--model", f"{nets}:falls_back", "--json")
    assert done.code == 0, done.err
    found = done.json["model"]
    assert (found["graphs"], found["not_compiled"], found["compiled"]) == (2, 1, 3)
    (item,) = found["operators"]
    assert item["operator"] == "aten.linalg_householder_product.default"
    assert item["count"] == 1 and "nets.py:26" in item["place"]
    assert len(found["breaks"]) == 1
    assert "can't export" in found["export"] or "householder_product" in found["export"]
    done = tilewright("doctor", "--model", f"{nets}:by_name")
    assert "0 run by PyTorch; 1 graph(s)" in done.out
    assert "tilewright.compile takes it whole: yes" in done.out


def test_doctor_names_what_onnx_lacks(tilewright: Tilewright, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Strange", ["y"], ["z"], domain="elsewhere"),
    ]
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("z")])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("elsewhere", 1)]
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    done = tilewright("doctor", "--model", path, "--json")
    assert done.code == 1
    found = done.json["model"]
    assert (found["compiled"], found["not_compiled"]) == (1, 1)
    assert found["operators"][0]["operator"] == "elsewhere.Strange"
    assert "no converter for elsewhere.Strange" in found["export"]
