"""Parameters as constants: ``torch.compile(..., options={"freezing": True})``."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilewright.torch  # noqa: E402
from tests.torch_compile.helpers import same  # noqa: E402
from tilewright.support.errors import BuildError  # noqa: E402


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        return self.norm(self.linear(x)).relu()


def _model() -> Any:
    torch.manual_seed(0)
    return _Model().eval()


def _frozen(model: Any) -> Any:
    return tilewright.torch.compile(model, freezing=True)


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def test_parameters_are_constants(texts: list[str]) -> None:
    model = _model()
    with torch.no_grad():
        same(_frozen(model)(X), model(X))
    (text,) = texts
    assert "arg0, = inputs" in text, text


def test_changes_in_place_are_seen(texts: list[str]) -> None:
    model = _model()
    run = _frozen(model)
    with torch.no_grad():
        run(X)
        model.linear.weight.mul_(2)
        model.norm.running_mean.add_(1)
        for _ in range(2):
            same(run(X), model(X))
    assert len(texts) == 2


def test_other_tensors_are_seen() -> None:
    model, other = _model(), _model()
    run = _frozen(model)
    with torch.no_grad():
        run(X)
        torch.nn.init.ones_(other.linear.weight)
        same(_frozen(other)(X), other(X))
        model.linear.weight = torch.nn.Parameter(torch.randn(4, 8))
        same(run(X), model(X))


def test_what_the_graph_writes_or_returns_is_no_constant() -> None:
    model = _model()

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.calls.add_(1)
            return self.inner(x) + self.calls, self.inner.linear.bias

    counting = Counting()
    run = _frozen(counting)
    with torch.no_grad():
        for number in (1, 2, 3):
            made, bias = run(X)
            same(made, model(X) + number)
            assert bias is model.linear.bias or bias.data_ptr() == model.linear.bias.data_ptr()


def test_training_has_no_constants() -> None:
    model, plain = _model().train(), _model().train()
    _frozen(model)(X).sum().backward()
    plain(X).sum().backward()
    same(model.linear.weight.grad, plain.linear.weight.grad)


def test_freezing_is_yes_or_no() -> None:
    with pytest.raises(BuildError, match="freezing"):
        tilewright.torch.compile(_model(), freezing=1)
