"""ResNet-50 in plain PyTorch, with random weights.

He, Zhang, Ren, Sun: "Deep Residual Learning for Image Recognition" (CVPR 2016). ``build`` makes the
model for 224 x 224 images and 1000 classes, with the stride in the 3 x 3 convolutions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Blocks and inner channels of each stage.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> list:
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    """Points narrow, a window filters, points widen, beside a shortcut."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * inner
        self.layers = nn.Sequential(
            *_conv(inputs, inner, 1),
            nn.ReLU(),
            *_conv(inner, inner, 3, stride),
            nn.ReLU(),
            *_conv(inner, outputs, 1),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv(inputs, outputs, 1, stride))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.layers(x) + self.shortcut(x))


def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Make the model and an example input."""
    torch.manual_seed(0)
    channels = 64
    layers = [*_conv(3, channels, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for stage, (count, inner) in enumerate(STAGES):
        for number in range(count):
            layers.append(Bottleneck(channels, inner, 2 if stage and number == 0 else 1))
            channels = 4 * inner
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)  # keeps the scale of activations
    return model.eval(), (torch.randn(1, 3, 224, 224),)
