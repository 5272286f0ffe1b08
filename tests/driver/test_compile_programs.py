"""Compiled programs give what NumPy and the reference interpreter give, scheduled or not."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from tilewright import te, tir
from tilewright.driver import build, compile, lower
from tilewright.ir import IRModule, dtypes, pre_order
from tilewright.script import parse
from tilewright.support.errors import BuildError
from tilewright.target import Target
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run

RNG = np.random.default_rng(0)


def random(shape, dtype="float32"):
    """Random numbers, small enough for every dtype."""
    if np.dtype(dtype).kind in "iu":
        return RNG.integers(0 if np.dtype(dtype).kind == "u" else -9, 10, shape).astype(dtype)
    if dtype == "bool":
        return RNG.random(shape) < 0.5
    return RNG.standard_normal(shape).astype(dtype)


def check(func, *arrays, rtol=1e-5, atol=1e-5, target="native"):
    """Run compiled and interpreted, and compare all arrays afterwards."""
    if isinstance(func, str):
        func = parse(func)
    mine = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
    oracle = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
    lowered = lower(func, target)
    verify(lowered)
    module = build(lowered, target)
    module["main"](*mine)
    run(func, *oracle)
    for a, b in zip(mine, oracle):
        if isinstance(a, np.ndarray):
            np.testing.assert_allclose(
                a.astype("float64"), b.astype("float64"), rtol=rtol, atol=atol
            )
    return mine


def test_matmul_unscheduled():
    a, b = te.placeholder((17, 9), name="A"), te.placeholder((9, 21), name="B")
    k = te.reduce_axis((0, 9), "k")
    c = te.compute((17, 21), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    x, y = random((17, 9)), random((9, 21))
    *_, out = check(te.create_prim_func([a, b, c]), x, y, np.zeros((17, 21), "float32"))
    np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-5)


def test_symbolic_shapes():
    n, m = te.size_var("n"), te.size_var("m")
    a, b = te.placeholder((n, m), name="A"), te.placeholder((m,), name="B")
    k = te.reduce_axis((0, m), "k")
    c = te.compute((n,), lambda i: te.sum(a[i, k] * b[k], axis=k), "C")
    d = te.compute((n,), lambda i: te.exp(c[i]), "D")
    func = te.create_prim_func([a, b, d])
    for rows, columns in ((5, 3), (1, 1), (7, 40)):
        check(func, random((rows, columns)), random((columns,)), np.zeros(rows, "float32"))


def test_convolution_with_padding():
    x, w = te.placeholder((2, 3, 9, 9), name="X"), te.placeholder((4, 3, 3, 3), name="W")
    pad = te.compute(
        (2, 3, 11, 11),
        lambda n, c, h, v: te.if_then_else(
            te.all(h >= 1, h < 10, v >= 1, v < 10), x[n, c, h - 1, v - 1], te.const(0.0, "float32")
        ),
        "pad",
    )
    rc, rh, rw = te.reduce_axis((0, 3)), te.reduce_axis((0, 3)), te.reduce_axis((0, 3))
    y = te.compute(
        (2, 4, 9, 9),
        lambda n, f, h, v: te.sum(pad[n, rc, h + rh, v + rw] * w[f, rc, rh, rw], axis=[rc, rh, rw]),
        "Y",
    )
    out = np.zeros((2, 4, 9, 9), "float32")
    check(te.create_prim_func([x, w, y]), random((2, 3, 9, 9)), random((4, 3, 3, 3)), out)


def test_argmax():
    a = te.placeholder((6, 31), name="A")
    k = te.reduce_axis((0, 31), "k")
    index, value = te.compute((6,), lambda i: te.argmax((k.var, a[i, k]), axis=k), "best")
    x = random((6, 31))
    _, out, best = check(
        te.create_prim_func([a, index, value]), x, np.zeros(6, "int64"), np.zeros(6, "float32")
    )
    np.testing.assert_array_equal(out, x.argmax(axis=1))
    np.testing.assert_array_equal(best, x.max(axis=1))


def test_softmax():
    a = te.placeholder((5, 33), name="A")
    k, r = te.reduce_axis((0, 33), "k"), te.reduce_axis((0, 33), "r")
    top = te.compute((5,), lambda i: te.max(a[i, k], axis=k), "top")
    e = te.compute((5, 33), lambda i, j: te.exp(a[i, j] - top[i]), "e")
    s = te.compute((5,), lambda i: te.sum(e[i, r], axis=r), "s")
    out = te.compute((5, 33), lambda i, j: e[i, j] / s[i], "out")
    check(te.create_prim_func([a, out]), random((5, 33)), np.zeros((5, 33), "float32"))


def test_gather():
    a, idx = te.placeholder((10, 4), name="A"), te.placeholder((7,), "int32", "I")
    out = te.compute((7, 4), lambda i, j: a[idx[i].astype("int64"), j], "out")
    i = RNG.integers(0, 10, 7).astype("int32")
    check(te.create_prim_func([a, idx, out]), random((10, 4)), i, np.zeros((7, 4), "float32"))


def test_scalar_buffer_and_scalar_argument():
    func = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), s: T.float32, n: T.int32, out: T.Buffer((), "float32")):
    with T.block("sum"):
        out[()] = T.float32(0)
    for i in range(8):
        with T.block("add"):
            vi = T.axis.reduce(8, i)
            out[()] = out[()] + A[vi] * s + T.Cast("float32", n)
"""
    x = random((8,))
    check(func, x, 1.5, 3, np.zeros((), "float32"), rtol=1e-4)


@pytest.mark.parametrize("b", [3, -3, 4, 1])
@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_integer_division_rounds_down(b, dtype):
    a = te.placeholder((40,), dtype, "A")
    c = te.compute((40,), lambda i: a[i] // te.const(b, dtype), "C")
    d = te.compute((40,), lambda i: a[i] % te.const(b, dtype), "D")
    x = np.arange(-20, 20).astype(dtype)
    _, q, r = check(te.create_prim_func([a, c, d]), x, np.zeros_like(x), np.zeros_like(x))
    np.testing.assert_array_equal(q, x // b)
    np.testing.assert_array_equal(r, x % b)


def test_integer_division_by_a_variable():
    a, b = te.placeholder((40,), "int32", "A"), te.placeholder((40,), "int32", "B")
    c = te.compute((40,), lambda i: a[i] // b[i], "C")
    d = te.compute((40,), lambda i: a[i] % b[i], "D")
    x, y = np.arange(-20, 20).astype("int32"), np.tile([1, -3, 7, -2], 10).astype("int32")
    _, _, q, r = check(te.create_prim_func([a, b, c, d]), x, y, np.zeros_like(x), np.zeros_like(x))
    np.testing.assert_array_equal(q, x // y)
    np.testing.assert_array_equal(r, x % y)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "float32"])
def test_float_dtypes(dtype):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    a = te.placeholder((37,), dtype, "A")
    c = te.compute((37,), lambda i: te.tanh(a[i]) * te.const(2, dtype) + a[i], "C")
    x = RNG.standard_normal(37).astype(kind)
    tolerance = {"float16": 4e-3, "bfloat16": 3e-2}.get(dtype, 1e-5)
    check(te.create_prim_func([a, c]), x, np.zeros(37, kind), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("source", ["float32", "int32", "uint8", "bool", "int64", "float16"])
@pytest.mark.parametrize("to", ["float32", "int32", "uint8", "bool", "float64", "float16"])
def test_casts(source, to):
    a = te.placeholder((24,), source, "A")
    c = te.compute((24,), lambda i: a[i].astype(to), "C")
    x = random((24,), source)
    if source.startswith("float") and to == "uint8":
        x = np.abs(x)
    check(te.create_prim_func([a, c]), x, np.zeros(24, to), rtol=1e-3)


def test_select_min_max_and_logic():
    a, b = te.placeholder((20,), name="A"), te.placeholder((20,), name="B")
    c = te.compute(
        (20,),
        lambda i: te.select(
            te.any(a[i] > b[i], te.all(i >= 3, i < 7)),
            te.maximum(a[i], b[i]),
            te.minimum(a[i], b[i]),
        ),
        "C",
    )
    check(te.create_prim_func([a, b, c]), random((20,)), random((20,)), np.zeros(20, "float32"))


MATH = "exp log sqrt tanh sigmoid erf sin cos floor ceil round nearbyint trunc rsqrt log1p".split()


@pytest.mark.parametrize("name", MATH)
def test_math_functions(name):
    a = te.placeholder((19,), name="A")
    c = te.compute((19,), lambda i: getattr(te, name)(a[i]), "C")
    x = np.abs(random((19,))) + np.float32(0.5)
    check(te.create_prim_func([a, c]), x, np.zeros(19, "float32"))


TILED = """
@T.prim_func
def main(A: T.Buffer(({m}, {k}), "float32"), B: T.Buffer(({k}, {n}), "float32"),
         C: T.Buffer(({m}, {n}), "float32")):
    acc = T.alloc_buffer(({m}, {n}), "float32", scope="{scope}")
    for i0 in T.{kind}({mb}):
        for j0 in range({nb}):
            for i1 in range(6):
                for j1 in T.vectorized(32):
                    with T.block("init"):
                        vi = T.axis.spatial({m}, i0 * 6 + i1)
                        vj = T.axis.spatial({n}, j0 * 32 + j1)
                        T.where(i0 * 6 + i1 < {m} and j0 * 32 + j1 < {n})
                        acc[vi, vj] = T.float32(0)
            for k in range({k}):
                for i1 in range(6):
                    for j1 in T.vectorized(32):
                        with T.block("update"):
                            vi = T.axis.spatial({m}, i0 * 6 + i1)
                            vj = T.axis.spatial({n}, j0 * 32 + j1)
                            vk = T.axis.reduce({k}, k)
                            T.where(i0 * 6 + i1 < {m} and j0 * 32 + j1 < {n})
                            acc[vi, vj] = acc[vi, vj] + A[vi, vk] * B[vk, vj]
            for i1 in range(6):
                for j1 in T.vectorized(32):
                    with T.block("write"):
                        vi = T.axis.spatial({m}, i0 * 6 + i1)
                        vj = T.axis.spatial({n}, j0 * 32 + j1)
                        T.where(i0 * 6 + i1 < {m} and j0 * 32 + j1 < {n})
                        C[vi, vj] = acc[vi, vj]
"""


@pytest.mark.parametrize("kind", ["serial", "parallel"])
@pytest.mark.parametrize("scope", ["local", "global"])
@pytest.mark.parametrize(("m", "n"), [(12, 64), (13, 64), (12, 70), (17, 45), (5, 7)])
def test_tiled_matmul_with_tails(m, n, scope, kind):
    func = TILED.format(m=m, n=n, k=11, mb=-(-m // 6), nb=-(-n // 32), scope=scope, kind=kind)
    x, y = random((m, 11)), random((11, n))
    *_, out = check(func, x, y, np.zeros((m, n), "float32"), rtol=1e-4)
    np.testing.assert_allclose(out, x @ y, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("n", [1, 3, 7, 16, 28, 48, 100, 130])
@pytest.mark.parametrize("target", ["native", "llvm -mcpu=x86-64-v3 -num-cores=2"])
def test_vectorized_lengths(n, target):
    func = f"""
@T.prim_func
def main(A: T.Buffer(({n},), "float32"), C: T.Buffer(({n},), "float32")):
    for i in T.vectorized({n}):
        with T.block("C"):
            v = T.axis.spatial({n}, i)
            C[v] = T.if_then_else(v < {n // 2}, T.exp(A[v]), T.Cast("float32", v)) * T.float32(2)
"""
    check(func, random((n,)), np.zeros(n, "float32"), target=target)


def test_vectorized_symbolic_length():
    func = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,))
    C = T.match_buffer(c, (n,))
    for i in T.vectorized(n):
        with T.block("C"):
            v = T.axis.spatial(n, i)
            C[v] = A[v] + T.float32(1)
"""
    for n in (1, 15, 16, 33):
        check(func, random((n,)), np.zeros(n, "float32"))


def test_vectorized_strided_and_gathered_loads():
    func = """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), I: T.Buffer((16,), "int32"),
         C: T.Buffer((16, 16), "float32"), D: T.Buffer((16, 16), "float32")):
    for i in range(16):
        for j in T.vectorized(16):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vj, vi] + A[15 - vi, 15 - vj] + A[vi, I[vj]] + A[vi, vj // 2]
    for i in range(16):
        for j in T.vectorized(16):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vj, vi] = C[vi, vj] * T.Cast("float32", vj % 3)
"""
    index = RNG.integers(0, 16, 16).astype("int32")
    zeros = np.zeros((16, 16), "float32")
    check(func, random((16, 16)), index, zeros, zeros.copy())


def test_masked_padding_reads_nothing_out_of_bounds():
    func = """
@T.prim_func
def main(A: T.Buffer((10, 13), "float32"), C: T.Buffer((12, 16), "float32")):
    for i in range(12):
        for j in T.vectorized(16):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.if_then_else(
                    1 <= vi and vi < 11 and 1 <= vj and vj < 14, A[vi - 1, vj - 1], T.float32(0))
"""
    check(func, random((10, 13)), np.zeros((12, 16), "float32"))


def test_parallel_with_private_buffers_and_captures():
    func = """
@T.prim_func
def main(A: T.Buffer((64, 300), "float32"), s: T.float32, C: T.Buffer((64,), "float32")):
    tmp = T.alloc_buffer((64, 300), "float32")
    for i in T.parallel(64):
        for j in range(300):
            with T.block("tmp"):
                vi, vj = T.axis.remap("SS", [i, j])
                tmp[vi, vj] = A[vi, vj] * s
        for j in range(300):
            with T.block("C"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + tmp[vi, 299 - vj]
"""
    check(func, random((64, 300)), 0.5, np.zeros(64, "float32"), rtol=1e-4)
    text = lower(parse(func)).script()
    assert "300,)" in text and "19200,), " not in text.split("T.allocate")[1]


def test_large_intermediates_use_the_workspace():
    a = te.placeholder((300, 400), name="A")
    b = te.compute((300, 400), lambda i, j: a[i, j] + 1.0, "B")
    c = te.compute((300, 400), lambda i, j: b[299 - i, j] * 2.0, "C")
    module = compile(te.create_prim_func([a, c]))
    assert "tw_workspace_alloc" in module.get_source("ll")
    x, out = random((300, 400)), np.zeros((300, 400), "float32")
    for _ in range(3):
        module["main"](x, out)
    np.testing.assert_allclose(out, (x[::-1] + 1) * 2, rtol=1e-6)


def test_while_let_and_if():
    func = """
@T.prim_func
def main(A: T.Buffer((10,), "int32"), C: T.Buffer((10,), "int32")):
    for i in range(10):
        with T.block("collatz"):
            v = T.axis.spatial(10, i)
            T.reads(A[v])
            T.writes(C[v])
            x = T.alloc_buffer((1,), "int32", scope="local")
            x[0] = A[v]
            C[v] = 0
            while x[0] != 1:
                if x[0] % 2 == 0:
                    x[0] = x[0] // 2
                else:
                    x[0] = x[0] * 3 + 1
                C[v] = C[v] + 1
"""
    check(func, np.arange(1, 11, dtype="int32"), np.zeros(10, "int32"))


def test_lowered_program_prints_and_parses_back():
    n = 40
    func = parse(TILED.format(m=12, n=64, k=n, mb=2, nb=2, scope="local", kind="serial"))
    text = lower(func).script()
    assert "T.block" not in text and "vectorized" not in text
    assert tir.PrimFunc is not None


def test_module_travels_by_pickle_with_its_sources():
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * 3.0, "B")
    module = pickle.loads(pickle.dumps(compile(te.create_prim_func([a, b]))))
    out = np.zeros(8, "float32")
    module["main"](np.ones(8, "float32"), out)
    np.testing.assert_array_equal(out, np.full(8, 3))
    assert "T.prim_func" in module.get_source("tir")


def test_target_of_the_context_is_used():
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] * 3.0, "B")
    with Target("llvm -mcpu=x86-64-v2 -num-cores=1"):
        module = compile(te.create_prim_func([a, b]))
    assert "x86-64-v2" in module.target


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (3, "expected an IRModule or a PrimFunc, got int"),
        (IRModule({}), "no functions"),
    ],
)
def test_what_cannot_be_compiled(what, message):
    with pytest.raises(BuildError, match=message):
        compile(what)


def test_target_c_is_text():
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] * 3.0, "B")
    text = compile(te.create_prim_func([a, b]), "c").get_source("c")
    assert "int32_t main_kernel(const float* restrict A, float* restrict B)" in text


def test_parallel_loop_below_a_vectorized_one_with_a_guard():
    text = """
@T.prim_func
def main(A: T.Buffer((8, 6), "float32"), C: T.Buffer((8, 6), "float32")):
    for i_0 in T.vectorized(2):
        for i_1 in range(5):
            for j in T.parallel(6):
                with T.block("C"):
                    vi = T.axis.spatial(8, i_0 * 5 + i_1)
                    vj = T.axis.spatial(6, j)
                    T.where(i_0 * 5 + i_1 < 8)
                    C[vi, vj] = A[vi, vj] * T.float32(2)
"""
    guarded = np.full((16, 6), 7, "float32")  # what lies behind the output must stay as it is
    module = compile(parse(text), "native")
    x = random((8, 6))
    module["main"](x, guarded[:8])
    np.testing.assert_array_equal(guarded[:8], x * 2)
    assert (guarded[8:] == 7).all()
    check(text, x, np.zeros((8, 6), "float32"))


def test_tails_compute_whole_register_tiles():
    a, b = te.placeholder((22, 9), name="A"), te.placeholder((9, 27), name="B")
    k = te.reduce_axis((0, 9), "k")
    c = te.compute((22, 27), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    func = te.create_prim_func([a, b, c])
    for fused in (False, True):
        sch = tir.Schedule(func)
        block = sch.get_block("C")
        copy = sch.cache_write(block, 0, "local")
        i, j, r = sch.get_loops(block)
        i0, i1 = sch.split(i, [None, 4])
        j0, j1 = sch.split(j, [None, 8])
        sch.reorder(i0, j0, r, i1, j1)
        at = sch.fuse(i0, j0) if fused else j0
        sch.reverse_compute_at(copy, at)
        sch.decompose_reduction(block, r)
        for name in ("C_init", "C_update", "C_local"):
            *_, rows, columns = sch.get_loops(sch.get_block(name))
            sch.vectorize(columns)
            sch.unroll(rows)
        lowered = lower(sch.mod, "llvm -mcpu=skylake-avx512")
        stores = [
            item for item in pre_order(lowered["main"].body) if isinstance(item, tir.IfThenElse)
        ]
        tiles = [
            item
            for branch in stores
            for item in pre_order(branch.then_case)
            if isinstance(item, tir.BufferStore)
            and item.buffer.scope == "local"
            and dtypes.lanes_of(branch.condition.dtype) > 1
        ]
        assert not tiles
        x, y = random((22, 9)), random((9, 27))
        check(sch.mod["main"], x, y, np.zeros((22, 27), "float32"))


@pytest.mark.parametrize("repeat", ["r, k in T.grid(4, 6)", "f in range(24)"])
def test_reductions_that_are_repeated_start_anew(repeat):
    axis = "k" if "k in" in repeat else "f % 6"
    text = f"""
@T.prim_func
def main(A: T.Buffer((5, 6), "float32"), C: T.Buffer((5,), "float32")):
    for i in range(5):
        for {repeat}:
            with T.block("C"):
                vi = T.axis.spatial(5, i)
                vk = T.axis.reduce(6, {axis})
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
"""
    x = random((5, 6))
    *_, out = check(text, x, np.zeros(5, "float32"))
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-5, atol=1e-5)
