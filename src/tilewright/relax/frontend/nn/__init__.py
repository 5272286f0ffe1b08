"""Writing models as modules: ``nn.Module``, layers, ``nn.op``, ``Module.export_tvm``.

class MLP(nn.Module):
    def __init__(self):
        self.fc1 = nn.Linear(784, 256)
        self.fc2 = nn.Linear(256, 10)

    def forward(self, x):
        return self.fc2(nn.op.relu(self.fc1(x)))

mod, params = MLP().export_tvm({"forward": {"x": nn.spec.Tensor((1, 784), "float32")}})

The operators of ``nn.op`` that TVM has too are also here: ``nn.relu``.
"""

from __future__ import annotations

from typing import Any

from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.frontend.nn import op, spec
from tilewright.relax.frontend.nn.core import (
    Module,
    ModuleDict,
    ModuleList,
    ParameterDict,
    ParameterList,
)
from tilewright.relax.frontend.nn.effects import Effect, IOEffect, KVCache
from tilewright.relax.frontend.nn.exporter import add_extern
from tilewright.relax.frontend.nn.extern import ExternModule, ObjectModule, SourceModule
from tilewright.relax.frontend.nn.modules import (
    GELU,
    BatchNorm2D,
    Conv1D,
    Conv2D,
    Conv3D,
    ConvTranspose1D,
    Dropout,
    Embedding,
    GroupNorm,
    LayerNorm,
    Linear,
    ReLU,
    RMSNorm,
    Sequential,
    SiLU,
)
from tilewright.relax.frontend.nn.subroutine import SubroutineMixin
from tilewright.relax.frontend.nn.tensor import (
    Object,
    Parameter,
    Tensor,
    get_default_dtype,
    set_default_dtype,
    wrap_nested,
)
from tilewright.relax.frontend.nn.visitor import Mutator

globals().update(op.WRITTEN)
IntExpr = op.IntExpr


def __getattr__(name: str) -> Any:
    """Say what there is: operators have been put here already."""
    raise AttributeError(f"nn has no {name!r}; operators of relax.op are in nn.op")


__all__ = [
    "BatchNorm2D", "BlockBuilder", "Conv1D", "Conv2D", "Conv3D", "ConvTranspose1D", "Dropout",
    "Effect", "Embedding", "ExternModule", "GELU", "GroupNorm", "IntExpr", "IOEffect", "KVCache",
    "LayerNorm", "Linear", "Module", "ModuleDict", "ModuleList", "Mutator", "Object",
    "ObjectModule", "Parameter", "ParameterDict", "ParameterList", "RMSNorm", "ReLU",
    "Sequential", "SiLU", "SourceModule", "SubroutineMixin", "Tensor", "add_extern",
    "get_default_dtype", "op", "set_default_dtype", "spec", "wrap_nested", *op.WRITTEN,
]  # fmt: skip
