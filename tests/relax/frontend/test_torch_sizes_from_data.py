"""PyTorch models with tensors inside whose sizes only data tell: what a mask chooses, and so on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright

torch = pytest.importorskip("torch")

from torch_families import Family, check, tensor  # noqa: E402

from tilewright.support.errors import ImportModelError  # noqa: E402


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


def test_a_truth_value_is_a_result() -> None:
    run = tilewright.compile(Family([lambda x: (x > 0).all().item()]), example_inputs=tensor(3))
    assert [bool(run(torch.tensor([shift, 1.0]).repeat(2)[:3])[0]) for shift in (1.0, -1.0)] == [
        True,
        False,
    ]


def test_compiled_for_any_number() -> None:
    model = Family([_write, lambda x, y: x[y > 0].sum()])
    run = tilewright.compile(model, example_inputs=(tensor(3, 4), tensor(3, 4, seed=1)))
    for shift in (0.0, 9.0, -9.0):
        x, y = tensor(3, 4, seed=2) + shift, tensor(3, 4, seed=3) + shift
        for found, wanted in zip(run(x, y), model(x, y)):
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: (torch.nonzero(x > 0), torch.masked_select(x, x[0] > 0)),
        lambda x, i: torch.unique(i, return_inverse=True, return_counts=True),
        lambda x, i: torch.unique(i, dim=1, return_counts=True),
        lambda x, i: torch.cat([x[x[:, 0] > 0], x]).T,
        lambda x, i: torch.view_as_complex(torch.stack([x[x > 0], x[x > 0]], -1)),
    ],
)
def test_results_have_the_size_that_data_tell(function: Any) -> None:
    model = Family([function])
    x, i = tensor(4, 5), torch.tensor([[2, 0, 2, 5], [1, 1, 1, 1]])
    run = tilewright.compile(model, example_inputs=(x, i))
    for shift in (0.0, 9.0, -9.0):
        for found, wanted in zip(run(x + shift, i), model(x + shift, i), strict=True):
            torch.testing.assert_close(found, wanted)
            assert found.is_contiguous()


def test_results_of_symbolic_inputs() -> None:
    chosen = Family([lambda x: (x[x > 0], x[x > 0])])
    shapes = (({0: torch.export.Dim("n", min=2)},),)
    run = tilewright.compile(chosen, example_inputs=(tensor(4),), dynamic_shapes=shapes)
    for size in (2, 9):
        x = tensor(size, seed=size)
        for found, wanted in zip(run(x), chosen(x), strict=True):
            torch.testing.assert_close(found, wanted)
    (found, _) = run(tensor(9).numpy())
    np.testing.assert_array_equal(found, tensor(9)[tensor(9) > 0])


def test_results_without_a_bound_are_refused() -> None:
    model = Family([lambda i: torch.bincount(i)])
    with pytest.raises(ImportModelError, match=r"only data tell .*: .* it has no bound"):
        tilewright.compile(model, example_inputs=(torch.tensor([1, 2]),))
