"""What training loops do besides: each trains compiled as in eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402

from tests.torch_compile.helpers import compiled, same  # noqa: E402

nn, F = torch.nn, torch.nn.functional


def train(
    model: Any, step: Callable[[Any, Any, Any], Any], optimizer: Any, run: Any, steps: int = 3
) -> list[Any]:
    """Steps on random batches; the losses, parameters and buffers after them."""
    made = []
    for number in range(steps):
        torch.manual_seed(number)
        made.append(float(step(run, model, optimizer)))
    return [made, dict(model.named_parameters()), dict(model.named_buffers())]


def check(
    model: Any,
    step: Callable[[Any, Any, Any], Any],
    make: Callable[..., Any] = lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    tolerance: float = 1e-4,
    **options: Any,
) -> None:
    """Train a model in eager mode and compiled; compare losses, parameters and buffers."""
    ours = copy.deepcopy(model)
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    expected = train(model, step, make(wanted), model)
    wanted = [parameter for parameter in ours.parameters() if parameter.requires_grad]
    found = train(ours, step, make(wanted), compiled(ours, **options))
    torch.testing.assert_close(found[0], expected[0], atol=tolerance, rtol=tolerance)
    same(found[1:], expected[1:], tolerance)


def squares(run: Any, model: Any, optimizer: Any) -> Any:
    optimizer.zero_grad()
    loss = run(torch.randn(6, 4)).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def perceptron(*between: Any) -> Any:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 8), *between, nn.Tanh(), nn.Linear(8, 3))


def test_dropout_draws_what_eager_mode_draws() -> None:
    check(perceptron(nn.Dropout(0.5)), squares)


def test_statistics_of_batch_norm_move_along() -> None:
    check(perceptron(nn.BatchNorm1d(8, momentum=0.3)), squares)


def test_gradients_accumulate() -> None:
    def step(run: Any, model: Any, optimizer: Any) -> Any:
        optimizer.zero_grad()
        losses = [run(torch.randn(6, 4)).square().mean() for _ in range(2)]
        for loss in losses:
            (loss / 2).backward()
        optimizer.step()
        return losses[1]

    check(perceptron(), step)


def test_gradients_that_are_kept_as_zeros() -> None:
    def step(run: Any, model: Any, optimizer: Any) -> Any:
        loss = squares(run, model, optimizer)
        optimizer.zero_grad(set_to_none=False)
        assert all(not parameter.grad.any() for parameter in model.parameters())
        return loss

    check(perceptron(), step)


class Checkpointed(nn.Module):
    """Its middle is computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.out = perceptron(nn.Dropout(0.5)), nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        return self.out(checkpoint(self.inside, x, use_reentrant=False))


def test_checkpoints() -> None:
    check(Checkpointed(), squares)


class Words(nn.Module):
    """An embedding with padding whose table is the last layer's matrix, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4, padding_idx=0)
        self.norm, self.out = nn.LayerNorm(4), nn.Linear(4, 7, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x: Any) -> Any:
        return self.out(self.norm(self.table(x)))


def test_tied_weights_and_padding() -> None:
    def step(run: Any, model: Any, optimizer: Any) -> Any:
        words = torch.randint(0, 7, (2, 5))
        optimizer.zero_grad()
        loss = F.cross_entropy(run(words).flatten(0, 1), words.flatten(), ignore_index=0)
        loss.backward()
        optimizer.step()
        return loss

    torch.manual_seed(1)
    check(Words(), step, lambda params: torch.optim.AdamW(params, lr=1e-2))


def test_frozen_parameters_get_no_gradient() -> None:
    model = perceptron()
    model[0].requires_grad_(False)

    def step(run: Any, model: Any, optimizer: Any) -> Any:
        loss = squares(run, model, optimizer)
        assert model[0].weight.grad is None
        return loss

    check(model, step)


def test_autocast() -> None:
    def step(run: Any, model: Any, optimizer: Any) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            found = run(torch.randn(6, 4))
            assert found.dtype == torch.bfloat16
            loss = found.float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    # Eager mode rounds where compiled code doesn't, and the other way round.
    check(perceptron(), step, tolerance=2e-2)


def test_gradients_are_clipped() -> None:
    def step(run: Any, model: Any, optimizer: Any) -> Any:
        optimizer.zero_grad()
        loss = run(torch.randn(6, 4)).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss + norm

    check(perceptron(), step)


def test_batches_of_any_size() -> None:
    def step(run: Any, model: Any, optimizer: Any) -> Any:
        optimizer.zero_grad()
        size = int(torch.randint(2, 9, ()))
        loss = F.cross_entropy(run(torch.randn(size, 4)), torch.randint(0, 3, (size,)))
        loss.backward()
        optimizer.step()
        return loss

    check(perceptron(), step, dynamic=True)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda params: torch.optim.Adam(params, lr=torch.tensor(1e-2)),
    "adamw": lambda params: torch.optim.AdamW(params, lr=1e-2, foreach=True),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_compiled_updates(kind: str) -> None:
    make = OPTIMIZERS[kind]
    models = [perceptron(), perceptron()]
    for model, compile in zip(models, (False, True)):
        optimizer = make(model.parameters())
        update = compiled(optimizer.step) if compile else optimizer.step
        for number in range(3):
            torch.manual_seed(number)
            optimizer.zero_grad()
            model(torch.randn(6, 4)).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            update()
    same(dict(models[1].named_parameters()), dict(models[0].named_parameters()), 1e-4)


def scores(rows: int = 4, columns: int = 5) -> Any:
    return torch.randn(rows, columns)


def signs(*shape: int) -> Any:
    return torch.randint(0, 2, shape).float() * 2 - 1


Example = Callable[[], tuple[Any, ...]]
LOSSES: dict[str, tuple[Any, Example]] = {
    "l1": (nn.L1Loss(), lambda: (scores(), scores())),
    "mse": (nn.MSELoss(reduction="sum"), lambda: (scores(), scores())),
    "huber": (nn.HuberLoss(delta=0.5), lambda: (scores(), scores())),
    "smooth l1": (nn.SmoothL1Loss(beta=0.7), lambda: (scores(), scores())),
    "cross entropy": (
        nn.CrossEntropyLoss(torch.rand(5), ignore_index=1),
        lambda: (scores(), torch.randint(0, 5, (4,))),
    ),
    "smoothed cross entropy": (
        nn.CrossEntropyLoss(label_smoothing=0.1), lambda: (scores(), torch.randint(0, 5, (4,))),
    ),
    "cross entropy of each": (
        nn.CrossEntropyLoss(reduction="none"), lambda: (scores(), torch.randint(0, 5, (4,))),
    ),
    "cross entropy of images": (
        nn.CrossEntropyLoss(torch.rand(3), ignore_index=2),
        lambda: (torch.randn(2, 3, 2, 2), torch.randint(0, 3, (2, 2, 2))),
    ),
    "cross entropy of one": (nn.CrossEntropyLoss(), lambda: (torch.randn(5), torch.tensor(3))),
    "cross entropy of shares": (
        nn.CrossEntropyLoss(), lambda: (scores(), scores().softmax(1)),
    ),
    "kl": (nn.KLDivLoss(reduction="batchmean"), lambda: (scores(), scores().softmax(1))),
    "bce": (nn.BCELoss(), lambda: (torch.rand(4, 5), torch.rand(4, 5))),
    "bce of logits": (
        nn.BCEWithLogitsLoss(pos_weight=torch.rand(5)), lambda: (scores(), torch.rand(4, 5)),
    ),
    "poisson": (nn.PoissonNLLLoss(full=True), lambda: (scores(), 3 * torch.rand(4, 5))),
    "gaussian": (nn.GaussianNLLLoss(), lambda: (scores(), scores(), torch.rand(4, 5) + 0.1)),
    "hinge": (nn.HingeEmbeddingLoss(), lambda: (scores(), signs(4, 5))),
    "cosine": (nn.CosineEmbeddingLoss(0.1), lambda: (scores(), scores(), signs(4))),
    "ranking": (nn.MarginRankingLoss(0.1), lambda: (torch.randn(4), torch.randn(4), signs(4))),
    "triplet": (nn.TripletMarginLoss(), lambda: (scores(), scores(), scores())),
    "multi margin": (nn.MultiMarginLoss(), lambda: (scores(), torch.randint(0, 5, (4,)))),
    # Not MultiLabelMarginLoss: PyTorch's decomposition, which every backend gets, differs from it.
    "multi-label soft margin": (
        nn.MultiLabelSoftMarginLoss(), lambda: (scores(), torch.randint(0, 2, (4, 5)).float()),
    ),
    "soft margin": (nn.SoftMarginLoss(), lambda: (scores(), signs(4, 5))),
    "ctc": (
        nn.CTCLoss(),
        lambda: (
            torch.randn(6, 2, 5).log_softmax(2), torch.randint(1, 5, (2, 3)),
            torch.tensor([6, 5]), torch.tensor([3, 2]),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", LOSSES)
def test_losses(kind: str) -> None:
    loss, example = LOSSES[kind]
    torch.manual_seed(2)
    first, *rest = example()
    found = []
    for run in (loss, compiled(loss)):
        x = first.clone().requires_grad_()
        value = run(x, *rest)
        value.sum().backward()
        found.append((value.detach(), x.grad))
    same(found[1], found[0], 1e-5)
