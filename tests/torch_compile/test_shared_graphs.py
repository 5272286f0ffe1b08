"""Operators without a converter are PyTorch's, within the graph."""

from __future__ import annotations

import logging
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch_compile.helpers import agree, compiled, same  # noqa: E402


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def _between(x: Any) -> Any:
    y = torch.relu(x * 2)
    z = torch.special.airy_ai(y)
    return z.t() + y.t(), z


CASES = {
    "in the middle": (_between, torch.randn(4, 3)),
    "at the end": (lambda x: torch.special.airy_ai(x + 1), torch.randn(4, 3)),
    "at the start": (lambda x: torch.special.airy_ai(x) + 1, torch.randn(4, 3)),
    "alone": (lambda x: torch.special.airy_ai(x), torch.randn(4, 3)),
    "twice": (
        lambda x: torch.special.airy_ai(torch.special.airy_ai(x + 1) * 2) - 1,
        torch.randn(4, 3),
    ),
    "beside": (lambda x: (torch.special.airy_ai(x + 1), (x * 3).sum()), torch.randn(4, 3)),
    "views of odd strides": (
        lambda x: (x * 2).as_strided((2, 2), (1, 2)) + 1,
        torch.randn(5, 4),
    ),
    "reads a view": (lambda x: torch.special.airy_ai((x + 1).t()[1:]) + 1, torch.randn(4, 3)),
    "complex numbers": (lambda x: torch.view_as_complex(x * 2).abs() + 1, torch.randn(5, 2)),
    "sizes from data": (lambda x: x[x > 0].sum() + 1, torch.randn(30)),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_of_pytorch_within_a_graph(name: str) -> None:
    function, x = CASES[name]
    agree(function, (x,))


def test_symbolic_sizes_on_both_sides() -> None:
    agree(_between, *[(torch.randn(n, 3),) for n in (4, 6, 9)], dynamic=True)


def test_each_operator_is_logged_once_with_its_place(caplog: Any) -> None:
    def function(x: Any) -> Any:
        return torch.special.airy_ai(x * 2) + 1

    with caplog.at_level(logging.WARNING, "tilewright.torch"):
        for _ in range(2):
            compiled(function)(torch.randn(3))
    (message,) = [r.getMessage() for r in caplog.records if r.name == "tilewright.torch"]
    assert "aten.special_airy_ai.default" in message
    assert "test_shared_graphs.py" in message
    assert "there is no converter" in message


def test_random_numbers_are_drawn_as_in_eager_mode() -> None:
    def function(x: Any) -> Any:
        late = torch.special.airy_ai(x + 1) + torch.rand(4, 3)
        early = torch.nn.functional.dropout(x, 0.5)
        return late, early, torch.bernoulli(torch.full((3,), 0.5))

    x = torch.randn(4, 3)
    torch.manual_seed(1)
    want = function(x)
    run = compiled(function)
    torch.manual_seed(1)
    same(run(x), want)


def test_values_end_with_their_last_reader() -> None:
    """As in eager mode, what is no longer read takes no memory while the rest runs."""
    alive: list[bool] = []
    held: list[Any] = []

    @torch.library.custom_op("tilewright_tests::look", mutates_args=())
    def look(x: torch.Tensor) -> torch.Tensor:
        alive.append(held[0]() is not None)
        return x + 1

    @look.register_fake
    def _(x: Any) -> Any:
        return torch.empty_like(x)

    @torch.library.custom_op("tilewright_tests::hold", mutates_args=())
    def hold(x: torch.Tensor) -> torch.Tensor:
        held[:] = [weakref.ref(x)]
        return x * 2

    @hold.register_fake
    def _(x: Any) -> Any:
        return torch.empty_like(x)

    run = compiled(lambda x: look(hold(x + 1)))
    same(run(torch.zeros(3)), torch.full((3,), 3.0))
    assert alive == [False]
