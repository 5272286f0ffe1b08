"""The LLVM text emitter: what it writes, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.llvm.emit import emit_module
from tilewright.driver import build, compile, lower
from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.script import tir as T
from tilewright.support.errors import CodegenError, TilewrightError
from tilewright.target import Target

V3 = Target("llvm -mcpu=x86-64-v3 -num-cores=2")


def ll(text, target=V3):
    """Lower a function and return its LLVM IR."""
    return emit_module(lower(parse(text), target), target).text


def test_multiply_add_becomes_fma_where_the_cpu_has_it():
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for i in T.vectorized(16):
        with T.block("C"):
            v = T.axis.spatial(16, i)
            C[v] = C[v] + A[v] * A[v]
"""
    assert "@llvm.fma.v16f32" in ll(text)
    plain = ll(text, Target("llvm -mcpu=x86-64 -num-cores=2"))
    assert "fma" not in plain and "fmul <16 x float>" in plain


def test_invariant_arithmetic_and_loads_leave_their_loops():
    text = """
@T.prim_func
def main(A: T.Buffer((8, 64), "float32"), B: T.Buffer((8,), "float32"),
         C: T.Buffer((8, 64), "float32")):
    for i in range(8):
        for j in range(64):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * B[vi]
"""
    lines = ll(text).splitlines()
    inner = next(n for n, line in enumerate(lines) if "phi i64" in line and "%j" in line)
    outer = next(n for n, line in enumerate(lines) if "phi i64" in line and "%i" in line)
    assert sum("load float" in line for line in lines[outer:inner]) == 1
    assert not any("mul nsw" in line for line in lines[inner:])


def test_loads_stay_behind_stores_to_the_same_buffer():
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.block("C"):
            v = T.axis.opaque(4, i)
            A[0] = A[0] + 1
            C[v] = A[0]
"""
    a, c = np.zeros(4, "int32"), np.zeros(4, "int32")
    compile(parse(text))["main"](a, c)
    np.testing.assert_array_equal(c, [1, 2, 3, 4])


def test_padding_keeps_loads_behind_the_branch():
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), C: T.Buffer((6,), "float32")):
    for i in range(6):
        with T.block("C"):
            v = T.axis.spatial(6, i)
            C[v] = T.if_then_else(1 <= v and v < 5, A[v - 1], T.float32(0))
"""
    made = ll(text)
    assert "phi float" in made and "br i1" in made


def test_vector_padding_uses_masked_loads():
    text = """
@T.prim_func
def main(A: T.Buffer((14,), "float32"), C: T.Buffer((16,), "float32")):
    for i in T.vectorized(16):
        with T.block("C"):
            v = T.axis.spatial(16, i)
            C[v] = T.if_then_else(1 <= v and v < 15, A[v - 1], T.float32(0))
"""
    assert "@llvm.masked.load.v16f32" in ll(text)


CUT_OFF = """
@T.prim_func
def main(A: T.Buffer((3, {n}), "float32"), m: T.int64, C: T.Buffer((3, {n}), "float32")):
    for i in T.serial(3, annotations={{"pragma_keep_whole": 1}}):
        for j in T.serial({tiles}, annotations={{"pragma_keep_whole": 1}}):
            for k in T.vectorized(8):
                with T.block("C"):
                    T.where({condition})
                    vi, vj = T.axis.spatial(3, i), T.axis.spatial({n}, j * 8 + k)
                    C[vi, vj] = A[vi, vj] + C[vi, vj]
"""


@pytest.mark.parametrize(
    "condition, on",
    [
        ("j * 8 + k < 29", lambda i, j, m: j < 29),
        ("j * 8 + k <= m and j * 8 + k < 29", lambda i, j, m: (j <= m) & (j < 29)),
        ("m < j * 8 + k and j * 8 + k < 29", lambda i, j, m: (m < j) & (j < 29)),
        ("i < m and j * 8 + k < 29", lambda i, j, m: (i < m) & (j < 29)),
    ],
)
def test_whole_vectors_of_a_cut_off_tile_are_stored_without_masks(condition, on):
    """Before AVX-512, stores under masks are slow: only those at an edge have one."""
    text = CUT_OFF.format(n=29, tiles=4, condition=condition)
    for cpu in ("x86-64-v2", "x86-64-v3"):
        target = Target(f"llvm -mcpu={cpu} -num-cores=1")
        made = ll(text, target)
        assert "call void @llvm.masked.store.v8f32" in made and "store <8 x float>" in made
        kernel = compile(parse(text), target)["main"]
        for m in (-1, 0, 1, 2, 3, 7, 8, 16, 28, 29, 100):
            a = np.arange(87, dtype="float32").reshape(3, 29) + 1
            c = np.full((3, 29), 0.5, "float32")
            i, j = np.ogrid[:3, :29]
            expected = np.where(on(i, j, m), a + c, c)
            kernel(a, m, c)
            np.testing.assert_array_equal(c, expected)
    wide = ll(text, Target("llvm -mcpu=x86-64-v4 -num-cores=1"))
    assert "store <8 x float>" not in wide


def test_parallel_loops_are_outlined_and_nested_ones_serial():
    text = """
@T.prim_func
def main(C: T.Buffer((8, 8), "float32")):
    for i in T.parallel(8, annotations={"parallel_grain": 1}):
        for j in T.parallel(8, annotations={"parallel_grain": 1}):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.Cast("float32", vi * 8 + vj)
"""
    made = ll(text)
    assert made.count("call i32 @tw_parallel_launch") == 1
    out = np.zeros((8, 8), "float32")
    compile(parse(text))["main"](out)
    np.testing.assert_array_equal(out.ravel(), np.arange(64))


def test_register_tiles_become_registers():
    text = """
@T.prim_func
def main(A: T.Buffer((4, 32), "float32"), B: T.Buffer((32, 16), "float32"),
         C: T.Buffer((4, 16), "float32")):
    acc = T.alloc_buffer((4, 16), "float32", scope="local")
    for i in range(4):
        for j in T.vectorized(16):
            with T.block("init"):
                vi, vj = T.axis.remap("SS", [i, j])
                acc[vi, vj] = T.float32(0)
    for k in range(32):
        for i in range(4):
            for j in T.vectorized(16):
                with T.block("update"):
                    vk, vi, vj = T.axis.remap("RSS", [k, i, j])
                    acc[vi, vj] = acc[vi, vj] + A[vi, vk] * B[vk, vj]
    for i in range(4):
        for j in T.vectorized(16):
            with T.block("write"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = acc[vi, vj]
"""
    from tilewright.codegen.llvm.jit import optimized_ll

    module = build(lower(parse(text), V3), V3)
    kernel = optimized_ll(module.get_source("ll"), cpu="x86-64-v3").split("main.kernel")[1]
    assert "alloca" not in kernel.split("\n}")[0]


def test_lanes_that_are_known_to_be_off_are_not_loaded():
    """LLVM (22) joins what is left of such loads to one without a mask."""
    text = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), N: T.Buffer((1,), "int64"), C: T.Buffer((32,), "float32")):
    for i in T.vectorized(32):
        with T.block("C"):
            vi = T.axis.remap("S", [i])
            C[vi] = C[vi] + T.if_then_else(vi < 2 and vi < N[0], A[vi], T.float32(0))
"""
    kernel = build(lower(parse(text), V3), V3).get_source("ll")
    assert kernel.count("call <8 x float> @llvm.masked.load") == 1
    a, module = np.arange(64, dtype="float32") + 1, compile(parse(text))
    for count in (0, 1, 2, 31):
        found, expected = np.ones(32, "float32"), np.ones(32, "float32")
        module["main"](a, np.array([count]), found)
        expected[: min(count, 2)] += a[: min(count, 2)]
        np.testing.assert_array_equal(found, expected)


def test_assertion_raises_with_its_message():
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "int32")):
    with T.block("check"):
        T.reads(A[0])
        T.writes()
        assert A[0] > 0, "the first element must be positive"
"""
    module = compile(parse(text))
    module["main"](np.ones(4, "int32"))
    with pytest.raises(RuntimeError, match="the first element must be positive"):
        module["main"](np.zeros(4, "int32"))


def test_extents_that_are_formulas_are_checked():
    text = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,))
    C = T.match_buffer(c, (n * 2,))
    for i in range(n * 2):
        with T.block("C"):
            v = T.axis.spatial(n * 2, i)
            C[v] = A[v // 2]
"""
    module = compile(parse(text))
    out = np.zeros(6, "float32")
    module["main"](np.arange(3, dtype="float32"), out)
    np.testing.assert_array_equal(out, [0, 0, 1, 1, 2, 2])
    with pytest.raises(ValueError, match="extent"):
        module["main"](np.arange(3, dtype="float32"), np.zeros(7, "float32"))


def test_kernels_call_kernels_of_their_module():
    text = """
@I.ir_module
class Module:
    @T.prim_func
    def double(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("C"):
                v = T.axis.spatial(4, i)
                C[v] = A[v] * T.float32(2)

    @T.prim_func
    def main(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        T.evaluate(T.call_extern("double", A.data, C.data, dtype="int32"))
        T.evaluate(T.call_extern("double", C.data, C.data, dtype="int32"))
"""
    module = compile(parse(text))
    out = np.zeros(4, "float32")
    module["main"](np.ones(4, "float32"), out)
    np.testing.assert_array_equal(out, [4, 4, 4, 4])


def test_wrong_call_of_a_kernel_is_refused():
    text = """
@I.ir_module
class Module:
    @T.prim_func
    def double(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        C[0] = A[0]

    @T.prim_func
    def main(A: T.Buffer((4,), "float32")):
        T.evaluate(T.call_extern("double", A.data, dtype="int32"))
"""
    with pytest.raises(CodegenError, match=r"the kernel takes .ptr A, ptr C"):
        compile(parse(text))


INJECTED = """\\"()\\nret i32 0\\n}\\nmodule asm \\"nop\\"\\ndefine i32 @\\"x"""


@pytest.mark.parametrize(
    "call, message",
    [
        ('T.call_extern("{}", A[0], dtype="void")', "nothing defines"),
        ('T.call_llvm_intrin("{}", A[0], dtype="void")', "is no LLVM intrinsic's name"),
        ('T.call_llvm_intrin("puts", A[0], dtype="void")', "is no LLVM intrinsic's name"),
        ('T.call_extern("", A[0], dtype="void")', "can't be the name of a symbol"),
    ],
)
def test_names_stay_names(call, message):
    text = f"""
@T.prim_func
def main(A: T.Buffer((4,), "float32")):
    T.evaluate({call.format(INJECTED)})
"""
    with pytest.raises(TilewrightError, match=message):
        compile(parse(text))["main"]


def test_names_of_functions_are_words():
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32")):
    A[0] = T.float32(1)
"""
    with pytest.raises(CodegenError, match="can't be the name of a compiled function"):
        compile(parse(text), name='x"() nounwind')


def test_thread_bound_loop_says_what_to_do():
    text = """
@T.prim_func
def main(C: T.Buffer((8,), "float32")):
    for i in T.thread_binding(8, thread="threadIdx.x"):
        with T.block("C"):
            v = T.axis.spatial(8, i)
            C[v] = T.float32(1)
"""
    with pytest.raises(TilewrightError, match="use `parallel` instead of `bind`"):
        compile(parse(text))


def test_function_named_like_one_of_libc():
    text = """
@T.prim_func
def exp(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("C"):
            v = T.axis.spatial(4, i)
            C[v] = T.exp(A[v])
"""
    module = compile(IRModule({"exp": parse(text)}))
    x, out = np.arange(4, dtype="float32"), np.zeros(4, "float32")
    module["exp"](x, out)
    np.testing.assert_allclose(out, np.exp(x), rtol=1e-6)


def test_unknown_intrinsic_names_the_known_ones():
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32")):
    A[0] = T.Cast("float32", T.warp_activemask(dtype="uint32"))
"""
    with pytest.raises(CodegenError, match=r"'warp_activemask'; it knows .*exp"):
        compile(parse(text))


def test_vector_intrinsics():
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((4,), "float32")):
    C[0] = T.vector_reduce_add(A[0:16], dtype="float32")
    C[1] = T.vector_reduce_max(A[0:16], dtype="float32")
    C[2:4] = A[14:16]
"""
    x, out = np.arange(16, dtype="float32"), np.zeros(4, "float32")
    compile(parse(text))["main"](x, out)
    np.testing.assert_array_equal(out, [120, 15, 14, 15])


def test_arithmetic_hoisted_from_both_sides_of_a_branch():
    text = """
@T.prim_func
def main(A: T.Buffer((8, 8), "int64"), n: T.int64, C: T.Buffer((8, 8), "int64")):
    for i in range(8):
        for j in range(8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                if A[vi, vj] > T.int64(0):
                    C[vi, vj] = vi // 3 * n + vj
                else:
                    C[vi, vj] = vi // 3 * 5 + vi // 3 * n
"""
    a, c = np.arange(64).reshape(8, 8) % 3, np.zeros((8, 8), "int64")
    compile(parse(text))["main"](a, 7, c)
    i, j = np.indices((8, 8))
    np.testing.assert_array_equal(c, np.where(a > 0, i // 3 * 7 + j, i // 3 * 12))


@T.prim_func
def sizes_in_formulas(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n * 4, m * 2 + n), "float32")
    B = T.match_buffer(b, (n, 1), "float32")
    for i in range(n):
        B[i, 0] = A[i * 4, m] + T.cast(m, "float32")


@T.prim_func
def only_in_a_product(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n * 4 + 1,), "float32")
    for i in range(n * 4 + 1):
        A[i] = T.cast(n, "float32")


@T.prim_func
def two_unknown(a: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n * m,), "float32")
    for i in range(n):
        A[i * m] = T.float32(1)


def test_sizes_follow_from_formulas_in_shapes() -> None:
    a = np.zeros(13, "float32")
    module = compile(only_in_a_product)
    module(a)
    np.testing.assert_array_equal(a, 3)
    one = np.zeros(1, "float32")
    module(one)
    assert one[0] == 0
    with pytest.raises(ValueError, match="extent"):
        module(np.zeros(12, "float32"))
    x = np.arange(8 * 12, dtype="float32").reshape(8, 12)
    y = np.zeros((2, 1), "float32")
    compile(sizes_in_formulas)(x, y)
    np.testing.assert_array_equal(y[:, 0], x[[0, 4], 5] + 5)


def test_sizes_that_do_not_follow_are_named() -> None:
    with pytest.raises(CodegenError, match="'n', 'm' does not follow from the arguments"):
        compile(two_unknown)


def test_a_product_that_cancels_leaves_nothing() -> None:
    program = parse("""
@T.prim_func
def main(A: T.Buffer(16, "float32"), B: T.Buffer(16, "float32"), C: T.Buffer(16, "float32")):
    for i in T.vectorized(16):
        C[i] = (A[i] * A[i] - B[i]) + (B[i] - A[i] * A[i])
""")
    a = np.linspace(0.1, 5e5, 16, dtype="float32")
    c = np.ones(16, "float32")
    compile(program)(a, a * a, c)
    np.testing.assert_array_equal(c, 0)


def test_extents_that_are_formulas_of_int32() -> None:
    @T.prim_func
    def twice(x_h: T.handle, y_h: T.handle, z_h: T.handle):
        n, m = T.int32(), T.int32()
        x = T.match_buffer(x_h, (n,), "float32")
        y = T.match_buffer(y_h, (n * 2,), "float32")
        z = T.match_buffer(z_h, (n + m,), "float32")
        for i in range(n):
            y[i * 2] = x[i]
        for i in range(m):
            z[i] = T.Cast("float32", m)

    made = compile(twice, "llvm")
    x, y, z = np.ones(3, "float32"), np.zeros(6, "float32"), np.zeros(5, "float32")
    made(x, y, z)
    np.testing.assert_array_equal(y, [1, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(z, [2, 2, 0, 0, 0])
    with pytest.raises(ValueError, match="which is 6; got 5"):
        made(x, z, z)
