"""Modules and graphs on a GPU that is here, with PyTorch's tensors: ``pytest -m gpu``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_programs import TWO_KERNELS, add_one, bound

import tilewright
from tests.relax.helpers import graph, random, symbol, tensor
from tilewright import Target, relax
from tilewright.driver import compile
from tilewright.relax import interpreter, op
from tilewright.runtime import cuda
from tilewright.runtime import tensor as on_device
from tilewright.script import parse

pytestmark = pytest.mark.gpu


@pytest.fixture
def target() -> Target:
    if not cuda(0).exist:
        pytest.skip("there is no GPU")
    return Target.from_device(tilewright.cuda(0))


def test_tensors_there_and_back(target: Target) -> None:
    x = random(100, 7)
    np.testing.assert_array_equal(on_device(x, device="cuda").numpy(), x)


def test_a_module_and_its_workspace(target: Target) -> None:
    x = random(64)
    given, result = on_device(x, device="cuda"), on_device(x, device="cuda")
    compile(parse(TWO_KERNELS), target)(given, result)
    np.testing.assert_allclose(result.numpy(), x[::-1] * 2 + 1, rtol=1e-6)


def test_pytorchs_tensors_and_streams(target: Target) -> None:
    torch = pytest.importorskip("torch")
    module = compile(bound(add_one(), "B").mod, target)
    x = torch.randn(1000, device="cuda")
    result, stream = torch.empty_like(x), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        module(x, result)
    stream.synchronize()
    assert torch.equal(result, x + 1)


def model() -> Any:
    weight = relax.const(random(16, 8))
    return graph(lambda x: op.nn.softmax(op.matmul(x, weight)), tensor((symbol("n"), 16)))


def test_graphs_and_cuda_graphs(target: Target) -> None:
    executable, x = relax.build(model(), target), random(33, 16)
    want = interpreter.run(model(), x)
    given = on_device(x, device="cuda")
    np.testing.assert_allclose(executable(given).numpy(), want, rtol=1e-4, atol=1e-5)
    captured = executable["main"].capture(given)
    np.testing.assert_allclose(captured(given).numpy(), want, rtol=1e-4, atol=1e-5)
    found = relax.VirtualMachine(executable).time_evaluator("main", repeat=3)(given)
    assert found.min > 0


def test_results_are_pytorchs(target: Target) -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(5, 16, device="cuda")
    found = relax.build(model(), target)(x)
    assert isinstance(found, torch.Tensor) and found.device == x.device
