"""``ThreadSync``: where barriers are needed, and where not all threads would reach them."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_cases import RNG, applied, script, step

from tilewright.support.errors import LowerError
from tilewright.tir import transform
from tilewright.tir.interpreter import run


def synced(text: str, scope: str = "shared") -> str:
    return script(applied(text, transform.ThreadSync(scope)))


def barriers(text: str, scope: str = "shared") -> int:
    return synced(text, scope).count("storage_sync")


@pytest.mark.parametrize(
    ("body", "count"),
    [
        # one thread's own elements
        ("S[t] = A[t]\nB[t] = S[t]", 0),
        ("for i in range(4):\n    S[t * 4 + i] = A[t]\nB[t] = S[t * 4 + 3]", 0),
        ("for i in range(4):\n    S[t * 4 + i] = A[t]\nB[t] = S[t * 4 + 4 - 4]", 0),
        ("if t == 3:\n    S[0] = A[t]\nif t == 3:\n    B[t] = S[0]", 0),
        ("if t == 3:\n    S[0] = A[t]\n    B[t] = S[0]", 0),
        ("S[t] = A[t]\nB[t] = S[t + 16]", 0),
        # other threads' elements: read after write, write after read, write after write
        ("S[t] = A[t]\nB[t] = S[15 - t]", 1),
        ("B[t] = S[15 - t]\nS[t] = A[t]", 1),
        ("S[t] = A[t]\nS[15 - t] = B[t]", 1),
        ("S[t // 2] = A[t // 2]\nB[t] = S[t // 2]", 1),
        ("if t == 3:\n    S[0] = A[t]\nB[t] = S[0]", 1),
        ("for i in range(4):\n    S[i * 16 + t] = A[t]\nB[t] = S[t * 4]", 1),
        ("S[t] = A[t]\nB[t] = S[15 - t]\nB[t] = S[14 - t // 2]", 1),
        # a barrier that is there already
        (
            'S[t] = A[t]\nT.evaluate(T.storage_sync("shared", dtype="void"))\nB[t] = S[15 - t]',
            1,
        ),
        # from one iteration to the next
        ("for i in range(3):\n    S[t] = A[t]\n    B[t] = S[15 - t]", 2),
        ("for i in range(3):\n    S[i * 16 + t] = A[t]\n    B[t] = S[i * 16 + 15 - t]", 1),
        # double buffering: the barrier of the next iteration is enough
        ("for i in range(6):\n    S[i % 2 * 16 + t] = A[t]\n    B[t] = S[i % 2 * 16 + 15 - t]", 1),
        ("for i in range(3):\n    B[t] = B[t] + S[15 - t]", 0),
        ("S[t] = A[t]\nfor i in range(3):\n    B[t] = B[t] + S[15 - t]", 1),
        ("for i in range(n):\n    S[t] = A[t]\n    B[t] = S[15 - t]\nS[t] = A[t + 16]", 3),
        # uniform branches
        ("S[t] = A[t]\nif n > 3:\n    B[t] = S[15 - t]\nelse:\n    B[t] = S[t]", 1),
        ("if n > 3:\n    S[t] = A[t]\n    B[t] = S[15 - t]", 1),
        # blocks have memory of their own
        ("S[t + b] = A[t]\nB[t] = S[t + b]", 0),
    ],
)
def test_barriers_where_they_are_needed(body: str, count: int) -> None:
    text = synced(step(body))
    assert text.count("storage_sync") == count


def test_a_barrier_goes_before_a_loop_that_only_reads() -> None:
    text = synced(step("S[t] = A[t]\nfor i in range(3):\n    B[t] = B[t] + S[15 - t]"))
    assert text.index("storage_sync") < text.index("for i in")


def test_branches_that_some_threads_take_are_split_around_a_barrier() -> None:
    body = """
if t < 8:
    for i in range(2):
        S[t] = A[t + i]
        B[t * 2 + i] = S[7 - t]
else:
    B[t * 2] = T.float32(1)
"""
    mod = applied(step(body), transform.ThreadSync())
    assert script(mod).count("storage_sync") == 2
    a, b, c = RNG.standard_normal(64).astype("float32"), np.zeros(64, "f4"), np.zeros(64, "f4")
    run(mod, a, b, 1)
    for i in range(2):
        c[np.arange(8) * 2 + i] = a[7 - np.arange(8) + i]
    c[np.arange(8, 16) * 2] = 1
    np.testing.assert_array_equal(b, c)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("for i in range(t):\n    S[i] = A[t]\n    B[t] = S[15 - i]", "run differently often"),
        ("if A[t] < T.float32(0):\n    S[t] = A[t]\n    B[t] = S[15 - t]", "which reads memory"),
        (
            "while B[t] < T.float32(9):\n    S[t] = A[t]\n    B[t] = S[15 - t]",
            "run differently often",
        ),
    ],
)
def test_barriers_that_not_all_threads_would_reach(body: str, message: str) -> None:
    with pytest.raises(LowerError, match=message):
        synced(step(body))


@pytest.mark.parametrize("bound", ['T.Cast("int32", A[b])', "n"])
def test_what_all_threads_read_alike_lets_them_meet(bound: str) -> None:
    """Memory that the kernel doesn't change, at one place for the whole block."""
    inside = f"for i in range({bound}):\n    S[t] = C[t]\n    B[t] = S[15 - t]"
    body = inside.replace("C[t]", "T.float32(i)")
    assert barriers(step(body)) == 2
    assert barriers(step(f"if {bound} < 3:\n    S[t] = T.float32(1)\n    B[t] = S[15 - t]")) == 1
    if bound != "n":
        with pytest.raises(LowerError, match="run differently often"):
            synced(step(f"{body}\nA[t] = T.float32(0)"))


def test_barriers_of_warps_and_of_global_memory() -> None:
    body = "S[t] = A[t]\nB[t] = S[15 - t]"
    assert barriers(step(body, "warp")) == 0
    assert 'storage_sync("warp"' in synced(step(body, "warp"), "warp")
    body = "B[b * 16 + t] = A[t]\nA[t + 32] = B[b * 16 + 15 - t]"
    assert barriers(step(body)) == 0
    assert barriers(step(body), "global") == 1
    assert barriers(step("B[b * 16 + t] = A[t]\nA[t] = B[b * 16 + t]"), "global") == 0
    with pytest.raises(LowerError, match="knows the scopes shared, warp, global; got 'local'"):
        transform.ThreadSync("local")


def test_symbolic_indices_of_one_thread_need_no_barrier() -> None:
    text = """
@T.prim_func
def main(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 16))
    for t in T.thread_binding(16, thread="threadIdx.x"):
        for k in range(n):
            A[k, t] = A[k, t] + T.float32(1)
"""
    assert barriers(text, "global") == 0


@pytest.mark.parametrize("copy_first", [True, False])
def test_a_barrier_follows_the_wait_for_asynchronous_copies(copy_first: bool) -> None:
    copy = """
    with T.attr(None, "async_commit_queue_scope", 0):
        T.attr(None, "async_scope", 1)
        S[(i + 1) % 3 * 16 + t] = A[t]"""
    use = """
    with T.attr(None, "async_wait_queue_scope", 0):
        T.attr(None, "async_wait_inflight_count", 1)
        B[t] = S[i % 3 * 16 + 15 - t]"""
    made = synced(step("for i in range(9):" + (copy + use if copy_first else use + copy)))
    assert made.index("inflight_count") < made.index("storage_sync") < made.index("B[t] =")
    # With three versions that barrier is the only one.
    assert made.count("storage_sync") == 1


def test_vectors_count_by_lanes() -> None:
    body = "S[t * 4 : t * 4 + 4] = A[0:4]\nB[t] = S[t * 4 + {}]"
    assert barriers(step(body.format(3))) == 0
    assert barriers(step(body.replace("t * 4 + {}", "t * 3"))) == 1


@pytest.mark.parametrize(("distance", "count"), [(2, 1), (4, 2)])
def test_stages_of_a_buffer_are_told_apart_whatever_their_size(distance: int, count: int) -> None:
    """Too many places to count them all: bounds tell that stages don't meet."""
    text = f"""
@T.prim_func
def main(A: T.Buffer((1 << 20,), "float32"), B: T.Buffer((1 << 20,), "float32")):
    for t in T.thread_binding(16, thread="threadIdx.x"):
        S = T.allocate((1 << 18,), "float32", scope="shared")
        for i in range(8):
            T.evaluate(T.storage_sync("shared", dtype="void"))
            for j in range(4096):
                B[i * 65536 + j * 16 + t] = S[i % 4 * 65536 + j * 16 + 15 - t]
            for j in range(4096):
                S[(i + {distance}) % 4 * 65536 + j * 16 + t] = A[j * 16 + t]
"""
    assert barriers(text) == count


def test_each_place_by_one_thread_needs_no_barrier() -> None:
    """Pairs of iterations are too many to count, the places of each thread are not."""
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "float32")):
    for t in T.thread_binding(64, thread="threadIdx.x"):
        S = T.allocate((66560,), "float32", scope="shared")
        for i in range(256):
            """
    start = "i // 2 * 520 + i % 2 * 256 + t // 4 * 16 + t % 4 * 2"
    assert barriers(f"{text}S[T.Ramp({start}, 1, 2)] = A[0:2]") == 0
    assert barriers(f"{text}S[T.Ramp({start.replace('256', '8')}, 1, 2)] = A[0:2]") == 0
    assert barriers(f"{text}S[T.Ramp({start.replace('256', '4')}, 1, 2)] = A[0:2]") == 1
