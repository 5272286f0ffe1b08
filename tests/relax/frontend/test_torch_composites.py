"""PyTorch operators made of others, which are converted whole: padding by modes, ``einsum``."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_families import check, tensor  # noqa: E402

import tilewright  # noqa: E402
from tilewright.relax.frontend.torch.calling import export_module  # noqa: E402
from tilewright.relax.frontend.torch.importer import functional_to_compile  # noqa: E402
from tilewright.support.errors import ImportModelError  # noqa: E402


def test_padding() -> None:
    pad = torch.nn.functional.pad
    check(
        {
            "constant": lambda x: pad(x, (1, 2)),
            "a number": lambda x: pad(x, (0, 1, 2, -1), value=3.5),
            "of truth values": lambda x: pad(x > 0, (0, 1), value=2.0),
            "reflect": lambda x: pad(x, (2, 1, 0, 2), mode="reflect"),
            "replicate": lambda x: pad(x, (2, 5, 0, 1), mode="replicate"),
            "circular": lambda x: pad(x, (2, 1, 3, 0), mode="circular"),
            "circular, cut": lambda x: pad(x, (-1, 2, 0, -2), mode="circular"),
        },
        tensor(2, 3, 4, 5),
    )  # fmt: skip


def test_einsum() -> None:
    check(
        {
            "product": lambda x, y: torch.einsum("bij,bjk->bik", x, y),
            "windows": lambda x, y: torch.einsum("bij,jkl->bikl", x, y.repeat(2, 1, 1)),
            "implicit": lambda x, y: torch.einsum("bij,bjk", x, y),
            "sums": lambda x, y: torch.einsum("...ij->i", x),
            "diagonal": lambda x, y: torch.einsum("bii->bi", y[:, :, :4]),
        },
        tensor(2, 3, 4), tensor(2, 4, 4, seed=1),
    )  # fmt: skip


def test_one_tracing_makes_programs_functional_and_takes_them_apart() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = torch.zeros(4, 4)
            made[1:3] = x
            made[0].zero_()
            return torch.nn.functional.pairwise_distance(made, x[:1])

    functional = functional_to_compile(export_module(Model(), (torch.randn(2, 4),)))
    found = {str(node.target) for node in functional.graph.nodes}
    assert not found & {"aten.copy_.default", "aten.pairwise_distance.default"}
    x = torch.randn(2, 4)
    check({"model": Model()}, x)


def test_weights_that_the_first_call_scales() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.is_scaled = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.is_scaled:
                with torch.no_grad():
                    self.weight.div_(2)
                self.is_scaled = True
            return x * self.weight

    model, x = Model().eval(), torch.ones(3)
    with pytest.raises(ImportModelError, match="parameter 'weight': call it once before"):
        tilewright.compile(model, example_inputs=x)
    assert not model.is_scaled  # tracing it has scaled nothing
    with torch.no_grad():
        expected = model(x)
    assert torch.equal(tilewright.compile(model, example_inputs=x)(x), expected)


def test_normalised_axes_that_the_call_sizes() -> None:
    functional = torch.nn.functional

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            last = x.shape[-1:]
            return functional.layer_norm(x, x.shape[1:]), functional.rms_norm(x, last)

    model, n = Model(), torch.export.Dim("n", min=2, max=99)
    example = (tensor(2, 3, 8),)
    run = tilewright.compile(model, example_inputs=example, dynamic_shapes=({2: n},))
    for size in (2, 30):
        x = tensor(2, 3, size)
        for found, wanted in zip(run(x), model(x)):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
