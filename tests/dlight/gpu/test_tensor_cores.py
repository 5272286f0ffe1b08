"""Products on tensor cores by rule: right, without races, with nothing spilled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_rules import compiled, function, tensor

from tests.everyday import few
from tilewright import dlight, te, topi
from tilewright.ir import IRModule
from tilewright.scheduling.gpu import rank_tensor_core_tiles, tensor_core_tile
from tilewright.scheduling.gpu.kernel_bounds import kernel_bounds
from tilewright.scheduling.gpu.tensor_core_tile import TILES, TensorCoreTile
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.transform import gpu_pipeline

A100 = Target("nvidia/nvidia-a100")


def lowered(func: PrimFunc, target: Target = A100) -> IRModule:
    with target:
        return gpu_pipeline(target)(dlight.default_schedule(target)(IRModule({"main": func})))


def agrees(func: PrimFunc, mod: IRModule, *shapes: tuple[int, ...]) -> None:
    """Run the kernels and the unscheduled program."""
    rng = np.random.default_rng(0)
    kinds = [func.buffer_map[var].dtype for var in func.params]
    given: list[Any] = [
        rng.integers(-4, 5, shape).astype(kind)
        if "int" in kind
        else rng.standard_normal(shape).astype(kind)
        for shape, kind in zip(shapes, kinds)
    ]
    expected, found = [x.copy() for x in given], [x.copy() for x in given]
    run(func, *expected)
    run(mod, *found, check_races=True)
    want, have = (x[-1].astype("float32") for x in (expected, found))
    np.testing.assert_allclose(have, want, rtol=1e-2, atol=1e-2)


CASES: dict[str, tuple[Any, tuple[tuple[int, ...], ...], str]] = {
    "product": (
        lambda a, b: topi.nn.matmul(a, b, out_dtype="float32"),
        ((16, 64), (64, 64), (16, 64)),
        "float16",
    ),
    "turned, with what follows": (
        lambda a, b: topi.nn.relu(topi.nn.dense(a, b)),
        ((16, 32), (64, 32), (16, 64)),
        "float16",
    ),
    "odd": (
        lambda a, b: topi.nn.matmul(a, b),
        ((10, 40), (40, 21), (10, 21)),
        "float16",
    ),
    "bytes": (
        lambda a, b: topi.nn.matmul(a, b, out_dtype="int32"),
        ((16, 64), (64, 32), (16, 32)),
        "int8",
    ),
    "bytes without a sign": (
        lambda a, b: topi.nn.matmul(a, b, out_dtype="int32"),
        ((16, 64), (64, 32), (16, 32)),
        "uint8",
    ),
    "convolution": (
        lambda a, b: topi.nn.conv2d(a, b, padding=1),
        ((1, 16, 4, 4), (16, 16, 3, 3), (1, 16, 4, 4)),
        "float16",
    ),
}


@few("name", CASES, "bytes without a sign", every=3)
def test_products_are_computed_by_mma(name: str) -> None:
    build, shapes, dtype = CASES[name]
    a, b = (tensor(*shape, dtype=dtype, name=f"x{n}") for n, shape in enumerate(shapes[:2]))
    func = function(build, a, b)
    mod = lowered(func)
    assert "T.ptx_mma(" in mod.script()
    agrees(func, mod, *shapes)
    assert all(item.spill_bytes == 0 for item in compiled(mod, A100).values())


def test_rows_may_come_with_the_call() -> None:
    n = te.var("n")
    func = function(
        lambda a, b: topi.nn.dense(a, b),
        tensor(n, 32, dtype="float16", name="a"),
        tensor(32, 32, dtype="float16", name="b"),
    )
    mod = lowered(func)
    assert "T.ptx_mma(" in mod.script()
    for rows in (1, 19):
        agrees(func, mod, (rows, 32), (32, 32), (rows, 32))


@pytest.mark.parametrize("depth", [0, 21])
def test_depth_may_come_with_the_call(depth: int) -> None:
    k = te.var("k")
    func = function(
        topi.nn.matmul,
        tensor(16, k, dtype="float16", name="a"),
        tensor(k, 16, dtype="float16", name="b"),
    )
    mod = lowered(func)
    assert "T.ptx_mma(" in mod.script()
    agrees(func, mod, (16, depth), (depth, 16), (16, 16))


def mixed(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], kinds: tuple[str, str], turned: bool, out: str
) -> PrimFunc:
    """A product of operands of two dtypes."""
    a, b = (te.placeholder(s, kind, name=n) for s, kind, n in zip(shapes, kinds, "ab"))
    k = te.reduce_axis((0, shapes[0][1]), name="k")
    columns = shapes[1][0 if turned else 1]
    return te.create_prim_func([
        a, b,
        te.compute(
            (shapes[0][0], columns),
            lambda i, j: te.sum(
                a[i, k].astype(out) * (b[j, k] if turned else b[k, j]).astype(out), axis=k
            ),
            name="c",
        ),
    ])  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "uint8")])
@few("target", ["nvidia/nvidia-a100", "nvidia/nvidia-h200"], "nvidia/nvidia-a100")
def test_bytes_of_both_signs(kinds: tuple[str, str], turned: bool, target: str) -> None:
    """Which operand is the first one on tensor cores may be either."""
    for rows, columns, depth in ((16, 32, 64), (7, 13, 21)):
        shapes = ((rows, depth), (columns, depth) if turned else (depth, columns))
        func = mixed(shapes, kinds, turned, "int32")
        mod = lowered(func, Target(target))
        assert "T.ptx_mma(" in mod.script()
        compiled(mod, Target(target))
        rng = np.random.default_rng(0)
        a, b = (
            rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
            for shape, kind in zip(shapes, kinds)
        )
        found = np.zeros((rows, columns), "int32")
        run(mod, a, b, found, check_races=True)
        expected = a.astype("int32") @ (b.T if turned else b).astype("int32")
        np.testing.assert_array_equal(found, expected)


@few("tile", TILES, every=3, ids=str)
def test_bytes_that_lie_turned_share_no_bank(
    tile: TensorCoreTile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane reads its four rows one after the other; those of its neighbours are other banks."""
    monkeypatch.setattr(tensor_core_tile, "TILES", (tile,))
    shapes = ((512, 256), (256, 512))
    mod = lowered(mixed(shapes, ("int8", "int8"), False, "int32"))
    assert "T.ptx_mma(" in mod.script()
    (bound,) = kernel_bounds(mod, A100)
    assert bound.worst(shared=True) == 1.0
    (taken,) = compiled(mod, A100).values()
    assert taken.spill_bytes == 0


def test_floats_of_8_bits_of_both_formats() -> None:
    shapes = ((16, 64), (32, 64))
    func = mixed(shapes, ("float8_e4m3fn", "float8_e5m2"), True, "float32")
    target = Target("nvidia/nvidia-h200")
    mod = lowered(func, target)
    assert "T.ptx_mma(" in mod.script()
    compiled(mod, target)
    agrees(func, mod, *shapes, (16, 32))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_stays_in_its_row(value: float) -> None:
    """Rows, columns and depth are padded; zeros of padding times infinity would be NaN."""
    a, b = (tensor(10, 10, dtype="float16", name=name) for name in "ab")
    mod = lowered(function(topi.nn.matmul, a, b))
    given, ones = np.ones((10, 10), "float16"), np.ones((10, 10), "float16")
    given[3, 9] = value
    found = np.zeros((10, 10), "float16")
    run(mod, given, ones, found, check_races=True)
    expected = np.full((10, 10), 10.0)
    expected[3] = value
    np.testing.assert_array_equal(found, expected)


def test_long_products_are_fetched_ahead() -> None:
    shape = (1024, 1024)
    a, b = (tensor(*shape, dtype="float16", name=name) for name in "ab")
    mod = lowered(function(lambda a, b: topi.nn.matmul(a, b, out_dtype="float32"), a, b))
    assert "T.ptx_cp_async(" in mod.script()
    (bound,) = kernel_bounds(mod, A100)
    # Each block fetches its rows and columns from the cache.
    assert bound.limiter == "l2" and bound.l2 < 2 * bound.issue
    assert bound.worst(shared=True) == bound.worst(shared=False) == 1
    (taken,) = compiled(mod, A100).values()
    assert taken.spill_bytes == 0 and taken.registers <= 255


@pytest.mark.parametrize(
    ("target", "dtype"), [("nvidia/tesla-t4", "float16"), ("nvidia/nvidia-a100", "float32")]
)
def test_other_products_are_computed_by_threads(target: str, dtype: str) -> None:
    a, b = (tensor(32, 32, dtype=dtype, name=name) for name in "ab")
    func = function(lambda a, b: topi.nn.matmul(a, b), a, b)
    assert "ptx_mma" not in lowered(func, Target(target)).script()


def test_large_products_have_large_tiles() -> None:
    large, small = (rank_tensor_core_tiles(n, n, 1, A100, 2)[0] for n in (8192, 128))
    assert large.rows * large.columns > 4 * small.rows * small.columns


@pytest.mark.parametrize(("tag", "has"), [("nvidia-a100", False), ("nvidia-l4", True)])
def test_floats_of_8_bits_are_for_newer_gpus(tag: str, has: bool) -> None:
    a, b = (te.placeholder(s, "float8_e4m3fn") for s in ((16, 64), (64, 64)))
    made = topi.nn.matmul(a, b, out_dtype="float32")
    target = Target(f"nvidia/{tag}")
    mod = lowered(te.create_prim_func([a, b, made]), target)
    assert ("ptx_mma" in mod.script()) == has
    compiled(mod, target)
