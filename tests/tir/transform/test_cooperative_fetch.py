"""The usual GPU schedule, in the order in which it is usually written.

Blocks, virtual threads and threads are bound first; then tiles of the operands are fetched into
shared memory under a loop inside of them, and the loops of each copy are bound to the same threads
once more. Before and after each step the program means the same as it stands; the lowered kernel,
where each thread fetches a part, agrees with the unscheduled program, without races.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from gpu_cases import agree, arrays, kernel_text

from tests.everyday import few
from tilewright import te
from tilewright.ir import as_int, pre_order
from tilewright.tir import Allocate, PrimFunc, Schedule
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Trace

BLOCKS_AND_THREADS = ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")


@dataclass(frozen=True)
class Tiles:
    """How the last two spatial axes and the reduction are tiled, and who fetches."""

    y: tuple[int, int, int] = (2, 2, 2)  # virtual threads, threads, elements of each
    x: tuple[int, int, int] = (2, 4, 2)
    k: int = 4
    vector: int = 2
    fetch: tuple[int, int] = (2, 4)  # threads that fetch
    unroll: int = 0


def matmul(n: Any, m: int, k: int, batch: int | None = None) -> PrimFunc:
    """``C = A @ B``, perhaps a batch of them."""
    lead = () if batch is None else (batch,)
    a = te.placeholder((*lead, n, k), name="A")
    b = te.placeholder((*lead, k, m), name="B")
    r = te.reduce_axis((0, k), "k")

    def product(*at: Any) -> Any:
        *z, i, j = at
        return te.sum(a[(*z, i, r)] * b[(*z, r, j)], axis=r)

    return te.create_prim_func([a, b, te.compute((*lead, n, m), product, name="C")])


def conv2d(channels: int, size: int, filters: int) -> PrimFunc:
    """A 3x3 convolution whose padded input is a block ``P``."""
    a = te.placeholder((1, channels, size, size), name="A")
    w = te.placeholder((filters, channels, 3, 3), name="W")

    def padded(n: Any, c: Any, y: Any, x: Any) -> Any:
        inside = te.all(y >= 1, y <= size, x >= 1, x <= size)
        return te.if_then_else(inside, a[n, c, y - 1, x - 1], te.const(0, "float32"))

    p = te.compute((1, channels, size + 2, size + 2), padded, name="P")
    rc, ry, rx = (te.reduce_axis((0, n), "r") for n in (channels, 3, 3))
    c = te.compute(
        (1, filters, size, size),
        lambda n, f, y, x: te.sum(p[n, rc, y + ry, x + rx] * w[f, rc, ry, rx], axis=[rc, ry, rx]),
        name="C",
    )
    return te.create_prim_func([a, w, c])


class Usual:
    """The schedule of block ``C`` with loops: others, y, x, then the reduction's, k first."""

    def __init__(self, func: PrimFunc, spatial: int, tiles: Tiles) -> None:
        self.sch = sch = Schedule(func)
        self.tiles = tiles
        self.block = block = sch.get_block("C")
        loops = sch.get_loops(block)
        others, (y, x), (k, *window) = (
            loops[: spatial - 2],
            loops[spatial - 2 : spatial],
            loops[spatial:],
        )
        by, vy, ty, iy = sch.split(y, [None, *tiles.y])
        bx, vx, tx, ix = sch.split(x, [None, *tiles.x])
        self.k0, k1 = sch.split(k, [None, tiles.k])
        sch.reorder(*others, by, bx, vy, vx, ty, tx, self.k0, k1, *window, iy, ix)
        if others:
            sch.bind(sch.fuse(*others), "blockIdx.z")
        self.threads = [by, bx, vy, vx, ty, tx]
        tags = "blockIdx.y blockIdx.x vthread.y vthread.x threadIdx.y threadIdx.x".split()
        for loop, tag in zip(self.threads, tags):
            sch.bind(loop, tag)
        sch.reverse_compute_at(sch.cache_write(block, 0, "local"), tx)

    def fetch(self, number: int) -> Any:
        """Bring an operand's tile in under ``k0``."""
        copy = self.sch.cache_read(self.block, number, "shared")
        return self.bring(copy)

    def bring(self, copy: Any) -> Any:
        sch, tiles = self.sch, self.tiles
        sch.compute_at(copy, self.k0, preserve_unit_loops=True)
        above = {sch.get(loop).loop_var for loop in sch.get_loops(self.block)}
        own = [loop for loop in sch.get_loops(copy) if sch.get(loop).loop_var not in above]
        fused = sch.fuse(*own)
        _, y, x, lanes = sch.split(fused, [None, *tiles.fetch, tiles.vector])
        sch.vectorize(lanes)
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        return copy

    def finish(self) -> Schedule:
        sch = self.sch
        sch.decompose_reduction(self.block, self.k0)
        if self.tiles.unroll:
            sch.annotate(self.threads[0], "pragma_auto_unroll_max_step", self.tiles.unroll)
            sch.annotate(self.threads[0], "pragma_unroll_explicit", 1)
        return sch


def usual(func: PrimFunc, spatial: int, tiles: Tiles | None = None) -> Schedule:
    made = Usual(func, spatial, tiles or Tiles())
    for number in (0, 1):
        made.fetch(number)
    return made.finish()


def shared_elements(mod: Any) -> int:
    """How many float32 elements of shared memory a block of the kernel has."""
    (arena,) = (
        item.buffer
        for item in pre_order(mod["main_kernel"])
        if type(item) is Allocate and item.buffer.scope == "shared"
    )
    return (as_int(arena.shape[0]) or 0) // 4


# ---- programs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("unroll", [0, 64])
def test_matmul(unroll: int) -> None:
    func = matmul(16, 32, 8)
    mod = agree(func, usual(func, 2, Tiles(unroll=unroll)))
    text = kernel_text(mod)
    assert text.count("storage_sync") == 2
    assert shared_elements(mod) == 8 * 4 + 4 * 16  # a tile per iteration of k0
    assert 'C_local = T.allocate((16,), "float32", scope="local")' in text
    fetches = [line for line in text.split("\n") if "= A[" in line or "= B[" in line]
    assert fetches and all("T.Ramp" in line for line in fetches)


@pytest.mark.parametrize("sizes", [(13, 27, 9), (5, 3, 2), (17, 16, 12)])
def test_tiles_that_divide_nothing(sizes: tuple[int, int, int]) -> None:
    func = matmul(*sizes)
    agree(func, usual(func, 2))
    agree(func, usual(func, 2, Tiles(k=3, vector=1)))


@pytest.mark.parametrize("size", [8, 11])
def test_batched_matmul(size: int) -> None:
    func = matmul(size, size, size, batch=3)
    agree(func, usual(func, 3))


@pytest.mark.parametrize("size", [8, 7])
@pytest.mark.parametrize("padding", ["inlined", "fetched"])
def test_convolution(size: int, padding: str) -> None:
    func = conv2d(4, size, 3)
    tiles = Tiles((1, 2, 2), (1, 4, 1), 2, 1)
    made = Usual(func, 4, tiles)
    if padding == "inlined":
        made.fetch(0)
        made.sch.compute_inline(made.sch.get_block("P"))
    else:
        made.sch.set_scope("P", 0, "shared")
        made.bring(made.sch.get_block("P"))
    made.fetch(1)
    mod = agree(func, made.finish())
    assert shared_elements(mod) <= 2 * 6 * 6 + 2 * 9 + 32  # each aligned to 64 bytes


@pytest.mark.parametrize("n", [1, 7, 24])
def test_symbolic_rows(n: int) -> None:
    func = matmul(te.var("n"), 12, 10)
    agree(func, usual(func, 2, Tiles(k=3)), n=n)


def test_each_step_keeps_the_meaning() -> None:
    func = matmul(9, 14, 6)
    first = arrays(func)
    second = [item.copy() for item in first]
    run(func, *first)
    sch = usual(func, 2)
    for count in range(1, len(sch.trace) + 1):
        step = Schedule(func)
        Trace(list(sch.trace)[:count]).apply_to_schedule(step)
        made = [item.copy() for item in second]
        run(step.mod, *made)
        np.testing.assert_allclose(made[-1], first[-1], rtol=2e-5, atol=2e-4)


# ---- other stages -----------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("sizes", [(16, 16, 16), (13, 27, 18)])
def test_pipelined_fetch(asynchronous: bool, sizes: tuple[int, int, int]) -> None:
    func = matmul(*sizes)
    made = Usual(func, 2, Tiles())
    for number in (0, 1):
        made.fetch(number)
    sch = made.finish()
    sch.annotate(made.k0, "software_pipeline_stage", [0, 0, 1])
    sch.annotate(made.k0, "software_pipeline_order", [0, 1, 2])
    if asynchronous:
        sch.annotate(made.k0, "software_pipeline_async_stages", [0])
    mod = agree(func, sch)
    assert shared_elements(mod) == 2 * (8 * 4 + 4 * 16)
    assert ("async" in kernel_text(mod)) == asynchronous


@few("sizes", [(16, 16, 16), (13, 27, 18)], every=2)
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("permuted", [False, True])
def test_double_buffers_and_permuted_tiles(
    sizes: tuple[int, int, int], double: bool, permuted: bool
) -> None:
    func = matmul(*sizes)
    made = Usual(func, 2, Tiles(k=8))
    for number in (0, 1):
        copy = made.fetch(number)
        if double:
            made.sch.annotate(copy, "double_buffer_scope", 0)
        if permuted:
            made.sch.annotate(copy, "permuted_layout", 1)
    mod = agree(func, made.finish())
    assert shared_elements(mod) == (2 if double else 1) * (8 * 8 + 8 * 16)
    assert ("bitwise_xor" in kernel_text(mod)) == permuted


def test_fetch_in_two_steps() -> None:
    """Global memory to shared by all threads, then a column of it to registers by each."""
    func = matmul(16, 32, 8)
    made = Usual(func, 2, Tiles())
    for number in (0, 1):
        made.fetch(number)
    sch = made.sch
    k1 = sch.get_loops(made.block)[7]
    for number in (0, 1):
        sch.compute_at(sch.cache_read(made.block, number, "local"), k1)
    mod = agree(func, made.finish())
    text = kernel_text(mod)
    assert 'A_shared_local = T.allocate((4,), "float32", scope="local")' in text
    assert text.count("storage_sync") == 2


def test_result_through_shared_memory() -> None:
    """Threads write their results to shared memory, and share out the writing of whole rows."""
    func = matmul(16, 32, 8)
    sch = Schedule(func)
    block = sch.get_block("C")
    writer = sch.cache_write(block, 0, "shared")
    own = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    by, ty, iy = sch.split(i, [None, 4, 2])
    bx, tx, ix = sch.split(j, [None, 4, 4])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(by, bx, ty, tx, k0, k1, iy, ix)
    for loop, tag in zip((by, bx, ty, tx), BLOCKS_AND_THREADS):
        sch.bind(loop, tag)
    sch.reverse_compute_at(own, tx)
    sch.reverse_compute_at(writer, bx)
    _, y, x, lanes = sch.split(sch.fuse(*sch.get_loops(writer)[-2:]), [None, 4, 4, 4])
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    sch.vectorize(lanes)
    for number in (0, 1):
        copy = sch.cache_read(block, number, "shared")
        sch.compute_at(copy, k0)
        fused = sch.fuse(*sch.get_loops(copy)[5:])
        _, y, x = sch.split(fused, [None, 4, 4])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
    sch.decompose_reduction(block, k0)
    agree(func, sch)


def test_without_binding_the_copy_each_thread_fetches_all() -> None:
    func = matmul(16, 32, 8)
    for tag in (None, "threadIdx.x", "threadIdx.y"):
        made = Usual(func, 2, Tiles())
        for number in (0, 1):
            copy = made.sch.cache_read(made.block, number, "shared")
            made.sch.compute_at(copy, made.k0)
            if tag is not None:
                inner = made.sch.split(made.sch.get_loops(copy)[-1], [None, 2])[1]
                made.sch.bind(inner, tag)
        agree(func, made.finish())


@pytest.mark.parametrize("sizes", [(16, 32, 8), (13, 27, 9)])
def test_automatic_copies_of_what_all_threads_need(sizes: tuple[int, int, int]) -> None:
    func = matmul(*sizes)
    made = Usual(func, 2, Tiles())
    for number, shape in ((0, [8, 4]), (1, [4, 16])):
        copy = made.sch.get(made.sch.read_at(made.k0, made.block, number, "shared"))
        assert [as_int(item.extent) for item in copy.writes[0].region] == shape
    mod = agree(func, made.finish())
    assert shared_elements(mod) == 8 * 4 + 4 * 16


# ---- at random --------------------------------------------------------------------------------


@few("seed", range(24), every=4)
def test_random_tiles(seed: int) -> None:
    draw = random.Random(seed)
    threads = draw.choice([1, 2, 3]), draw.choice([2, 3, 4])
    tiles = Tiles(
        (draw.choice([1, 2]), threads[0], draw.choice([1, 2, 3])),
        (draw.choice([1, 2]), threads[1], draw.choice([1, 2])),
        draw.choice([1, 2, 3, 5]),
        draw.choice([1, 2, 4]),
        (draw.randint(1, threads[0]), draw.randint(1, threads[1])),
        draw.choice([0, 16]),
    )
    n, m, k = (draw.randint(1, 17) for _ in range(3))
    batch = draw.choice([None, None, 2])
    symbolic = batch is None and draw.random() < 0.3
    func = matmul(te.var("n") if symbolic else n, m, k, batch)
    agree(func, usual(func, 2 if batch is None else 3, tiles), **({"n": n} if symbolic else {}))
