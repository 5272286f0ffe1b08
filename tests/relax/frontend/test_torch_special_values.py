"""Activations of infinities, NaN, zeros, denormals and huge numbers are PyTorch's."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

import tilewright
from tilewright.target import Target
from tilewright.target.host import cpu_features

torch = pytest.importorskip("torch")
pytest.importorskip("llvmlite")

F = torch.nn.functional
INF, NAN = float("inf"), float("nan")

ACTIVATIONS: dict[str, Callable] = {
    **{
        name: getattr(F, name)
        for name in (
            "silu gelu mish hardswish hardsigmoid hardtanh relu relu6 elu selu celu softplus "
            "softsign tanhshrink softshrink hardshrink leaky_relu logsigmoid"
        ).split()
    },
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "glu": lambda x: F.glu(torch.cat([x, x])),
    "written out": lambda x: x * torch.sigmoid(x),
}

OVERFLOWS = ("hardswish", "gelu")
"""Where PyTorch's formula overflows for huge numbers, and gives NaN of infinity in some lanes."""

UNITS = {torch.float32: 32, torch.float64: 2**20, torch.float16: 2, torch.bfloat16: 2}
"""How many units of the greater of operand and result are allowed: PyTorch's own errors."""


def special(dtype: torch.dtype) -> torch.Tensor:
    """More than fill the registers, with a rest: vectors and scalars see each number."""
    info = torch.finfo(dtype)
    ends = [info.tiny, info.tiny / 4, info.tiny * info.eps, info.eps, info.max, info.max / 2]
    middle = [0.5, 1.0, 3.0, 6.0, 7.0, 20.0, 88.7, 100.0, 104.0, 1e4]
    whole = [NAN, *(s * v for v in (INF, 0.0, *ends, *middle) for s in (1, -1))]
    return torch.tensor(whole * 5, dtype=dtype)


class Every(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [function(x) for function in ACTIVATIONS.values()]


def targets() -> list[str]:
    found = ["native", "llvm -mcpu=x86-64-v2"]
    return [*found, "llvm -mcpu=x86-64-v3"] if "avx2" in cpu_features()[0] else found


def wrong(name: str, x: torch.Tensor, want: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    a, b, dtype = want.double(), got.double(), want.dtype
    info = torch.finfo(dtype)
    margin = UNITS[dtype] * info.eps * torch.maximum(a.abs(), x.double().abs().clip(max=200))
    good = (a == b) & ((a != 0) | (torch.signbit(a) == torch.signbit(b)))
    good |= torch.isnan(a) & torch.isnan(b)
    good |= torch.isfinite(a) & ((a - b).abs() <= margin + info.tiny)
    if name in OVERFLOWS:
        good |= (x > info.max / 4) & (b == x)
    return ~good


@pytest.mark.parametrize("target", targets())
@pytest.mark.parametrize("dtype", UNITS, ids=lambda d: str(d)[6:])
def test_activations_of_special_values(dtype: torch.dtype, target: str) -> None:
    x, model = special(dtype), Every()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = tilewright.compile(model, target=Target(target), example_inputs=(x,))
    bad = {}
    for name, want, got in zip(ACTIVATIONS, model(x), compiled(x)):
        where = wrong(name, x, want, got)
        triples = zip(x[where].tolist(), want[where].tolist(), got[where].tolist())
        if where.any():
            bad[name] = sorted(set(map(str, triples)))
    assert not bad
