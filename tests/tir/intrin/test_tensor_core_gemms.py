"""Whole matrix products on tensor cores, scheduled by hand, lowered and run by the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from gemm_cases import mma_gemm, operands, wmma_gemm

from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.support.errors import LowerError
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
