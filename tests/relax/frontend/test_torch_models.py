"""The example models: their structure after import and legalisation, and small ones in numbers."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tilewright import relax
from tilewright.relax.interpreter import run

torch = pytest.importorskip("torch")

from tilewright.relax.frontend.torch import from_exported_program  # noqa: E402

FOLDING = (
    relax.transform.DecomposeOpsForInference(),
    relax.transform.FoldConstant(),
    relax.transform.FoldConvScale(),
)
MODELS = Path(__file__).parents[3] / "examples" / "models"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, MODELS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(mod: Any) -> Counter[str]:
    calls = [binding.value for binding in mod["main"].bindings]
    return Counter(call.op_name for call in calls if isinstance(call, relax.Call))


def check_numbers(model: Any, x: Any, *passes: Any) -> None:
    mod = from_exported_program(torch.export.export(model, (x,)))
    for step in passes:
        mod = step(mod)
    (found,) = run(mod, x.numpy())
    with torch.no_grad():
        expected = model(x).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_resnet18_imports_whole() -> None:
    model, inputs = example("resnet18").build()
    mod = from_exported_program(torch.export.export(model, inputs))
    relax.verify_graph(mod)
    operators = called(mod)
    assert operators["nn.conv2d"] == operators["nn.batch_norm"] == 20
    assert operators["nn.relu"] == 17 and operators["add"] == 9
    assert [int(extent) for extent in map(str, mod["main"].ret_struct_info.fields[0].shape)] == [
        1,
        1000,
    ]
    legal = relax.transform.LegalizeOps()(mod)
    assert set(called(legal)) == {"call_tir"}


def test_resnet18_batch_norms_fold_into_weights() -> None:
    model, inputs = example("resnet18").build()
    mod = from_exported_program(torch.export.export(model, inputs))
    for step in (*FOLDING, relax.transform.DeadCodeElimination()):
        mod = step(mod)
    operators = called(mod)
    assert operators["multiply"] == 0 and operators["nn.batch_norm"] == 0
    assert operators["nn.conv2d"] == 20


@pytest.mark.parametrize("folded", [False, True])
def test_small_resnet_agrees(folded: bool) -> None:
    torch.manual_seed(1)
    model = example("resnet18").ResNet((1, 1), width=4, num_classes=5).eval()
    check_numbers(model, torch.randn(1, 3, 16, 16), *(FOLDING if folded else []))


def check_compiled(model: Any, *inputs: Any) -> None:
    mod = from_exported_program(torch.export.export(model, inputs))
    machine = relax.VirtualMachine(relax.build(mod, "llvm -num-cores=1"))
    (found,) = machine["main"](*(value.numpy() for value in inputs))
    with torch.no_grad():
        expected = model(*inputs).numpy()
    error = np.abs(np.asarray(found) - expected).max() / np.abs(expected).max()
    assert error < 1e-4


def test_small_models_compiled() -> None:
    torch.manual_seed(1)
    check_compiled(
        example("resnet18").ResNet((1, 1), width=4, num_classes=5).eval(),
        torch.randn(1, 3, 16, 16),
    )
    check_compiled(example("bert_layer").EncoderLayer(16, 2, 32).eval(), torch.randn(2, 5, 16))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "bert_layer"])
def test_whole_models_compiled(name: str) -> None:
    model, inputs = example(name).build()
    check_compiled(model, *inputs)


def test_convolution_with_bias_takes_the_batch_norm() -> None:
    torch.manual_seed(3)
    norm = torch.nn.BatchNorm2d(4)
    for value in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
        torch.nn.init.uniform_(value, 0.5, 1.5)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), norm, torch.nn.ReLU()).eval()
    x = torch.randn(1, 3, 6, 6)
    check_numbers(model, x, *FOLDING)
    mod = from_exported_program(torch.export.export(model, (x,)))
    for step in (*FOLDING, relax.transform.DeadCodeElimination()):
        mod = step(mod)
    assert called(mod) == {"nn.conv2d": 1, "add": 1, "nn.relu": 1}


def test_bert_layer_imports_whole() -> None:
    model, inputs = example("bert_layer").build()
    mod = from_exported_program(torch.export.export(model, inputs))
    relax.verify_graph(mod)
    operators = called(mod)
    assert operators["matmul"] == 6 and operators["nn.layer_norm"] == 2
    assert operators["nn.scaled_dot_product_attention"] == 1
    assert operators["nn.gelu"] == 1
    legal = relax.transform.LegalizeOps()(mod)
    assert set(called(legal)) == {"call_tir"}


def test_small_bert_layer_agrees() -> None:
    torch.manual_seed(2)
    model = example("bert_layer").EncoderLayer(16, 2, 32).eval()
    check_numbers(model, torch.randn(2, 5, 16))


class DecoderLayer(torch.nn.Module):
    """What language models are made of: rotary positions, RMS norm, gated unit, tied weights."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.embed = nn.Embedding(11, 8)
        self.project = nn.Linear(8, 8, bias=False)
        self.norm = nn.RMSNorm(8)
        self.gate, self.up, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("rates", 10000.0 ** -torch.tensor([0.0, 0.5]), persistent=False)

    def rotate(self, x: Any, angles: Any) -> Any:
        first, second = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        batch, tokens, width = x.shape
        rates = torch.outer(torch.arange(tokens).float(), self.rates)
        angles = torch.cat([rates, rates], -1)
        q = self.project(self.norm(x)).view(batch, tokens, 2, 4).transpose(1, 2)
        q = self.rotate(q, angles)
        later = torch.full((tokens, tokens), float("-inf")).triu(1)
        weights = torch.softmax(q @ q.transpose(-2, -1) / 2 + later, -1, dtype=torch.float32)
        x = x + (weights.to(q.dtype) @ q).transpose(1, 2).contiguous().view(batch, tokens, width)
        x = x + self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))
        return self.head(x)[:, -1].log_softmax(-1)


def test_decoder_layer_agrees() -> None:
    torch.manual_seed(4)
    check_numbers(DecoderLayer().eval(), torch.randint(0, 11, (2, 5)))


class First(torch.nn.Module):
    """The first result of a layer that is given its input ``times`` times."""

    def __init__(self, layer: Any, times: int = 1) -> None:
        super().__init__()
        self.layer, self.times = layer, times

    def forward(self, x: Any) -> Any:
        return self.layer(*[x] * self.times)[0]


@pytest.mark.parametrize("name", ["encoder", "attention", "recurrent", "image", "weight norm"])
def test_layers_of_pytorch_agree(name: str) -> None:
    torch.manual_seed(5)
    nn = torch.nn
    layers: dict[str, tuple[Any, tuple[int, ...]]] = {
        "encoder": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 4, 8)),
        "attention": (First(nn.MultiheadAttention(8, 2, batch_first=True), 3), (2, 4, 8)),
        "recurrent": (First(nn.GRU(4, 3, batch_first=True)), (2, 3, 4)),
        "image": (
            nn.Sequential(
                nn.Conv2d(3, 4, 3, padding=1),
                nn.GroupNorm(2, 4),
                nn.Upsample(scale_factor=2, mode="bilinear"),
                nn.PixelShuffle(2),
                nn.InstanceNorm2d(1, affine=True),
                nn.Hardswish(),
            ),
            (1, 3, 5, 5),
        ),
        "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), (2, 4)),
    }
    model, shape = layers[name]
    check_numbers(model.eval(), torch.randn(*shape))
