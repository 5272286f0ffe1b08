"""Programs that ``with`` frames build, beside the script that says the same."""

import numpy as np
import pytest

from tilewright import relax as rx
from tilewright import script, topi
from tilewright.ir import GlobalVar, assert_structural_equal
from tilewright.script import ir_builder
from tilewright.script.ir_builder import IRBuilder
from tilewright.script.ir_builder import ir as I
from tilewright.script.ir_builder import relax as R
from tilewright.script.ir_builder import tirx as T
from tilewright.support.errors import VerifyError
from tilewright.tir import interpreter


def test_a_tensor_function():
    with IRBuilder() as builder, T.prim_func():
        T.func_attr({"note": 1})
        A = T.arg("A", T.Buffer((4, 4), "float32"))
        B = T.arg("B", T.Buffer((4, 4), "float32"))
        n = T.arg("n", T.int32())
        C = IRBuilder.name("C", T.sblock_alloc_buffer((4, 4), "float32"))
        with T.grid(4, 4, 4) as (i, j, k), T.sblock("C"):
            axes = T.axis.remap("SSR", [i, j, k])
            vi, vj, vk = IRBuilder.name_many(["vi", "vj", "vk"], axes)
            with T.init():
                T.buffer_store(C, 0.0, [vi, vj])
            T.buffer_store(C, C[vi, vj] + A[vi, vk] * A[vk, vj], [vi, vj])
        with T.serial(0, 4, step=2) as i:
            x = T.bind(C[i, 0])
            with T.If(n > 3):
                with T.Then():
                    T.buffer_store(B, x, [i, 0])
                with T.Else():
                    T.evaluate(0)
    expected = script.parse("""
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32"), n: T.int32):
    T.func_attr({"note": 1})
    C = T.alloc_buffer((4, 4), "float32")
    for i, j, k in T.grid(4, 4, 4):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * A[vk, vj]
    for i in T.serial(0, 4, step=2):
        x: T.let = C[i, 0]
        if n > 3:
            B[i, 0] = x
        else:
            T.evaluate(0)
""")
    assert_structural_equal(builder.get(), expected)
    assert script.parse(builder.get().script()).script() == builder.get().script()


def test_memory_threads_and_checks():
    with IRBuilder() as builder, T.prim_func():
        a = T.arg("a", T.handle())
        A = IRBuilder.name("A", T.match_buffer(a, (4, 4), "float32"))
        M = IRBuilder.name("M", T.allocate((4,), "float32", "shared"))
        V = IRBuilder.name("V", T.decl_buffer((2, 2), "float32", data=M.data))
        with T.Assert(A[0, 0] > 0.0, "positive"), T.launch_thread("threadIdx.x", 4) as tx:
            T.buffer_store(V, A[tx, 0], [tx // 2, tx % 2])
        with T.While(A[0, 0] > 3.0), T.attr(0, "key", 1):
            T.evaluate(T.exp(A[0, 1]))
    expected = script.parse("""
@T.prim_func
def main(a: T.handle):
    A = T.match_buffer(a, (4, 4), "float32")
    M = T.allocate((4,), "float32", "shared")
    V = T.decl_buffer((2, 2), "float32", data=M.data)
    assert A[0, 0] > T.float32(0), "positive"
    for tx in T.thread_binding(4, "threadIdx.x"):
        V[tx // 2, tx % 2] = A[tx, 0]
    while A[0, 0] > T.float32(3):
        T.attr(0, "key", 1)
        T.evaluate(T.exp(A[0, 1]))
""")
    assert_structural_equal(builder.get(), expected)


def test_a_module_of_graph_and_tensor_functions():
    with IRBuilder() as builder, I.ir_module():
        I.module_attrs({"version": 1})
        with T.prim_func():
            T.func_name("add_one")
            A = T.arg("A", T.Buffer((4,), "float32"))
            B = T.arg("B", T.Buffer((4,), "float32"))
            with T.serial(4) as i, T.block("B"):
                vi = T.axis.spatial(4, i)
                T.buffer_store(B, A[vi] + 1.0, [vi])
        with R.function():
            R.func_name("main")
            R.func_attr({"num_input": 1})
            x = R.arg("x", R.Tensor((4,), "float32"))
            c = R.arg("c", R.Tensor((), "bool"))
            with R.dataflow() as block:
                y = R.emit(R.add(x, x))
                more = R.call_tir(GlobalVar("add_one"), (y,), R.Tensor((4,), "float32"))
                R.output(R.emit(more))
            (z,) = block.output_vars
            with R.If(c) as branch:
                with R.Then():
                    R.emit(R.multiply(z, z))
                with R.Else():
                    R.emit(R.negative(z))
            R.func_ret_value(R.emit_te(topi.subtract, branch.var, x))
    module = builder.get()
    assert module.attrs["version"] == 1
    assert list(module.functions) == ["add_one", "main", "subtract"]
    assert_structural_equal(module, script.parse(module.script()))
    main = rx.build(module, "llvm")["main"]
    given = np.arange(4, dtype="float32")
    z = 2 * given + 1
    np.testing.assert_allclose(main(given, np.array(True)).numpy(), z * z - given)
    np.testing.assert_allclose(main(given, np.array(False)).numpy(), -z - given)


def test_frames_say_what_is_missing():
    with pytest.raises(VerifyError, match="no builder is open"), T.prim_func():
        pass
    assert not IRBuilder.is_in_scope()
    for open_wrong, message in (
        (lambda: T.evaluate(0), "inside `with T.prim_func"),
        (lambda: I.module_attrs({}) or I.module_set_attr("a", 1), "I.ir_module"),
        (lambda: R.output(), "R.dataflow"),
        (lambda: R.emit(R.const(1.0)), "R.function"),
    ):
        with IRBuilder(), pytest.raises(VerifyError, match=message):
            open_wrong()
    with pytest.raises(VerifyError, match="no result"), IRBuilder(), R.function():
        R.arg("x", R.Tensor((4,)))
    with (
        pytest.raises(VerifyError, match="holds one"),
        IRBuilder(),
        T.prim_func(),
        T.If(T.int32() > 1),
    ):
        pass
    with pytest.raises(VerifyError, match="declared and not defined"), IRBuilder(), I.ir_module():
        I.decl_function("f")
    with pytest.raises(ZeroDivisionError), IRBuilder() as builder, R.function():
        builder.frames[1 // 0]
    assert not IRBuilder.is_in_scope() and rx.BlockBuilder.current() is None
    with pytest.raises(VerifyError, match="built nothing"):
        IRBuilder().get()
    with pytest.raises(AttributeError, match="belongs to script text"):
        T.macro
    assert ir_builder.tir is T and ir_builder.ir is I


def test_ranges_with_steps_are_evaluated_once():
    with IRBuilder() as builder, T.prim_func():
        A, s = T.arg("A", T.Buffer((8,), "int32")), T.arg("s", T.int32())
        with T.serial(A[0], 8, step=A[1] + s) as i:
            T.buffer_store(A, 7, [0])
            T.buffer_store(A, 9, [1])
            T.buffer_store(A, i, [i])
    found = np.array([2, 1, 0, 0, 0, 0, 0, 0], "int32")
    interpreter.run(builder.get(), found, 1)
    assert found.tolist() == [7, 9, 2, 0, 4, 0, 6, 0]


def test_frames_are_opened_once_and_closed_in_order():
    def refused(message):
        return pytest.raises(VerifyError, match=message)

    with IRBuilder() as builder, refused("inside another one"), T.prim_func(), T.prim_func():
        pass
    assert not builder.frames
    loop = T.serial(4)
    with IRBuilder(), refused("ForFrame was opened before"), T.prim_func():
        for _ in range(2):
            with loop as i:
                T.evaluate(i)
    outer, inner = T.serial(4), T.serial(3)
    with IRBuilder() as builder, refused("still open inside of it is ForFrame"), T.prim_func():
        outer.__enter__()
        inner.__enter__()
        outer.__exit__(None, None, None)
    assert not builder.frames and not IRBuilder.is_in_scope()
