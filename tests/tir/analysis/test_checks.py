"""Questions about functions under TVM's names."""

from __future__ import annotations

import pytest

from tilewright import te, tir
from tilewright.ir import IRModule
from tilewright.script import tir as T
from tilewright.support.errors import VerifyError
from tilewright.target import Target
from tilewright.tir import analysis


def matmul() -> tir.PrimFunc:
    a, b = te.placeholder((8, 4), name="A"), te.placeholder((4, 8), name="B")
    k = te.reduce_axis((0, 4), "k")
    shifted = te.compute((8, 4), lambda i, j: a[i, j] + 1.0, name="shifted")
    made = te.compute((8, 8), lambda i, j: te.sum(shifted[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, made])


def test_well_formed_functions() -> None:
    func = matmul()
    assert analysis.verify_well_formed(func) and analysis.verify_ssa(func)
    i = tir.Var("i")
    twice = tir.seq(*(tir.For(i, 0, 4, "serial", tir.Evaluate(i)) for _ in range(2)))
    assert not analysis.verify_ssa(func.replace(body=twice))
    loose = func.replace(body=tir.Evaluate(tir.Var("free")))
    assert not analysis.verify_well_formed(loose, assert_mode=False)
    with pytest.raises(VerifyError):
        analysis.verify_well_formed(IRModule({"main": loose}))


def test_undefined_variables() -> None:
    n, i = tir.Var("n"), tir.Var("i")
    buffer = tir.decl_buffer((n,), name="buffer")
    loop = tir.For(i, 0, 4, "serial", tir.BufferStore(buffer, buffer[i] * 2.0, [i + n]))
    assert [var.name for var in analysis.undefined_vars(loop)] == ["buffer", "n"]
    assert analysis.undefined_vars(loop, [n, buffer.data]) == []
    assert analysis.undefined_vars(loop.body, [n]) == [buffer.data, i]
    assert analysis.undefined_vars(i + n * i) == [i, n]


def test_anchor_and_operations() -> None:
    func = matmul()
    anchor = analysis.find_anchor_sblock(IRModule({"main": func}))
    assert anchor is not None and anchor.name == "C"
    a = te.placeholder((4,), name="A")
    plain = te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1.0)])
    assert analysis.find_anchor_sblock(plain) is None
    assert analysis.estimate_tir_flops(IRModule({"main": func})) == 8 * 4 + 8 * 8 * 4 * 2
    assert analysis.estimate_tir_flops(plain.body) == 4.0


def test_memory_of_a_gpu_is_for_its_threads() -> None:
    host = matmul()
    assert analysis.verify_memory(host)
    assert not analysis.verify_memory(host.with_attr("target", Target("cuda -arch=sm_80")))

    @T.prim_func
    def kernel(A: T.Buffer((64,), "float32")):
        for b in T.thread_binding(2, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("row"):
                    v = T.axis.spatial(64, b * 32 + t)
                    A[v] = A[v] + T.float32(1)

    assert analysis.verify_memory(kernel.with_attr("target", Target("cuda -arch=sm_80")))
    assert analysis.assert_pure_function(host.replace(body=tir.Evaluate(0)))
    with pytest.raises(VerifyError, match="is not pure"):
        analysis.assert_pure_function(kernel)


def test_limits_of_a_gpu() -> None:
    @T.prim_func
    def kernel(A: T.Buffer((64,), "float32")):
        with T.block("root"):
            shared = T.alloc_buffer((64,), "float32", scope="shared")
            for _ in T.thread_binding(1, thread="blockIdx.x"):
                for y in T.thread_binding(2, thread="threadIdx.y"):
                    for x in T.thread_binding(8, thread="threadIdx.x"):
                        for i in T.vectorized(4):
                            with T.block("row"):
                                v = T.axis.spatial(64, y * 32 + x * 4 + i)
                                shared[v] = A[v]

    fits = {"max_threads_per_block": 16, "max_thread_x": 8, "max_vector_bytes": 16}
    assert analysis.verify_gpu_code(kernel, {**fits, "max_kernels": 1, "max_vthread": 1})
    for name, limit in fits.items():
        assert not analysis.verify_gpu_code(kernel, {name: limit - 1})
    with pytest.raises(VerifyError, match="unknown limits"):
        analysis.verify_gpu_code(kernel, {"max_smem": 1})


def test_accesses_outside_of_buffers() -> None:
    @T.prim_func
    def wrong(A: T.Buffer((4,), "float32")):
        for i in range(5):
            with T.block("row"):
                v = T.axis.spatial(5, i)
                A[v] = T.float32(0)

    good = IRModule({"main": matmul()})
    assert analysis.OOBChecker()(good).script() == good.script()
    with pytest.raises(VerifyError, match="outside"):
        analysis.OOBChecker()(IRModule({"main": wrong}))


def test_regions_by_pointer() -> None:
    func = matmul()
    block = next(item for item in analysis_blocks(func) if item.name == "C")
    by_pointer = {buffer.data: buffer for buffer in func.buffers}
    reads, writes, opaque = analysis.get_sblock_access_region(block, by_pointer)
    assert [r.buffer.name for r in (*reads, *writes)] == ["shifted", "B", "C"] and not opaque
    assert "shifted" in {b.name for b in analysis.detect_buffer_access_lca(func)}


def analysis_blocks(func: tir.PrimFunc) -> list[tir.Block]:
    found: list[tir.Block] = []
    tir.stmt_functor.post_order_visit(
        func.body, lambda node: found.append(node) if isinstance(node, tir.Block) else None
    )
    return found
