"""Each lowering pass: the program before and after, and that it means the same."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tilewright
from tilewright import driver
from tilewright.ir import IRModule, PassContext, PassInstrument, PassTimingInstrument
from tilewright.script import parse
from tilewright.support.errors import LowerError
from tilewright.target import Target
from tilewright.tir import transform
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run

RNG = np.random.default_rng(0)


def module(text):
    """Parse one function into a module."""
    return IRModule({"main": parse(text)})


def body(mod):
    """The script text of ``main`` without its header."""
    return mod["main"].script()


def same(before, after, *arrays):
    """Run both on the interpreter."""
    first, second = [a.copy() for a in arrays], [a.copy() for a in arrays]
    run(before, *first)
    run(after, *second)
    for a, b in zip(first, second):
        np.testing.assert_allclose(a, b, rtol=1e-5)


MATMUL = """
@T.prim_func
def main(A: T.Buffer((8, 6), "float32"), B: T.Buffer((6, 8), "float32"),
         C: T.Buffer((8, 8), "float32")):
    for i, j, k in T.grid(8, 8, 6):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def matmul_arrays():
    a, b = RNG.standard_normal((8, 6)), RNG.standard_normal((6, 8))
    return a.astype("float32"), b.astype("float32"), np.zeros((8, 8), "float32")


def test_init_goes_before_loops_that_only_reduce():
    mod = module(MATMUL)
    made = transform.LowerInitBlock()(mod)
    text = body(made)
    assert "T.init" not in text and "if " not in text
    assert text.index('T.block("C_init")') < text.index("for k in range(6)")
    same(mod, made, *matmul_arrays())


def test_init_stays_inside_when_a_reduction_loop_is_outside():
    text = MATMUL.replace("for i, j, k in T.grid(8, 8, 6)", "for k, i, j in T.grid(6, 8, 8)")
    mod = module(text)
    made = transform.LowerInitBlock()(mod)
    assert "if vk == 0" in body(made)
    same(mod, made, *matmul_arrays())


def test_init_before_the_inner_part_of_a_split_reduction():
    text = MATMUL.replace(
        "for i, j, k in T.grid(8, 8, 6)", "for k0, i, j, k1 in T.grid(2, 8, 8, 3)"
    )
    text = text.replace(
        'vi, vj, vk = T.axis.remap("SSR", [i, j, k])',
        'vi, vj = T.axis.remap("SS", [i, j])\n            vk = T.axis.reduce(6, k0 * 3 + k1)',
    )
    mod = module(text)
    made = transform.LowerInitBlock()(mod)
    assert "if k0 == 0" in body(made)
    same(mod, made, *matmul_arrays())


def test_init_is_not_moved_before_a_reversed_reduction():
    text = MATMUL.replace(
        'vi, vj, vk = T.axis.remap("SSR", [i, j, k])',
        'vi, vj = T.axis.remap("SS", [i, j])\n            vk = T.axis.reduce(6, k)',
    ).replace("reduce(6, k)", "reduce(6, 5 - k)")
    made = transform.LowerInitBlock()(module(text))
    assert "C_init" not in body(made)


STAGED = """
@T.prim_func
def main(A: T.Buffer((64, 32), "float32"), C: T.Buffer((64, 32), "float32")):
    B = T.alloc_buffer((64, 32), "float32")
    for i0 in range(16):
        for i1, j in T.grid(4, 32):
            with T.block("B"):
                vi = T.axis.spatial(64, i0 * 4 + i1)
                vj = T.axis.spatial(32, j)
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i1, j in T.grid(4, 32):
            with T.block("C"):
                vi = T.axis.spatial(64, i0 * 4 + i1)
                vj = T.axis.spatial(32, j)
                C[vi, vj] = B[vi, 31 - vj] + T.float32(1)
"""


def staged_arrays():
    return RNG.standard_normal((64, 32)).astype("float32"), np.zeros((64, 32), "float32")


def test_allocation_moves_into_the_loop_that_uses_it():
    mod = module(STAGED)
    made = transform.PlanBufferAllocation()(mod)
    text = body(made)
    assert text.index("for i0") < text.index("T.allocate((64, 32)")
    verify(made)
    same(mod, made, *staged_arrays())


def test_allocation_stays_outside_a_reduction_loop():
    text = """
@T.prim_func
def main(A: T.Buffer((8, 4), "float32"), C: T.Buffer((8,), "float32")):
    acc = T.alloc_buffer((8,), "float32")
    for k, i in T.grid(4, 8):
        with T.block("acc"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                acc[vi] = T.float32(0)
            acc[vi] = acc[vi] + A[vi, vk]
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = acc[vi]
"""
    made = transform.PlanBufferAllocation()(transform.LowerInitBlock()(module(text)))
    text = body(made)
    assert text.index("alloc_buffer") < text.index("for k")


def test_compaction_shrinks_to_what_one_iteration_touches():
    mod = module(STAGED)
    passes = transform.block_passes()
    made = mod
    for item in passes:
        made = item(made)
    assert 'T.allocate((4, 32), "float32")' in body(made)
    same(mod, made, *staged_arrays())


def test_compaction_under_a_predicate_that_pins_an_inner_loop():
    text = """
@T.prim_func
def main(A: T.Buffer((12, 8), "float32"), D: T.Buffer((12, 8), "float32")):
    C = T.alloc_buffer((12, 8), "float32")
    for i, j0, j1 in T.grid(12, 8, 2):
        with T.block("C"):
            vi = T.axis.spatial(12, i)
            vj = T.axis.spatial(8, j0 + j1)
            T.where(j1 < 1)
            C[vi, vj] = A[vi, vj]
        with T.block("D"):
            vi = T.axis.spatial(12, i)
            vj = T.axis.spatial(8, j0 + j1)
            T.where(j1 < 1)
            D[vi, vj] = C[vi, vj]
"""
    mod = module(text)
    made = mod
    for item in transform.block_passes():
        made = item(made)
    same(mod, made, RNG.standard_normal((12, 8)).astype("float32"), np.zeros((12, 8), "float32"))


def test_compaction_of_overlapping_windows():
    text = """
@T.prim_func
def main(A: T.Buffer((34,), "float32"), C: T.Buffer((32,), "float32")):
    B = T.alloc_buffer((34,), "float32")
    for i0 in range(4):
        for i1 in range(10):
            with T.block("B"):
                v = T.axis.spatial(34, i0 * 8 + i1)
                B[v] = A[v] * T.float32(3)
        for i1 in range(8):
            with T.block("C"):
                v = T.axis.spatial(32, i0 * 8 + i1)
                C[v] = B[v] + B[v + 2]
"""
    mod = module(text)
    made = mod
    for item in transform.block_passes():
        made = item(made)
    assert 'T.allocate((10,), "float32")' in body(made)
    same(mod, made, RNG.standard_normal(34).astype("float32"), np.zeros(32, "float32"))


def test_gathered_buffers_keep_their_size():
    text = """
@T.prim_func
def main(I: T.Buffer((16,), "int64"), A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for i in range(4):
        with T.block("outer"):
            v = T.axis.spatial(4, i)
            B = T.alloc_buffer((16,), "float32")
            for j in range(16):
                with T.block("B"):
                    vj = T.axis.spatial(16, j)
                    B[vj] = A[vj]
            for j in range(4):
                with T.block("C"):
                    vj = T.axis.spatial(4, j)
                    C[v * 4 + vj] = B[I[v * 4 + vj]]
"""
    mod = module(text)
    made = mod
    for item in transform.block_passes():
        made = item(made)
    assert 'T.allocate((16,), "float32")' in body(made)
    index = RNG.integers(0, 16, 16)
    same(mod, made, index, RNG.standard_normal(16).astype("float32"), np.zeros(16, "float32"))


def test_matched_buffers_become_their_source():
    text = """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(4, 4):
        with T.block("tile"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4])
            T.writes(C[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4])
            s = T.int64()
            M = T.match_buffer(A[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4], (4, 4), strides=(s, 1))
            for x, y in T.grid(4, 4):
                C[vi * 4 + x, vj * 4 + y] = M[y, x] + T.Cast("float32", s)
"""
    mod = module(text)
    made = transform.LowerMatchBuffer()(transform.ConvertBlocksToOpaque()(mod))
    text = body(made)
    assert "match_buffer" not in text and 'T.Cast("float32", 16)' in text
    same(mod, made, RNG.standard_normal((16, 16)).astype("float32"), np.zeros((16, 16), "float32"))


def test_flat_buffers_have_one_index_and_follow_strides():
    text = """
@T.prim_func
def main(a: T.handle, C: T.Buffer((3, 4), "float32")):
    A = T.match_buffer(a, (3, 4), "float32", strides=(10, 2))
    for i, j in T.grid(3, 4):
        C[i, j] = A[i, j]
"""
    mod = transform.LowerOpaqueBlock()(module(text))
    text = body(transform.FlattenBuffer()(mod))
    assert "i * 10 + j * 2" in text and "i * 4 + j" in text


def test_partition_peels_the_tail_of_a_constant_range():
    text = """
@T.prim_func
def main(A: T.Buffer((125,), "float32"), C: T.Buffer((125,), "float32")):
    for i0, i1 in T.grid(8, 16):
        if i0 * 16 + i1 < 125:
            C[i0 * 16 + i1] = A[i0 * 16 + i1] + T.float32(1)
"""
    mod = transform.LowerOpaqueBlock()(module(text))
    made = transform.LoopPartition()(mod)
    assert "if " not in body(made) and "T.grid(7, 16)" in body(made)
    same(mod, made, RNG.standard_normal(125).astype("float32"), np.zeros(125, "float32"))


def test_partition_of_a_symbolic_length_is_two_loops():
    text = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,))
    C = T.match_buffer(c, (n,))
    for i0, i1 in T.grid((n + 15) // 16, 16):
        if i0 * 16 + i1 < n:
            C[i0 * 16 + i1] = A[i0 * 16 + i1] + T.float32(1)
"""
    mod = transform.LowerOpaqueBlock()(module(text))
    made = transform.LoopPartition()(mod)
    text = body(made)
    assert text.count("if ") == 1 and text.index("T.grid(n // 16, 16)") < text.index("if ")
    for n in (0, 1, 15, 16, 17, 47):
        same(mod, made, RNG.standard_normal(n).astype("float32"), np.zeros(n, "float32"))


def test_partition_leaves_nothing_where_a_test_around_everything_fails():
    """The condition stands outside of the loops that it doesn't depend on, without an else."""
    text = """
@T.prim_func
def main(A: T.Buffer((24, 64), "float32"), C: T.Buffer((8,), "float32")):
    for h in T.serial(8, annotations={"pragma_keep_whole": 1}):
        for r, c in T.grid(3, 64):
            if 8 <= h + r * 5 and h + r * 5 < 16:
                C[h] = C[h] + A[h + r * 5, c]
"""
    mod = transform.LowerOpaqueBlock()(module(text))
    made = transform.LoopPartition()(mod)
    text = body(made)
    assert text.count("if ") == 1 and "else" not in text and text.index("if ") < text.index("for c")
    same(mod, made, RNG.standard_normal((24, 64)).astype("float32"), np.zeros(8, "float32"))


def test_partition_keeps_what_else_runs_where_a_test_fails():
    text = """
@T.prim_func
def main(A: T.Buffer((24, 64), "float32"), C: T.Buffer((8,), "float32")):
    for h in T.serial(8, annotations={"pragma_keep_whole": 1}):
        for r, c in T.grid(3, 64):
            if 8 <= h + r * 5 and h + r * 5 < 16:
                C[h] = C[h] + A[h + r * 5, c]
            else:
                C[h] = C[h] - T.float32(1)
            if 8 <= h + r * 5:
                C[h] = C[h] * T.float32(0.5)
"""
    mod = transform.LowerOpaqueBlock()(module(text))
    made = transform.LoopPartition()(mod)
    assert "else" in body(made)
    same(mod, made, RNG.standard_normal((24, 64)).astype("float32"), np.zeros(8, "float32"))


def test_vectorize_makes_ramps_and_broadcasts():
    text = """
@T.prim_func
def main(A: T.Buffer((4, 16), "float32"), B: T.Buffer((4,), "float32"),
         C: T.Buffer((4, 16), "float32")):
    for i in range(4):
        for j in T.vectorized(16):
            C[i, j] = A[i, j] * B[i]
"""
    mod = transform.FlattenBuffer()(transform.LowerOpaqueBlock()(module(text)))
    made = transform.VectorizeLoop()(mod)
    assert "vectorized" not in body(made) and "T.Broadcast(B" in body(made)
    a, b = RNG.standard_normal((4, 16)), RNG.standard_normal(4)
    same(mod, made, a.astype("float32"), b.astype("float32"), np.zeros((4, 16), "float32"))


def test_vectorize_leaves_what_it_cannot_as_a_serial_loop():
    text = """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16,), "float32")):
    for j in T.vectorized(16):
        C[j] = T.float32(0)
        for k in range(j):
            C[j] = C[j] + A[j, k]
"""
    mod = transform.FlattenBuffer()(transform.LowerOpaqueBlock()(module(text)))
    made = transform.VectorizeLoop()(mod)
    assert "for j in range(16)" in body(made)
    a = RNG.standard_normal((16, 16)).astype("float32")
    same(mod, made, a, np.zeros(16, "float32"))


def test_unroll_by_kind_annotation_and_register_tile():
    text = """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
    for i in T.unroll(2):
        for j in T.serial(2, annotations={"pragma_auto_unroll_max_step": 16}):
            for k in range(4):
                C[i, j * 4 + k] = A[i, j * 4 + k]
    for i in range(2):
        for k in range(8):
            C[2 + i, k] = A[2 + i, k]
"""
    mod = transform.FlattenBuffer()(transform.LowerOpaqueBlock()(module(text)))
    made = transform.UnrollLoop()(mod)
    assert body(made).count("C_1[") == 17 and "T.grid(2, 8)" in body(made)
    a = RNG.standard_normal((4, 8)).astype("float32")
    same(mod, made, a, np.zeros((4, 8), "float32"))


@pytest.mark.parametrize(("steps", "is_kept"), [(0, True), (16, False)])
def test_loops_over_register_tiles_stay_where_an_annotation_says_so(steps, is_kept):
    text = f"""
@T.prim_func
def main(C: T.Buffer((4,), "float32")):
    S = T.alloc_buffer((4,), "float32")
    for i in T.serial(4, annotations={{"pragma_auto_unroll_max_step": {steps}}}):
        S[i] = T.float32(1)
    for i in T.serial(4, annotations={{"pragma_auto_unroll_max_step": {steps}}}):
        C[i] = S[i]
"""
    mod = transform.FlattenBuffer()(transform.LowerOpaqueBlock()(module(text)))
    made = transform.UnrollLoop()(mod)
    assert ("for i" in body(made)) == is_kept
    same(mod, made, np.zeros(4, "float32"))


def test_accumulators_leave_memory_during_the_loop():
    mod = transform.cpu_pipeline(Target("llvm -mcpu=x86-64-v3 -num-cores=1"))(module(MATMUL))
    text = body(mod)
    inner = text[text.index("for k") :].splitlines()[1]
    assert "C_acc[0] = C_acc[0] +" in inner
    same(module(MATMUL), mod, *matmul_arrays())


def test_accumulators_that_may_alias_stay():
    text = """
@T.prim_func
def main(I: T.Buffer((8,), "int64"), C: T.Buffer((8,), "float32")):
    for k in range(8):
        C[0] = C[0] + C[I[k]]
"""
    mod = transform.FlattenBuffer()(transform.LowerOpaqueBlock()(module(text)))
    assert "allocate" not in body(transform.PromoteAccumulators()(mod))


def test_division_of_non_negative_numbers_truncates():
    text = """
@T.prim_func
def main(A: T.Buffer((30,), "int64"), C: T.Buffer((10, 3), "int64"), D: T.Buffer((30,), "int64")):
    for i in range(30):
        C[i // 3, i % 3] = A[i]
        D[i] = A[i] // 3
"""
    mod = transform.LowerOpaqueBlock()(module(text))
    made = transform.LowerIntDiv()(mod)
    assert "T.truncdiv(i, 3)" in body(made) and "A[i] // 3" in body(made)
    zeros = np.zeros((10, 3), "int64"), np.zeros(30, "int64")
    same(mod, made, np.arange(-15, 15), *zeros)


def test_passes_in_the_wrong_order_say_which_is_missing():
    with pytest.raises(LowerError, match="run ConvertBlocksToOpaque first"):
        transform.LowerOpaqueBlock()(module(MATMUL))


def test_instruments_see_the_passes_and_can_disable_them():
    class Names(PassInstrument):
        def __init__(self):
            self.names = []

        def run_after_pass(self, mod, name):
            self.names.append(name)

    target = Target("llvm -mcpu=x86-64-v3 -num-cores=1")
    names, timing = Names(), PassTimingInstrument()
    with PassContext(instruments=[names, timing], disabled_pass=["PromoteAccumulators"]):
        transform.cpu_pipeline(target)(module(MATMUL))
    assert names.names[0] == "LowerLoopExits" and names.names[-1] == "LowerForCPU"
    assert "PromoteAccumulators" not in names.names
    assert "VectorizeLoop" in timing.render()


def test_simplify_puts_the_value_of_a_single_iteration_into_bare_indices():
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    for i, j in T.grid(2, 2):
        if j < 1 and i < 1:
            C[j] = A[j + 1]
"""
    mod = transform.LowerOpaqueBlock()(module(text))
    made = transform.LoopPartition()(mod)
    verify(made)
    assert "C[0] = A[1]" in body(made) and "attr" not in body(made)


def test_compaction_leaves_alone_what_a_callee_sees():
    func = parse(
        """
from tilewright.script import tir as T

@T.prim_func
def main(x: T.Buffer((64,), "float32")):
    space = T.alloc_buffer((4096,), "int8")
    with T.block("call"):
        T.reads(x[0:64])
        T.writes(space[0:4096])
        T.evaluate(T.call_extern("kernel", T.address_of(space[0], dtype="handle"), dtype="int32"))
"""
    )
    lowered = transform.CompactBufferAllocation()(IRModule({"main": func}))
    assert "space = T.alloc_buffer((4096,)" in lowered.script()


def test_an_index_may_be_bound_within_its_expression() -> None:
    func = parse(
        """
@T.prim_func
def main(X: T.Buffer((8,), "float32"), Y: T.Buffer((8,), "float32")):
    A = T.alloc_buffer((8,), "float32")
    for i in range(4):
        for j in range(2):
            with T.block("double"):
                v = T.axis.spatial(8, i * 2 + j)
                A[v] = X[v] * T.float32(2)
        for j in range(2):
            with T.block("swap"):
                v = T.axis.spatial(8, i * 2 + j)
                w = T.axis.spatial(8, i * 2 + 1 - j)
                x = T.int64()
                Y[v] = T.Let(A[x], where={x: w})
"""
    )
    lowered = transform.cpu_pipeline(Target("llvm"))(IRModule({"main": func}))
    assert 'T.allocate((2,), "float32")' in lowered.script()
    x, y = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    run(lowered, x, y)
    assert y.tolist() == [2.0, 0.0, 6.0, 4.0, 10.0, 8.0, 14.0, 12.0]


def test_what_is_named_for_all_lanes_stays_one_value() -> None:
    func = parse(
        """
@T.prim_func
def main(W: T.Buffer((4,), "float32"), X: T.Buffer((4, 8), "float32"),
         Y: T.Buffer((4, 8), "float32")):
    s = T.float32()
    t = T.float32()
    for i in range(4):
        for j in T.vectorized(8):
            Y[i, j] = X[i, j] + T.erf(T.Let(s * s, where={s: W[i]})) + T.copysign(
                T.float32(2), T.Let(t - T.float32(3), where={t: W[i]}))
"""
    )
    w, x = np.arange(4, dtype="float32"), np.ones((4, 8), "float32")
    y = np.zeros((4, 8), "float32")
    driver.compile(func, Target("llvm"))(w, x, y)
    wanted = [1 + math.erf(a * a) + math.copysign(2, a - 3) for a in range(4)]
    np.testing.assert_allclose(y, np.broadcast_to(np.array(wanted)[:, None], (4, 8)), 1e-5, 1e-5)


@pytest.mark.parametrize("place", ["i", "0"])
def test_copies_of_a_view_are_of_the_same_memory(place: str) -> None:
    mod = module(
        f"""
@T.prim_func
def main(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
    A = T.allocate((4,), "float32")
    for i in T.unroll(4):
        V = T.decl_buffer((4,), "float32", data=A.data)
        V[{place}] = X[{place}] + T.float32(1)
        Y[{place}] = Y[{place}] + A[{place}]
"""
    )
    made = transform.UnrollLoop()(mod)
    verify(made)
    assert body(made).count("data=A.data") == 4
    same(mod, made, np.arange(4, dtype="float32"), np.zeros(4, "float32"))


@pytest.mark.parametrize(
    "unused",
    [
        'with T.allocate((4,), "float32") as A:\n            T.evaluate(0)',
        'with T.block("b"):\n            A = T.alloc_buffer((4,), "float32")\n'
        "            T.evaluate(0)",
    ],
)
def test_memory_that_nobody_uses(unused: str) -> None:
    mod = module(
        f"""
@T.prim_func
def main(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
    for i in range(4):
        Y[i] = X[i]
        {unused}
"""
    )
    made = transform.cpu_pipeline(Target("llvm"))(mod)
    same(mod, made, np.arange(4, dtype="float32"), np.zeros(4, "float32"))


def test_both_sides_of_a_select_read_inside() -> None:
    """Its condition says nothing of the places that are read where it doesn't hold."""
    text = """
@T.prim_func
def main(a: T.handle, C: T.Buffer((8,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    for i in range(8):
        C[i] = T.Select(i < n, A[T.min(i, n - 1)], T.float32(0))
"""
    passes = [transform.LowerOpaqueBlock(), transform.FlattenBuffer(), transform.Simplify()]
    mod = module(text)
    for item in passes:
        mod = item(mod)
    made = body(mod)
    assert "T.min" in made[made.index("for i") :]


def test_a_loop_whose_iterations_all_are_the_first_one_repeats_the_init():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3, 1)), B: T.Buffer((3,))):
    for i, k in T.grid(3, 2):
        with T.block("B"):
            vi = T.axis.spatial(3, i)
            vk = T.axis.reduce(1, k // 2)
            with T.init():
                B[vi] = 0.0
            B[vi] = B[vi] + A[vi, vk]
""")
    a = np.arange(3, dtype="float32").reshape(3, 1)
    expected, actual = np.zeros(3, "float32"), np.zeros(3, "float32")
    run(func, a, expected)
    tilewright.compile(IRModule({"main": func}), target="llvm")(a, actual)
    np.testing.assert_array_equal(expected, a[:, 0])
    np.testing.assert_array_equal(actual, expected)


def test_a_buffer_that_starts_inside_memory_is_read_there():
    main = parse(
        """from tilewright.script import tir as T
@T.prim_func
def main(B: T.Buffer((16,), "int32")):
    C = T.decl_buffer((4,), "int32", data=B.data, elem_offset=4)
    for i in range(4):
        C[i] = i + 1
"""
    )
    for program in (main, tilewright.lower(main)):
        found = np.zeros(16, "int32")
        run(program, found)
        assert found.tolist() == [0] * 4 + [1, 2, 3, 4] + [0] * 8
