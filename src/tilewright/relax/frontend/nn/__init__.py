"""Writing models as modules: ``nn.Module``, layers, ``nn.op``, ``Module.export``.

class MLP(nn.Module):
    def __init__(self):
        self.fc1 = nn.Linear(784, 256)
        self.fc2 = nn.Linear(256, 10)

    def forward(self, x):
        return self.fc2(nn.op.relu(self.fc1(x)))

mod, params = MLP().export({"forward": {"x": nn.spec.Tensor((1, 784), "float32")}})
"""

from __future__ import annotations

from tilewright.relax.frontend.nn import op, spec
from tilewright.relax.frontend.nn.core import Module, ModuleList, Parameter, Tensor
from tilewright.relax.frontend.nn.modules import (
    GELU,
    BatchNorm2D,
    Conv1D,
    Conv2D,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    ReLU,
    RMSNorm,
    Sequential,
    SiLU,
)

__all__ = [
    "BatchNorm2D",
    "Conv1D",
    "Conv2D",
    "Dropout",
    "Embedding",
    "GELU",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleList",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Tensor",
    "op",
    "spec",
]
