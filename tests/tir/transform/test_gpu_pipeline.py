"""Schedules for GPUs, lowered to kernels, mean what the unscheduled program means.

Each runs with its threads in lock step and every access of shared and global memory watched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_cases import RNG, agree, arrays, kernel_text, lowered

from tilewright.ir import Mutator
from tilewright.script import parse
from tilewright.support.errors import RunError
from tilewright.tir import NO_OP, For, PrimFunc, Schedule
from tilewright.tir.interpreter import run
from tilewright.tir.transform import launch_extents
from tilewright.tir.transform.kernels import call_name

# ---- matmul -----------------------------------------------------------------------------------


def matmul(n: int, m: int, k: int) -> PrimFunc:
    made: PrimFunc = parse(
        f"""
@T.prim_func
def main(A: T.Buffer(({n}, {k}), "float32"), B: T.Buffer(({k}, {m}), "float32"),
         C: T.Buffer(({n}, {m}), "float32")):
    for i, j, k in T.grid({n}, {m}, {k}):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
    )
    return made


def tiled_matmul(func: PrimFunc, *, local: bool = True) -> Schedule:
    """Blocks of 8 by 8 results, 4 by 4 threads, operands through shared memory."""
    sch = Schedule(func)
    block = sch.get_block("C")
    writer = sch.cache_write(block, 0, "local") if local else None
    i, j, k = sch.get_loops(block)
    bi, ti, ii = sch.split(i, [None, 4, 2])
    bj, tj, jj = sch.split(j, [None, 4, 2])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(bi, bj, k0, ti, tj, k1, ii, jj)
    loaders = [sch.cache_read(block, number, "shared") for number in (0, 1)]
    for loader in loaders:
        sch.compute_at(loader, k0)
    if writer is not None:
        sch.reverse_compute_at(writer, bj)
    sch.bind(bi, "blockIdx.y")
    sch.bind(bj, "blockIdx.x")
    for loader in loaders:
        fused = sch.fuse(*sch.get_loops(loader)[-2:])
        _, y, x = sch.split(fused, [None, 4, 4])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
    sch.bind(ti, "threadIdx.y")
    sch.bind(tj, "threadIdx.x")
    if writer is not None:
        y, x = sch.get_loops(writer)[-2:]
        y, yi = sch.split(y, [4, 2])
        x, xi = sch.split(x, [4, 2])
        sch.reorder(y, x, yi, xi)
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
    return sch


@pytest.mark.parametrize("local", [True, False])
def test_matmul_through_shared_memory(local: bool) -> None:
    func = matmul(16, 16, 8)
    mod = agree(func, tiled_matmul(func, local=local))
    text = kernel_text(mod)
    # One barrier before the tiles are overwritten, one before they are read.
    assert text.count("storage_sync") == 2
    assert 'shared_arena = T.allocate((256,), "uint8", scope="shared")' in text
    if local:
        assert 'C_local = T.allocate((4,), "float32", scope="local")' in text


def test_matmul_of_odd_sizes() -> None:
    func = matmul(13, 11, 9)
    agree(func, tiled_matmul(func))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_tiles_are_fetched_an_iteration_ahead(asynchronous: bool) -> None:
    func = matmul(16, 16, 16)
    sch = tiled_matmul(func)
    k0 = sch.get_loops(sch.get_block("C"))[2]
    sch.annotate(k0, "software_pipeline_stage", [0, 0, 1])
    sch.annotate(k0, "software_pipeline_order", [0, 1, 2])
    if asynchronous:
        sch.annotate(k0, "software_pipeline_async_stages", [0])
    text = kernel_text(agree(func, sch))
    inside = text[text.index("for k_0 in range(3)") :]
    assert inside.count("storage_sync") == (3 if asynchronous else 2)


def test_vector_loads_into_shared_memory() -> None:
    func = matmul(16, 16, 8)
    sch = Schedule(func)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    k0, k1 = sch.split(k, [None, 4])
    bi, ti, ii = sch.split(i, [2, 2, 4])
    tj, jj = sch.split(j, [4, 4])
    sch.reorder(bi, k0, ti, tj, k1, ii, jj)
    sch.bind(bi, "blockIdx.x")
    loader = sch.cache_read(block, 1, "shared")
    sch.compute_at(loader, k0)
    _, y, x, lanes = sch.split(sch.fuse(*sch.get_loops(loader)[-2:]), [None, 4, 2, 4])
    for loop, tag in ((y, "threadIdx.y"), (x, "threadIdx.x"), (ti, "threadIdx.y")):
        sch.bind(loop, tag)
    sch.bind(tj, "threadIdx.x")
    sch.vectorize(lanes)
    sch.unroll(ii)
    text = kernel_text(agree(func, sch))
    assert "B_shared[T.Ramp(" in text


class _WithoutBarrier(Mutator):
    """Drops one barrier of a program."""

    def __init__(self, number: int) -> None:
        self.number = number

    def visit_Evaluate(self, node: Any) -> Any:
        if call_name(node) == "storage_sync":
            self.number -= 1
            if self.number == -1:
                return NO_OP
        return node


@pytest.mark.parametrize("number", [0, 1])
def test_every_barrier_is_needed(number: int) -> None:
    func = matmul(16, 16, 8)
    mod = lowered(tiled_matmul(func))
    mod = mod.with_function("main_kernel", _WithoutBarrier(number).visit(mod["main_kernel"]))
    with pytest.raises(RunError, match=r"race on element .* of shared_float32"):
        run(mod, *arrays(func), check_races=True)


def test_matmul_with_virtual_threads() -> None:
    func = matmul(16, 16, 8)
    sch = Schedule(func)
    block = sch.get_block("C")
    writer = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    bi, vi, ti, ii = sch.split(i, [None, 2, 2, 2])
    bj, vj, tj = sch.split(j, [None, 2, 4])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(bi, bj, k0, vi, vj, ti, tj, k1, ii)
    loader = sch.cache_read(block, 1, "shared")
    sch.compute_at(loader, k0)
    sch.reverse_compute_at(writer, bj)
    sch.bind(bi, "blockIdx.y")
    sch.bind(bj, "blockIdx.x")
    sch.bind(vi, "vthread.y")
    sch.bind(vj, "vthread.x")
    sch.bind(ti, "threadIdx.y")
    sch.bind(tj, "threadIdx.x")
    sch.bind(sch.split(sch.fuse(*sch.get_loops(loader)[-2:]), [None, 4])[1], "threadIdx.x")
    y, x = sch.get_loops(writer)[-2:]
    vy, ty, y = sch.split(y, [2, 2, 2])
    vx, tx = sch.split(x, [2, 4])
    sch.reorder(vy, vx, ty, tx, y)
    for loop, tag in (
        (vy, "vthread.y"),
        (vx, "vthread.x"),
        (ty, "threadIdx.y"),
        (tx, "threadIdx.x"),
    ):
        sch.bind(loop, tag)
    text = kernel_text(agree(func, sch))
    assert "vthread" not in text
    assert 'C_local = T.allocate((8,), "float32", scope="local")' in text


# ---- reductions -------------------------------------------------------------------------------


def row_sum(rows: int, columns: int, reducer: str = "{0} + {1}", start: str = "0") -> PrimFunc:
    update = reducer.format("B[vi]", "A[vi, vk]")
    made: PrimFunc = parse(
        f"""
@T.prim_func
def main(A: T.Buffer(({rows}, {columns}), "float32"), B: T.Buffer(({rows},), "float32")):
    for i, k in T.grid({rows}, {columns}):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32({start})
            B[vi] = {update}
"""
    )
    return made


@pytest.mark.parametrize(
    ("threads", "expected"),
    [
        (1, ()),
        (2, ("warp_shuffle_xor",)),
        (32, ("warp_shuffle_xor",)),
        (20, ("warp_shuffle_down", "warp_shuffle(")),
        (64, ("warp_shuffle_xor", "shared")),
        (96, ("warp_shuffle_xor", "shared")),
        (40, ("shared",)),
    ],
)
def test_sum_over_threads(threads: int, expected: tuple[str, ...]) -> None:
    func = row_sum(3, 100)
    sch = Schedule(func)
    i, k = sch.get_loops(sch.get_block("B"))
    sch.bind(i, "blockIdx.x")
    _, inner = sch.split(k, [None, threads])
    sch.bind(inner, "threadIdx.x")
    text = kernel_text(agree(func, sch))
    for part in expected:
        assert part in text
    assert ("storage_sync" in text) == ("shared" in expected)


@pytest.mark.parametrize("tags", [("threadIdx.y", "threadIdx.x"), ("threadIdx.x", "threadIdx.y")])
@pytest.mark.parametrize("threads", [4, 6])
def test_sums_of_several_groups_of_threads(tags: tuple[str, str], threads: int) -> None:
    func = row_sum(10, 24)
    sch = Schedule(func)
    i, k = sch.get_loops(sch.get_block("B"))
    block, row = sch.split(i, [None, 4])  # the last block has rows that don't exist
    sch.bind(block, "blockIdx.x")
    sch.bind(row, tags[0])
    inner, outer = sch.split(k, [threads, None])
    sch.reorder(outer, inner)
    sch.bind(inner, tags[1])
    agree(func, sch)


@pytest.mark.parametrize(
    ("reducer", "start"), [("T.max({0}, {1})", '"-inf"'), ("{0} * {1}", "1"), ("{0} + {1}", "5")]
)
def test_other_reducers_and_other_starts(reducer: str, start: str) -> None:
    func = row_sum(2, 24, reducer, start)
    sch = Schedule(func)
    _, k = sch.get_loops(sch.get_block("B"))
    _, inner = sch.split(k, [None, 8])
    sch.bind(inner, "threadIdx.x")
    agree(func, sch)


def test_rfactor_before_the_threads_join() -> None:
    func = row_sum(4, 48)
    sch = Schedule(func)
    block = sch.get_block("B")
    _, k = sch.get_loops(block)
    _, inner = sch.split(k, [None, 8])
    partial = sch.rfactor(inner, 0)
    sch.set_scope(partial, 0, "local")
    row, thread = sch.get_loops(block)
    sch.bind(row, "blockIdx.x")
    sch.compute_at(partial, row)
    (own,) = (loop for loop in sch.get_loops(partial)[1:] if sch.get(loop).extent.value == 8)
    (rest,) = (loop for loop in sch.get_loops(partial)[1:] if sch.get(loop).extent.value == 6)
    sch.reorder(own, rest)
    sch.bind(own, "threadIdx.x")
    sch.bind(thread, "threadIdx.x")
    text = kernel_text(agree(func, sch))
    assert "shared" not in text and "warp_shuffle_xor" in text


def test_argmax_over_threads() -> None:
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((3, 64), "float32"), I: T.Buffer((3,), "int64"), V: T.Buffer((3,), "float32")):
    for i, k in T.grid(3, 64):
        with T.block("argmax"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                I[vi] = T.int64(9223372036854775807)
                V[vi] = T.float32("-inf")
            x: T.int64 = T.Select(V[vi] > A[vi, vk] or V[vi] == A[vi, vk] and I[vi] < vk, I[vi], vk)
            y: T.float32 = T.Select(V[vi] > A[vi, vk], V[vi], A[vi, vk])
            I[vi] = x
            V[vi] = y
"""
    )
    sch = Schedule(func)
    i, k = sch.get_loops(sch.get_block("argmax"))
    sch.bind(i, "blockIdx.x")
    _, inner = sch.split(k, [None, 16])
    sch.bind(inner, "threadIdx.x")
    mod = lowered(sch)
    a = RNG.integers(0, 5, (3, 64)).astype("float32")  # many ties
    index, value = np.zeros(3, "int64"), np.zeros(3, "float32")
    run(mod, a, index, value, check_races=True)
    np.testing.assert_array_equal(index, a.argmax(1))
    np.testing.assert_array_equal(value, a.max(1))


SOFTMAX = """
@T.prim_func
def main(A: T.Buffer((4, 40), "float32"), S: T.Buffer((4, 40), "float32")):
    M = T.alloc_buffer((4,), "float32")
    E = T.alloc_buffer((4, 40), "float32")
    D = T.alloc_buffer((4,), "float32")
    for i, k in T.grid(4, 40):
        with T.block("M"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                M[vi] = T.float32("-inf")
            M[vi] = T.max(M[vi], A[vi, vk])
    for i, j in T.grid(4, 40):
        with T.block("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = T.exp(A[vi, vj] - M[vi])
    for i, k in T.grid(4, 40):
        with T.block("D"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                D[vi] = T.float32(0)
            D[vi] = D[vi] + E[vi, vk]
    for i, j in T.grid(4, 40):
        with T.block("S"):
            vi, vj = T.axis.remap("SS", [i, j])
            S[vi, vj] = E[vi, vj] / D[vi]
"""


@pytest.mark.parametrize(
    "scopes", [("shared", "shared"), ("local", "shared"), ("local", "local"), ("global", "global")]
)
@pytest.mark.parametrize("threads", [8, 16])
def test_softmax_of_rows(scopes: tuple[str, str], threads: int) -> None:
    func = parse(SOFTMAX)
    sch = Schedule(func)
    blocks = {name: sch.get_block(name) for name in "MEDS"}
    row, _ = sch.get_loops(blocks["S"])
    for name in "DEM":
        sch.compute_at(blocks[name], row)
    sch.set_scope(blocks["M"], 0, scopes[0])
    sch.set_scope(blocks["D"], 0, scopes[0])
    sch.set_scope(blocks["E"], 0, scopes[1])
    sch.bind(row, "blockIdx.x")
    for block in blocks.values():
        _, inner = sch.split(sch.get_loops(block)[-1], [None, threads])
        sch.bind(inner, "threadIdx.x")
    text = kernel_text(agree(func, sch))
    if scopes == ("local", "local"):
        assert "shared" not in text


# ---- other ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [16, 13])
def test_transposition_through_shared_memory(size: int) -> None:
    func = parse(
        f"""
@T.prim_func
def main(A: T.Buffer(({size}, {size}), "float32"), B: T.Buffer(({size}, {size}), "float32")):
    for i, j in T.grid({size}, {size}):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vj, vi]
"""
    )
    sch = Schedule(func)
    block = sch.get_block("B")
    i, j = sch.get_loops(block)
    bi, ti = sch.split(i, [None, 8])
    bj, tj = sch.split(j, [None, 8])
    sch.reorder(bi, bj, ti, tj)
    tile = sch.cache_read(block, 0, "shared")
    sch.compute_at(tile, bj)
    sch.bind(bi, "blockIdx.y")
    sch.bind(bj, "blockIdx.x")
    for owner in (tile, block):
        y, x = sch.get_loops(owner)[-2:]
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
    assert kernel_text(agree(func, sch)).count("storage_sync") == 1


def test_symbolic_sizes() -> None:
    func = parse(
        """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m))
    B = T.match_buffer(b, (n,))
    for i, k in T.grid(n, m):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
"""
    )
    sch = Schedule(func)
    i, k = sch.get_loops(sch.get_block("B"))
    sch.bind(i, "blockIdx.x")
    _, inner = sch.split(k, [None, 40])
    sch.bind(inner, "threadIdx.x")
    for n, m in ((1, 1), (3, 39), (2, 90)):
        mod = agree(func, sch, n=n, m=m)
    assert launch_extents(mod["main_kernel"])["blockIdx.x"] is mod["main_kernel"].params[2]


def test_each_nest_is_a_kernel() -> None:
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
    B = T.alloc_buffer((32,), "float32")
    for i in range(32):
        with T.block("B"):
            vi = T.axis.spatial(32, i)
            B[vi] = A[vi] + T.float32(1)
    for i in range(32):
        with T.block("C"):
            vi = T.axis.spatial(32, i)
            C[vi] = B[31 - vi] * T.float32(2)
"""
    )
    sch = Schedule(func)
    for name in "BC":
        b, t = sch.split(sch.get_loops(sch.get_block(name))[0], [None, 8])
        sch.bind(b, "blockIdx.x")
        sch.bind(t, "threadIdx.x")
    mod = agree(func, sch)
    assert set(mod.functions) == {"main", "main_kernel", "main_kernel_1"}
    assert "for " not in mod["main"].script()


def test_a_program_without_threads_stays_on_the_host() -> None:
    func = matmul(4, 4, 4)
    mod = agree(func, Schedule(func))
    assert list(mod.functions) == ["main"]
    assert not any(isinstance(item, For) and item.thread for item in [mod["main"].body])


def test_divisors_that_are_symbolic_sizes() -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 4), "float32")
    Z = T.match_buffer(z, (n, 4), "float32")
    B = T.alloc_buffer((n, 4), "float32")
    for i in T.thread_binding(n, thread="blockIdx.x"):
        for j in T.thread_binding(4, thread="threadIdx.x"):
            with T.block("B"):
                vi = T.axis.spatial(n, (i + 1) % n)
                vj = T.axis.spatial(4, j)
                B[vi, vj] = A[vi, vj] + T.float32(1.0)
        for j in T.thread_binding(4, thread="threadIdx.x"):
            with T.block("Z"):
                vi = T.axis.spatial(n, (i + 1) % n)
                vj = T.axis.spatial(4, 3 - j)
                Z[vi, vj] = B[vi, vj] * T.float32(2.0)
""")
    agree(func, Schedule(func), n=3)
