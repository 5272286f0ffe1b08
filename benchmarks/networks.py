"""Whole models for ``benchmarks.models``, and how each subject makes them ready.

A subject gets the weights as constants, as its users would give them: ours through
``tilewright.compile`` and with PyTorch's tensors, inductor as a frozen module, ONNX Runtime and
OpenVINO as the ONNX model that PyTorch exports.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import (
    Call,
    difference,
    inductor,
    load_onnxruntime,
    load_openvino,
    torch_module,
)

#: A module of PyTorch in evaluation mode, and its inputs.
Model = tuple[Any, tuple[Any, ...]]

#: The exponent of -1 is where results begin to differ: deep networks amplify rounding.
LIMIT = 1e-3


def _example(name: str) -> Callable[[int], Model]:
    """A model of ``examples/models``, whose inputs are images or sequences."""

    def build(batch: int) -> Model:
        import torch

        path = Path(__file__).parents[1] / "examples" / "models" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model, inputs = module.build()
        return model, tuple(torch.randn(batch, *item.shape[1:]) for item in inputs)

    return build


def _torchvision(name: str) -> Callable[[int], Model]:
    def build(batch: int) -> Model:
        import torch

        from benchmarks.zoo.build import torchvision

        model = torchvision().models.get_model(name, weights=None).eval()
        for module in model.modules():
            if isinstance(module, torch.nn.Conv2d):
                torch.nn.init.kaiming_normal_(module.weight)  # keeps the scale of activations
            elif isinstance(module, torch.nn.Linear):
                module.reset_parameters()  # some heads begin as zeros
        return model, (torch.randn(batch, 3, 224, 224),)

    return build


def _mlp(batch: int) -> Model:
    import torch
    from torch import nn

    layers = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    return layers.eval(), (torch.randn(batch, 784),)


def _bert(batch: int, tokens: int = 128) -> Model:
    import torch

    from benchmarks.zoo.build import Positional, torchvision

    torchvision()  # which transformers imports
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig()).eval()
    ids = torch.randint(0, model.config.vocab_size, (batch, tokens))
    return Positional(model, ("input_ids",)), (ids,)


def _gpt_decode(batch: int, past: int = 256) -> Model:
    """One step of a decoder as GPT-2 small, without embedding and head.

    It takes the token's vector and each layer's keys and values of the past, and gives the token's
    next vector and its own keys and values.
    """
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn

    width, heads, layers = 768, 12, 12

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.mlp_norm = nn.LayerNorm(width)
            self.up = nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            shape = (x.shape[0], 1, heads, width // heads)
            q, k, v = (
                item.view(shape).transpose(1, 2)
                for item in self.qkv(self.norm(x)).split(width, dim=-1)
            )
            mixed = F.scaled_dot_product_attention(
                q, torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
            )
            x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
            x = x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))
            return x, k, v

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width)

        def forward(self, x: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
            made = []
            for number, block in enumerate(self.blocks):
                x, k, v = block(x, cache[2 * number], cache[2 * number + 1])
                made += [k, v]
            return (self.norm(x), *made)

    cache = [torch.randn(batch, heads, past, width // heads) for _ in range(2 * layers)]
    return Decoder().eval(), (torch.randn(batch, 1, width), *cache)


MODELS: dict[str, Callable[[int], Model]] = {
    "mlp": _mlp,
    "resnet18": _example("resnet18"),
    "resnet50": _example("resnet50"),
    "mobilenet_v2": _example("mobilenet_v2"),
    "efficientnet_b0": _torchvision("efficientnet_b0"),
    "densenet121": _torchvision("densenet121"),
    "vit_b_16": _torchvision("vit_b_16"),
    "bert_base": _bert,
    "gpt_decode": _gpt_decode,
    "bert_layer": _example("bert_layer"),
}

#: What models are compared with, beside PyTorch itself.
MODEL_PEERS = ("torch", "inductor", "onnxruntime", "openvino")


def load_model(name: str, batch: int) -> Model:
    """Build a model with random weights, always the same ones, and its inputs."""
    import torch

    torch.manual_seed(0)
    model, inputs = MODELS[name](batch)
    model.requires_grad_(False)
    return model, inputs


def imported_model(name: str, batch: int = 1) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return a model as a graph, as PyTorch has it, and its inputs."""
    import torch

    from tilewright.relax.frontend.torch import from_exported_program

    model, inputs = load_model(name, batch)
    with torch.no_grad():
        mod = from_exported_program(torch.export.export(model, inputs))
    return mod, model, inputs


def export_onnx(name: str, batch: int, path: Path) -> None:
    """Write a model as ONNX, with inputs x0, x1 …"""
    import torch

    model, inputs = load_model(name, batch)
    names = [f"x{n}" for n in range(len(inputs))]
    program = torch.onnx.export(model, inputs, input_names=names, dynamo=True, verbose=False)
    assert program is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    program.save(path)


def prepare(
    way: str, name: str, batch: int, threads: int, work_dir: str, onnx: str
) -> tuple[Call, dict[str, Any]]:
    """Make a model ready for a subject; return what calls it, and what that showed."""
    torch = torch_module(threads)
    model, inputs = load_model(name, batch)
    arrays = [np.ascontiguousarray(tensor.numpy()) for tensor in inputs]
    expected = _numbers(model(*inputs))
    begun = time.perf_counter()
    if way == "torch":
        return (lambda: model(*inputs)), {}
    if way == "inductor":
        inductor(threads, freezing=True)
        made = torch.compile(model, dynamic=False, fullgraph=True)
        call, results = (lambda: made(*inputs)), (lambda: _numbers(made(*inputs)))
    elif way in ("onnxruntime", "openvino"):
        if not Path(onnx).exists():
            export_onnx(name, batch, Path(onnx))
        load = load_onnxruntime if way == "onnxruntime" else load_openvino
        loaded = load(onnx, arrays, threads)
        call, results = loaded.call, loaded.results
    else:
        ours = _ours(way, model, inputs, threads, work_dir)
        call, results = (lambda: ours(*inputs)), (lambda: _numbers(ours(*inputs)))
    found, seconds = results(), time.perf_counter() - begun
    return call, {
        "difference": max(map(difference, found, expected)),
        "compile_seconds": seconds,
        "limit": LIMIT,
    }


def _ours(
    way: str, model: Any, inputs: tuple[Any, ...], threads: int, work_dir: str
) -> Callable[..., Any]:
    import torch

    import tilewright
    from tilewright import relax
    from tilewright.ir import PassContext
    from tilewright.relax.frontend.torch import from_exported_program
    from tilewright.runtime import set_num_threads

    set_num_threads(threads)
    target = tilewright.Target("native").with_options(num_cores=threads)
    if way == "none":
        mod = from_exported_program(torch.export.export(model, inputs))
        return relax.build(mod, target, tir_pipeline=None)
    with PassContext(config={"relax.conv_layout": "NCHW" if way == "plain" else "auto"}):
        made: Callable[..., Any] = tilewright.compile(
            model,
            target,
            example_inputs=inputs,
            database=work_dir if way == "tuned" else None,
        )
    return made


def _numbers(result: Any) -> Sequence[Any]:
    items = result if isinstance(result, (tuple, list)) else [result]
    return [item.numpy() for item in items]
