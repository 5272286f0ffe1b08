"""A small neural network (PyTorch) over the features of stores, on top of a model of the machine.

Each store's features go through the same layers, and what comes out is summed over the stores of a
candidate, as in TenSet (Zheng et al., NeurIPS 2021). It needs the extra ``torch``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.meta_schedule.cost_model._measured import Array, MeasuredModel, Samples
from tilewright.support.errors import MissingExtraError, TuneError


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise MissingExtraError("torch", "torch", "the cost model 'mlp'") from None


@contextmanager
def _one_thread() -> Iterator[Any]:
    """Give PyTorch one thread: the data are small, others would only wait for each other."""
    torch = _torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield torch
    finally:
        torch.set_num_threads(threads)


def _adam(network: Any, rate: float, decay: float) -> Callable[[], None]:
    """Return what changes weights by their gradients, as AdamW does.

    PyTorch's own optimizers import its compiler, which takes ten times as long as the training.
    """
    torch = _torch()
    state = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in network.parameters()]
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        with torch.no_grad():
            for weights, mean, square in state:
                mean.lerp_(weights.grad, 0.1)
                square.lerp_(weights.grad**2, 0.001)
                spread = (square / (1 - 0.999**count)).sqrt_().add_(1e-8)
                weights.mul_(1 - rate * decay)
                weights.addcdiv_(mean, spread, value=-rate / (1 - 0.9**count))

    return step


_Fit = tuple[Any, Array, Array]
"""A network, and mean and scale of its features."""


class MLPModel(MeasuredModel[_Fit]):
    """Two layers of ``hidden`` units, trained for ``epochs`` passes over all data.

    That happens whenever there are new data, from ``min_data`` candidates on; at most ``max_data``
    are kept per task, the latest ones. Raises ``MissingExtraError`` without PyTorch.
    """

    name = "mlp"

    def __init__(
        self,
        *,
        hidden: int = 64,
        epochs: int = 60,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-3,
        batch: int = 128,
        min_data: int = 12,
        max_data: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__(min_data=min_data, max_data=max_data)
        if min(hidden, epochs, batch) < 1:
            raise TuneError("hidden, epochs and batch are positive numbers")
        _torch()
        self.hidden = hidden
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch = batch
        self.seed = seed

    def _network(self, width: int) -> Any:
        nn = _torch().nn
        return nn.Sequential(
            nn.Linear(width, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, 1),
        )

    def _fit(self, samples: Samples) -> _Fit:
        rows, owner = samples.rows, samples.owner
        mean, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-3)
        count = len(samples.wanted)
        with _one_thread() as torch, torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = self._network(rows.shape[1])
            values = torch.as_tensor((rows - mean) / scale, dtype=torch.float32)
            wanted = torch.as_tensor(samples.wanted, dtype=torch.float32)
            weight = torch.as_tensor(samples.weight, dtype=torch.float32)
            # Candidates' rows stand together, so a batch of candidates is a range of rows each.
            starts = np.searchsorted(owner, np.arange(count + 1))
            step = _adam(network, self.learning_rate, self.weight_decay)
            for _ in range(self.epochs):
                for chosen in torch.randperm(count).split(self.batch):
                    own = chosen.numpy()
                    sizes = starts[own + 1] - starts[own]
                    taken = np.concatenate([np.arange(starts[n], starts[n + 1]) for n in own])
                    place = torch.as_tensor(np.repeat(np.arange(len(own)), sizes))
                    made: Array = network(values[torch.as_tensor(taken)])[:, 0]
                    total = torch.zeros(len(own)).index_add(0, place, made)
                    loss = (weight[chosen] * (total - wanted[chosen]) ** 2).mean()
                    network.zero_grad()
                    loss.backward()
                    step()
        return network, mean, scale

    def _corrections(self, fitted: _Fit, rows: Array) -> Array:
        network, mean, scale = fitted
        # What lies far outside of what was seen says nothing.
        values = np.clip((rows - mean) / scale, -8.0, 8.0).astype(np.float32)
        with _one_thread() as torch, torch.no_grad():
            made: Array = network(torch.as_tensor(values))[:, 0].numpy()
        return made[None, :]
