"""Threads on the interpreter: barriers, warps, shared memory, races, calls between functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import assert_structural_equal, call
from tilewright.script import parse
from tilewright.support.errors import RunError, VerifyError
from tilewright.tir.interpreter import run

RNG = np.random.default_rng(0)

REVERSE = """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    for b in T.thread_binding(4, thread="blockIdx.x"):
        for t in T.thread_binding(8, thread="threadIdx.x"):
            tile = T.allocate((8,), "float32", scope="shared")
            tile[t] = A[b, t]
            {sync}
            B[b, t] = tile[7 - t]
"""
SYNC = 'T.evaluate(T.storage_sync("shared", dtype="void"))'


def test_threads_of_a_block_exchange_values_at_a_barrier() -> None:
    a, b = RNG.standard_normal((4, 8)).astype("float32"), np.zeros((4, 8), "float32")
    run(parse(REVERSE.format(sync=SYNC)), a, b, check_races=True)
    np.testing.assert_array_equal(b, a[:, ::-1])


def test_a_missing_barrier_is_a_race() -> None:
    a, b = np.zeros((4, 8), "float32"), np.zeros((4, 8), "float32")
    with pytest.raises(RunError) as caught:
        run(parse(REVERSE.format(sync="pass")), a, b, check_races=True)
    text = str(caught.value)
    assert "race on element" in text and "of tile" in text
    assert text.count("blockIdx.x=0, threadIdx.x=") == 2


def test_a_barrier_that_some_threads_leave_out() -> None:
    text = REVERSE.format(sync=f"if t < 5:\n                {SYNC}")
    with pytest.raises(RunError, match=r"threadIdx.x=0\) waits at storage_sync.*threadIdx.x=5\)"):
        run(parse(text), np.zeros((4, 8), "float32"), np.zeros((4, 8), "float32"))


def test_barriers_in_different_branches() -> None:
    text = REVERSE.format(
        sync=f"if t < 5:\n                {SYNC}\n            else:\n                {SYNC}"
    )
    with pytest.raises(RunError, match=r"waits at storage_sync.*number"):
        run(parse(text), np.zeros((4, 8), "float32"), np.zeros((4, 8), "float32"))


def test_barriers_in_deep_nests_of_loops() -> None:
    """Python nests 20 blocks at most; the rest goes into functions of their own."""
    loops, pad = "", "            "
    for number in range(14):
        loops += f"{pad}for i{number} in range({2 if number in (3, 12) else 1}):\n"
        pad += "    "
    text = f"""
@T.prim_func
def main(A: T.Buffer((4,), "int64")):
    for t in T.thread_binding(4, thread="threadIdx.x"):
        tile = T.allocate((4,), "int64", scope="shared")
        tile[t] = t
        with T.seq():
{loops}{pad}{SYNC}
{pad}A[t] = A[t] + tile[(t + i3 + 2 * i12) % 4]
"""
    a = np.zeros(4, "int64")
    run(parse(text), a, check_races=True)
    np.testing.assert_array_equal(a, [6, 6, 6, 6])


def test_memory_of_each_scope_belongs_to_block_warp_or_thread() -> None:
    text = f"""
@T.prim_func
def main(B: T.Buffer((2, 64, 3), "int64")):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            s = T.allocate((64,), "int64", scope="shared")
            w = T.allocate((32,), "int64", scope="warp")
            l = T.allocate((1,), "int64", scope="local")
            s[t] = t + b * 1000
            w[t % 32] = t
            l[0] = t
            {SYNC}
            B[b, t, 0] = s[63 - t]
            B[b, t, 1] = w[31 - t % 32]
            B[b, t, 2] = l[0]
"""
    b = np.zeros((2, 64, 3), "int64")
    run(parse(text), b, check_races=True)
    t = np.arange(64)
    np.testing.assert_array_equal(b[1, :, 0], 63 - t + 1000)
    np.testing.assert_array_equal(b[0, :, 1], 31 - t % 32 + t // 32 * 32)
    np.testing.assert_array_equal(b[0, :, 2], t)


WARP = """
@T.prim_func
def main(A: T.Buffer((64,), "int64"), B: T.Buffer((64,), "int64")):
    for t in T.thread_binding(64, thread="threadIdx.x"):
        B[t] = {value}
"""
FULL = "T.uint32(4294967295)"


def on_warps(value: str) -> Any:
    a, b = RNG.integers(0, 100, 64), np.zeros(64, "int64")
    run(parse(WARP.format(value=value)), a, b)
    return a, b


@pytest.mark.parametrize("width", [32, 8])
@pytest.mark.parametrize("kind", ["", "_up", "_down", "_xor"])
def test_shuffles(kind: str, width: int) -> None:
    a, b = on_warps(f'T.warp_shuffle{kind}({FULL}, A[t], 3, {width}, dtype="int64")')
    lane = np.arange(64) % width
    start = np.arange(64) - lane
    source = {"": lane * 0 + 3, "_up": lane - 3, "_down": lane + 3, "_xor": lane ^ 3}[kind]
    source = np.where((source < 0) | (source >= width), lane, source)
    np.testing.assert_array_equal(b, a[start + source])


def test_votes_and_active_lanes() -> None:
    mask = f'T.warp_ballot({FULL}, A[t] % 2 == 0, dtype="uint32")'
    a, b = on_warps(f'T.Cast("int64", {mask})')
    for warp in range(2):
        bits = sum(1 << lane for lane in range(32) if a[warp * 32 + lane] % 2 == 0)
        assert (b[warp * 32 : warp * 32 + 32] == bits).all()
    _, b = on_warps(f'T.Cast("int64", T.warp_any({FULL}, t % 32 == 40, dtype="bool"))')
    assert not b.any()
    _, b = on_warps(f'T.Cast("int64", T.warp_all({FULL}, t < 32, dtype="bool"))')
    np.testing.assert_array_equal(b, np.arange(64) < 32)
    text = WARP.format(value='T.Cast("int64", T.warp_activemask(dtype="uint32"))')
    text = text.replace("        B[t]", "        if t % 2 == 0:\n            B[t]")
    b = np.zeros(64, "int64")
    run(parse(text), np.zeros(64, "int64"), b)
    assert set(b[::2]) == {0x55555555} and set(b[1::2]) == {0}


def test_exchanges_between_threads_print_and_parse() -> None:
    value = (
        f'T.warp_shuffle({FULL}, A[t], 0, 32, dtype="int64")'
        f' + T.warp_shuffle_xor({FULL}, A[t], 1, 32, dtype="int64")'
        ' + T.Cast("int64", T.warp_ballot('
        'T.warp_activemask(dtype="uint32"), t < 3, dtype="uint32"))'
        ' + T.atomic_add(T.address_of(A[t], dtype="handle"), T.int64(1))'
    )
    func = parse(WARP.format(value=value))
    assert_structural_equal(parse(func.script()), func)
    with pytest.raises(VerifyError, match="takes 4 arguments, got 2"):
        call("warp_shuffle", 1, 2, dtype="int64")


def test_a_lane_of_the_mask_that_never_comes() -> None:
    text = WARP.format(value=f'T.warp_shuffle({FULL}, A[t], 0, 32, dtype="int64")')
    text = text.replace("        B[t]", "        if t != 7:\n            B[t]")
    with pytest.raises(RunError, match=r"waits at warp_shuffle.*threadIdx.x=7\) does not reach"):
        run(parse(text), np.zeros(64, "int64"), np.zeros(64, "int64"))


def test_a_mask_names_the_own_lane() -> None:
    text = WARP.format(value='T.warp_shuffle(T.uint32(1), A[t], 0, 32, dtype="int64")')
    with pytest.raises(RunError, match="leaves out its own lane 1"):
        run(parse(text), np.zeros(64, "int64"), np.zeros(64, "int64"))


def test_a_warp_barrier_orders_a_warp_and_not_the_block() -> None:
    text = """
@T.prim_func
def main(B: T.Buffer((64,), "int64")):
    for t in T.thread_binding(64, thread="threadIdx.x"):
        s = T.allocate((64,), "int64", scope="shared")
        s[t] = t
        T.evaluate(T.storage_sync("warp", dtype="void"))
        B[t] = s[{index}]
"""
    b = np.zeros(64, "int64")
    run(parse(text.format(index="t // 32 * 32 + (t + 1) % 32")), b, check_races=True)
    with pytest.raises(RunError, match="race on element 32 of s"):
        run(parse(text.format(index="(t + 1) % 64")), b, check_races=True)


@pytest.mark.parametrize(
    ("reducer", "expected"),
    [("sum", lambda a: a.sum(1)), ("max", lambda a: a.max(1)), ("prod", lambda a: a.prod(1))],
)
def test_all_reduce_gives_the_result_to_all_threads(reducer: str, expected: Any) -> None:
    text = f"""
@T.prim_func
def main(A: T.Buffer((3, 5), "float32"), B: T.Buffer((3, 5), "float32")):
    for x in T.thread_binding(5, thread="threadIdx.x"):
        for y in T.thread_binding(3, thread="threadIdx.y"):
            r = T.allocate((1,), "float32", scope="local")
            T.thread_allreduce("{reducer}", A[y, x],
                T.address_of(r[0], dtype="handle"), "threadIdx.x", dtype="void")
            B[y, x] = r[0]
"""
    a, b = RNG.standard_normal((3, 5)).astype("float32"), np.zeros((3, 5), "float32")
    run(parse(text), a, b, check_races=True)
    np.testing.assert_allclose(b, np.repeat(expected(a)[:, None], 5, 1), rtol=1e-6)


def test_all_reduce_of_pairs() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((6,), "float32"), I: T.Buffer((6,), "int64"), V: T.Buffer((6,), "float32")):
    for x in T.thread_binding(6, thread="threadIdx.x"):
        T.thread_allreduce("argmax", x, A[x], T.address_of(I[x], dtype="handle"),
            T.address_of(V[x], dtype="handle"), "threadIdx.x", dtype="void")
"""
    a = np.array([1, 5, 2, 5, 0, 3], "float32")
    i, v = np.zeros(6, "int64"), np.zeros(6, "float32")
    run(parse(text), a, i, v)
    assert set(i) == {1} and set(v) == {5}


def test_atomic_adds_do_not_race_with_each_other() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((2, 8), "float32"), S: T.Buffer((1,), "float32")):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for t in T.thread_binding(8, thread="threadIdx.x"):
            {add}
"""
    address = 'T.atomic_add(T.address_of(S[0], dtype="handle"), A[b, t])'
    a, s = RNG.standard_normal((2, 8)).astype("float32"), np.zeros(1, "float32")
    run(parse(text.format(add=f"T.evaluate({address})")), a, s, check_races=True)
    np.testing.assert_allclose(s, a.sum(), rtol=1e-5)
    with pytest.raises(RunError, match="race on element 0 of S"):
        run(parse(text.format(add="S[0] = S[0] + A[b, t]")), a, s, check_races=True)


def test_blocks_race_with_each_other_and_kernels_do_not() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "int64")):
    for b in T.thread_binding(4, thread="blockIdx.x"):
        A[{first}] = b
    for b in T.thread_binding(4, thread="blockIdx.x"):
        A[b] = A[b] + 1
"""
    a = np.zeros(4, "int64")
    run(parse(text.format(first="3 - b")), a, check_races=True)
    np.testing.assert_array_equal(a, [4, 3, 2, 1])
    with pytest.raises(RunError, match=r"element 0 of A: thread \(blockIdx.x=1\) writes"):
        run(parse(text.format(first="b // 2")), a, check_races=True)


ASYNC = """
@T.prim_func
def main(A: T.Buffer((5, 4), "float32"), B: T.Buffer((5, 4), "float32")):
    for t in T.thread_binding(4, thread="threadIdx.x"):
        S = T.allocate((2, 4), "float32", scope="shared")
        with T.attr(None, "async_commit_queue_scope", 0):
            T.attr(None, "async_scope", 1)
            S[0, t] = A[0, t]
        for i in range(4):
            with T.attr(None, "async_commit_queue_scope", 0):
                T.attr(None, "async_scope", 1)
                S[(i + 1) % 2, t] = A[i + 1, t]
            with T.attr(None, "async_wait_queue_scope", 0):
                T.attr(None, "async_wait_inflight_count", {count})
                {sync}
                B[i, t] = S[i % 2, {index}]
            {sync}
        {last}
            T.attr(None, "async_wait_inflight_count", 0)
            B[4, t] = S[0, t]
"""
LAST = 'with T.attr(None, "async_wait_queue_scope", 0):'


def test_asynchronous_copies_arrive_when_they_are_waited_for() -> None:
    a, b = RNG.standard_normal((5, 4)).astype("float32"), np.zeros((5, 4), "float32")
    func = parse(ASYNC.format(count=1, sync=SYNC, index="3 - t", last=LAST))
    run(func, a, b, check_races=True)
    np.testing.assert_array_equal(b[:4], a[:4, ::-1])
    np.testing.assert_array_equal(b[4], a[4])
    # A wait that leaves too many groups in flight: the memory holds what it held before.
    func = parse(ASYNC.format(count=2, sync=SYNC, index="t", last=LAST))
    run(func, a, b)
    assert np.isnan(b[0]).all()


def test_other_threads_see_asynchronous_copies_after_a_barrier() -> None:
    a, b = RNG.standard_normal((5, 4)).astype("float32"), np.zeros((5, 4), "float32")
    func = parse(ASYNC.format(count=1, sync="pass", index="3 - t", last=LAST))
    with pytest.raises(RunError, match="race on element"):
        run(func, a, b, check_races=True)
    run(parse(ASYNC.format(count=1, sync="pass", index="t", last=LAST)), a, b, check_races=True)
    np.testing.assert_array_equal(b, a)


def test_asynchronous_copies_must_be_waited_for() -> None:
    a, b = RNG.standard_normal((5, 4)).astype("float32"), np.zeros((5, 4), "float32")
    other = 'with T.attr(None, "async_wait_queue_scope", 7):'
    func = parse(ASYNC.format(count=1, sync=SYNC, index="t", last=other))
    with pytest.raises(RunError, match=r"threadIdx.x=0\) ends without waiting"):
        run(func, a, b)


def test_bytes_of_one_memory_seen_as_two_dtypes() -> None:
    text = """
@T.prim_func
def main(B: T.Buffer((4,), "float32")):
    for t in T.thread_binding(4, thread="threadIdx.x"):
        arena = T.allocate((32,), "uint8", scope="shared")
        f = T.decl_buffer((8,), "float32", data=arena.data, scope="shared")
        h = T.decl_buffer((16,), "int16", data=arena.data, scope="shared")
        f[t] = T.float32(1)
        h[{index}] = T.int16(t)
        B[t] = f[t]
"""
    b = np.zeros(4, "float32")
    run(parse(text.format(index="8 + t")), b, check_races=True)
    np.testing.assert_array_equal(b, np.ones(4))
    with pytest.raises(RunError, match="of h: thread"):
        run(parse(text.format(index="t + 1")), b, check_races=True)


def test_threads_meet_only_below_nests_of_thread_loops() -> None:
    text = f"""
@T.prim_func
def main(A: T.Buffer((4, 4), "int64")):
    for t in T.thread_binding(4, thread="threadIdx.x"):
        A[t, 0] = 1
        for u in T.thread_binding(4, thread="threadIdx.y"):
            {SYNC}
            A[t, u] = 2
"""
    with pytest.raises(VerifyError, match="run LiftThreadBinding"):
        run(parse(text), np.zeros((4, 4), "int64"))
    with pytest.raises(VerifyError, match="no barrier of scope 'grid'"):
        run(
            parse(REVERSE.format(sync=SYNC.replace("shared", "grid"))),
            np.zeros((4, 8), "float32"),
            np.zeros((4, 8), "float32"),
        )


MODULE = """
@I.ir_module
class Module:
    @T.prim_func
    def main(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4))
        B = T.match_buffer(b, (n, 4))
        for i in range(n):
            T.call_extern("scale", T.address_of(A[i, 0], dtype="handle"), B.data,
                          i, n, dtype="int32")

    @T.prim_func
    def scale(a: T.Buffer((4,), "float32"), b_handle: T.handle, i: T.int64):
        m = T.int64()
        b = T.match_buffer(b_handle, (m, 4))
        for t in T.thread_binding(4, thread="threadIdx.x"):
            b[i, t] = a[t] * T.float32(2)
"""


def test_a_function_calls_another_of_its_module() -> None:
    mod = parse(MODULE)
    a, b = RNG.standard_normal((3, 4)).astype("float32"), np.zeros((3, 4), "float32")
    run(mod, a, b, check_races=True)
    np.testing.assert_array_equal(b, a * 2)
    with pytest.raises(VerifyError, match="of 'scale': it calls functions of the module"):
        run(mod["main"], a, b)


HANDED_ON = """
@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        W = T.allocate((8,), "int32", scope="global")
        T.evaluate(T.call_extern("first", W.data, A.data, dtype="int32"))
        T.evaluate(T.call_extern("second", B.data, W.data, dtype="int32"))

    @T.prim_func
    def first(W: T.Buffer((8,), "int32"), A: T.Buffer((8,), "int32")):
        for t in T.thread_binding(8, thread="threadIdx.x"):
            if t < {count}:
                W[t] = A[t]

    @T.prim_func
    def second(B: T.Buffer((8,), "int32"), W: T.Buffer((8,), "int32")):
        for t in T.thread_binding(8, thread="threadIdx.x"):
            {use}
"""


@pytest.mark.parametrize(
    "use", ["B[t] = W[t]", 'T.evaluate(T.atomic_add(T.address_of(W[t], dtype="handle"), B[t]))']
)
def test_what_one_kernel_hands_to_another_was_written(use: str) -> None:
    use = use.replace("B[t]))", 'B[t], dtype="int32"))')
    a = RNG.integers(0, 9, 8).astype("int32")
    b = np.zeros(8, "int32")
    run(parse(HANDED_ON.format(count=8, use=use)), a, b, check_races=True)
    with pytest.raises(RunError, match=r"threadIdx.x=7\) reads element 7 of W, which nothing has"):
        run(parse(HANDED_ON.format(count=7, use=use)), a, b, check_races=True)


def test_an_atomic_update_reads_what_it_updates() -> None:
    text = """
@T.prim_func
def main(B: T.Buffer((8,), "int32")):
    for t in T.thread_binding(8, thread="threadIdx.x"):
        S = T.allocate((1,), "int32", scope="shared")
        T.evaluate(T.atomic_add(T.address_of(S[0], dtype="handle"), B[t], dtype="int32"))
"""
    with pytest.raises(RunError, match="reads element 0 of S, which nothing has written yet"):
        run(parse(text), np.zeros(8, "int32"), check_races=True)
