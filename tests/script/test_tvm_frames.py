"""Names of `T`, `R` and `I` that stand for statements, in functions written in Python."""

from __future__ import annotations

import numpy as np

from tilewright import tirx
from tilewright.ir import DummyGlobalInfo, structural_equal
from tilewright.script import ir as I
from tilewright.script import tirx as T
from tilewright.script.ir_builder import IRBuilder
from tilewright.script.ir_builder import relax as RB
from tilewright.script.ir_builder import tirx as TB
from tilewright.tir.interpreter import run


@T.prim_func
def frames(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), n: T.int32) -> None:
    V = T.decl_buffer((8,), "float32", data=B.data)
    limit = T.bind(n * 2)
    with T.Assert(n > 0, "positive"):
        T.evaluate(0)
    with T.attr(0, "note", 1):
        for i in T.parallel(0, 8):
            with T.If(i < limit):
                with T.Then():
                    T.buffer_store(B, A[i] * T.float32(2), [i])
                with T.Else():
                    V[i] = T.float32(-1)


def test_frames_in_a_function() -> None:
    a, b = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    run(frames, a, b, 2)
    np.testing.assert_array_equal(b, np.where(np.arange(8) < 4, a * 2, -1))


@T.prim_func
def counted(A: T.Buffer((1,), "int32")) -> None:
    x: T.let = T.int32(3)
    y: T.let[T.int32] = x + 1
    with T.While(A[0] < y):
        A[0] = A[0] + x


def test_values_and_loops() -> None:
    a = np.zeros(1, "int32")
    run(counted, a)
    assert a[0] == 6


def test_variables_and_iterations() -> None:
    n = T.var("int32", "n")
    assert (n.name, n.dtype) == ("n", "int32")
    made = T.iter_var(n, (0, 4), "CommReduce", "")
    assert made.var is n and made.dom.extent.value == 4
    assert made.iter_type == tirx.IterVar.CommReduce


def test_threads_share_a_sum() -> None:
    @T.prim_func
    def total(A: T.Buffer((4,), "float32"), B: T.Buffer((1,), "float32")) -> None:
        with T.launch_thread("threadIdx.x", 4) as tx:
            part = T.allocate((1,), "float32", "local")
            P = T.decl_buffer((1,), "float32", data=part.data, scope="local")
            with T.attr(
                T.comm_reducer(lambda x, y: x + y, [T.float32(0)]), "reduce_scope", T.int32(0)
            ):
                T.tvm_thread_allreduce(T.uint32(1), A[tx], T.bool(True), P[0], tx)
            if tx == 0:
                B[0] = P[0]

    found = np.zeros(1, "float32")
    run(total, np.float32([1, 2, 3, 4]), found)
    assert found[0] == 10


def test_blocks_by_frames() -> None:
    with IRBuilder() as builder, TB.prim_func():
        A = TB.arg("A", TB.Buffer((4, 4), "float32"))
        with TB.unroll(0, 2) as i, TB.vectorized(0, 4) as j, TB.sblock("block"):
            vi, vj = IRBuilder.name_many(["vi", "vj"], TB.axis.remap("SS", [i, j]))
            TB.where(i < 1)
            TB.reads(A[vi, vj])
            TB.writes(A[vi, vj])
            TB.sblock_attr({"note": 1})
            TB.buffer_store(A, A[vi, vj] + 1.0, [vi, vj])
        with TB.parallel(0, 4) as k:
            TB.buffer_store(A, 2.0, [k, 1])
        with TB.thread_binding(0, 4, "threadIdx.x") as tx:
            TB.buffer_store(A, 0.0, [tx, 0])

    @T.prim_func
    def expected(A: T.Buffer((4, 4), "float32")) -> None:
        for i in T.unroll(0, 2):
            for j in T.vectorized(0, 4):
                with T.sblock("block"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.where(i < 1)
                    T.reads(A[vi, vj])
                    T.writes(A[vi, vj])
                    T.sblock_attr({"note": 1})
                    A[vi, vj] = A[vi, vj] + T.float32(1)
        for k in T.parallel(0, 4):
            A[k, 1] = T.float32(2)
        for tx in T.thread_binding(0, 4, thread="threadIdx.x"):
            A[tx, 0] = T.float32(0)

    assert structural_equal(builder.get(), expected)


def test_a_graph_by_frames() -> None:
    with IRBuilder() as builder, RB.function():
        RB.func_name("main")
        x = RB.arg("x", RB.Tensor((2,), "float32"))
        y = RB.emit_match_cast(x, RB.Tensor((2,), "float32"))
        RB.func_ret_value(RB.emit(RB.add(y, y)))
    assert "match_cast" in builder.get().script()


def test_information_of_modules() -> None:
    assert isinstance(I.dummy_global_info(), DummyGlobalInfo)
    assert T.Bind is T.bind
