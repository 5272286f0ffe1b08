"""Products whose sums several blocks share: right, without races, with nothing spilled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_rules import compiled, kernels

from tests.everyday import few
from tilewright import dlight, te, topi
from tilewright.ir import IRModule
from tilewright.scheduling import describe
from tilewright.scheduling.gpu import matrix_form_of, part_options, split_sums
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform import gpu_pipeline, launch_extents

A100, H200 = Target("nvidia/nvidia-a100"), Target("nvidia/nvidia-h200")


def product(
    m: Any, n: Any, k: Any, dtype: str = "float16", turned: bool = False, relu: bool = False
) -> PrimFunc:
    a = te.placeholder((m, k), dtype, "a")
    b = te.placeholder((n, k) if turned else (k, n), dtype, "b")
    made = topi.matmul(a, b, False, turned, "int32" if dtype == "int8" else "float32")
    return te.create_prim_func([a, b, topi.nn.relu(made) if relu else made])


def lowered(func: PrimFunc, target: Target) -> IRModule:
    with target:
        return gpu_pipeline(target)(dlight.default_schedule(target)(IRModule({"main": func})))


def parts(func: PrimFunc, target: Target) -> list[int]:
    """How many parts the sums may have, the preferred number first."""
    sch = Schedule(IRModule({"main": func}))
    found = describe(sch)
    return part_options(sch, found, matrix_form_of(sch, found), target)


def short_sums_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide what is small enough to be simulated."""
    where = "tilewright.scheduling.gpu.shared_sums"
    monkeypatch.setattr(f"{where}.LAUNCH_CLOCKS", -1e9)
    monkeypatch.setattr(f"{where}.SHORTEST", 64)


@few(
    ("options", "target", "used"),
    [
        ({"dtype": "float16", "turned": True, "relu": True}, A100, "ptx_mma"),
        ({"dtype": "int8", "turned": True}, A100, "ptx_mma"),
        ({"dtype": "float16"}, H200, "ptx_wgmma"),
        ({"dtype": "float32", "relu": True}, A100, ""),
    ],
    every=4,
)
def test_parts_are_added_up(
    options: Any, target: Target, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_sums_are_shared(monkeypatch)
    func = product(17, 64, 128, **options)
    mod = lowered(func, target)
    assert len(kernels(mod)) == 2
    assert used in mod.script()
    assert all(item.spill_bytes == 0 for item in compiled(mod, target).values())
    rng = np.random.default_rng(0)
    a, b, c = (func.buffer_map[var] for var in func.params)
    args = [rng.integers(-4, 5, [int(n) for n in x.shape]).astype(x.dtype) for x in (a, b)]
    found = np.full((17, 64), 7, c.dtype)
    run(mod, *args, found, check_races=True)
    wide = args[1].astype("float64").T if options.get("turned") else args[1].astype("float64")
    expected = args[0].astype("float64") @ wide
    np.testing.assert_array_equal(
        found, np.maximum(expected, 0) if options.get("relu") else expected
    )


def test_few_tiles_of_long_sums_are_shared() -> None:
    func = product(512, 512, 16384)
    assert parts(func, H200)[0] > 1
    mod = lowered(func, H200)
    first = next(f for f in mod.functions.values() if "ptx_wgmma" in f.script())
    blocks = [int(n) for tag, n in launch_extents(first).items() if tag.startswith("blockIdx")]
    assert np.prod(blocks) > 64
    assert all(item.spill_bytes == 0 for item in compiled(mod, H200).values())


@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (512, 512, 512), (512, 512, 16381)])
def test_others_are_not(sizes: tuple[int, int, int]) -> None:
    """As many tiles as processors, short sums, and lengths that don't divide."""
    assert parts(product(*sizes), H200)[0] == 1


def test_sizes_of_the_call_are_not() -> None:
    assert parts(product(te.var("m"), 512, 16384), H200) == [1]


def test_a_convolution_divides_its_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    short_sums_are_shared(monkeypatch)
    x = te.placeholder((1, 4, 5, 128), "float16", "x")
    w = te.placeholder((1, 2, 128, 16), "float16", "w")
    func = te.create_prim_func([x, w, topi.nn.conv2d(x, w, 1, 0, 1, "NHWC", "", "float32")])
    sch = Schedule(IRModule({"main": func}))
    made = split_sums(sch, describe(sch), 2, A100)
    assert [axis.extent for axis in made.steps].count(64) == 1
    mod = lowered(func, A100)
    assert len(kernels(mod)) == 2
    rng = np.random.default_rng(0)
    args = [rng.integers(-2, 3, [int(n) for n in t.shape]).astype("float16") for t in (x, w)]
    found = np.zeros((1, 4, 4, 16), "float32")
    run(mod, *args, found, check_races=True)
    wide = [item.astype("float64") for item in args]
    expected = sum(wide[0][:, :, i : i + 4] @ wide[1][0, i] for i in range(2))
    np.testing.assert_array_equal(found, expected)
