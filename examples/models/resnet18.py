"""ResNet-18 in plain PyTorch, with random weights.

He, Zhang, Ren, Sun: "Deep Residual Learning for Image Recognition" (CVPR 2016). ``build`` makes the
model of the paper for 224 x 224 images and 1000 classes::

    tilewright tune examples/models/resnet18.py:build

``ResNet`` itself takes other widths and depths, which tests use.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut, which is projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    """A stem, four stages of basic blocks that halve the image, and a classifier."""

    def __init__(
        self,
        blocks: Sequence[int] = (2, 2, 2, 2),
        width: int = 64,
        num_classes: int = 1000,
        channels: int = 3,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        stages = []
        inputs = width
        for stage, count in enumerate(blocks):
            outputs = width << stage
            layers = [
                BasicBlock(inputs if i == 0 else outputs, outputs, 2 if i == 0 and stage else 1)
                for i in range(count)
            ]
            stages.append(nn.Sequential(*layers))
            inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(inputs, num_classes)
        self._initialise()

    def _initialise(self) -> None:
        """Weights that keep the scale of activations, statistics as if training had been here."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.0)
                nn.init.uniform_(module.bias, -0.1, 0.1)
                nn.init.uniform_(module.running_mean, -0.1, 0.1)
                nn.init.uniform_(module.running_var, 0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.stages(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


def build(seed: int = 0) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return ResNet-18 in evaluation mode and one random image."""
    torch.manual_seed(seed)
    model = ResNet().eval()
    return model, (torch.randn(1, 3, 224, 224),)
