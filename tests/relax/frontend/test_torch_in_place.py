"""Programs that write into what they have just made become functional without a second tracing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tilewright  # noqa: E402
from tilewright.relax.frontend.torch.calling import export_module  # noqa: E402
from tilewright.relax.frontend.torch.exported import functionalize  # noqa: E402
from tilewright.relax.frontend.torch.in_place import without_writes  # noqa: E402


class _Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("held", torch.ones(2, 3))

    def forward(self, x):
        return self.function(self, x)


def _chain(model, x):
    y = (x * 2).relu_()
    z = y + 1
    y += z
    return y.mul_(3).sigmoid(), z


def _old_name(model, x):
    y = x + 1
    y.relu_()
    y.add_(x)
    return y * 2


def _dropped(model, x):
    y = torch.nn.functional.dropout(x.exp(), 0.5, training=False, inplace=True)
    return y * 2


def _itself(model, x):
    y = x - 1
    return y.add_(y) * 1


@pytest.mark.parametrize("function", [_chain, _old_name, _dropped, _itself])
def test_writes_into_own_memory_become_plain_operators(function):
    x = torch.randn(2, 3)
    program = export_module(_Model(function), (x,))
    made = without_writes(program)
    assert made is not None
    assert not any(str(node.target).split(".")[-2].endswith("_") for node in _calls(made))
    assert [str(n.target) for n in _calls(program)] != [str(n.target) for n in _calls(made)]
    for have, want in zip(_flat(made.module()(x)), _flat(function(None, x))):
        np.testing.assert_array_equal(have.numpy(), want.numpy())


def _view_before(model, x):
    y = x * 2
    part = y[0]
    y.relu_()
    return part * 1, y * 1


def _view_after(model, x):
    y = x * 2
    y.view(-1).relu_()
    return y * 1


def _same_memory(model, x):
    y = x * 2
    same = torch.nn.functional.dropout(y, 0.5, training=False)
    y.relu_()
    return same * 1


def _input(model, x):
    x.relu_()
    return x * 1


def _buffer(model, x):
    model.held.add_(x)
    return model.held * 1


def _whole_numbers(model, x):
    return (x > 0).to(torch.int64).add_(2) * 1


def _two_types(model, x):
    return (x * 1).add_(x.double()) * 1


def _returned(model, x):
    y = x * 2
    y.relu_()
    return y


@pytest.mark.parametrize(
    "function",
    [_view_before, _view_after, _same_memory, _input, _buffer, _whole_numbers, _two_types],
)
def test_other_writes_are_left_to_pytorch(function):
    x = torch.randn(2, 3)
    program = export_module(_Model(function), (x.clone(),))
    assert without_writes(program) is None
    functional = functionalize(program)
    assert not any(node.target._schema.is_mutable for node in _calls(functional))


def test_what_is_returned_keeps_its_name():
    x = torch.randn(2, 3)
    made = functionalize(export_module(_Model(_returned), (x,)))
    np.testing.assert_array_equal(made.module()(x).numpy(), (x * 2).relu().numpy())


def _calls(program):
    return [
        node
        for node in program.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)  # not getitem
    ]


def _flat(value):
    return value if isinstance(value, tuple) else (value,)


def test_models_are_exported_by_several_threads() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.ReLU()).eval()
    x = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(tilewright.compile, model, example_inputs=(x,)) for _ in range(4)]
    for call in calls:
        torch.testing.assert_close(call.result()(x), model(x).detach())
