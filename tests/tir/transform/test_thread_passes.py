"""The passes for threads one by one: what they make of small programs, and what they refuse."""

from __future__ import annotations

import re

import numpy as np
import pytest
from gpu_cases import RNG, applied, module, script, step

from tilewright.support.errors import LowerError, RunError
from tilewright.target import Target
from tilewright.tir import transform
from tilewright.tir.interpreter import run

BINDINGS = (transform.UnifyThreadBinding(), transform.LiftThreadBinding())


# ---- UnifyThreadBinding, LiftThreadBinding ------------------------------------------------------

SIBLINGS = """
@T.prim_func
def main(A: T.Buffer((12,), "float32"), B: T.Buffer((12,), "float32")):
    for b in T.thread_binding(1, thread="blockIdx.x"):
        S = T.allocate((12,), "float32", scope="shared")
        for r in range(2):
            for t in T.thread_binding(8, thread="threadIdx.x"):
                if t < 6:
                    S[r * 6 + t] = A[r * 6 + t] * T.float32(2)
            for u in T.thread_binding(6, thread="threadIdx.x"):
                B[r * 6 + u] = S[r * 6 + 5 - u]
"""


def test_sibling_nests_are_joined_at_the_top() -> None:
    unified = applied(SIBLINGS, BINDINGS[0])
    assert "if u < 6" in script(unified)
    a, b, c = RNG.standard_normal(12).astype("float32"), np.zeros(12, "f4"), np.zeros(12, "f4")
    run(module(SIBLINGS), a, b)
    run(unified, a, c)
    np.testing.assert_array_equal(c, b)
    mod = applied(SIBLINGS, *BINDINGS)
    text = script(mod)
    assert text.count("thread_binding") == 2
    assert text.index("threadIdx.x") < text.index("for r in")
    with pytest.raises(RunError, match=r"race on element .* of S"):
        run(mod, a, c, check_races=True)
    mod = transform.ThreadSync()(mod)
    c[:] = 0
    run(mod, a, c, check_races=True)
    np.testing.assert_array_equal(c, b)


def test_a_nested_loop_of_the_same_tag_shares_the_work_out() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
    for t in T.thread_binding(4, thread="threadIdx.x"):
        S = T.allocate((4, 8), "float32", scope="shared")
        for i in range(4):
            for u in T.thread_binding({threads}, thread="threadIdx.x"):
                S[i, u] = A[i, u]{extra}
        B[t] = S[t, 0] + S[t, 7]
"""
    mod = applied(text.format(threads=8, extra=""), *BINDINGS, transform.ThreadSync())
    assert "thread_binding(8" in script(mod) and "if t < 4" in script(mod)
    a, b = RNG.standard_normal((4, 8)).astype("float32"), np.zeros(4, "float32")
    run(mod, a, b, check_races=True)
    np.testing.assert_array_equal(b, a[:, 0] + a[:, 7])
    with pytest.raises(LowerError, match="whose variable t it uses too"):
        applied(text.format(threads=8, extra=" + T.float32(t)"), *BINDINGS)
    private = text.format(threads=8, extra="").replace('"shared"', '"local"')
    with pytest.raises(LowerError, match="each thread of the outer loop has its own"):
        applied(private, *BINDINGS)


@pytest.mark.parametrize(
    ("between", "message"),
    [
        ("for r in range(t + 1):", r"t \+ 1\) decides about it"),
        ("if t < 3:", r"t < 3\) decides about it"),
        ("x = t + 1\n        for r in range(x):", r"x decides about it"),
        ("for r in range(2):", None),
        ("if A[0, 0] < T.float32(100):", None),
    ],
)
def test_threads_that_share_work_must_all_come_by(between: str, message: str | None) -> None:
    text = f"""
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4,), "float32")):
    S = T.alloc_buffer((4,), "float32", scope="shared")
    for t in T.thread_binding(4, thread="threadIdx.x"):
        {between}
            for u in T.thread_binding(4, thread="threadIdx.x"):
                S[u] = A[0, u]
        B[t] = S[3 - t]
"""
    if message is not None:
        with pytest.raises(LowerError, match=message):
            applied(text, transform.UnifyThreadBinding())
        return
    mod = applied(text, *BINDINGS)
    mod = applied(script(mod), transform.LowerOpaqueBlock(), transform.ThreadSync())
    a, b = RNG.standard_normal((4, 4)).astype("float32"), np.zeros(4, "float32")
    run(mod, a, b, check_races=True)
    np.testing.assert_array_equal(b, a[0, ::-1])


def test_what_runs_once_per_block_is_left_to_one_thread() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((2, 4), "float32"), B: T.Buffer((2, 4), "float32")):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        S = T.allocate((1,), "float32", scope="shared")
        L = T.allocate((1,), "float32", scope="local")
        S[0] = T.float32(0)
        L[0] = T.float32(3)
        for i in range(4):
            S[0] = S[0] + A[b, i]
        for t in T.thread_binding(4, thread="threadIdx.x"):
            B[b, t] = S[0] * L[0]
"""
    mod = applied(text, *BINDINGS, transform.ThreadSync())
    assert script(mod).count("if t == 0") == 2
    a, b = RNG.standard_normal((2, 4)).astype("float32"), np.zeros((2, 4), "float32")
    run(mod, a, b, check_races=True)
    np.testing.assert_allclose(b, np.repeat(a.sum(1, keepdims=True) * 3, 4, 1), rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            """
    for t in T.thread_binding(4, thread="threadIdx.x"):
        L = T.allocate((4,), "float32", scope="local")
        L[t] = A[t]
        A[t] = L[3 - t]
""",
            "not shown to be of the same thread; give it scope 'shared'",
        ),
        (
            """
    for b in T.thread_binding(2, thread="blockIdx.x"):
        A[b * 2] = T.float32(0)
        for c in T.thread_binding(2, thread="blockIdx.y"):
            A[b * 2 + c] = T.float32(1)
""",
            "the loop on blockIdx.y is below or beside other statements",
        ),
        (
            """
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for i in range(2):
            for c in T.thread_binding(i + 1, thread="threadIdx.x"):
                A[b * 2 + c] = T.float32(1)
""",
            "which changes inside the kernel",
        ),
        (
            """
    for b in T.thread_binding(2, thread="blockIdx.x"):
        while A[0] < T.float32(0):
            for c in T.thread_binding(2, thread="threadIdx.x"):
                A[b * 2 + c] = T.float32(1)
""",
            "a while loop of a kernel is not below all of its thread loops",
        ),
    ],
)
def test_bindings_that_are_refused(text: str, message: str) -> None:
    head = '@T.prim_func\ndef main(A: T.Buffer((4,), "float32")):'
    with pytest.raises(LowerError, match=message):
        applied(head + text, *BINDINGS)


def test_extents_that_can_not_be_compared() -> None:
    text = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n,))
    B = T.match_buffer(b, (m,))
    for b in T.thread_binding(1, thread="blockIdx.x"):
        for t in T.thread_binding(n, thread="threadIdx.x"):
            A[t] = T.float32(0)
        for t in T.thread_binding({extent}, thread="threadIdx.x"):
            B[{index}] = T.float32(0)
"""
    with pytest.raises(LowerError, match="extents n and m, and neither is shown to be the larger"):
        applied(text.format(extent="m", index="t"), *BINDINGS)
    mod = applied(text.format(extent="n + 3", index="0"), *BINDINGS)
    assert "thread_binding(n + 3" in script(mod) and "if t < n" in script(mod)


# ---- where memory of each scope lives -----------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "size", "after"),
    [
        ("global", 24, None),
        ("shared", 12, "blockIdx.x"),
        ("warp", 12, "blockIdx.x"),
        ("local", 2, "threadIdx.x"),
    ],
)
@pytest.mark.parametrize("lifted", [False, True])
def test_allocations_by_scope(scope: str, size: int, after: str | None, lifted: bool) -> None:
    text = f"""
@T.prim_func
def main(A: T.Buffer((24,), "float32"), C: T.Buffer((24,), "float32")):
    B = T.alloc_buffer((24,), "float32", scope="{scope}")
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for v in T.thread_binding(2, thread="vthread.x"):
            for t in T.thread_binding(3, thread="threadIdx.x"):
                for i in range(2):
                    with T.block("B"):
                        x = T.axis.spatial(24, b * 12 + v * 6 + t * 2 + i)
                        B[x] = A[x] + T.float32(1)
                for i in range(2):
                    with T.block("C"):
                        x = T.axis.spatial(24, b * 12 + v * 6 + t * 2 + i)
                        C[x] = B[x]
"""
    mod = module(text)
    for item in (
        transform.PlanBufferAllocation(),
        transform.ConvertBlocksToOpaque(),
        *(BINDINGS if lifted else ()),
        transform.CompactBufferAllocation(),
    ):
        mod = item(mod)
    made = script(mod)
    found = re.search(rf"B\w* = T.alloc(ate|_buffer)\(\({size},\)", made)
    assert found is not None, made
    place = found.start()
    assert after is None or made.index(after) < place
    assert scope != "global" or place < made.index("blockIdx.x")
    a, c = RNG.standard_normal(24).astype("float32"), np.zeros(24, "float32")
    run(mod, a, c)
    np.testing.assert_array_equal(c, a + 1)


# ---- InjectVirtualThread ----------------------------------------------------------------------


def test_virtual_threads_are_interleaved() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4, 3), "float32"), B: T.Buffer((4, 2), "float32")):
    for t in T.thread_binding(2, thread="threadIdx.x"):
        for v in T.thread_binding(2, thread="vthread.x"):
            same = T.allocate((1,), "float32", scope="local")
            L = T.allocate((1,), "float32", scope="local")
            same[0] = T.float32(1)
            L[0] = T.float32(0)
            for k in range(3):
                L[0] = L[0] + A[v * 2 + t, k]
            B[v * 2 + t, 0] = L[0] + same[0]
            if v == 1:
                B[v * 2 + t, 1] = T.float32(5)
"""
    mod = applied(text, transform.InjectVirtualThread())
    made = script(mod)
    assert "vthread" not in made
    assert 'L = T.allocate((2, 1), "float32", scope="local")' in made
    assert 'same = T.allocate((1,), "float32", scope="local")' in made
    assert made.index("for k in") < made.index("L[v, 0] = L[v, 0] +")
    a, b, c = RNG.standard_normal((4, 3)).astype("float32"), np.zeros((4, 2), "f4"), None
    c = b.copy()
    run(module(text), a, b)
    run(mod, a, c, check_races=True)
    np.testing.assert_array_equal(c, b)


def test_virtual_threads_under_one_tag() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((2, 3), "float32")):
    for v in T.thread_binding(2, thread="vthread"):
        for w in T.thread_binding(3, thread="vthread"):
            for t in T.thread_binding(1, thread="threadIdx.x"):
                A[v, w] = A[v, w] + T.float32(1)
"""
    mod = applied(text, *BINDINGS, transform.InjectVirtualThread())
    a = np.zeros((2, 3), "float32")
    run(mod, a, check_races=True)
    np.testing.assert_array_equal(a, np.ones((2, 3)))


def test_virtual_threads_that_are_refused() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), n: T.int64):
    for v in T.thread_binding({extent}, thread="vthread"):
        if v < {bound}:
            A[v] = T.float32(1)
            T.evaluate(T.storage_sync("shared", dtype="void"))
"""
    with pytest.raises(LowerError, match="number of virtual threads must be a constant"):
        applied(text.format(extent="n", bound=2), transform.InjectVirtualThread())
    with pytest.raises(LowerError, match="barrier stands under a condition that differs"):
        applied(text.format(extent="4", bound=2), transform.InjectVirtualThread())


# ---- LowerThreadAllreduce ---------------------------------------------------------------------

REDUCE = """
@T.prim_func
def main(A: T.Buffer(({y}, {x}), "float32"), B: T.Buffer(({y}, {x}), "float32")):
    for y in T.thread_binding({y}, thread="threadIdx.y"):
        for x in T.thread_binding({x}, thread="threadIdx.x"):
            R = T.allocate((1,), "float32", scope="local")
            T.thread_allreduce("sum", A[y, x], T.address_of(R[0], dtype="handle"), {tags},
                dtype="void")
            B[y, x] = R[0]
"""


@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 7), (1, 32), (3, 16), (5, 12), (2, 64), (1, 33), (64, 2)]
)
@pytest.mark.parametrize("tags", ["x", "y", "xy"])
@pytest.mark.parametrize("warp_size", [32, 64])
def test_all_reduce_of_every_shape(shape: tuple[int, int], tags: str, warp_size: int) -> None:
    named = ", ".join(f'"threadIdx.{tag}"' for tag in tags)
    text = REDUCE.format(y=shape[0], x=shape[1], tags=named)
    mod = applied(text, transform.LowerThreadAllreduce(warp_size), transform.ThreadSync())
    assert "thread_allreduce" not in script(mod)
    a = RNG.integers(-9, 9, shape).astype("float32")
    b = np.zeros(shape, "float32")
    run(mod, a, b, check_races=True, warp_size=warp_size)
    axis = tuple({"y": 0, "x": 1}[tag] for tag in tags)
    np.testing.assert_array_equal(b, np.broadcast_to(a.sum(axis, keepdims=True), shape))


def test_all_reduces_that_are_refused() -> None:
    text = REDUCE.format(y=2, x=4, tags='"threadIdx.z"')
    with pytest.raises(LowerError, match=r"joins threads along threadIdx.z, which its kernel"):
        applied(text, transform.LowerThreadAllreduce())
    text = REDUCE.format(y=2, x=4, tags='"threadIdx.x"')
    text = text.replace(
        "            T.thread_allreduce",
        "            if x < 2:\n                T.thread_allreduce",
    )
    with pytest.raises(LowerError, match="all threads of a block must reach it"):
        applied(text, transform.LowerThreadAllreduce())
    with pytest.raises(LowerError, match="warps have 32 or 64 threads"):
        transform.LowerThreadAllreduce(16)


# ---- LowerCrossThreadReduction ----------------------------------------------------------------

SUM = """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
    {loops}
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = {update}
"""


@pytest.mark.parametrize(
    ("loops", "update", "message"),
    [
        (
            'for k in T.thread_binding(8, thread="threadIdx.x"):\n        for i in range(4):',
            "B[vi] + A[vi, vk]",
            "reorder so that the loops of the reduction are the innermost",
        ),
        (
            'for i in range(4):\n        for k in T.thread_binding(8, thread="blockIdx.x"):',
            "B[vi] + A[vi, vk]",
            "reduces over a loop on blockIdx.x; only threads of one block",
        ),
        (
            'for i in range(4):\n        for k in T.thread_binding(8, thread="threadIdx.x"):',
            "B[vi] - A[vi, vk]",
            "no reduction by a registered reducer",
        ),
    ],
)
def test_reductions_that_threads_can_not_join(loops: str, update: str, message: str) -> None:
    with pytest.raises(LowerError, match=message):
        transform.LowerCrossThreadReduction()(module(SUM.format(loops=loops, update=update)))


def test_a_reduction_beside_other_statements_of_its_loop() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        for k in range(2):
            for t in T.thread_binding(4, thread="threadIdx.x"):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    vk = T.axis.reduce(8, k * 4 + t)
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]
            for t in range(1):
                with T.block("A"):
                    vi, vk = T.axis.remap("SS", [i, k])
                    A[vi, vk] = T.float32(0)
"""
    with pytest.raises(LowerError, match="over a loop that has other statements below it"):
        transform.LowerCrossThreadReduction()(module(text))


# ---- MergeSharedAllocations -------------------------------------------------------------------

STAGES = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for t in T.thread_binding(16, thread="threadIdx.x"):
        P = T.allocate((16,), "float32", scope="shared")
        Q = T.allocate((16,), "float16", scope="shared")
        R = T.allocate((16,), "float32", scope="shared")
        P[t] = A[t]
        Q[t] = T.Cast("float16", P[15 - t])
        R[t] = T.Cast("float32", Q[(t + 1) % 16])
        B[t] = R[(t + 5) % 16]
"""


def test_buffers_that_are_not_alive_together_share_bytes() -> None:
    mod = applied(STAGES, transform.MergeSharedAllocations(), transform.ThreadSync())
    text = script(mod)
    # P and R take turns; Q is alive with both of them.
    assert 'shared_arena = T.allocate((128,), "uint8", scope="shared")' in text
    assert text.count("storage_sync") == 3
    a = RNG.standard_normal(16).astype("float32")
    b = np.zeros(16, "float32")
    run(mod, a, b, check_races=True)
    t = np.arange(16)
    q = a[15 - t].astype("float16")
    np.testing.assert_array_equal(b, q[(t + 1) % 16].astype("float32")[(t + 5) % 16])


def test_bytes_are_not_shared_across_iterations() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for t in T.thread_binding(4, thread="threadIdx.x"):
        P = T.allocate((4,), "float32", scope="shared")
        Q = T.allocate((4,), "float32", scope="shared")
        P[t] = A[t]
        for i in range(3):
            B[t] = B[t] + P[3 - t]
            Q[t] = B[t]
            B[t] = Q[3 - t]
"""
    mod = applied(text, transform.MergeSharedAllocations(), transform.ThreadSync())
    assert "T.allocate((128,)" in script(mod)
    a, b, c = RNG.standard_normal(4).astype("float32"), np.zeros(4, "f4"), np.zeros(4, "f4")
    run(applied(text, transform.ThreadSync()), a, b, check_races=True)
    run(mod, a, c, check_races=True)
    np.testing.assert_array_equal(c, b)


def test_symbolic_sizes_follow_each_other() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), n: T.int64):
    for t in T.thread_binding(4, thread="threadIdx.x"):
        P = T.allocate((n,), "float32", scope="shared")
        Q = T.allocate((4,), "float32", scope="shared")
        R = T.allocate((n * 2,), "float16", scope="shared")
        P[t] = A[t]
        Q[t] = P[3 - t]
        R[t] = T.Cast("float16", Q[3 - t])
        A[t] = Q[t] + T.Cast("float32", R[3 - t])
"""
    mod = applied(text, transform.MergeSharedAllocations(), transform.ThreadSync())
    assert script(mod).count("T.allocate(") == 1
    a = np.arange(4, dtype="float32")
    run(mod, a, 5, check_races=True)
    np.testing.assert_array_equal(a, [6, 4, 2, 0])


def test_a_single_shared_buffer_stays() -> None:
    text = step("S[t] = A[t]\nB[t] = S[t]")
    mod = module(text)
    assert transform.MergeSharedAllocations()(mod) is mod


# ---- SplitHostDevice --------------------------------------------------------------------------


def test_kernels_take_pointers_then_numbers() -> None:
    text = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 4))
    B = T.match_buffer(b, (n, 4))
    for i in range(n):
        for t in T.thread_binding(4, thread="threadIdx.x"):
            B[i, t] = A[n - 1 - i, t]
    for j in T.thread_binding(n, thread="blockIdx.x"):
        B[j, 0] = B[j, 0] + T.float32(1)
"""
    mod = applied(text, transform.SplitHostDevice(Target("cuda")))
    assert "call_extern(" in script(mod) and "thread_binding" not in script(mod)
    kernel = mod["main_kernel"]
    assert [var.dtype for var in kernel.params] == ["handle", "handle", "int64", "int64"]
    assert kernel.attrs["calling_conv"] == "device_kernel_launch"
    assert kernel.attrs["tir.kernel_launch_params"] == ["threadIdx.x"]
    assert kernel.attrs["target"] == Target("cuda")
    assert list(transform.launch_extents(mod["main_kernel_1"])) == ["blockIdx.x"]
    a, b = RNG.standard_normal((3, 4)).astype("float32"), np.zeros((3, 4), "float32")
    run(mod, a, b, check_races=True)
    expected = a[::-1].copy()
    expected[:, 0] += 1
    np.testing.assert_array_equal(b, expected)
    again = transform.SplitHostDevice()(mod)
    assert again is mod
    with pytest.raises(LowerError, match="the function is no kernel"):
        transform.launch_extents(mod["main"])


def test_shared_memory_lives_in_one_kernel() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32")):
    S = T.allocate((4,), "float32", scope="shared")
    for t in T.thread_binding(4, thread="threadIdx.x"):
        S[t] = A[t]
    for t in T.thread_binding(4, thread="threadIdx.x"):
        A[t] = S[t]
"""
    with pytest.raises(LowerError, match="uses 'S' of scope 'shared', which is allocated outside"):
        applied(text, transform.SplitHostDevice())
