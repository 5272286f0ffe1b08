"""Layouts of constant operands, pipelined fetches, asynchronous copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.meta_schedule.conftest import matmul
from tests.meta_schedule.test_gpu_search import CUDA, agree, scheduled
from tilewright.meta_schedule.arg_info import arg_infos, random_arguments
from tilewright.meta_schedule.postproc import DisallowAsyncStridedMemCopy, RewriteLayout
from tilewright.meta_schedule.schedule_rule import (
    AddSoftwarePipeline,
    MultiLevelTiling,
    NotApplicable,
)
from tilewright.script import parse
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.layout_rewrite import split_layout_rewrite
from tilewright.tir.schedule import Schedule


def tiled(func: PrimFunc) -> Schedule:
    sch = Schedule(func)
    i, j, k = sch.get_loops(sch.get_block("C"))
    j0, j1 = sch.split(j, [None, 4])
    k0, k1 = sch.split(k, [None, 2])
    sch.reorder(j0, i, k0, k1, j1)
    return sch


def constant_matmul(n: int, m: int, k: int) -> PrimFunc:
    func = matmul(n, m, k)
    return func.replace(attrs={**func.attrs, "layout_free_buffers": [1]})


def test_constant_operands_follow_the_loops(same_result: Any) -> None:
    func = constant_matmul(4, 8, 6)
    sch = tiled(func)
    assert RewriteLayout().apply(sch) is None
    same_result(func, sch.mod)
    packed, packers = split_layout_rewrite(sch.mod["main"])
    assert list(packers) == [1]
    (buffer,) = (b for b in packed.buffers if b.name.startswith("B"))
    assert [int(n.value) for n in buffer.shape] == [2, 3, 2, 4]  # columns in panels of four
    b = np.array(random_arguments(arg_infos(func))[1])
    laid_out = np.zeros((2, 3, 2, 4), "float32")
    run(packers[1], b, laid_out)
    panels = b.reshape(6, 2, 4).transpose(1, 0, 2)
    np.testing.assert_array_equal(laid_out.reshape(2, 6, 4), panels)
    copy = Schedule(func)
    sch.trace.apply_to_schedule(copy)
    same_result(func, copy.mod)


def test_layouts_stay_where_nothing_is_gained_or_known() -> None:
    plain = tiled(matmul(4, 8, 6))  # nothing is constant
    before = plain.mod
    assert RewriteLayout().apply(plain) is None and plain.mod is before
    sch = Schedule(constant_matmul(4, 8, 6))
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(i, k, j)  # B is read as it lies
    before = sch.mod
    assert RewriteLayout().apply(sch) is None and sch.mod is before
    transposed = Schedule(constant_matmul(4, 8, 6))
    assert RewriteLayout().apply(transposed) is None
    assert "layout_rewrite_preproc" in transposed.mod["main"].script()


REUSED = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), W: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    T.func_attr({"layout_free_buffers": [1]})
    P = T.alloc_buffer((4,), "float32")
    for i in range(4):
        with T.block("first"):
            vi = T.axis.spatial(4, i)
            P[vi] = A[vi]
    for i in range(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi] = P[vi] * 2.0
    for i in range(4):
        with T.block("packed"):
            T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
            vi = T.axis.spatial(4, i)
            P[vi] = W[vi]
    for i in range(4):
        with T.block("D"):
            vi = T.axis.spatial(4, i)
            C[vi] = C[vi] + P[vi]
"""


def test_what_is_packed_into_a_buffer_with_other_uses_stays() -> None:
    func = parse(REUSED)
    main, packers = split_layout_rewrite(func)
    assert main is func and not packers


# ---- pipelines -----------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", [1, 2])
def test_fetches_run_ahead(distance: int) -> None:
    func = matmul(4, 8, 8)
    made = scheduled(func, CUDA, MultiLevelTiling(), AddSoftwarePipeline([distance]))
    assert len(made) == 2
    plain, ahead = (sch.mod["main"].script() for sch in made)
    assert "software_pipeline_stage" not in plain
    assert f'"software_pipeline_stage": [0, 0, {distance}]' in ahead
    for sch in made:
        agree(func, sch)


def test_what_fetches_nothing_is_not_pipelined() -> None:
    rule = AddSoftwarePipeline()
    sch = Schedule(matmul(8, 8, 8))
    found = rule.apply(sch, sch.get_block("C"))
    assert isinstance(found, NotApplicable) and "no rule has tiled" in found.reason
    sch.annotate(sch.get_block("C"), "meta_schedule.tiling_structure", "SSR")
    found = rule.apply(sch, sch.get_block("C"))
    assert isinstance(found, NotApplicable) and "fetches its operands" in found.reason
    with pytest.raises(TuneError, match="positive numbers"):
        AddSoftwarePipeline([0])


COPY = """
@T.prim_func
def main(A: T.Buffer((8, 16), "float32"), C: T.Buffer((8, 16), "float32")):
    B = T.alloc_buffer((8, 16), "float32", scope="shared")
    for i in T.serial(8, annotations={{"software_pipeline_stage": [0, 1],
            "software_pipeline_order": [0, 1], "software_pipeline_async_stages": [0]}}):
        for j in range(8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, {where}] = A[vi, {where}]
        for j in range(8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, {where}] = B[vi, {where}]
"""


@pytest.mark.parametrize(("where", "good"), [("vj", True), ("vj * 2", False), ("vj + 8", True)])
def test_copies_without_waiting_move_one_piece(where: str, good: bool, target: Target) -> None:
    postproc = DisallowAsyncStridedMemCopy()
    postproc.initialize(target)
    refused = postproc.apply(Schedule(parse(COPY.format(where=where))))
    assert (refused is None) == good
    if refused is not None:
        assert "goes through B in steps" in refused.reason
