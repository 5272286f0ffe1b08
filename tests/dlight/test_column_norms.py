"""Norms over axes that aren't the last: neighbouring results are the lanes of vectors."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import dlight, driver, te
from tilewright.ir import IRModule, collect
from tilewright.target import Target
from tilewright.tir import Block, For, PrimFunc
from tilewright.topi import nn, testing


def scheduled(func: PrimFunc, target: Target) -> PrimFunc:
    result = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(
        IRModule({"main": func})
    )["main"]
    assert isinstance(result, PrimFunc)
    return result


def around(func: PrimFunc, block: str) -> list[str]:
    """The kinds of the loops around a block, the outermost first."""
    return [
        str(loop.kind)
        for loop in collect(func.body, For)
        if any(item.name == block for item in collect(loop, Block))
    ]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((8, 16), (0,)), ((3, 9, 33), (1,)), ((2, 5, 6, 16), (1, 2)), ((1, 40, 50, 8), (1, 2))],
)
def test_norms_of_columns(shape: tuple[int, ...], axes: tuple[int, ...], cores: int) -> None:
    target = Target("native").with_options(num_cores=cores)
    rng = np.random.default_rng(0)
    x, *affine = (
        rng.standard_normal(s).astype("float32") for s in (shape, *[[shape[a] for a in axes]] * 2)
    )
    tensors = [te.placeholder(a.shape, name="xgb"[n]) for n, a in enumerate((x, *affine))]
    func = scheduled(
        te.create_prim_func([*tensors, nn.layer_norm(*tensors, list(axes), 1e-5)]), target
    )
    updates = [
        block.name
        for block in collect(func.body, Block)
        if "sum" in block.name and block.name.endswith("update")
    ]
    assert len(updates) == 2
    assert all(around(func, name)[-1] == "vectorized" for name in updates)
    out = np.empty(shape, "float32")
    driver.compile(func, target)(x, *affine, out)
    expected = testing.layer_norm_python(x, *affine, list(axes), 1e-5)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_few_columns_are_shared_among_threads() -> None:
    """All columns stay in the registers of a thread, so each thread takes some of the rows."""
    target = Target("native").with_options(num_cores=4)
    x = te.placeholder((1, 112, 112, 64), name="x")
    func = scheduled(te.create_prim_func([x, nn.instance_norm(x, None, None, 3, [1, 2])]), target)
    for name in ("instance_norm_sum_rf_update", "instance_norm_square_sum_rf_update"):
        assert around(func, name)[0] == "parallel"
        assert around(func, name)[-1] == "vectorized"


@pytest.mark.parametrize("shape", [(16, 16), ("n", "n"), ("n", "m")])
def test_columns_of_square_matrices_are_no_rows(shape: tuple[int | str, int | str]) -> None:
    """That two axes are as long, or both of a length that is unknown, makes them no shared rows."""
    sizes = {name: te.var(name, "int64") for name in "nm"}
    x = te.placeholder([sizes[n] if isinstance(n, str) else n for n in shape], name="x")
    target = Target("native").with_options(num_cores=1)
    func = scheduled(te.create_prim_func([x, nn.softmax(x, 0)]), target)
    outer = [loop for loop in collect(func.body, For) if "softmax" in blocks_below(loop)]
    assert not any(blocks_below(loop) & {"softmax_max_update", "softmax_exp"} for loop in outer)
    kernel = driver.compile(IRModule({"main": func}), target)["main"]
    given = np.random.default_rng(0).standard_normal((16, 16), dtype=np.float32)
    given[3, 5] = np.nan
    out = np.empty_like(given)
    kernel(given, out)
    powers = np.exp(given - np.nanmax(given, 0))
    np.testing.assert_allclose(out, powers / powers.sum(0), rtol=1e-5)


def blocks_below(loop: For) -> set[str]:
    return {block.name for block in collect(loop, Block)}
