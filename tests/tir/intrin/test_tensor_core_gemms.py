"""Whole matrix products on tensor cores, scheduled by hand, lowered and run by the interpreter."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from gemm_cases import mma_gemm, operands, wgmma_gemm, wmma_gemm

from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.support.errors import LowerError, RunError
from tilewright.target import Target
from tilewright.tir import Schedule
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run, simulate
from tilewright.tir.transform import gpu_pipeline

GEMMS: dict[str, Callable[[], Schedule]] = {
    "wmma": wmma_gemm,
    "mma": partial(mma_gemm, permuted=False, stages=1),
    "mma, permuted, pipelined": mma_gemm,
}


@pytest.mark.parametrize("name", GEMMS)
def test_a_gemm_is_right_before_and_after_lowering(name: str) -> None:
    sch = GEMMS[name]()
    a, b, c, expected = operands()
    run(sch.mod, a, b, c)
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-4)
    lowered = gpu_pipeline(Target("cuda"))(sch.mod)
    verify(lowered)
    c[:] = 0
    run(lowered, a, b, c, check_races=True)
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-4)


def test_permuted_tiles_have_no_bank_conflicts() -> None:
    reports = {}
    for permuted in (False, True):
        lowered = gpu_pipeline(Target("cuda"))(mma_gemm(permuted=permuted, stages=2).mod)
        a, b, c, expected = operands()
        reports[permuted] = simulate(lowered, a, b, c, check_races=False)
        np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-4)
        assert reports[permuted].sectors == reports[permuted].ideal_sectors
    assert reports[True].bank_conflicts == 0
    assert reports[False].bank_conflicts > reports[False].wavefronts // 2


def test_registers_replace_the_memory_of_a_warp() -> None:
    text = gpu_pipeline(Target("cuda"))(mma_gemm().mod)["main_kernel"].script()
    assert 'scope="warp"' not in text
    assert 'C_warp = T.allocate((32,), "float32", scope="local")' in text


def test_pipelined_copies_are_of_ptx_where_the_gpu_has_them() -> None:
    module = mma_gemm().mod
    new = gpu_pipeline(Target("cuda -arch=sm_80"))(module)["main_kernel"].script()
    assert "T.ptx_cp_async(" in new and "T.ptx_wait_group(1)" in new and "async_scope" not in new
    old = gpu_pipeline(Target("cuda -arch=sm_75"))(module)["main_kernel"].script()
    assert "ptx_cp_async" not in old and "async_" not in old


def test_tiles_of_several_rows_cant_be_permuted() -> None:
    sch = wmma_gemm()
    sch.annotate(sch.get_block("A_shared"), "permuted_layout", 1)
    with pytest.raises(LowerError, match="permuted"):
        gpu_pipeline(Target("cuda"))(sch.mod)


def test_a_warp_has_32_lanes_along_x() -> None:
    sch = mma_gemm(permuted=False, stages=1)
    text = sch.mod["main"].script().replace("32, thread=", "16, thread=")
    with pytest.raises(LowerError, match="belongs to a warp"):
        gpu_pipeline(Target("cuda"))(IRModule({"main": parse(text)}))


# ---- products of a warpgroup ---------------------------------------------------------------------

HOPPER = Target("cuda -arch=sm_90a")


def _wgmma_result(module: IRModule, size: int, **options: bool) -> bool:
    """Whether a module computes A * B^T."""
    a, b, c, _ = operands(size)
    run(module, a, b, c, **options)
    return bool(np.allclose(c, a.astype("float32") @ b.astype("float32").T, rtol=1e-5, atol=1e-3))


def test_a_gemm_of_warpgroups_before_and_after_lowering() -> None:
    sch = wgmma_gemm(128)
    assert _wgmma_result(sch.mod, 128)
    lowered = gpu_pipeline(HOPPER)(sch.mod)
    verify(lowered)
    assert 'scope="warpgroup"' not in lowered["main_kernel"].script()
    assert _wgmma_result(lowered, 128)
    assert _wgmma_result(gpu_pipeline(HOPPER)(wgmma_gemm(64).mod), 64, check_races=True)


def test_products_read_permuted_rows_only() -> None:
    with pytest.raises(LowerError, match="annotate the copies of both with permuted_layout"):
        gpu_pipeline(HOPPER)(_one_permuted())


def test_products_know_no_rows_that_are_permuted_alike() -> None:
    sch = wgmma_gemm(64)
    sch.annotate(sch.get_block("A_shared"), "permuted_rows", 4)
    with pytest.raises(LowerError, match="both permuted by chunks of 16 bytes"):
        gpu_pipeline(HOPPER)(sch.mod)


def _one_permuted() -> IRModule:
    sch = wgmma_gemm(64, permuted=False, stages=1)
    sch.annotate(sch.get_block("A_shared"), "permuted_layout", 1)
    made: IRModule = sch.mod
    return made


@pytest.mark.parametrize(
    ("removed", "message"),
    [
        ("T.evaluate(T.ptx_wgmma_fence())", "without a ptx_wgmma_fence"),
        ("T.evaluate(T.ptx_wgmma_wait_group(0))", "which nothing has written yet"),
        ("T.evaluate(T.ptx_wgmma_commit_group())", "which nothing has written yet"),
        ('T.evaluate(T.storage_sync("shared", dtype="void"))', "race on element"),
    ],
)
def test_wrong_use_of_products_is_an_error(removed: str, message: str) -> None:
    lowered = gpu_pipeline(HOPPER)(wgmma_gemm(64, stages=1).mod)
    text = lowered["main_kernel"].script()
    assert removed in text
    kernel = parse(text.replace(removed, "pass"))
    a, b, c, _ = operands(64)
    module = IRModule({**lowered.functions, "main_kernel": kernel})
    with pytest.raises(RunError, match=message):
        run(module, a, b, c, check_races=True)


def test_another_swizzle_is_noticed() -> None:
    lowered = gpu_pipeline(HOPPER)(wgmma_gemm(64, stages=1).mod)
    text = lowered["main_kernel"].script()
    changed = re.sub(r"(C_warpgroup\[0:32\]\), \"\"),\s*128\)", r"\1, 64)", text)
    assert changed != text
    a, b, c, _ = operands(64)
    module = IRModule({**lowered.functions, "main_kernel": parse(changed)})
    with pytest.raises(RunError, match="lie 128 bytes apart, with a swizzle of 64 bytes"):
        run(module, a, b, c)
