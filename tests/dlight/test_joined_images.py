"""Rows and columns of images of any size are one axis where they are contiguous everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.arith import Analyzer
from tilewright.ir import IRModule, cast, collect
from tilewright.target import Target
from tilewright.tir import For

TARGETS = {name: Target(f"llvm -mcpu={name} -num-cores=1") for name in ("znver4", "x86-64-v3")}
#: Batch, rows and columns: nothing, one, less than a vector, and some.
SIZES = [(1, 0, 3), (2, 1, 1), (1, 7, 7), (2, 5, 13)]


def scaled(x: te.Tensor) -> te.Tensor:
    factors = te.compute((1, 8, 1, 1), lambda n, c, h, w: cast(c, "float32"))
    return topi.nn.relu(topi.multiply(x, factors))


def joined(x: te.Tensor) -> te.Tensor:
    return topi.concatenate([x, topi.exp(x)], axis=1)


def channels_last(x: te.Tensor) -> te.Tensor:
    return topi.nn.relu(topi.transpose(x, (0, 2, 3, 1)))


def in_blocks(x: te.Tensor) -> te.Tensor:
    n, _, h, w = x.shape
    return topi.nn.relu(topi.transpose(topi.reshape(x, (n, 2, 4, h, w)), (0, 1, 3, 4, 2)))


def pooled(x: te.Tensor) -> te.Tensor:
    return topi.sum(x, axis=(2, 3))


_FACTORS = np.arange(8, dtype=np.float32).reshape(1, 8, 1, 1)
CASES: dict[str, tuple[Callable[[te.Tensor], te.Tensor], Callable[[Any], Any]]] = {
    "scaled": (scaled, lambda x: np.maximum(x * _FACTORS, 0)),
    "joined": (joined, lambda x: np.concatenate([x, np.exp(x)], 1)),
    "channels last": (channels_last, lambda x: np.maximum(x.transpose(0, 2, 3, 1), 0)),
    "in blocks": (
        in_blocks,
        lambda x: np.maximum(
            x.reshape(len(x), 2, 4, *x.shape[2:]).transpose(0, 1, 3, 4, 2), 0
        ),
    ),
    "pooled": (pooled, lambda x: x.sum((2, 3))),
}  # fmt: skip


def scheduled(case: str, target: Target) -> IRModule:
    x = te.placeholder((te.var("n"), 8, te.var("h"), te.var("w")), name="x")
    func = te.create_prim_func([x, CASES[case][0](x)])
    return dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("cpu", TARGETS)
def test_images_are_one_axis(case: str, cpu: str) -> None:
    mod = scheduled(case, TARGETS[cpu])
    loops = collect(mod["main"].body, For)
    _, _, h, w = mod["main"].buffers[0].shape
    assert not any(
        Analyzer().can_prove_equal(loop.extent, size) for loop in loops for size in (h, w)
    )
    assert any(loop.kind == "vectorized" for loop in loops)


@pytest.mark.parametrize("case", CASES)
def test_images_end_where_they_do(case: str) -> None:
    target = Target("native").with_options(num_cores=1)
    module = driver.compile(scheduled(case, target), target)
    for batch, rows, columns in SIZES:
        x = np.random.default_rng(0).standard_normal((batch, 8, rows, columns), dtype=np.float32)
        expected = np.ascontiguousarray(CASES[case][1](x))
        out = np.full_like(expected, np.nan)
        module["main"](x, out)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
