"""Products whose operands are of one buffer, by rule: copied into tiles like any others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_rules import compiled, function, tensor

from tests.everyday import few
from tilewright import dlight, te, topi
from tilewright.ir import IRModule, as_int
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.transform import gpu_pipeline

A100, H200, T4 = (Target(f"nvidia/{name}") for name in ("nvidia-a100", "nvidia-h200", "tesla-t4"))


def gram(a: te.Tensor) -> te.Tensor:
    """Products of columns."""
    return topi.matmul(a, a, True, False, "float32")


def windows(a: te.Tensor) -> te.Tensor:
    """The product of some columns of a matrix with others of it."""
    half = a.shape[1] // 2
    k = te.reduce_axis((0, half), name="k")
    return te.compute(
        (a.shape[0], a.shape[0]),
        lambda i, j: te.sum(a[i, k].astype("float32") * a[j, half + k].astype("float32"), axis=k),
        name="windows",
    )


def heads(a: te.Tensor) -> te.Tensor:
    """Scores of heads that lie side by side, queries being keys."""
    rows, number, size = a.shape
    k = te.reduce_axis((0, size), name="k")
    scores = te.compute(
        (number, rows, rows),
        lambda h, i, j: te.sum(a[i, h, k].astype("float32") * a[j, h, k].astype("float32"), axis=k),
        name="scores",
    )
    return topi.nn.relu(scores)


def of_made(a: te.Tensor) -> te.Tensor:
    """Of what another block computes."""
    made = topi.nn.relu(a)
    return topi.matmul(made, made, False, True, "float32")


CASES: dict[str, tuple[Any, tuple[int, ...], str, Target, str]] = {
    "rows on Hopper": (
        lambda a: topi.matmul(a, a, False, True, "float32"), (64, 64), "float16", H200, "wgmma",
    ),
    "columns on Hopper": (gram, (64, 64), "bfloat16", H200, "wgmma"),
    "columns": (gram, (48, 32), "float16", A100, "ptx_mma("),
    "odd": (gram, (13, 21), "float16", A100, "ptx_mma("),
    "bytes": (
        lambda a: topi.matmul(a, a, False, True, "int32"), (32, 64), "int8", A100, "ptx_mma(",
    ),
    "windows": (windows, (32, 64), "float16", A100, "ptx_mma("),
    "heads": (heads, (16, 2, 32), "float16", A100, "ptx_mma("),
    "made": (of_made, (32, 32), "float16", A100, "ptx_mma("),
    "on plain threads": (gram, (40, 24), "float32", T4, "shared"),
}  # fmt: skip


@few("name", CASES, every=2)
def test_products_with_themselves(name: str) -> None:
    build, shape, dtype, target, sign = CASES[name]
    func = function(build, tensor(*shape, dtype=dtype, name="a"))
    mod = lowered(func, target)
    assert sign in mod.script()
    agrees(func, mod, shape)
    assert all(item.spill_bytes == 0 for item in compiled(mod, target).values())


@pytest.mark.parametrize("rows", [0, 1, 19])
def test_rows_that_come_with_the_call(rows: int) -> None:
    func = function(
        lambda a: topi.matmul(a, a, False, True, "float32"),
        tensor(te.var("n"), 32, dtype="float16", name="a"),
    )
    mod = lowered(func, A100)
    assert "ptx_mma(" in mod.script()
    agrees(func, mod, (rows, 32))


def test_long_sums_are_shared() -> None:
    """A Gram matrix of many samples: few results, each a long sum."""
    func = function(gram, tensor(8192, 64, dtype="float16", name="a"))
    kernels = [name for name in lowered(func, A100).functions if name != "main"]
    assert len(kernels) == 2


def lowered(func: PrimFunc, target: Target) -> IRModule:
    with target:
        made: IRModule = gpu_pipeline(target)(
            dlight.default_schedule(target)(IRModule({"main": func}))
        )
    return made


def agrees(func: PrimFunc, mod: IRModule, shape: tuple[int, ...]) -> None:
    """Run the kernels, with races reported, and the unscheduled program."""
    rng = np.random.default_rng(0)
    given, result = (func.buffer_map[var] for var in func.params)
    data = rng.integers(-4, 5, shape).astype(given.dtype)
    sizes = [shape[0] if (n := as_int(size)) is None else n for size in result.shape]
    expected, found = (np.zeros(sizes, result.dtype) for _ in range(2))
    run(func, data, expected)
    run(mod, data, found, check_races=True)
    np.testing.assert_array_equal(found, expected)
