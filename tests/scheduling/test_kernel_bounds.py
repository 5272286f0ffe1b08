"""Bounds of GPU kernels: what accesses cost, and which roof is the lowest."""

from __future__ import annotations

import pytest

from tilewright import dlight, te, topi
from tilewright.driver import lower
from tilewright.ir import IRModule, PassContext
from tilewright.scheduling.gpu.kernel_bounds import KernelBound, kernel_bounds
from tilewright.script import parse
from tilewright.support.errors import LowerError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

H200 = Target("nvidia/nvidia-h200")


def bound(text: str, **sizes: int) -> KernelBound:
    """Lower a program with one kernel, and return the kernel's bounds."""
    (made,) = kernel_bounds(lower(parse(text), H200), H200, sizes)
    return made


def copy(index: str, *, dtype: str = "float32", size: int = 1 << 20) -> KernelBound:
    """A kernel of 8 blocks of 128 threads in which thread ``t`` reads element ``index``."""
    return bound(f"""
@T.prim_func
def main(A: T.Buffer(({size},), "{dtype}"), B: T.Buffer((1024,), "{dtype}")):
    for b in T.thread_binding(8, thread="blockIdx.x"):
        for t in T.thread_binding(128, thread="threadIdx.x"):
            with T.block("B"):
                i = T.axis.spatial(1024, b * 128 + t)
                B[i] = A[{index}]
""")


@pytest.mark.parametrize(
    ("index", "dtype", "sectors"),
    [
        ("i", "float32", 4),  # 32 neighbours of 4 bytes
        ("i", "float16", 2),
        ("i + 1", "float32", 5),  # one more sector, as the first is cut
        ("i * 2", "float32", 8),
        ("i * 8", "float32", 32),  # a sector for each thread
        ("i * 512", "float32", 32),
        ("i // 32", "float32", 1),  # all the same element
    ],
)
def test_sectors_of_global_memory(index: str, dtype: str, sectors: int) -> None:
    read = copy(index, dtype=dtype).accesses[0]
    assert (read.scope, read.is_write, read.transactions) == ("global", False, sectors)
    assert read.warps == 8 * 4


def test_memory_counts_each_byte_once() -> None:
    again = copy("i // 32")
    assert again.memory == pytest.approx((32 * 32 + 1024 * 4) / 4800e9)
    assert copy("i").memory == pytest.approx(2 * 1024 * 4 / 4800e9)
    assert copy("i").limiter in ("l2", "shared", "memory", "issue")


def transpose(padding: int) -> KernelBound:
    """A kernel that writes rows of a tile of shared memory and reads its columns."""
    source = te.placeholder((32, 32), name="A")
    func = te.create_prim_func([source, te.compute((32, 32), lambda i, j: source[j, i], name="B")])
    sch = Schedule(func)
    block = sch.get_block("B")
    outer = sch.add_unit_loop(sch.get_loops(block)[0])
    sch.bind(outer, "blockIdx.x")
    tile = sch.cache_read(block, 0, "shared")
    sch.compute_at(tile, outer)
    sch.storage_align(tile, 0, 0, 32, padding)
    for item in (tile, block):
        for loop, tag in zip(sch.get_loops(item)[-2:], ("threadIdx.y", "threadIdx.x")):
            sch.bind(loop, tag)
    (made,) = kernel_bounds(lower(sch.mod, H200), H200)
    return made


def test_bank_conflicts_of_columns_go_with_a_padded_row() -> None:
    conflicts, padded = transpose(0), transpose(1)
    assert conflicts.worst(shared=True) == 32
    assert padded.worst(shared=True) == 1
    assert conflicts.shared > 8 * padded.shared
    assert padded.shared_bytes >= 32 * 33 * 4 - 4
    assert padded.worst(shared=False) == 1


def test_vectors_and_products() -> None:
    made = bound("""
@T.prim_func
def main(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float32")):
    for b in T.thread_binding(8, thread="blockIdx.x"):
        for t in T.thread_binding(128, thread="threadIdx.x"):
            for v in T.vectorized(4):
                with T.block("B"):
                    i = T.axis.spatial(4096, b * 512 + t * 4 + v)
                    B[i] = A[i] * T.float32(2) + T.float32(1)
""")
    read, write = made.accesses
    assert read.lane_bytes == write.lane_bytes == 16
    assert read.transactions == read.ideal == 16
    assert made.flops == 2 * 4096
    assert made.occupancy == 1.0
    assert made.waves == pytest.approx(8 / (132 * 16))


def test_threads_beyond_the_end_do_nothing() -> None:
    made = bound(
        """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,))
    B = T.match_buffer(b, (n,))
    for bx in T.thread_binding((n + 127) // 128, thread="blockIdx.x"):
        for t in T.thread_binding(128, thread="threadIdx.x"):
            with T.block("B"):
                i = T.axis.spatial(n, bx * 128 + t)
                T.where(bx * 128 + t < n)
                B[i] = T.exp(A[i])
""",
        n=40,
    )
    assert made.blocks == 1
    assert 0 < made.flops < 128
    assert all(item.transactions <= 4 for item in made.accesses)


def test_an_empty_grid_takes_no_time() -> None:
    text = """
@T.prim_func
def main(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,))
    for bx in T.thread_binding(n, thread="blockIdx.x"):
        with T.block("A"):
            i = T.axis.spatial(n, bx)
            A[i] = T.float32(1)
"""
    assert bound(text, n=0).seconds == 0
    with pytest.raises(LowerError, match=r"blockIdx\.x is n: give `sizes`"):
        bound(text)


def test_unrolled_loops_load_what_they_share_once() -> None:
    """A thread sums 4 by 4 products of shared memory: 8 loads for 16 multiply-adds."""
    a, b = te.placeholder((128, 32), name="A"), te.placeholder((32, 128), name="B")
    k = te.reduce_axis((0, 32), "k")
    total = te.compute((128, 128), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    sch = Schedule(te.create_prim_func([a, b, total]))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 4])
    k0, k1 = sch.split(k, [None, 32])
    sch.reorder(i0, j0, k0, k1, i1, j1)
    sch.bind(i0, "blockIdx.x")
    sch.bind(j0, "threadIdx.x")
    sch.reverse_compute_at(sch.cache_write(block, 0, "local"), j0)
    sch.decompose_reduction(block, k0)
    (made,) = kernel_bounds(lower(sch.mod, H200), H200)
    for buffer in ("A", "B"):
        loads = [item for item in made.accesses if item.buffer == buffer]
        assert sum(item.warps for item in loads) == 32 * 32 * 4
    assert made.flops == 2 * 128 * 128 * 32


@pytest.mark.parametrize("n", [2048, 320])
def test_copies_ahead_are_counted(n: int) -> None:
    """Tensor maps and copies by threads bring the same bytes, each tile all of its operands.

    Blocks of a cluster fetch once what they have in common, and results leave from registers.
    """
    a, b = (te.placeholder((n, n), "float16", name) for name in "ab")
    func = te.create_prim_func([a, b, topi.matmul(a, b, False, True, "float32")])
    found = []
    for maps in (False, True):
        with H200, PassContext(config={"dlight.tensor_maps": maps}):
            mod = lower(dlight.default_schedule(H200)(IRModule({"main": func})), H200)
        assert ("cp_async_bulk_tensor(" in mod.script()) is maps
        found += kernel_bounds(mod, H200)
    threads, boxes = found
    assert threads.blocks == boxes.blocks == (128 if n == 2048 else 25)
    assert 0.8 < boxes.shared / threads.shared < 0.98
    assert threads.memory == pytest.approx(boxes.memory, rel=1e-3)
    # Of tiles of 128 x 256 two blocks share the operand of the columns.
    saved = 2 / 3 if n == 2048 else 1
    assert threads.l2 * saved == pytest.approx(boxes.l2, rel=4e-2)
    assert threads.memory == pytest.approx((2 * 2 + 4) * n * n / 4800e9)
    rows, columns = (128, 256) if n == 2048 else (64, 64)
    for one, share in zip(found, (1, saved)):
        moved = sum(x.warps * x.transactions * 32 for x in one.accesses if x.buffer in ("a", "b"))
        assert moved == pytest.approx(threads.blocks * (rows + columns) * n * 2 * share, rel=2e-3)
    assert threads.worst(shared=True) == threads.worst(shared=False) == 1


def test_what_brings_zeros_reads_nothing() -> None:
    """Half of the threads copy, and the others fill with zeros."""
    made = bound("""
@T.prim_func
def main(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32")):
    with T.block("root"):
        T.reads()
        T.writes()
        for b in T.thread_binding(8, thread="blockIdx.x"):
            S = T.allocate((128,), "float32", scope="shared")
            for t in T.thread_binding(32, thread="threadIdx.x"):
                T.evaluate(T.ptx_cp_async(
                    T.address_of(S[T.Ramp(t * 4, 1, 4)]),
                    T.address_of(A[T.Ramp(b * 128 + t * 4, 1, 4)]),
                    16, T.if_then_else(t < 16, 16, 0)))
                B[b * 128 + t] = S[t]
""")
    read, written = made.accesses[:2]
    assert (read.buffer, read.warps, read.transactions) == ("A", 8, 8)
    assert (written.is_write, written.lane_bytes, written.transactions) == (True, 16, 4)


def test_index_arithmetic_is_not_counted() -> None:
    """It is the same for many accesses, and done once; what is computed of data is counted."""
    plain, guarded, data = (
        bound(f"""
@T.prim_func
def main(A: T.Buffer((1024,), "int32"), B: T.Buffer((1024,), "int32")):
    for b in T.thread_binding(8, thread="blockIdx.x"):
        for t in T.thread_binding(128, thread="threadIdx.x"):
            with T.block("B"):
                i = T.axis.spatial(1024, b * 128 + t)
                B[i] = T.if_then_else({condition}, A[i], T.int32(0))
""")
        for condition in ("i < 1023", "i * 7 % 31 // 3 < 9", "A[i] * 7 % 31 // 3 < 9")
    )
    assert plain.issue == guarded.issue < data.issue
