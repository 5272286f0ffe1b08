"""What a graph writes into its inputs is computed there, if nothing else needs the old values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch_compile.helpers import agree  # noqa: E402


def update(p: Any, m: Any, g: Any) -> None:
    m.mul_(0.9).add_(g)
    p.add_(m, alpha=-0.1)


def after_it_was_read(p: Any, m: Any, g: Any) -> None:
    m.mul_(0.9).add_(g + 0.1 * p)
    p.add_(m, alpha=-0.1)


def transposed(p: Any, m: Any, g: Any) -> None:
    p.t().add_(g.t() + m.t())


def with_a_result(p: Any, m: Any, g: Any) -> Any:
    p.add_(g)
    return p.sum(), g * p


def swapped(p: Any, m: Any, g: Any) -> None:
    old = p.clone()
    p.copy_(m + g)
    m.copy_(old + g)


def reversed_rows(p: Any, m: Any, g: Any) -> None:
    p.copy_(p.flip(0) + g)


def product(p: Any, m: Any, g: Any) -> None:
    p.copy_(p @ p + g)


def with_the_new_value(p: Any, m: Any, g: Any) -> Any:
    new = p + g
    p.copy_(new)
    return new


def with_the_old_value(p: Any, m: Any, g: Any) -> Any:
    old = p + 0.0
    p.add_(g)
    return torch.cummax(old, 0)[0] + p


def read_by_pytorch(p: Any, m: Any, g: Any) -> Any:
    found = torch.cummax(p, 0)[0]
    p.add_(g)
    return found


def read_by_pytorch_as_a_view(p: Any, m: Any, g: Any) -> Any:
    view = p.as_strided((6,), (7,))
    p.mul_(2.0).add_(g)
    return torch.cummax(view, 0)[0]


def part_of_one(p: Any, m: Any, g: Any) -> None:
    p[1:3].add_(g[0])


def two_of_one_value(p: Any, m: Any, g: Any) -> None:
    new = p + m * g
    p.copy_(new)
    m.copy_(new)


def into_another_dtype(p: Any, m: Any, g: Any) -> None:
    p.copy_((m + g).double())


PLACES = torch.tensor([4, 1])


def some_rows(p: Any, m: Any, g: Any) -> Any:
    p.index_copy_(0, PLACES, g[:2])
    return (p * m).sum()


def some_places(p: Any, m: Any, g: Any) -> None:
    p[PLACES, PLACES] = g[0, :2]
    m.index_add_(0, PLACES, g[2:4])


def rows_of_its_own(p: Any, m: Any, g: Any) -> None:
    p.index_copy_(0, PLACES, p[:2] + g[:2])


def rows_and_the_old_value(p: Any, m: Any, g: Any) -> Any:
    old = p + g
    p.index_copy_(0, PLACES, g[:2])
    return old, p + m


FUNCTIONS: dict[Callable[..., Any], int | None] = {
    update: 2,
    after_it_was_read: 2,
    transposed: None,
    with_a_result: None,
    swapped: None,
    reversed_rows: 0,
    product: 0,
    with_the_new_value: 0,
    with_the_old_value: None,
    read_by_pytorch: None,
    read_by_pytorch_as_a_view: None,
    part_of_one: None,
    two_of_one_value: 0,
    into_another_dtype: None,
    some_rows: 1,
    some_places: 2,
    rows_of_its_own: 1,
    rows_and_the_old_value: None,
}
"""And how many inputs are overwritten, where that is certain."""


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_means_what_eager_mode_means(function: Callable[..., Any], texts: list[str]) -> None:
    torch.manual_seed(0)
    p, m, g = (torch.randn(6, 6) for _ in range(3))
    agree(function, (p, m, g), (p, m, g), dynamic=False)
    wanted = FUNCTIONS[function]
    if wanted is not None:
        calls = [line for text in texts for line in text.splitlines() if "part" in line]
        arguments = [call.partition("(")[2].rstrip(")").split(", ") for call in calls]
        assert sum(len(names) - len(set(names)) for names in arguments) == wanted


def test_inputs_of_the_layout_of_channels_last(texts: list[str]) -> None:
    p, g = (torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last) for _ in range(2))
    agree(lambda p, g: p.mul_(0.5).add_(g), (p, g), dynamic=False)


def test_inputs_in_one_memory() -> None:
    x = torch.randn(6, 6)
    agree(lambda p, g: p.add_(g), (x, x), (x, x[:]), dynamic=False)


def test_versions_move_on() -> None:
    p, g = torch.randn(6, 6), torch.randn(6, 6)
    run = torch.compile(lambda p, g: (p.add_(g), None)[1], backend="tilewright", dynamic=False)
    before = p._version
    run(p, g)
    assert p._version > before
