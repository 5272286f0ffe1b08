"""Converters of PyTorch operators, family by family, against PyTorch.

A family is one exported model with one output per case. It is imported as exported, and mostly
also decomposed to PyTorch's core operators.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tilewright.relax.frontend.torch import from_exported_program
from tilewright.relax.frontend.torch.exported import as_real
from tilewright.relax.interpreter import run

Case = Callable[..., Any]


class Family(torch.nn.Module):
    """Returns what each case makes of the inputs."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        self.cases = list(cases)

    def forward(self, *inputs: Any) -> list[Any]:
        return [made for case in self.cases for made in _flat(case(*inputs))]


def _flat(made: Any) -> list[Any]:
    if not isinstance(made, (tuple, list)):
        return [made]
    return [item for entry in made for item in _flat(entry)]


def tensor(*shape: int, seed: int = 0, positive: bool = False) -> Any:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return made.abs() + 0.1 if positive else made


def complexes(*shape: int, seed: int = 0, dtype: Any = torch.complex64) -> Any:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def integers(*shape: int, below: int, low: int = 0, seed: int = 1) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, below, shape, generator=generator)


def check(cases: dict[str, Case], *inputs: Any, decomposed: bool = True) -> None:
    model = Family(list(cases.values())).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(model, inputs)
        names = [name for name, case in cases.items() for _ in _flat(case(*inputs))]
        expected = model(*inputs)
        programs = {"exported": exported}
        if decomposed:
            programs["decomposed"] = exported.run_decompositions()
    arrays = [as_real(value).numpy() for value in inputs]
    for kind, program in programs.items():
        found = run(from_exported_program(program), *arrays)
        for name, want, got in zip(names, expected, found):
            label = f"{name} ({kind})"
            want = as_real(want).resolve_neg()
            assert str(got.dtype) == str(want.dtype).removeprefix("torch."), label
            assert got.shape == tuple(want.shape), label
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-5, err_msg=label)
