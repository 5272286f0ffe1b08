"""Transpositions, depthwise convolutions and pooling: simulated and compiled."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_rules import CUDA, agree, compiled, function, kernels, lowered, scheduled, tensor

from tilewright import te, topi
from tilewright.dlight.gpu import Depthwise, Transpose
from tilewright.scheduling import NotApplicable, start_schedule
from tilewright.scheduling.gpu.kernel_bounds import kernel_bounds
from tilewright.tir import PrimFunc

n, m = te.var("n"), te.var("m")


def transpose(*shape: Any, axes: Any = None, dtype: str = "float32") -> PrimFunc:
    return function(lambda x: topi.transpose(x, axes), tensor(*shape, dtype=dtype))


TURNED: dict[str, tuple[PrimFunc, dict[str, int]]] = {
    "whole tiles": (transpose(32, 64), {}),
    "odd": (transpose(13, 37), {}),
    "float16": (transpose(33, 40, dtype="float16"), {}),
    "symbolic": (transpose(n, m), {"n": 9, "m": 35}),
    "nothing": (transpose(n, m), {"n": 0, "m": 5}),
    "batches": (transpose(2, 10, 12, axes=(0, 2, 1)), {}),
    "with another operand": (
        function(
            lambda x, y: topi.add(topi.transpose(x), y), tensor(12, 20), tensor(20, 12, name="y")
        ),
        {},
    ),
}


@pytest.mark.parametrize("name", TURNED)
def test_transpositions_go_through_shared_memory(name: str) -> None:
    func, sizes = TURNED[name]
    mod = agree(func, Transpose(), **sizes)
    (text,) = kernels(mod).values()
    assert 'scope="shared"' in text


def test_no_conflicts_and_whole_sectors() -> None:
    mod = lowered(scheduled(transpose(1024, 1024), Transpose()))
    (bound,) = kernel_bounds(mod, CUDA)
    assert bound.worst(shared=True) == 1.0 and bound.worst(shared=False) == 1.0
    (resources,) = compiled(mod).values()
    assert resources.spill_bytes == resources.stack_bytes == 0


def depthwise(c: Any, size: Any, stride: int = 1, pad: int = 1) -> PrimFunc:
    return function(
        lambda x, w: topi.nn.relu(topi.nn.depthwise_conv2d(x, w, stride, pad)),
        tensor(1, c, size, size, name="X"),
        tensor(c, 1, 3, 3, name="W"),
    )


WINDOWS: dict[str, tuple[PrimFunc, dict[str, int]]] = {
    "padded": (depthwise(3, 8), {}),
    "stride 2": (depthwise(2, 7, 2, 0), {}),
    "maximum": (function(lambda x: topi.nn.max_pool2d(x, 3, 2, 1), tensor(1, 2, 8, 8)), {}),
    "average": (function(lambda x: topi.nn.avg_pool2d(x, 2, 2), tensor(1, 2, 8, 8)), {}),
    "symbolic": (
        function(
            lambda x, w: topi.nn.depthwise_conv2d(x, w, 1, 1),
            tensor(n, 2, 6, m, name="X"),
            tensor(2, 1, 3, 3, name="W"),
        ),
        {"n": 2, "m": 5},
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str) -> None:
    func, sizes = WINDOWS[name]
    agree(func, Depthwise(), **sizes)


def test_results_of_a_thread_are_in_registers() -> None:
    mod = lowered(scheduled(depthwise(64, 112), Depthwise()))
    (resources,) = compiled(mod).values()
    assert resources.spill_bytes == resources.stack_bytes == 0


def test_others_are_refused() -> None:
    for rule, func in (
        (Transpose(), function(topi.nn.relu, tensor(32, 32))),
        (Transpose(), function(topi.sum, tensor(32, 32))),
        (Transpose(), transpose(2, 3)),
        (Depthwise(), function(topi.sum, tensor(32, 32))),
    ):
        sch = start_schedule(func)
        assert sch is not None
        assert isinstance(rule.apply_to(sch, CUDA), NotApplicable)
