"""Products on Hopper's warpgroups by rule: right, without races, without bank conflicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_rules import compiled, function, tensor

from tests.everyday import few
from tilewright import dlight, te, topi
from tilewright.ir import IRModule
from tilewright.runtime.dlpack import numpy_dtype
from tilewright.scheduling import NotApplicable, describe
from tilewright.scheduling.gpu import (
    WarpgroupTile,
    bring_into_form,
    limits_of,
    matrix_form_of,
    rank_warpgroup_tiles,
    schedule_warpgroup_tiles,
)
from tilewright.script import parse
from tilewright.support.errors import RunError
from tilewright.target import Target
from tilewright.tir import PrimFunc, Schedule
from tilewright.tir.interpreter import run, simulate
from tilewright.tir.transform import gpu_pipeline

HOPPER = Target("nvidia/nvidia-h200")


def lowered(func: PrimFunc) -> IRModule:
    with HOPPER:
        return gpu_pipeline(HOPPER)(dlight.default_schedule(HOPPER)(IRModule({"main": func})))


def product(
    m: Any, n: Any, k: Any, dtype: str = "float16", total: str = "float32",
    turned: tuple[bool, bool] = (False, True),
) -> PrimFunc:  # fmt: skip
    """A product; B is stored with rows along ``k`` if the second of ``turned`` says so."""
    a = tensor(*((k, m) if turned[0] else (m, k)), dtype=dtype, name="a")
    b = tensor(*((n, k) if turned[1] else (k, n)), dtype=dtype, name="b")
    return function(
        lambda a, b: topi.nn.matmul(
            a, b, transpose_a=turned[0], transpose_b=turned[1], out_dtype=total
        ),
        a,
        b,
    )


def agrees(module: IRModule, m: int, n: int, k: int, turned: tuple[bool, bool], dtype: str) -> Any:
    """Run the kernel on random data; compare with NumPy; return what memory did."""
    rng = np.random.default_rng(0)
    kind = numpy_dtype(dtype)
    a = rng.integers(-4, 5, (m, k)).astype(kind)
    b = rng.integers(-4, 5, (n, k)).astype(kind)
    total = np.zeros((m, n), "int32" if "int8" in dtype else "float32")
    given = [np.ascontiguousarray(a.T if turned[0] else a),
             np.ascontiguousarray(b if turned[1] else b.T)]  # fmt: skip
    report = simulate(module, *given, total, check_races=True)
    np.testing.assert_array_equal(total, a.astype("float32") @ b.astype("float32").T)
    return report


CASES: dict[str, tuple[int, int, int, tuple[bool, bool], str]] = {
    "rows along k": (64, 64, 128, (False, True), "float16"),
    "b turned": (64, 128, 128, (False, False), "bfloat16"),
    "eighths": (64, 64, 256, (False, True), "float8_e4m3fn"),
    "odd": (40, 72, 128, (False, True), "float16"),
    # What is negative where the data are made wraps to more than a byte with a sign holds.
    "bytes without a sign": (64, 64, 256, (False, True), "uint8"),
}


@few("name", CASES, "odd", "bytes without a sign")
def test_products(name: str) -> None:
    m, n, k, turned, dtype = CASES[name]
    total = "int32" if "int8" in dtype else "float32"
    module = lowered(product(m, n, k, dtype, total, turned))
    assert "T.ptx_wgmma(" in module.script() and "T.ptx_cp_async(" in module.script()
    report = agrees(module, m, n, k, turned, dtype)
    assert report.bank_conflicts == 0
    assert all(item.spill_bytes == 0 for item in compiled(module, HOPPER).values())


def test_products_are_waited_for_while_the_next_ones_run() -> None:
    # Tiles of 128 x 256, one for each processor.
    text = lowered(product(1408, 3072, 4096)).script()
    loop = text[text.index("for ax3_0 in range(61)") :]
    loop = loop[: loop.index("ptx_wgmma_wait_group")]
    # One barrier for a step: what products read is overwritten two steps later.
    assert loop.count("storage_sync") == 1 and "ptx_wgmma_commit_group" in loop
    assert text.count("T.ptx_wgmma_wait_group(1)") == 3
    assert text.count("T.ptx_wgmma_wait_group(0)") == 1
    # Sums go to shared memory, and from there to the result, all threads at once.
    assert text[text.rindex("ptx_wgmma_wait_group(0)") :].count("storage_sync") == 2


@few("wait", (WAITS := ["T.ptx_wgmma_wait_group(0)", "T.ptx_wgmma_wait_group(1)"]), WAITS[1])
def test_a_missing_wait_for_products_is_reported(wait: str) -> None:
    text = lowered(product(64, 64, 512)).script()
    assert wait in text
    broken = text.replace(f"T.evaluate({wait})", "T.evaluate(T.ptx_wgmma_wait_group(2))")
    with pytest.raises(RunError, match=r"race|without waiting|nothing has written"):
        agrees(parse(broken), 64, 64, 512, (False, True), "float16")


@pytest.mark.slow
@pytest.mark.parametrize(
    "tile", [WarpgroupTile(128, 64, 64, 2, 4), WarpgroupTile(192, 128, 64, 3, 3)]
)
def test_tiles_of_several_warpgroups(tile: WarpgroupTile) -> None:
    turned = True, False
    func = product(tile.rows, 128, 192, turned=turned)
    sch = Schedule(IRModule({"main": func}))
    found = describe(sch)
    assert not isinstance(found, NotApplicable)
    form = matrix_form_of(sch, found)
    assert not isinstance(form, NotApplicable)
    bring_into_form(sch, found.main, form)
    schedule_warpgroup_tiles(sch, found.main, tile, limits_of(HOPPER))
    with HOPPER:
        module = gpu_pipeline(HOPPER)(sch.mod)
    assert agrees(module, tile.rows, 128, 192, turned, "float16").bank_conflicts == 0


@pytest.mark.parametrize("turned", [(False, True), (True, False)])
def test_large_products_leave_registers_and_shared_memory(turned: tuple[bool, bool]) -> None:
    module = lowered(product(4096, 4096, 4096, turned=turned))
    assert '"m64n256k16"' in module.script()
    for resources in compiled(module, HOPPER).values():
        assert resources.spill_bytes == 0 and resources.registers <= 200


def test_rows_may_come_with_the_call() -> None:
    n = te.var("n")
    func = function(
        lambda a, b: topi.nn.relu(topi.nn.dense(a, b)),
        tensor(n, 128, dtype="float16", name="a"),
        tensor(64, 128, dtype="float16", name="b"),
    )
    module = lowered(func)
    assert "T.ptx_wgmma(" in module.script() and "T.ptx_cp_async(" in module.script()
    rng = np.random.default_rng(0)
    for rows in (0, 65):
        a, b = (rng.integers(-4, 5, (size, 128)).astype("float16") for size in (rows, 64))
        found = np.zeros((rows, 64), "float16")
        run(module, a, b, found, check_races=True)
        np.testing.assert_array_equal(found, np.maximum(a @ b.T, 0))


def test_older_gpus_have_no_warpgroups() -> None:
    assert "wgmma" not in gpu_text_of("nvidia/nvidia-a100")


def gpu_text_of(gpu: str) -> str:
    target = Target(gpu)
    with target:
        made = dlight.default_schedule(target)(IRModule({"main": product(64, 64, 128)}))
        text: str = gpu_pipeline(target)(made).script()
    return text


def test_small_products_get_small_tiles() -> None:
    few = rank_warpgroup_tiles(64, 64, 1, HOPPER, 2)[0]
    many = rank_warpgroup_tiles(8192, 8192, 1, HOPPER, 2)[0]
    assert (few.rows, few.columns) == (64, 64)
    assert (many.rows, many.columns) == (192, 256)
