"""MODEL arguments: what is taken, and what is said of everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import Done, Tilewright, outside


@pytest.mark.parametrize(
    "model, message",
    [
        ("tiny.py", "name the function that makes the model, such as tiny.py:make_model"),
        ("net.onnx", "there is no file net.onnx"),
        ("weights.pth", "export the model: torch.export.save("),
        ("net.so", "`tilewright run` takes it"),
        ("tiny", "MODEL is an .onnx or .pt2 file, module:function or file.py:function, got 'tiny'"),
        (":make", "got ':make'"),
        ("tiny:", "got 'tiny:'"),
        ("missing.pt2", "there is no file missing.pt2"),
        ("missing.py:make", "there is no file missing.py"),
        ("missing_module:make", "there is no module 'missing_module'"),
        ("missing_package.module:make", "there is no module 'missing_package.module'"),
        ("{tiny}:nothing", "has no function 'nothing'"),
        ("{tiny}:not_callable", "has no function 'not_callable'"),
    ],
)
def test_what_names_no_model_is_wrong_usage(
    tilewright: Tilewright, folder: Path, model: str, message: str
) -> None:
    done = tilewright("tune", model.format(tiny=folder / "tiny.py"))
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "function, message",
    [
        ("raises", "tiny.py:raises raised ValueError: boom ("),
        ("no_tuple", "must return (model, example inputs), it returned int"),
        ("takes_arguments", "takes_arguments() missing 1 required positional argument: 'x'"),
        ("a_string", "a str can't be imported; known are torch.nn.Module"),
        ("no_data", "the parameters first.weight, first.bias, second.weight, second.bias have no"),
        ("too_many", "Net.forward takes 1 inputs (picture), 2 examples were given"),
        ("needs_package", "needs there_is_no_such_package, which isn't installed"),
        ("empty", "the module that empty returns has no functions"),
        ("wrong_shape", "matmul"),
    ],
)
def test_what_makes_no_model_fails_with_one_message(
    tilewright: Tilewright, folder: Path, function: str, message: str
) -> None:
    done = tilewright("tune", f"{folder / 'tiny.py'}:{function}")
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert done.err.count("error: ") == 1
    assert "Traceback" not in done.err


def test_an_error_in_the_users_code_names_its_line(tilewright: Tilewright, folder: Path) -> None:
    done = tilewright("tune", f"{folder / 'tiny.py'}:raises")
    line = (folder / "tiny.py").read_text().splitlines().index('    raise ValueError("boom")') + 1
    assert f"({folder / 'tiny.py'}, line {line})" in done.err


def test_a_file_does_not_hide_a_module_of_its_name(tilewright: Tilewright, tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text(
        "def make():\n    import random\n    return random.random()"
    )
    done = tilewright("tune", f"{tmp_path / 'random.py'}:make")
    assert "it returned float" in done.err


def test_a_model_may_import_what_lies_beside_it(tilewright: Tilewright, tmp_path: Path) -> None:
    (tmp_path / "beside_the_model.py").write_text("value = (1, 2, 3)")
    (tmp_path / "model.py").write_text("import beside_the_model as b\nmake = lambda: b.value")
    done = tilewright("tune", f"{tmp_path / 'model.py'}:make")
    assert "it returned tuple" in done.err


def test_a_missing_pytorch_names_the_extra(
    tilewright: Tilewright, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "model.py").write_text("def make():\n    import torch\n")
    (tmp_path / "model.pt2").write_text("")
    for model in (f"{tmp_path / 'model.py'}:make", str(tmp_path / "model.pt2")):
        done = tilewright("tune", model)
        assert done.code == 1
        assert "pip install 'tilewright[torch]'" in done.err


def test_a_broken_exported_program(tilewright: Tilewright, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "broken.pt2").write_text("this is no archive")
    done = tilewright("run", tmp_path / "broken.pt2")
    assert done.code == 1
    assert "can't be read as an exported program" in done.err
    assert "Traceback" not in done.err


TORCH = """
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.householder_product(x, x[0])


class Linear(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.inner = torch.nn.Linear(16, 8, dtype=dtype)

    def forward(self, x, scale):
        return {"y": torch.relu(self.inner(x)), "z": x + scale}


def unknown_operator():
    return Net(), torch.zeros(4, 4)


def linear(dtype=torch.float32):
    torch.manual_seed(0)
    return Linear(dtype), (torch.randn(2, 16, dtype=dtype), torch.ones(16, dtype=dtype))


def bfloat16():
    return linear(torch.bfloat16)


if __name__ == "__main__":
    model, inputs = linear()
    torch.export.save(torch.export.export(model, inputs), "linear.pt2")
"""


@pytest.fixture(scope="module")
def torch_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    made = tmp_path_factory.mktemp("torch_models")
    (made / "nets.py").write_text(TORCH)
    return made


def test_an_unknown_operator_is_named_with_its_place(
    tilewright: Tilewright, torch_folder: Path
) -> None:
    done = tilewright("compile", f"{torch_folder / 'nets.py'}:unknown_operator", "-o", "net.so")
    assert done.code == 1
    assert "aten.linalg_householder_product.default" in done.err
    assert "nets.py:7" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("function", ["linear", "bfloat16"])
def test_a_pytorch_model_is_compared_with_pytorch(
    tilewright: Tilewright, torch_folder: Path, function: str
) -> None:
    model = f"{torch_folder / 'nets.py'}:{function}"
    done = tilewright("run", model, "--json", "--repeat", "1")
    assert done.code == 0, done.err
    assert done.json["max_relative_error"] < 1e-2
    assert [o["shape"] for o in done.json["outputs"]] == [[2, 8], [2, 16]]


def test_a_result_that_differs_fails(tilewright: Tilewright, torch_folder: Path) -> None:
    model = f"{torch_folder / 'nets.py'}:bfloat16"
    done = tilewright("run", model, "--json", "--repeat", "1", "--tolerance", "0")
    assert done.code == 1
    assert "the result differs from the model's own by" in done.err


@pytest.mark.slow
def test_an_exported_program_runs(torch_folder: Path) -> None:
    import subprocess
    import sys

    subprocess.run([sys.executable, "nets.py"], cwd=torch_folder, check=True, timeout=120)
    done: Done = outside("run", "linear.pt2", "--json", "--repeat", "1", cwd=torch_folder)
    assert done.code == 0, done.err
    assert done.json["max_relative_error"] < 1e-5


def test_an_onnx_model_runs(tilewright: Tilewright, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [info],
        [helper.make_empty_tensor_value_info("y")],
    )
    path = tmp_path / "model.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    path.write_bytes(made.SerializeToString())
    done = tilewright("run", str(path), "--shape", "x=2x3", "--repeat", "1", "--json")
    assert done.code == 0, done.err
    assert '"shape": [' in done.out and "2" in done.out
    done = tilewright("run", str(path), "--repeat", "1")
    assert done.code == 1 and "give it by --shape" in done.err
    done = tilewright("tune", str(path), "--shape", "x=2by3")
    assert done.code == 2 and "no shape such as image=1x3x224x224" in done.err
    done = tilewright("tune", "tiny.py:make", "--shape", "x=2")
    assert done.code == 2 and "--shape is for ONNX models" in done.err
