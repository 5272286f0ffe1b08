"""Members of ``nn`` that modules call for users, called with TVM's arguments by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import random
from tilewright import relax
from tilewright.ir import assert_structural_equal
from tilewright.relax.frontend import nn
from tilewright.relax.frontend.nn import spec


class Holder(nn.Module):
    """A module that holds another, and does something with it."""

    def __init__(self, layer: Any, function: Callable[..., Any]) -> None:
        self.layer = layer
        self.function = function

    def forward(self, x: nn.Tensor) -> Any:
        return self.function(self.layer, x)


def exported(layer: Any, function: Callable[..., Any], shape: tuple[int, ...], dtype: str) -> Any:
    described = {"forward": {"x": spec.Tensor(shape, dtype)}}
    return Holder(layer, function).export_tvm(described)[0]


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Conv1D": (lambda: nn.Conv1D(2, 3, 2), (1, 2, 5)),
    "Conv2D": (lambda: nn.Conv2D(2, 3, 2), (1, 2, 5, 5)),
    "Conv3D": (lambda: nn.Conv3D(2, 3, [2, 2, 2]), (1, 2, 3, 3, 3)),
    "ConvTranspose1D": (lambda: nn.ConvTranspose1D(2, 3, 2), (1, 2, 5)),
    "Embedding": (lambda: nn.Embedding(num=5, dim=3, dtype="float32"), (4,)),
    "GELU": (lambda: nn.GELU(), (2, 3)),
    "LayerNorm": (
        lambda: nn.LayerNorm(normalized_shape=3, eps=1e-3, elementwise_affine=True, dtype=None),
        (2, 3),
    ),
    "Linear": (lambda: nn.Linear(3, 4), (2, 3)),
    "ModuleList": (lambda: nn.ModuleList([nn.ReLU(), nn.SiLU()]), (2, 3)),
    "RMSNorm": (lambda: nn.RMSNorm(3, -1), (2, 3)),
    "ReLU": (lambda: nn.ReLU(), (2, 3)),
    "SiLU": (lambda: nn.SiLU(), (2, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_forward_is_what_a_call_is(name: str) -> None:
    make, shape = LAYERS[name]
    dtype = "int32" if name == "Embedding" else "float32"
    by_call = exported(make(), lambda layer, x: layer(x), shape, dtype)
    assert_structural_equal(
        exported(make(), lambda layer, x: layer.forward(x=x), shape, dtype), by_call
    )


def test_groups_of_channels_say_where_they_are() -> None:
    norm = nn.GroupNorm(2, 4)
    shape = (1, 4, 5)
    assert_structural_equal(
        exported(
            norm, lambda layer, x: layer.forward(x=x, channel_axis=1, axes=None), shape, "float32"
        ),
        exported(norm, lambda layer, x: layer(x), shape, "float32"),
    )


X, W = random(2, 3, seed=1), random(2, 3, seed=2)

MEMBERS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "astype": (lambda p, x: x.astype(dtype="int32"), X.astype("int32")),
    "repeat": (lambda p, x: x.repeat(repeats=2, axis=1), X.repeat(2, 1)),
    "repeat all": (lambda p, x: x.repeat(repeats=2, axis=None), X.repeat(2)),
    "astype of a parameter": (lambda p, x: p.astype(dtype="int32"), W.astype("int32")),
    "maximum": (lambda p, x: p.maximum(other=x), np.maximum(W, X)),
    "minimum": (lambda p, x: p.minimum(other=x), np.minimum(W, X)),
    "repeat of a parameter": (lambda p, x: p.repeat(repeats=3, axis=0), W.repeat(3, 0)),
    "reshape": (lambda p, x: p.reshape(3, 2), W.reshape(3, 2)),
}


@pytest.mark.parametrize("name", MEMBERS)
def test_members_of_tensors_and_parameters(name: str) -> None:
    function, expected = MEMBERS[name]
    made = exported(nn.Parameter((2, 3), "float32"), function, (2, 3), "float32")
    found = relax.interpreter.run(made, X, W, name="forward")
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_to_changes_the_dtype_of_what_is_held() -> None:
    parameter = nn.Parameter((2,), "float32")
    parameter.to(dtype="float16")
    assert parameter.dtype == "float16"
    linear, other = nn.Linear(2, 3), nn.Linear(2, 3)
    linear.to(dtype="float16")
    assert (linear.weight.dtype, linear.bias.dtype) == ("float16", "float16")
    nn.ModuleList([linear]).to(dtype="float64")
    nn.ModuleDict({"other": other}).to(dtype="float64")
    assert linear.weight.dtype == other.weight.dtype == "float64"
    parameters = [nn.Parameter((2,), "float32") for _ in range(2)]
    nn.ParameterList(parameters[:1]).to(dtype="float16")
    nn.ParameterDict({"p": parameters[1]}).to(dtype="float16")
    assert [each.dtype for each in parameters] == ["float16", "float16"]


def test_dicts_of_modules_and_parameters() -> None:
    relu, silu = nn.ReLU(), nn.SiLU()
    modules = nn.ModuleDict({"a": relu, "b": silu})
    assert list(modules.items()) == [("a", relu), ("b", silu)]
    assert list(modules.values()) == [relu, silu]
    modules.clear()
    assert len(modules) == 0
    first, second = nn.Parameter((1,)), nn.Parameter((2,))
    parameters = nn.ParameterDict({"a": first, "b": second})
    assert list(parameters.items()) == [("a", first), ("b", second)]
    assert (list(parameters.keys()), list(parameters.values())) == (["a", "b"], [first, second])
    assert parameters.get(key="a", default=None) is first
    assert parameters.get(key="z", default=second) is second
    assert parameters.pop(key="a") is first and list(parameters.keys()) == ["b"]
    parameters.clear()
    assert len(parameters) == 0
