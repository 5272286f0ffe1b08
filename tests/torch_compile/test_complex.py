"""Complex numbers in graphs of torch.compile."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import logging  # noqa: E402

from tests.torch_compile.helpers import agree, compiled, same  # noqa: E402


def _complexes(*shape: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.complex64, generator=generator)


def _rotate(x: Any, turns: Any) -> Any:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3)


CASES: dict[str, tuple[Any, ...]] = {
    "rotary": (_rotate, torch.randn(2, 5, 3, 8), _complexes(5, 1, 4)),
    "inputs and results": (lambda z, w: (z * w, z + 1, z.abs()), _complexes(3, 4), _complexes(4)),
    "conjugates": (lambda z: (z.conj() * 2, z.conj(), z.mH, z.imag), _complexes(3, 4).conj()),
    "transposed": (lambda z: (z * 2j, z.T + 1, (z * 2).T), _complexes(3, 4).T),
    "views of parts": (lambda z: (z.real, z.real + 1, torch.view_as_real(z * 2)), _complexes(3, 4)),
    "gaps": (lambda z: z * 2, _complexes(3, 8)[:, ::2]),
    "between PyTorch's own": (
        lambda z: (torch.cumprod(z * 2, 0) * 3, torch.cumprod(z, 0).abs() + 1),
        _complexes(3, 4),
    ),
    "one element": (lambda z: (z * 2, z.angle()), _complexes()),
    "empty": (lambda z: (z * 2, z.sum()), _complexes(0, 3)),
    "negated": (lambda z: (z.conj().imag, z.conj().imag * 2), _complexes(4)),
}


@pytest.mark.parametrize("name", CASES)
def test_complex_numbers(name: str) -> None:
    function, *inputs = CASES[name]
    agree(function, tuple(inputs))


def test_symbolic_sizes() -> None:
    agree(lambda z: z.abs() * z, *[(_complexes(n, 3),) for n in (4, 6, 9)], dynamic=True)


def test_written_in_place() -> None:
    agree(lambda z: z.mul_(2j).sum(), (_complexes(3),))


def test_gradients() -> None:
    def loss(z: Any, x: Any) -> Any:
        turned = z * torch.polar(x.abs(), x)
        return (turned.abs() + turned.real.exp()).sum()

    z, x = _complexes(4).requires_grad_(), torch.randn(4).requires_grad_()
    wanted = torch.autograd.grad(loss(z, x), (z, x))
    found = torch.autograd.grad(compiled(loss)(z, x), (z, x))
    same(found, wanted)


def test_a_negated_gradient() -> None:
    x, given = torch.randn(1).requires_grad_(), _complexes(1).conj().imag
    assert given.is_neg() and given.is_contiguous()
    wanted = torch.autograd.grad(x.sin() * x, x, given)
    found = torch.autograd.grad(compiled(lambda x: x.sin() * x)(x), x, given)
    same(found, wanted)


def test_nothing_of_a_rotary_embedding_is_left_to_pytorch(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, "tilewright.torch"):
        compiled(_rotate)(torch.randn(2, 5, 3, 8), _complexes(5, 1, 4))
    assert not [record for record in caplog.records if record.name == "tilewright.torch"]
