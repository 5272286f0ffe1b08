"""An entry as a module of PyTorch with random weights, and inputs for it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.zoo import handmade
from benchmarks.zoo.families import Entry

#: Tokens in a text, and the numbers below which they are drawn.
TOKENS, WORDS = 64, 900


class Positional(nn.Module):
    """A model that takes tensors in order and gives the tensors of its result, in order."""

    def __init__(self, model: nn.Module, names: tuple[str, ...] | None = None) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        if self.names is None:
            result = self.model(*tensors)
        else:
            result = self.model(**dict(zip(self.names, tensors)))
        return tuple(_tensors(result))


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, dict):
        for value in result.values():
            yield from _tensors(value)
    elif isinstance(result, (tuple, list)):
        for value in result:
            yield from _tensors(value)
    elif hasattr(result, "__dict__"):  # diffusers' outputs that hold one tensor or distribution
        for value in vars(result).values():
            yield from _tensors(value)


def build(entry: Entry) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Make the model of an entry in evaluation mode, and its inputs: always the same ones."""
    torch.manual_seed(0)
    model = _LIBRARIES[entry.library](entry)
    model.eval().requires_grad_(False)
    _perturb(model)
    if entry.library == "handmade":
        return Positional(model), model.inputs()
    named = _INPUTS[entry.inputs](model)
    if entry.library == "timm":
        size = model.default_cfg.get("test_input_size") or model.default_cfg["input_size"]
        named = {"": torch.randn(1, *size)}
    names = tuple(named)
    return Positional(model, None if names[0] == "" else names), tuple(named.values())


def _perturb(model: nn.Module) -> None:
    """Draw what initialisation leaves at 0 or 1: scales, biases, statistics."""
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if value.ndim == 1 and value.is_floating_point():
            if name.endswith("running_var"):
                value.uniform_(0.5, 1.5)
            else:
                value.add_(torch.randn_like(value), alpha=0.1)


def torchvision() -> Any:
    """Import torchvision.

    PyPI's wheels are made for PyTorch with CUDA. Beside a CPU build their own operators don't load,
    and the package stops at each; no model here calls one, so their names are enough.
    """
    while True:
        try:
            import torchvision
        except RuntimeError as error:
            missing = re.search(r"operator (torchvision::\w+) does not exist", str(error))
            if missing is None:
                raise
            torch.library.define(missing[1], "(Tensor input) -> Tensor")
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]
        else:
            return torchvision


def _torchvision(entry: Entry) -> nn.Module:
    settings = dict(entry.settings)
    if entry.name in ("inception_v3", "googlenet"):
        settings |= {"init_weights": False, "aux_logits": True}
    if entry.library == "torchvision.segmentation":
        settings |= {"weights_backbone": None}
    model: nn.Module = torchvision().models.get_model(entry.name, weights=None, **settings)
    return model


def _timm(entry: Entry) -> nn.Module:
    torchvision()
    import timm

    model: nn.Module = timm.create_model(entry.name, pretrained=False, **entry.settings)
    return model


def _transformers(entry: Entry) -> nn.Module:
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(entry.name, **entry.settings)
    model: nn.Module = AutoModel.from_config(config)
    return model


def _diffusers(entry: Entry) -> nn.Module:
    import diffusers

    model: nn.Module = getattr(diffusers, entry.name)(**entry.settings)
    return model


def _handmade(entry: Entry) -> nn.Module:
    model: nn.Module = handmade.MODELS[entry.name]()
    return model


_LIBRARIES = {
    "torchvision": _torchvision,
    "torchvision.segmentation": _torchvision,
    "torchvision.video": _torchvision,
    "torchvision.optical_flow": _torchvision,
    "timm": _timm,
    "transformers": _transformers,
    "diffusers": _diffusers,
    "handmade": _handmade,
}


def _ids(tokens: int = TOKENS) -> Tensor:
    return torch.randint(3, WORDS, (1, tokens))


def _image(model: nn.Module) -> dict[str, Tensor]:
    config = getattr(model, "config", None)
    if config is None:
        side = 299 if type(model).__name__ == "Inception3" else 224
        return {"": torch.randn(1, 3, side, side)}
    size = getattr(config, "image_size", 224)
    side = size[0] if isinstance(size, (list, tuple)) else size
    return {"pixel_values": torch.randn(1, getattr(config, "num_channels", 3), side, side)}


def _packed_latent(model: nn.Module) -> dict[str, Tensor]:
    side, words = 16, 32
    places = torch.zeros(side * side, 3)
    places[:, 1] = torch.arange(side).repeat_interleave(side)
    places[:, 2] = torch.arange(side).repeat(side)
    return {
        "hidden_states": torch.randn(1, side * side, 16),
        "encoder_hidden_states": torch.randn(1, words, 128),
        "pooled_projections": torch.randn(1, 64),
        "timestep": torch.tensor([0.5]),
        "img_ids": places,
        "txt_ids": torch.zeros(words, 3),
    }


_INPUTS = {
    "text": lambda model: {"input_ids": _ids()},
    "text pair": lambda model: {"input_ids": _ids(), "decoder_input_ids": _ids(32)},
    "image": _image,
    "image pair": lambda model: {"": torch.randn(1, 3, 128, 128), "b": torch.randn(1, 3, 128, 128)},
    "clip": lambda model: {"": torch.randn(1, 3, 16, 224, 224)},
    "image and text": lambda model: {
        "input_ids": _ids(16),
        "pixel_values": torch.randn(1, 3, 224, 224),
    },
    "waveform": lambda model: {"input_values": torch.randn(1, 16000)},
    "spectrogram": lambda model: {"input_values": torch.randn(1, 1024, 128)},
    "mel and text": lambda model: {
        "input_features": torch.randn(1, 80, 300),
        "decoder_input_ids": _ids(16),
    },
    "series": lambda model: {"past_values": torch.randn(1, 96, 7)},
    "small image": lambda model: {"": torch.randn(1, 3, 64, 64)},
    "latent and step": lambda model: {
        "sample": torch.randn(1, 4, 32, 32),
        "timestep": torch.tensor([10]),
    },
    "latent, step and text states": lambda model: {
        "sample": torch.randn(1, 4, 32, 32),
        "timestep": torch.tensor([10]),
        "encoder_hidden_states": torch.randn(1, 77, 128),
    },
    "latent, step and class": lambda model: {
        "hidden_states": torch.randn(1, 4, 32, 32),
        "timestep": torch.tensor([10]),
        "class_labels": torch.tensor([3]),
    },
    "packed latent": _packed_latent,
    "latent, text and pooled": lambda model: {
        "hidden_states": torch.randn(1, 4, 32, 32),
        "encoder_hidden_states": torch.randn(1, 77, 128),
        "pooled_projections": torch.randn(1, 64),
        "timestep": torch.tensor([10]),
    },
}
