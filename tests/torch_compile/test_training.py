"""Forward and backward graphs are compiled; training goes as in eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.everyday import few  # noqa: E402
from tests.torch_compile.helpers import compiled, same  # noqa: E402

nn, F = torch.nn, torch.nn.functional


class Block(nn.Module):
    """A transformer's block: attention and two layers, each with a sum and a norm."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


def perceptron() -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 3))


def convolutions() -> Any:
    return nn.Sequential(
        # A bias before the norm has only noise as gradient, which Adam makes large.
        nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5),
    )  # fmt: skip


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, Any]], Any]] = {
    "perceptron": (perceptron, lambda: (torch.randn(6, 4), torch.randn(6, 3)), F.mse_loss),
    "convolutions": (
        convolutions,
        lambda: (torch.randn(2, 3, 8, 8), torch.randint(0, 5, (2,))),
        F.cross_entropy,
    ),
    "transformer": (Block, lambda: (torch.randn(2, 5, 8), torch.randn(2, 5, 8)), F.mse_loss),
}
OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
    "adam": lambda params: torch.optim.Adam(params, lr=1e-2),
}


def losses(model: Any, call: Any, optimizer: Any, batch: Any, loss: Any) -> list[float]:
    found = []
    for step in range(20):
        torch.manual_seed(step)
        x, y = batch()
        optimizer.zero_grad()
        value = loss(call(x), y)
        value.backward()
        optimizer.step()
        found.append(value.item())
    return found


@few("kind", MODELS, every=3)
def test_losses_of_twenty_steps(kind: str) -> None:
    make, batch, loss = MODELS[kind]
    torch.manual_seed(0)
    start = make()
    ours = copy.deepcopy(start)
    run = compiled(ours)
    for optimizer in OPTIMIZERS.values():
        theirs = copy.deepcopy(start)
        ours.load_state_dict(start.state_dict())
        want = losses(theirs, theirs, optimizer(theirs.parameters()), batch, loss)
        got = losses(ours, run, optimizer(ours.parameters()), batch, loss)
        torch.testing.assert_close(got, want, atol=1e-4, rtol=0)
        same(dict(ours.named_buffers()), dict(theirs.named_buffers()), 1e-4)


def test_gradients_of_inputs_and_of_views() -> None:
    def function(x: Any, y: Any) -> Any:
        return (x.t() @ y).sigmoid(), (x * 2)[1:]

    args = [torch.randn(3, 4), torch.randn(3, 5)]
    run = compiled(function)
    for call in (function, run):
        x, y = (arg.clone().requires_grad_() for arg in args)
        first, second = call(x, y)
        (first.sum() + (second**2).sum()).backward()
        if call is function:
            want = first.detach(), second.detach(), x.grad, y.grad
    same((first.detach(), second.detach(), x.grad, y.grad), want)


def test_gradients_with_symbolic_sizes() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    run = compiled(model, dynamic=True)
    for rows in (3, 5, 8):
        x = torch.randn(rows, 4)
        want = torch.autograd.grad(model(x).square().mean(), model.parameters())
        got = torch.autograd.grad(run(x).square().mean(), model.parameters())
        same([grad.contiguous() for grad in got], [grad.contiguous() for grad in want])


def test_gradients_where_sizes_are_products() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 3))
    run = compiled(model, dynamic=True)
    for rows in (2, 5):
        x = torch.randn(rows, 2, 4)
        want = torch.autograd.grad(model(x).square().mean(), model.parameters())
        got = torch.autograd.grad(run(x).square().mean(), model.parameters())
        same([grad.contiguous() for grad in got], [grad.contiguous() for grad in want])
