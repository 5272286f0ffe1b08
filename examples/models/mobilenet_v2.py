"""MobileNetV2 in plain PyTorch, with random weights.

Sandler, Howard, Zhu, Zhmoginov, Chen: "MobileNetV2: Inverted Residuals and Linear Bottlenecks"
(CVPR 2018). ``build`` makes the model of the paper for 224 x 224 images and 1000 classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Expansion, channels, blocks and stride of the first block of each stage.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _conv(inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1) -> list:
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class InvertedResidual(nn.Module):
    """Points widen, a depthwise window filters, points narrow; a shortcut where shapes agree."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        layers = [*_conv(inputs, hidden), nn.ReLU6()] if expansion > 1 else []
        layers += [*_conv(hidden, hidden, 3, stride, hidden), nn.ReLU6(), *_conv(hidden, outputs)]
        self.layers = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.shortcut else self.layers(x)


def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Make the model and an example input."""
    torch.manual_seed(0)
    channels = 32
    layers = [*_conv(3, channels, 3, 2), nn.ReLU6()]
    for expansion, outputs, count, stride in STAGES:
        for number in range(count):
            step = stride if number == 0 else 1
            layers.append(InvertedResidual(channels, outputs, step, expansion))
            channels = outputs
    layers += [*_conv(channels, 1280), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(1280, 1000)).eval()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)  # keeps the scale of activations
    return model, (torch.randn(1, 3, 224, 224),)
