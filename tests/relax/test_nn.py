"""Modules, export, execution end to end."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import random, values
from tilewright import relax, runtime
from tilewright.relax.frontend import nn
from tilewright.runtime.beside import beside_checksum
from tilewright.runtime.ffi import tvm_ffi
from tilewright.runtime.seal import seal
from tilewright.support.errors import BuildError, RunError, VerifyError


class MLP(nn.Module):
    def __init__(self) -> None:
        self.fc1 = nn.Linear(20, 16, bias=False)
        self.act = nn.ReLU()
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x: nn.Tensor) -> Any:
        return self.fc2(self.act(self.fc1(x)))


def weights(params: Any) -> list[np.ndarray]:
    return [random(*p.shape, seed=i) * 0.3 for i, (_, p) in enumerate(params)]


def reference(x: np.ndarray, w1: np.ndarray, w2: np.ndarray, b2: np.ndarray) -> np.ndarray:
    return np.maximum(x @ w1.T, 0) @ w2.T + b2


def test_mlp_with_symbolic_batch(tmp_path: Path) -> None:
    mod, params = MLP().export({"forward": {"x": nn.spec.Tensor(("batch", 20), "float32")}})
    assert [name for name, _ in params] == ["fc1.weight", "fc2.weight", "fc2.bias"]
    assert mod["forward"].attrs["num_input"] == 1
    made = relax.get_pipeline("zero")(mod)
    assert values(made, "forward") == ["fused_matmul_relu", "fused_matmul_add"]
    arrays = weights(params)
    vm = relax.VirtualMachine(relax.build(mod))
    for batch in (1, 3, 17):
        x = random(batch, 20)
        np.testing.assert_allclose(
            vm["forward"](x, *arrays), reference(x, *arrays), rtol=1e-5, atol=1e-5
        )


def test_bound_parameters_and_library(tmp_path: Path) -> None:
    mod, params = MLP().export({"forward": {"x": nn.spec.Tensor((4, 20), "float32")}})
    arrays = weights(params)
    bound = relax.transform.BindParams(
        "forward", {name: array for (name, _), array in zip(params, arrays)}
    )(mod)
    executable = relax.build(bound)
    x = random(4, 20)
    expected = reference(x, *arrays)
    np.testing.assert_allclose(executable(x), expected, rtol=1e-5, atol=1e-5)
    path = executable.export_library(tmp_path / "mlp.so")
    loaded = relax.load_executable(path)
    np.testing.assert_allclose(loaded(x), expected, rtol=1e-5, atol=1e-5)
    torch = pytest.importorskip("torch")
    result = torch.from_dlpack(loaded(torch.from_numpy(x)))
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_executables_can_be_sent_to_another_process() -> None:
    mod, params = MLP().export({"forward": {"x": nn.spec.Tensor((2, 20))}})
    executable = relax.build(mod)
    arrays, x = weights(params), random(2, 20)
    first = executable(x, *arrays)
    again = pickle.loads(pickle.dumps(executable))
    np.testing.assert_array_equal(again(x, *arrays), first)


def test_time_evaluator() -> None:
    mod, params = MLP().export({"forward": {"x": nn.spec.Tensor((2, 20))}})
    vm = relax.VirtualMachine(relax.build(mod))
    result = vm.time_evaluator("forward", number=2, repeat=3)(random(2, 20), *weights(params))
    assert result.median > 0


def test_wrong_inputs_name_the_argument() -> None:
    mod, params = MLP().export({"forward": {"x": nn.spec.Tensor(("n", 20), "float32")}})
    run = relax.build(mod)
    arrays = weights(params)
    with pytest.raises(RunError, match=r"takes 4 arguments \(x, fc1.weight"):
        run(random(1, 20))
    with pytest.raises(ValueError, match="'x'"):
        run(random(1, 21), *arrays)
    with pytest.raises((ValueError, TypeError), match="'x'"):
        run(random(1, 20).astype("float64"), *arrays)


def test_missing_signature_file(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no signatures beside"):
        relax.load_executable(tmp_path / "no.so")
    (tmp_path / "bad.so.json").write_text("{")
    with pytest.raises(BuildError, match="damaged"):
        relax.load_executable(tmp_path / "bad.so")


def test_signatures_that_are_damaged_or_of_another_library(tmp_path: Path) -> None:
    paths = []
    for size in (2, 3):
        mod, _ = MLP().export({"forward": {"x": nn.spec.Tensor((size, 20))}})
        paths.append(relax.build(mod).export_library(tmp_path / f"{size}.so"))
    own, other = (Path(f"{path}.json") for path in paths)
    text = own.read_text()
    assert '"fc1.weight"' in text
    for wrong in (text.replace('"fc1.weight"', '"fc1.weighs"'), other.read_text()):
        own.write_text(wrong)
        with pytest.raises(BuildError, match=r"damaged or belongs to another library than 2\.so"):
            relax.load_executable(paths[0])


CONSTRUCTOR = """
#include <stdio.h>
__attribute__((constructor)) static void at_load(void) {{ fclose(fopen("{mark}", "w")); }}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("belongs", [False, True])
def test_nothing_of_another_library_runs(tmp_path: Path, belongs: bool) -> None:
    mod, _ = MLP().export({"forward": {"x": nn.spec.Tensor((2, 20))}})
    path, mark, source = tmp_path / "model.so", tmp_path / "ran", tmp_path / "a.c"
    relax.build(mod).export_library(path)
    source.write_text(CONSTRUCTOR.format(mark=mark))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source], check=True)
    path.write_bytes(path.read_bytes() + seal(path.read_bytes()))
    beside = Path(f"{path}.json")
    if belongs:
        data = json.loads(beside.read_text())
        data["checksum"] = beside_checksum(data, runtime.stored_checksum(path))
        beside.write_text(json.dumps(data))
        relax.load_executable(path)
    else:
        with pytest.raises(BuildError, match="belongs to another library"):
            relax.load_executable(path)
    assert mark.exists() == belongs


@pytest.mark.parametrize(
    "functions", [[[]], [None], {"a": 1}, [{"name": "f"}], 3, [{"inputs": {"a": 1}}]]
)
def test_nothing_of_a_library_with_damaged_signatures_runs(
    tmp_path: Path, functions: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    mod, _ = MLP().export({"forward": {"x": nn.spec.Tensor((2, 20))}})
    path = relax.build(mod).export_library(tmp_path / "model.so")
    beside = Path(f"{path}.json")
    data = {**json.loads(beside.read_text()), "functions": functions}
    data["checksum"] = beside_checksum(data, runtime.stored_checksum(path))
    beside.write_text(json.dumps(data))
    monkeypatch.setattr(tvm_ffi, "load_module", None)
    with pytest.raises(BuildError, match="is damaged"):
        relax.load_executable(path)


class Net(nn.Module):
    """A little of everything."""

    def __init__(self) -> None:
        self.embed = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.LayerNorm(8)

    def forward(self, ids: nn.Tensor) -> Any:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.norm(x), nn.op.argmax(x, -1)


class Block(nn.Module):
    def __init__(self) -> None:
        self.norm = nn.RMSNorm(8, -1, bias=False)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.qkv = nn.Linear(8, 24, bias=False)

    def forward(self, x: nn.Tensor) -> Any:
        batch, length, width = x.shape
        q, k, v = nn.op.split(self.qkv(self.norm(x)), 3, -1)
        heads = [part.reshape(batch, length, 2, width // 2) for part in (q, k, v)]
        x = x + nn.op.attention(*heads).reshape(batch, length, width)
        return x + self.down(nn.GELU()(self.up(x)) * 0.5)


def test_transformer_like_module() -> None:
    mod, params = Net().export({"forward": {"ids": nn.spec.Tensor(("b", 5), "int64")}})
    relax.verify_graph(mod)
    assert ("blocks.1.down.weight") in dict(params)
    arrays = weights(params)
    ids = np.random.default_rng(0).integers(0, 11, (2, 5))
    expected = relax.interpreter.run(mod, ids, *arrays, name="forward")
    for result, want in zip(relax.build(mod)(ids, *arrays), expected):
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)


class ConvNet(nn.Module):
    def __init__(self) -> None:
        self.conv = nn.Conv2D(3, 4, 3, padding=1)
        self.bn = nn.BatchNorm2D(4)
        self.act = nn.SiLU()

    def forward(self, x: nn.Tensor) -> Any:
        return nn.op.adaptive_avg_pool2d(self.act(self.bn(self.conv(x))), 1)


def test_convnet() -> None:
    net = ConvNet()
    mod, params = net.export({"forward": {"x": nn.spec.Tensor((1, 3, 6, 6))}})
    arrays = [np.abs(a) + 0.1 for a in weights(params)]
    x = random(1, 3, 6, 6)
    expected = relax.interpreter.run(mod, x, *arrays, name="forward")
    bound = relax.transform.BindParams(
        "forward", {name: array for (name, _), array in zip(params, arrays)}
    )(mod)
    np.testing.assert_allclose(relax.build(bound)(x), expected, rtol=1e-4, atol=1e-5)


def test_parameters_hold_data() -> None:
    layer = nn.Linear(3, 2)
    layer.load_state_dict({"weight": np.ones((2, 3), "float32"), "bias": np.zeros(2, "float32")})
    assert list(layer.state_dict()) == ["weight", "bias"]
    with pytest.raises(VerifyError, match=r"shape \[2, 3\], got data of shape \[3, 2\]"):
        layer.weight.data = np.ones((3, 2), "float32")
    with pytest.raises(VerifyError, match="missing"):
        layer.load_state_dict({})


def test_operators_outside_of_an_export() -> None:
    with pytest.raises(VerifyError, match="only while a module is exported"):
        nn.ReLU()(nn.Tensor(relax.Var("x", relax.TensorStructInfo((1,)))))
    with pytest.raises(AttributeError, match="no operator 'nonsense'"):
        _ = nn.op.nonsense
