"""Programs on tensor functions as TVM's users write them, of its newest version and before."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.script import ir as I
from tilewright.script import tirx as T
from tilewright.support import utils

M = N = K = 32
dtype = "float32"


@I.ir_module
class Spelled:
    @T.prim_func(s_tir=True)
    def mm_relu(
        A: T.Buffer((32, 32), "float32"),
        B: T.Buffer((32, 32), "float32"),
        C: T.Buffer((32, 32), "float32"),
    ):
        Y = T.alloc_buffer((32, 32), dtype="float32")
        for i in range(32):
            for j in range(32):
                for k in range(32):
                    with T.sblock("Y"):
                        vi = T.axis.spatial(32, i)
                        vj = T.axis.spatial(32, j)
                        vk = T.axis.reduce(32, k)
                        T.reads(A[vi, vk], B[vk, vj])
                        T.writes(Y[vi, vj])
                        with T.init():
                            Y[vi, vj] = T.float32(0)
                        Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i in range(32):
            for j in range(32):
                with T.sblock("C"):
                    vi = T.axis.spatial(32, i)
                    vj = T.axis.spatial(32, j)
                    T.reads(Y[vi, vj])
                    T.writes(C[vi, vj])
                    C[vi, vj] = T.max(Y[vi, vj], T.float32(0))


@tvm.script.ir_module
class Short:
    @T.prim_func
    def mm_relu(A: T.Buffer((M, K), dtype), B: T.Buffer((K, N), dtype), C: T.Buffer((M, N), dtype)):
        Y = T.alloc_buffer((M, N), dtype)
        for i, j, k in T.grid(M, N, K):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.cast(T.float32(0), dtype)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(M, N):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(Y[vi, vj], T.cast(T.float32(0), dtype))


@I.ir_module
class Symbolic:
    @T.prim_func
    def mm_relu(a: T.handle, b: T.handle, c: T.handle):
        M, N, K = T.int32(), T.int32(), T.int32()
        A = T.match_buffer(a, [M, K], dtype)
        B = T.match_buffer(b, [K, N], dtype)
        C = T.match_buffer(c, [M, N], dtype)
        Y = T.alloc_buffer((M, N), dtype)
        for i, j, k in T.grid(M, N, K):
            with T.sblock("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.cast(T.float32(0), dtype)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(M, N):
            with T.sblock("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(Y[vi, vj], T.cast(T.float32(0), dtype))


def by_expressions(rows: Any, columns: Any, depth: Any) -> tvm.IRModule:
    a = te.placeholder((rows, depth), "float32", name="A")
    b = te.placeholder((depth, columns), "float32", name="B")
    k = te.reduce_axis((0, depth), "k")
    y = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="Y")
    c = te.compute((rows, columns), lambda i, j: te.max(y[i, j], 0), name="C")
    func = te.create_prim_func([a, b, c]).with_attr({"global_symbol": "mm_relu"})
    return tvm.IRModule({"mm_relu": func})


def check(lib: Any, m: int, n: int, k: int, make: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    given = [make(item.astype("float32")) for item in (a, b)]
    c = make(np.zeros((m, n), "float32"))
    lib(*given, c)
    np.testing.assert_allclose(c.numpy(), np.maximum(a @ b, 0), rtol=1e-3, atol=1e-4)


def test_long_and_short_forms_are_the_same_program() -> None:
    assert tvm.ir.structural_equal(Spelled, Short)


@pytest.mark.parametrize("build", [tvm.build, tvm.compile, tvm.tirx.build, tvm.tir.build])
@pytest.mark.parametrize("make", [tvm.nd.array, tvm.runtime.tensor])
def test_ways_of_building(build: Any, make: Any) -> None:
    check(build(Short, target="llvm"), 32, 32, 32, make)


def test_sizes_come_with_the_call() -> None:
    symbolic = by_expressions(te.var("m"), te.var("n"), te.var("k"))
    for lib in (tvm.compile(Symbolic, target="llvm"), tvm.compile(symbolic, "llvm")):
        for sizes in ((4, 4, 4), (1, 7, 3), (0, 2, 2), (2, 3, 0)):
            check(lib, *sizes, tvm.nd.array)
    check(tvm.compile(by_expressions(8, 9, 10), "llvm"), 8, 9, 10, tvm.nd.array)


@pytest.mark.parametrize("kind", [tvm.tir.Schedule, tvm.s_tir.Schedule])
def test_a_schedule_step_by_step(kind: Any) -> None:
    @I.ir_module
    class Module:
        @T.prim_func(s_tir=True)
        def main(
            A: T.Buffer((32, 32), "float32"),
            B: T.Buffer((32, 32), "float32"),
            C: T.Buffer((32, 32), "float32"),
        ):
            T.func_attr({"tirx.noalias": True})
            with T.sblock("root"):
                T.reads()
                T.writes()
                Y = T.sblock_alloc_buffer((32, 32))
                for i, j, k in T.grid(32, 32, 32):
                    with T.sblock("Y"):
                        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                        with T.init():
                            Y[vi, vj] = T.float32(0)
                        Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
                for i, j in T.grid(32, 32):
                    with T.sblock("C"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        C[vi, vj] = T.max(Y[vi, vj], T.float32(0))

    sch = kind(Module)
    block = sch.get_sblock("Y") if kind is tvm.s_tir.Schedule else sch.get_block("Y")
    _, j, k = sch.get_loops(block)
    outer, inner = sch.split(j, factors=[None, 8])
    sch.reorder(outer, k, inner)
    sch.reverse_compute_at(sch.get_block("C"), outer)
    sch.decompose_reduction(block, k)
    for mod in (Module, sch.mod):
        lib = tvm.tirx.build(mod, target="llvm")
        check(lib, 32, 32, 32, tvm.runtime.tensor)
        arrays = [tvm.runtime.tensor(np.ones((32, 32), "float32")) for _ in range(3)]
        timed = lib.time_evaluator("main", tvm.cpu(), number=1)(*arrays)
        assert timed.mean > 0
    assert "reverse_compute_at" in str(sch.trace)


def test_a_library_is_exported_and_loaded(tmp_path: Any) -> None:
    size = tvm.runtime.convert(100)
    a = te.placeholder((size,), name="A")
    b = te.compute((size,), lambda i: a[i] + 1.0, name="B")
    func = te.create_prim_func([a, b]).with_attr("global_symbol", "add_one")
    built = tvm.compile(tvm.IRModule.from_expr(func), target="llvm")
    folder = utils.tempdir()
    path = folder.relpath("lib.so")
    built.export_library(path)
    assert folder.listdir() == ["lib.so"]
    lib = tvm.runtime.load_module(path)
    x = tvm.runtime.tensor(np.random.default_rng(0).uniform(size=100).astype(a.dtype), tvm.cpu())
    y = tvm.runtime.tensor(np.zeros(100, dtype=a.dtype), tvm.cpu())
    lib["add_one"](x, y)
    np.testing.assert_array_equal(y.numpy(), x.numpy() + 1)
    assert lib.time_evaluator("add_one", tvm.cpu(), number=2)(x, y).mean > 0
    arm = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    tvm.compile(tvm.IRModule.from_expr(func), target=arm).export_library(folder.relpath("arm.so"))
    assert (folder / "arm.so").is_file()
    folder.remove()
    assert not (folder / "arm.so").exists()
    kept = utils.tempdir(str(tmp_path / "named"))
    assert kept.path == str(tmp_path / "named")


def test_elements_of_tensors_are_written_in_place() -> None:
    made = tvm.nd.empty((2, 3), "float32")
    made[:] = np.arange(6).reshape(2, 3)
    made[0, 1:] = 9.0
    assert made.numpy().tolist() == [[0, 9, 9], [3, 4, 5]]
    assert isinstance(made, tvm.nd.NDArray)


def test_tensors_are_on_devices_that_compare() -> None:
    a = tvm.runtime.tensor(np.arange(6, dtype="int32").reshape(2, 3))
    assert a.device == tvm.cpu(0) == a.device
    assert {a.device: 1}[tvm.cpu()] == 1
    assert (a.device.type, a.device.index, a.device.dlpack_device_type()) == ("cpu", 0, 1)
    assert a.device != tvm.cuda(0) and str(a.device) == "cpu:0"
    b = tvm.runtime.empty(a.shape, a.dtype, a.device)
    assert a.copyto(b) is b
    np.testing.assert_array_equal(a.copyto(a.device).numpy(), a.numpy())


def test_folders_of_tools() -> None:
    own = importlib.import_module("tilewright.support.utils")
    assert importlib.import_module("tilewright.contrib.utils") is own
    assert importlib.import_module("tilewright.contrib").utils is own
    with pytest.raises(ImportError, match="contrib"):
        importlib.import_module("tilewright.contrib.cublas")


def test_statements_print_as_script(capsys: pytest.CaptureFixture[str]) -> None:
    loops = Spelled["mm_relu"].body.block.body.stmts[0]
    assert "for i, j, k in T.grid(32, 32, 32):" in str(loops)
    assert 'with T.block("Y")' in str(loops) and "Y[vi, vj] = T.float32(0.0)" in str(loops)
    print(loops)
    loops.show()
    shown = capsys.readouterr().out
    assert shown.count("T.grid(32, 32, 32)") == 2 and "import" not in shown
    assert str(loops) == loops.script()


def test_statements_of_nothing_around_them_say_what_they_use() -> None:
    n, buffer = tvm.tirx.Var("n", "int32"), tvm.tirx.decl_buffer((8,), "float32", name="A")
    store = tvm.tirx.BufferStore(buffer, 1.0, [n])
    assert str(store) == ('n = T.int32()\nA = T.Buffer((8,), "float32")\nA[n] = T.float32(1.0)\n')
    assert repr(store).startswith("BufferStore(")
    assert str(tvm.tirx.Evaluate(0)) == "T.evaluate(0)\n"
    assert str(tvm.tirx.SeqStmt([store, store])).count("A[n] = T.float32(1.0)\n") == 2
