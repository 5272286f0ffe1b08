"""Padding taken apart and added: what becomes of loops, and that meaning stays."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_cases import (
    check,
    compiled_agrees,
    loop_extents,
    matmul,
    matmul_relu,
    predicate_of,
    refuses,
)

from tilewright import te
from tilewright.ir import TRUE
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule


def padded(
    sizes: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...], value: float = 0.0
) -> PrimFunc:
    """A padded copy ``B`` of ``A``, and an elementwise consumer ``C``."""
    a = te.placeholder(sizes, name="A")
    shape = tuple(n + x + y for n, x, y in zip(sizes, low, high))

    def element(*where: object) -> object:
        inside = [
            condition
            for i, n, x, y in zip(where, sizes, low, high)
            for condition in ([i >= x] if x else []) + ([i < n + x] if y else [])
        ]
        here = a[tuple(i - x for i, x in zip(where, low))]
        return te.if_then_else(te.all(*inside), here, value) if inside else here

    b = te.compute(shape, element, name="B")
    c = te.compute(shape, lambda *i: b[i] * 2.0 + 1.0, name="C")
    return te.create_prim_func([a, c])


def test_loops_of_the_copy_shrink() -> None:
    func = padded((9, 5), (1, 2), (2, 0))
    sch = Schedule(func)
    block = sch.get_block("B")
    filled = sch.decompose_padding(block, sch.get_loops(block)[0])
    assert loop_extents(sch, "B") == [9, 5]
    assert loop_extents(sch, filled) == [12, 7]
    assert predicate_of(sch, "B") is TRUE
    check(sch, func)
    compiled_agrees(sch, func)


def test_the_filling_goes_ahead_of_the_given_loop() -> None:
    func = padded((9, 5), (1, 2), (2, 0))
    sch = Schedule(func)
    block = sch.get_block("B")
    filled = sch.decompose_padding(block, sch.get_loops(block)[1])
    # The outer loop runs over all rows for both, so rows outside are left out by a predicate.
    assert loop_extents(sch, filled) == [12, 7]
    assert loop_extents(sch, "B") == [12, 5]
    assert predicate_of(sch, "B") is not TRUE
    check(sch, func)
    compiled_agrees(sch, func)


def test_split_loops_keep_their_extents() -> None:
    func = padded((9, 5), (1, 2), (2, 0))
    sch = Schedule(func)
    block = sch.get_block("B")
    sch.split(sch.get_loops(block)[0], [None, 5])
    sch.decompose_padding(block, sch.get_loops(block)[0])
    assert loop_extents(sch, block) == [3, 5, 5]
    check(sch, func)
    compiled_agrees(sch, func)


def test_padding_can_be_moved_first() -> None:
    func = padded((9, 5), (1, 2), (2, 0), value=-1.0)
    for depth in (0, 1):
        sch = Schedule(func)
        block, consumer = sch.get_block("B"), sch.get_block("C")
        sch.compute_at(block, sch.get_loops(consumer)[0])
        assert sch.can_decompose_padding(block, sch.get_loops(block)[depth])
        sch.decompose_padding(block, sch.get_loops(block)[depth])
        check(sch, func)
        compiled_agrees(sch, func)


def test_what_is_no_padding() -> None:
    sch = Schedule(matmul_relu())
    block = sch.get_block("D")
    loop = sch.get_loops(block)[0]
    assert not sch.can_decompose_padding(block, loop)
    refuses(sch, lambda: sch.decompose_padding(block, loop), "no padding")
    func = padded((4,), (1,), (1,))
    sch = Schedule(func)
    other = sch.get_loops("C")[0]
    refuses(sch, lambda: sch.decompose_padding(sch.get_block("B"), other), "not around the block")


@pytest.mark.parametrize("seed", range(40))
def test_random_padding_is_decomposed_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 4))
    sizes, low, high = (
        tuple(int(n) for n in rng.integers(first, last, ndim))
        for first, last in ((1, 7), (0, 3), (0, 3))
    )
    if not any(low) and not any(high):
        high = (1, *high[1:])
    func = padded(sizes, low, high, float(rng.integers(-2, 3)))
    sch = Schedule(func)
    block = sch.get_block("B")
    if rng.integers(2):
        loop = sch.get_loops(block)[int(rng.integers(ndim))]
        sch.split(loop, [None, int(rng.integers(2, 4))])
    if rng.integers(2):
        consumer = sch.get_block("C")
        sch.compute_at(block, sch.get_loops(consumer)[int(rng.integers(ndim))])
    loops = sch.get_loops(block)
    # Moved padding may have come out as one loop-free block.
    if not loops:
        return
    loop = loops[int(rng.integers(len(loops)))]
    if not sch.can_decompose_padding(block, loop):
        with pytest.raises(ScheduleError):
            sch.decompose_padding(block, loop)
        return
    sch.decompose_padding(block, loop)
    check(sch, func)
    if seed % 8 == 0:
        compiled_agrees(sch, func)


def test_operands_and_result_are_padded() -> None:
    func = matmul(12, 8, 10)
    sch = Schedule(func)
    block = sch.get_block("C")
    loops = sch.get_loops(block)
    sch.pad_einsum(block, [8, 8, 16])
    assert loop_extents(sch, "C") == [16, 8, 16]
    assert sch.get_loops(block)[0].var is loops[0].var
    assert loop_extents(sch, "A_pad") == [16, 16]
    assert loop_extents(sch, "B_pad") == [16, 8]
    assert loop_extents(sch, "C_pad") == [12, 8]
    check(sch, func)
    compiled_agrees(sch, func)


def test_what_fits_stays() -> None:
    sch = Schedule(matmul(12, 8, 10))
    before = sch.mod
    sch.pad_einsum(sch.get_block("C"), [4, 8, 5])
    assert sch.mod is before


def test_padded_matmul_is_tiled_without_predicates() -> None:
    func = matmul_relu(13, 7, 10)
    sch = Schedule(func)
    block = sch.get_block("C")
    sch.pad_einsum(block, [4, 4, 4])
    i, j, k = sch.get_loops(block)
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(loop, [None, 4]) for loop in (i, j, k))
    sch.reorder(i0, j0, k0, i1, j1, k1)
    assert predicate_of(sch, "C") is TRUE
    sch.decompose_reduction(block, k0)
    sch.compute_inline(sch.get_block("A_pad"))
    check(sch, func)
    compiled_agrees(sch, func)


@pytest.mark.parametrize("seed", range(20))
def test_random_einsums_are_padded_exactly(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    n, m, k = (int(size) for size in rng.integers(1, 9, 3))
    dtype = ["float32", "int32"][int(rng.integers(2))]
    order = [int(axis) for axis in rng.permutation(2)]
    a = te.placeholder([(n, k), (k, n)][order[0]], dtype, name="A")
    b = te.placeholder([(k, m), (m, k)][order[1]], dtype, name="B")
    r = te.reduce_axis((0, k), "r")
    c = te.compute(
        (n, m),
        lambda i, j: te.sum(
            (a[i, r] if order[0] == 0 else a[r, i]) * (b[r, j] if order[1] == 0 else b[j, r]),
            axis=r,
        ),
        name="C",
    )
    func = te.create_prim_func([a, b, c])
    sch = Schedule(func)
    padding = [int(number) for number in rng.integers(1, 7, 3)]
    sch.pad_einsum(sch.get_block("C"), padding)
    rounded = [-(-size // number) * number for size, number in zip((n, m, k), padding)]
    assert loop_extents(sch, "C") == rounded
    check(sch, func)


def test_an_axis_beyond_an_operand_that_is_never_read() -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, Z: T.Buffer((3,), "int32")):
    n = T.int64()
    A = T.match_buffer(a, (3, n, 6), "int32")
    for i, k, l in T.grid(3, 1, n):
        with T.block("Z"):
            vi, vk, vl = T.axis.remap("SRR", [i, k, l])
            with T.init():
                Z[vi] = 0
            Z[vi] = Z[vi] + A[vi, vk, vl]
""")
    sch = Schedule(func)
    sch.pad_einsum("Z", [1, 4, 1])
    for n in (0, 3):
        a = np.arange(18 * n, dtype="int32").reshape(3, n, 6)
        z = np.full(3, 7, "int32")
        run(sch.mod["main"], a, z)
        np.testing.assert_array_equal(z, a[:, :1, :n].sum((1, 2)))
