"""PyTorch models with tensors inside whose sizes only data tell: what a mask chooses, and so on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright

torch = pytest.importorskip("torch")

from torch_families import Family, check, tensor  # noqa: E402


def _write(x: Any, y: Any) -> Any:
    x = x.clone()
    x[x > 0] = y[x > 0] * 2
    return x


def test_sizes_inside_of_a_graph() -> None:
    check(
        {
            "write": lambda x, y, i: _write(x, y),
            "select": lambda x, y, i: torch.masked_select(x, y[0] > 0).exp().sum(),
            "rows": lambda x, y, i: x[y[:, 0] > 0].sum(0),
            "mask and numbers": lambda x, y, i: x[y[:, 0] > -1, 2].sum(),
            "nonzero": lambda x, y, i: x[torch.nonzero(x > 0).unbind(1)].sum(),
            "nonzero, padded": lambda x, y, i: torch.nonzero_static(x > 0, size=9, fill_value=7),
            "counts": lambda x, y, i: (torch.bincount(i, minlength=3) ** 2).sum(),
            "weighted": lambda x, y, i: torch.bincount(i, x[0, :4]).square().sum(),
            "repeat": lambda x, y, i: x[:4].repeat_interleave(i, 0).sum(0),
            "inverse": lambda x, y, i: torch.unique(i, return_inverse=True)[1],
        },
        tensor(4, 5), tensor(4, 5, seed=1), torch.tensor([0, 2, 2, 5]),
        decomposed=False,
    )  # fmt: skip


def test_compiled_for_any_number() -> None:
    model = Family([_write, lambda x, y: x[y > 0].sum()])
    run = tilewright.compile(model, example_inputs=(tensor(3, 4), tensor(3, 4, seed=1)))
    for shift in (0.0, 9.0, -9.0):
        x, y = tensor(3, 4, seed=2) + shift, tensor(3, 4, seed=3) + shift
        for found, wanted in zip(run(x, y), model(x, y)):
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
