"""Matrix products scheduled by hand for tensor cores: what tests of intrinsics share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.tir import PrimFunc, Schedule
from tilewright.tir.intrin.cuda import (
    accumulator_32x8_layout,
    mma_group,
    operand_b_32x8_layout,
    shared_16x16_to_ldmatrix_32x8_layout,
    wgmma_accumulator_layout,
    wmma_group,
)

SIZE = 64


def matmul(size: int = SIZE, dtype: str = "float16", total: str = "float32") -> PrimFunc:
    """C = A * B of square matrices."""
    func: PrimFunc = parse(f"""
@T.prim_func
def main(
    A: T.Buffer(({size}, {size}), "{dtype}"),
    B: T.Buffer(({size}, {size}), "{dtype}"),
    C: T.Buffer(({size}, {size}), "{total}"),
):
    for i, j, k in T.grid({size}, {size}, {size}):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.{total}(0)
            C[vi, vj] = C[vi, vj] + T.Cast("{total}", A[vi, vk]) * T.Cast("{total}", B[vk, vj])
""")
    return func


def operands(size: int = SIZE) -> tuple[Any, Any, Any, Any]:
    """Random operands, memory for the result, and the result."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype("float16") for _ in range(2))
    expected = a.astype("float32") @ b.astype("float32")
    return a, b, np.zeros((size, size), "float32"), expected


def _tiled(sch: Schedule, scope: str, fragments: tuple[str, str], permuted: bool) -> dict[str, Any]:
    """Blocks of 32 x 64, one warp for each half: copies in shared memory, then in fragments."""
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1, ii = sch.split(i, [None, 2, 16])
    j0, j1, jj = sch.split(j, [None, 4, 16])
    k0, k1, kk = sch.split(k, [None, 2, 16])
    sch.reorder(i0, j0, i1, k0, k1, j1, ii, jj, kk)
    sch.bind(sch.fuse(i0, j0), "blockIdx.x")
    sch.bind(i1, "threadIdx.y")
    sums = sch.cache_write(block, 0, scope)
    sch.reverse_compute_at(sums, i1)
    for operand in range(2):
        shared = sch.cache_read(block, operand, "shared")
        sch.compute_at(shared, k0)
        fused = sch.fuse(*sch.get_loops(shared)[-2:])
        _, y, x, vector = sch.split(fused, [None, 2, 32, 8])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        sch.vectorize(vector)
        if permuted:
            sch.annotate(shared, "permuted_layout", 1)
    loads = [sch.cache_read(block, operand, fragments[operand]) for operand in range(2)]
    for load in loads:
        sch.compute_at(load, k1)
    return {"block": block, "k": k0, "sums": sums, "loads": loads}


def _tile(sch: Schedule, block: Any) -> Any:
    """The loop over the rows of one 16 x 16 tile of a copy."""
    rows, columns = sch.get_loops(block)[-2:]
    rows, inner_rows = sch.split(rows, [None, 16])
    columns, inner_columns = sch.split(columns, [None, 16])
    sch.reorder(rows, columns, inner_rows, inner_columns)
    return inner_rows


def _tensorized(sch: Schedule, made: dict[str, Any], group: Mapping[str, str]) -> None:
    init = sch.decompose_reduction(made["block"], made["k"])
    for load, name in zip(made["loads"], ("load_a", "load_b")):
        sch.tensorize(_tile(sch, load), group[name])
    sch.tensorize(sch.get_loops(init)[-2], group["fill"])
    sch.tensorize(sch.get_loops(made["block"])[-3], group["compute"])
    sch.tensorize(_tile(sch, made["sums"]), group["store"])


def wmma_gemm(size: int = SIZE) -> Schedule:
    """By ``wmma``: fragments in a layout of the compiler."""
    sch = Schedule(IRModule({"main": matmul(size)}))
    made = _tiled(sch, "wmma.accumulator", ("wmma.matrix_a", "wmma.matrix_b"), False)
    _tensorized(sch, made, wmma_group("float16", "float32", store_scope="global"))
    return sch


def _laid_out(layout: Callable[[Any, Any], tuple[Any, Any]]) -> Callable[[Any, Any], Any]:
    return lambda i, j: (i // 16, j // 16, *layout(i % 16, j % 16))


def mma_gemm(size: int = SIZE, *, permuted: bool = True, stages: int = 3) -> Schedule:
    """By ``mma`` and ``ldmatrix``, from permuted shared memory in a pipeline of ``stages``."""
    sch = Schedule(IRModule({"main": matmul(size)}))
    made = _tiled(sch, "warp", ("warp", "warp"), permuted)
    layouts = (shared_16x16_to_ldmatrix_32x8_layout, operand_b_32x8_layout)
    sch.transform_layout(made["block"], ("write", 0), _laid_out(accumulator_32x8_layout))
    for load, layout in zip(made["loads"], layouts):
        sch.transform_layout(load, ("write", 0), _laid_out(layout))
    _tensorized(sch, made, mma_group("float16", "float32"))
    if stages > 1:
        sch.annotate(made["k"], "software_pipeline_stage", [0, 0, stages - 1])
        sch.annotate(made["k"], "software_pipeline_order", [0, 1, 2])
        sch.annotate(made["k"], "software_pipeline_async_stages", [0])
    return sch


def wgmma_gemm(size: int = 128, *, permuted: bool = True, stages: int = 2) -> Schedule:
    """By ``wgmma``: four warps multiply tiles of 64 x 64 in shared memory; B is transposed."""
    func = parse(
        matmul(size).script().replace("B[vk, vj]", "B[vj, vk]").replace("B[vk, vj]", "B[vj, vk]")
    )
    sch = Schedule(IRModule({"main": func}))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, ii = sch.split(i, [None, 64])
    j0, jj = sch.split(j, [None, 64])
    k0, kk = sch.split(k, [None, 64])
    sch.reorder(i0, j0, k0, ii, jj, kk)
    bx = sch.fuse(i0, j0)
    sch.bind(bx, "blockIdx.x")
    sums = sch.cache_write(block, 0, "warpgroup")
    sch.reverse_compute_at(sums, bx)
    for operand in range(2):
        shared = sch.cache_read(block, operand, "shared")
        sch.compute_at(shared, k0)
        fused = sch.fuse(*sch.get_loops(shared)[-2:])
        _, x, vector = sch.split(fused, [None, 128, 8])
        sch.bind(x, "threadIdx.x")
        sch.vectorize(vector)
        if permuted:
            sch.annotate(shared, "permuted_layout", 1)
    sch.transform_layout(
        block,
        ("write", 0),
        lambda i, j: (i // 64, j // 64, *wgmma_accumulator_layout(i % 64, j % 64)),
    )
    init = sch.decompose_reduction(block, k0)
    sch.tensorize(sch.get_loops(init)[-2], "wgmma_fill_64x64_f32")
    sch.tensorize(sch.get_loops(block)[-3], "wgmma_64x64x64_f16f16f32")
    sch.tensorize(sch.get_loops(sums)[-2], "wgmma_store_64x64_f32_global")
    if stages > 1:
        sch.annotate(k0, "software_pipeline_stage", [0, 0, stages - 1])
        sch.annotate(k0, "software_pipeline_order", [0, 1, 2])
        sch.annotate(k0, "software_pipeline_async_stages", [0])
    return sch
